//! The state machines on a fabric: regions, rings, queue pairs, batching, flow control.
//!
//! [`Member`] drives a [`Replica`](crate::Replica) and [`Client`] drives a [`Sender`](crate::Sender). Both are built on
//! the links of `stentor_link`.
//!
//! - Every ordered pair of members has a control ring for timestamps, acknowledgements and peer messages. The first
//!   bytes of its region are the cells for the credits of the rings in the opposite direction.
//! - Every member has a stream ring for each other member of its group, and a body ring for each client.
//! - If the [limits](Limits::reply_bytes) provide for replies, each client has a reply ring per member, and each member
//!   has a query ring per client.
//!
//! A region has one writer and one purpose. A ring may lie at several peers: a client's body ring at the members of one
//! group, a leader's stream at its followers. A record of such a ring is sealed once, and each peer gets the same
//! bytes.

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

/// Bytes of one entry in the table that locates a client's messages at a member.
pub(crate) const STORED_BYTES: u64 = store::Store::PLACE_BYTES;
/// Bytes that a client keeps for a message at one group, for each of the two events that it can wait for: the delivery,
/// and that a majority holds the message.
pub(crate) const IN_FLIGHT_BYTES: u64 = in_flight::InFlight::MESSAGE_BYTES;

/// Bound on the number of transfer pieces in a member's memory: a window and one more.
pub(crate) const PIECES: u64 = transfer::WINDOW as u64 + 1;
/// Largest size of a transfer piece, in bytes. Only a piece that contains a single long delivery is larger.
pub(crate) const PIECE_BYTES: u64 = transfer::PIECE_BYTES as u64;

/// Depth of a send queue, in requests. A fabric's limit may be smaller, and a member's end of a client's fan-out set
/// sends nothing.
pub(crate) const SEND_DEPTH: u32 = 256;

/// The reason why a node could not start.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NodeError {
    /// A memory region could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Access to a region could not be granted.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A queue pair could not be created or connected.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The configured limits are inconsistent.
    #[error(transparent)]
    Limits(#[from] crate::LimitsError),
    /// A write that this node needs is longer than the fabric supports. The lengths follow from the limits, except that
    /// of a credit.
    #[error(
        "{what} of {needs} bytes, the fabric supports {has}: lower `message_bytes` (for replies `reply_bytes`), or use another fabric"
    )]
    Fabric {
        /// Kind of write that is too long.
        what: &'static str,
        /// Bytes that the node needs.
        needs: u64,
        /// Bytes that the fabric supports.
        has: u64,
    },
    /// The process has another role in the configuration, or none, or the fabric belongs to another process.
    #[error("{0} is not a {1}")]
    Role(stentor_fabric::ProcessId, &'static str),
}

/// Checks that the fabric supports the writes of a node with these limits.
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
