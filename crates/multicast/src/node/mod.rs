//! The state machines on a fabric: regions, rings, queue pairs, batching, flow control.
//!
//! Every ordered pair of members has a control ring (timestamps, acknowledgements) with its credits in front; every
//! member has a stream ring per other member of its group and a body ring per client. One region per writer and
//! purpose. What several peers get alike (bodies, stream entries) is sealed once and written to each.

mod client;
mod counts;
mod effects;
mod inbound;
mod member;
mod open;
mod outbound;
mod outbox;
mod posting;

pub use client::{Client, SubmitError, Submitted};
pub use counts::{Counts, RemoteOp, Step};
pub use effects::Delivered;
pub use member::Member;

use stentor_fabric::{AccessError, ConnectError, Purpose, RegisterError, Service};
use thiserror::Error;

/// Credits and, between members, timestamps and acknowledgements.
pub(crate) const CONTROL: Purpose = Purpose(1);
/// The leader's stream.
pub(crate) const STREAM: Purpose = Purpose(2);
/// A client's messages.
pub(crate) const BODY: Purpose = Purpose(3);
/// Own memory that records too long for inline are posted from.
pub(crate) const STAGING: Purpose = Purpose(16);

/// The queue pair for everything but the stream.
pub(crate) const MAIN: Service = Service(1);
/// The queue pair for the stream: fencing a leader breaks this one only.
pub(crate) const STREAMING: Service = Service(2);

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
    /// This process has another role.
    #[error("{0} is not a {1}")]
    Role(stentor_fabric::ProcessId, &'static str),
}
