//! The host's side of a set: what its one sender does to have each write copied to whom it is for.
//!
//! A [`Sender`] is pure: it is told what is to be written, and says what is to be posted to the queue pair that is connected to
//! the switch, in order. A write that fits the member list that the switch has is posted at once. One for other members, or at
//! other differences between their addresses, needs a LINK control packet first, and waits until that is acknowledged: data that
//! met the switch while it links would be refused and sent again.
//!
//! # Invariants
//! 1. What is posted is posted in the order in which it was written, with a LINK between two writes of different lists.
//! 2. At most one LINK is on its way, and nothing behind it. Everything before it is acknowledged when it is posted, or is about
//!    to be: what was posted last before it asks for no completion. (The switch refuses a LINK that comes too early, and the
//!    queue pair sends it again.)
//! 3. A LINK carries the PSN and the message number of the packet that it is; so both are counted here, by what is posted.
//! 4. Whoever waits has its data in a buffer that was made with the sender; what finds no room is refused.
mod held;
mod sender;

pub use sender::{Next, Sender, Session, Target, Written};
