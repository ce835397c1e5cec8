//! Exactly-once sessions above atomic multicast.
#![forbid(unsafe_code)]

mod body;
mod bytes;
mod envelope;
mod ids;
mod limits;
mod mutant;
mod record;
mod reply;
mod table;

pub use body::{Body, BodyError};
pub use envelope::{Envelope, EnvelopeError, Kind};
pub use ids::{Pair, Position, SessionId, pairs_tag};
pub use limits::SessionLimits;
#[doc(hidden)]
pub use mutant::Mutant;
pub use record::{Outcome, Reason, RecordError, ReplyRecord};
pub use reply::Reply;
pub use table::{At, Call, Delivered, PayloadError, Service, Sessions, SnapshotError, Verdict};
