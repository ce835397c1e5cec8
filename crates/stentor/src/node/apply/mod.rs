//! Where the state machine runs: behind a bounded queue, on a thread of its own.
//!
//! # The way of a command
//! The member delivers a command to the [`Queue`], which copies it into a [`Batch`]. A round of the protocol ends with the hand-over of
//! the batch. The [`worker`] has its [`Applier`] apply the commands one after the other, and sends the batch back with the replies. A
//! batch is used again, so nothing is allocated for a command.
//!
//! A query that is read outside the order goes the same way: it is answered behind all commands of its batch.
//!
//! # Invariants
//! - One queue carries commands, freezes and states that are to be taken over, so each of them meets the value after everything that was
//!   delivered before it.
//! - The protocol's thread never waits for the apply thread. A queue that is full has no room
//!   ([`has_room`](stentor_multicast::Application::has_room)): the member delivers nothing, and everything else goes on.
//! - A machine that has panicked is *poisoned*: nothing applies, freezes or inspects it, until it has taken over a state.

mod applier;
mod batch;
mod chain;
mod commands;
mod depth;
mod looks;
mod progress;
mod queries;
mod queue;
mod queued_state;
mod work;
mod worker;

pub(super) use applier::Applier;
#[cfg(test)]
pub(super) use chain::Chain;
pub(super) use chain::{Mark, Marks};
pub(super) use commands::{Head, Record};
pub(super) use looks::Looks;
pub(super) use progress::Progress;
pub(super) use queries::QueryHead;
pub(super) use queue::Queue;

/// Bytes of memory that each buffer of commands keeps when it is used again.
const KEPT: usize = 512 << 10;

/// The thread on which a node applies commands.
///
/// On its own thread, a command that takes long delays commands only: the member answers others, and is not suspected. On the thread of
/// the protocol there is no hand-over between two threads, which a light machine gains from: the example `apply_threads` measures it
/// (on two cores with three nodes: 8.6 instead of 15.1 µs for a command at a time, 1.03 instead of 0.98 million commands a second). Its
/// price is that the member answers nobody while `apply`, `freeze` or `restore` runs: one that takes longer than the shortest
/// time-out of the election makes a leader suspected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ApplyThread {
    /// A thread of its own, with the name `stentor NAME apply`.
    #[default]
    Own,
    /// The thread that runs or turns the node.
    Protocol,
}

/// How much may wait to be applied before the member delivers no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    /// Commands. If they take long, fewer.
    pub(super) commands: usize,
    /// Bytes of commands. The last of them may exceed it.
    pub(super) bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { commands: 1024, bytes: 4 << 20 }
    }
}
