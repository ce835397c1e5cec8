//! Observers: processes that follow the order of a group without delaying it.
//!
//! [`Cluster::observe`](crate::Cluster::observe) returns an [`ObserverBuilder`], which connects an [`Observer`].
//! `docs/observers.md` states the guarantees of an observer, and specifies the wire protocol.
//!
//! - `observing`, `attempt`, `follow`, `target`: the observer. It tries one member after the other, and follows the
//!   first that serves it.
//! - `frame`, `record`, `place`, `line`: the messages of both sides and their transport. The member's side is
//!   `crate::node::observers`.

mod attempt;
mod builder;
mod error;
pub(crate) mod fields;
mod follow;
pub(crate) mod frame;
pub(crate) mod line;
mod observed;
mod observing;
pub(crate) mod place;
mod position;
pub(crate) mod record;
mod target;

pub use builder::ObserverBuilder;
pub use error::{ObserveError, ObserveErrorKind};
pub use observed::{Observed, ObservedCommand, ObservedReset, ObservedState};
pub use observing::Observer;
pub use position::ObservedPosition;
