//! The state machines on a fabric: regions, rings, queue pairs, batching, flow control.
//!
//! Every ordered pair of members has a control ring (timestamps, acknowledgements) with its credits in front; every
//! member has a stream ring per other member of its group and a body ring per client. One region per writer and
//! purpose. What several peers get alike (bodies, stream entries) is sealed once and written to each.

mod app;
mod awaited;
mod client;
mod counts;
mod effects;
mod fan;
mod greeting;
mod inbound;
mod letters;
mod links;
mod member;
mod open;
mod outbound;
mod outbox;
mod posting;
mod pulse;
mod store;

pub use app::{Application, Delivered, Stateless, stateless};
pub use client::{Client, SubmitError, Submitted};
pub use counts::{Counts, RemoteOp, Step};
#[doc(hidden)]
pub use greeting::forged_hello;
pub use letters::Received;
pub use links::INBOX_BYTES;
pub use member::{CLIENT_TIMEOUT, Member, Pulse};

use stentor_fabric::seal::record_words;
use stentor_fabric::{AccessError, Capabilities, ConnectError, Purpose, RegisterError, Service};
use thiserror::Error;

use crate::{Limits, Topology};

/// Credits and, between members, timestamps and acknowledgements.
pub(crate) const CONTROL: Purpose = Purpose(1);
/// The leader's stream.
pub(crate) const STREAM: Purpose = Purpose(2);
/// A client's messages.
pub(crate) const BODY: Purpose = Purpose(3);
/// Own memory that records too long for inline are posted from.
pub(crate) const STAGING: Purpose = Purpose(16);
/// Words that the other members of the group read.
pub(crate) const PULSE: Purpose = Purpose(5);
/// Own memory where what is read of theirs lands.
pub(crate) const PULSES: Purpose = Purpose(6);
/// Own memory for greetings.
pub(crate) const INBOX: Purpose = Purpose(4);

/// The queue pair for everything but the stream.
pub(crate) const MAIN: Service = Service(1);
/// The queue pair for the stream: fencing a leader breaks this one only.
pub(crate) const STREAMING: Service = Service(2);

/// Bytes of a place of a client's window at a member, in the table of where messages lie.
pub(crate) const STORED_BYTES: u64 = store::Store::PLACE_BYTES;
/// Bytes that a client keeps for a message at one group, each time that it waits for something about it.
pub(crate) const AWAITED_BYTES: u64 = awaited::Awaited::MESSAGE_BYTES;

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
    #[error("{what} of {needs} bytes, the fabric takes {has}: lower `message_bytes`, or use another fabric")]
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
    let rings = [limits.body_ring(topology), limits.control_ring(topology)];
    let longest = rings.iter().map(|ring| record(ring.max_payload())).max().unwrap_or(0);
    let credit = inbound::CREDIT_BYTES as u64;
    let checks =
        [("writes", longest, fabric.max_message_bytes), ("inline credits", credit, u64::from(fabric.inline_bytes))];
    match checks.into_iter().find(|(_, needs, has)| needs > has) {
        Some((what, needs, has)) => Err(NodeError::Fabric { what, needs, has }),
        None => Ok(()),
    }
}
