//! The operator interface: the questions of `stentor leader`, `stentor group` and `stentor stop` to a running member,
//! and its answers.
//!
//! - [`Control`] is a socket beside the member's own, for programs of the same user on the same host. [`ask`] is the
//!   client side.
//! - [`Question`] and [`Answer`] are the messages on it. Questions of other hosts are limited to [`REMOTE_SHOW`].
//! - [`Operator`] answers between two rounds of the member's loop.
//! - [`Place`] is where programs of the same host find a member on a network fabric.

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
pub use control::{Asked, Asks, Control, ask, ask_within, is_listened_to, listener};
pub use elects::{Elects, NodeElection};
pub use place::Place;
pub use question::{Answer, Lag, Question, REMOTE_SHOW, Standing, Unsettled};
