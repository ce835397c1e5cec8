//! The state machines on a fabric: regions, rings, queue pairs, batching, flow control.
//!
//! Every ordered pair of members has a control ring (timestamps, acknowledgements) with its credits in front; every
//! member has a stream ring per other member of its group and a body ring per client. If the [limits](Limits::reply_bytes)
//! have replies, a client has a ring per member for that member's replies, and a member has a ring per client for that client's
//! queries. A region has one writer and one purpose. What several peers get alike (bodies, stream entries) is sealed once and
//! written to each.

mod app;
mod client;
mod counts;
mod credit_report;
mod effects;
mod expelling;
mod fanout;
mod frozen;
mod heartbeats;
mod hello;
mod in_flight;
mod inbound;
mod member;
mod message_assembler;
mod open;
mod outbound;
mod outbox;
mod pace;
mod peer_link;
mod peer_links;
mod poll_gate;
mod records_in;
mod records_out;
mod sealed;
mod seals;
mod store;
mod streams;
mod target;
mod transfer;

pub use app::{Application, Delivered, RestoreError, Stateless, stateless};
pub use client::{Client, Reply, SubmitError, Submitted, Wants};
pub use counts::{Counts, RemoteOp, Step};
pub use frozen::{Frozen, Readiness};
#[doc(hidden)]
pub use hello::forged_hello;
pub use member::{CLIENT_TIMEOUT, ClockCounts, HeartbeatCell, Member, Query};
pub use message_assembler::Received;
pub use pace::EXPEL_AFTER;
pub use peer_links::INBOX_BYTES;
pub use records_out::RecordSent;
pub use transfer::{GivenUp, StateReader, TransferOutcome, TransferReport, TransferRole};

use stentor_fabric::seal::record_words;
use stentor_fabric::{AccessError, Capabilities, ConnectError, RegisterError};
use thiserror::Error;

use crate::{Limits, Topology};

/// Bytes of a place of a client's window at a member, in the table of where messages lie.
pub(crate) const STORED_BYTES: u64 = store::Store::PLACE_BYTES;
/// Bytes that a client keeps for a message at one group, each time that it waits for something about it.
pub(crate) const IN_FLIGHT_BYTES: u64 = in_flight::InFlight::MESSAGE_BYTES;

/// Pieces of a transfer that are kept at most: a window, and the one that is being made.
pub(crate) const PIECES: u64 = transfer::WINDOW as u64 + 1;
/// Bytes of a piece of a transfer, but for those with a single long delivery.
pub(crate) const PIECE_BYTES: u64 = transfer::PIECE_BYTES as u64;

/// Depth of every send queue.
pub(crate) const SEND_DEPTH: u32 = 256;

/// Why a node could not start.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NodeError {
    /// Memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Access.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Queue pairs.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Sizes.
    #[error(transparent)]
    Limits(#[from] crate::LimitsError),
    /// The fabric moves less at a time than these sizes need.
    #[error(
        "{what} of {needs} bytes, the fabric takes {has}: lower `message_bytes` (for replies `reply_bytes`), or use another fabric"
    )]
    Fabric {
        /// What is too long.
        what: &'static str,
        /// Its bytes.
        needs: u64,
        /// The fabric's limit, bytes.
        has: u64,
    },
    /// This process has another role.
    #[error("{0} is not a {1}")]
    Role(stentor_fabric::ProcessId, &'static str),
}

/// Whether the fabric can carry what these sizes ask of it.
fn check_fabric(fabric: &Capabilities, limits: &Limits, topology: &Topology) -> Result<(), NodeError> {
    let record = |payload: usize| record_words(payload) as u64 * 8;
    let longest = limits.body_ring(topology).max_payload().max(limits.control_ring(topology).max_payload());
    let replies = if limits.has_replies() { record(limits.reply_bytes) } else { 0 };
    let credit = inbound::CREDIT_BYTES as u64;
    let checks = [
        ("writes", record(longest), fabric.max_message_bytes),
        ("replies", replies, fabric.max_message_bytes),
        ("inline credits", credit, u64::from(fabric.inline_bytes)),
    ];
    match checks.into_iter().find(|(_, needs, has)| needs > has) {
        Some((what, needs, has)) => Err(NodeError::Fabric { what, needs, has }),
        None => Ok(()),
    }
}
