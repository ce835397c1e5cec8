//! The execution of the state machine: behind a bounded queue on a thread of its own, or on the protocol's thread.
//!
//! # Path of a command
//! The member delivers a command to the [`Queue`], which copies it into a [`Batch`]. At the end of a protocol round,
//! the batch is handed over. The [`worker`] lets its [`Applier`] apply the commands one by one, and returns the batch
//! with the replies. Batches are reused, so a command usually allocates nothing.
//!
//! A query outside the order takes the same path. It is answered after all commands of its batch.
//!
//! # Invariants
//! - One queue carries commands, freezes and states to restore. So each of them sees the value after everything that
//!   was delivered before it.
//! - In its rounds, the protocol's thread never waits for the apply thread. If the queue is full, it has no room
//!   ([`has_room`](stentor_multicast::Application::has_room)): the member delivers nothing, and continues all its other
//!   work.
//! - A machine that has panicked is *poisoned*: it is not called for commands, freezes or looks until it has restored a
//!   state.

mod applier;
mod batch;
mod chain;
mod commands;
mod depth;
mod handover;
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

/// Memory that each buffer of commands keeps for reuse, in bytes.
const KEPT: usize = 512 << 10;

/// The thread on which a node applies commands.
///
/// With a thread of its own, a slow command delays only other commands and queries: the member keeps answering its
/// peers, and is not suspected.
///
/// On the protocol's thread, a command needs no hand-over between two threads, so a machine with short commands is
/// faster there. The example `apply_threads` measures the difference: on two cores with three nodes, 8.6 instead of
/// 15.1 µs for one command at a time, and 1.03 instead of 0.98 million commands per second. In exchange, the member
/// answers neither peers nor clients while a method of the state machine runs. If a method takes longer than the
/// shortest timeout of the election, the other members may suspect a leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ApplyThread {
    /// A thread of its own, which is named `stentor NAME apply`.
    #[default]
    Own,
    /// The thread that runs the node.
    Protocol,
}

/// The bounds of the queue of commands. Beyond them the member delivers nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    /// Maximum number of commands. The limit is lower if commands take long.
    pub(super) commands: usize,
    /// Maximum size of the commands, in bytes. The last command may exceed it.
    pub(super) bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { commands: 1024, bytes: 4 << 20 }
    }
}
