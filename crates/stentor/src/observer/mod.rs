//! Observers: processes that follow the order of a group, and hold nobody up.
//!
//! [`Cluster::observe`](crate::Cluster::observe) begins an [`ObserverBuilder`], which connects an [`Observer`]. `docs/observers.md` says what
//! an observer is promised, and specifies what goes over the line.
//!
//! - `observing`, `attempt`, `follow`, `target`: the observer. It attempts one member after the other, and follows the one that serves it.
//! - `frame`, `record`, `place`, `line`: what both sides say, and how it travels. The member's side is `crate::node::observers`.

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
