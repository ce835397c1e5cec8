//! Operators: what `stentor leader`, `stentor group` and `stentor stop` ask a running member, and what it answers.
//!
//! - [`Control`] is a socket beside the member's own, for programs of the same user on the same host; [`ask`] is their side.
//! - [`Question`] and [`Answer`] are what goes over it. From other hosts only [`REMOTE_SHOW`] is answered.
//! - [`Operator`] answers between two rounds of the member's loop.
//! - [`Place`] is where a member on a network is found by programs of its host.

mod answering;
mod control;
mod elects;
mod moves;
mod place;
mod question;
mod settling;
#[cfg(test)]
mod tests;

pub use answering::{ObserverLine, Operator};
pub use control::{Asked, Asks, Control, ask, ask_within, listener};
pub use elects::Elects;
pub use place::Place;
pub use question::{Answer, Lag, Question, REMOTE_SHOW, Standing, Unsettled};
