//! A node: one member of a group, with its multicast protocol, leader election, clock, connections and state machine.
//!
//! # Use
//! [`Cluster::node`](crate::Cluster::node) returns a builder. [`NodeBuilder::start`] makes a [`Node`] for the caller's
//! thread: [`Node::run`] and [`Node::run_until`] run it to its end, and [`Node::turn`] runs it round by round in the
//! caller's event loop. [`NodeBuilder::spawn`] gives the node a thread of its own.
//!
//! # States
//! - *Joining*: the node has no state of its group. Either the group admits it, or the group begins when all its
//!   members are present.
//! - *Following* or *leading*: the node has the state of its group.
//! - *Leaving*: the node was asked to stop. It hands over if it leads, and stays until the other members have had
//!   enough time to read that it leaves.
//! - *Stopped*: the node has left its group.
//!
//! A node in any of these states can also be *poisoned*: its state machine has panicked or was outvoted. It still
//! votes, but applies nothing. A poisoned node *starts over* when its group can spare it: it behaves like a restarted
//! process without memory.

mod apply;
mod berth;
mod builder;
mod changes;
mod clients;
mod error;
mod handle;
#[cfg_attr(
    not(feature = "unstable-core"),
    allow(dead_code, unreachable_pub, reason = "the feature `unstable-core` publishes it")
)]
mod hooks;
mod hosted;
mod journal;
mod machine;
mod mailbox;
mod observers;
mod poison;
mod reports;
mod sleeper;
mod state_writer;
mod status;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::client::ClientBuilder;
use crate::runtime::Stop;
use crate::state_machine::StateMachine;
use apply::Looks;
use berth::Berth;
use handle::looked;
use hosted::Host;
use sleeper::Sleeper;

pub use apply::ApplyThread;
pub use builder::NodeBuilder;
pub use error::{NodeError, NodeErrorKind, StartError, StartErrorKind};
pub use handle::NodeHandle;
#[cfg(feature = "unstable-core")]
pub use hooks::{Hooks, Round, Voice, Wish};
pub use status::{MemberStatus, Status};

/// A member of a group, on the thread that runs it.
pub struct Node<S> {
    host: Box<dyn Host<S>>,
    stopper: Stopper,
    /// A descriptor that is never readable. [`as_fd`](AsFd::as_fd) returns it if the fabric has none.
    never: OwnedFd,
    looks: Looks<S>,
    berth: Berth<S>,
}

impl<S> std::fmt::Debug for Node<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("status", &self.host.status()).finish_non_exhaustive()
    }
}

impl<S: StateMachine> Node<S> {
    /// Runs the node on this thread until [`Stopper::stop`], or until an error ends it. A node that is asked to stop
    /// first hands over if it leads, which takes up to 0.5 s.
    ///
    /// # Errors
    /// Returns why the node cannot continue, with the remedy.
    pub fn run(&mut self) -> Result<(), NodeError> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        self.run_until(&NEVER)
    }

    /// Runs the node like [`run`](Node::run), and also stops it in order when `flag` is set, for example by a signal
    /// handler that the program has registered. The node looks at the flag between two rounds, so it notices the flag
    /// within 0.1 s, even if it sleeps. If the flag is set before the call, the node leaves its group at once.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`run`](Node::run).
    pub fn run_until(&mut self, flag: &AtomicBool) -> Result<(), NodeError> {
        let stop = Arc::clone(&self.stopper.stop);
        self.host.run(&stop, flag)
    }

    /// Runs one or two rounds without sleeping, for an event loop of the caller. The rounds do the same work as those
    /// of [`run`](Node::run).
    ///
    /// # Errors
    /// Returns an error in the same cases as [`run`](Node::run).
    pub fn turn(&mut self) -> Result<Turn, NodeError> {
        let stop = Arc::clone(&self.stopper.stop);
        self.host.turn(&stop)
    }

    /// Returns a handle that stops the node, from any thread and from signal handlers.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the status of the node and its group.
    #[must_use]
    pub fn status(&self) -> Status {
        self.host.status()
    }

    /// Returns a builder of a client in this process that the node serves; see [`NodeHandle::client`]. The client must
    /// connect on another thread while the node runs. On the node's thread it would deadlock, and returns an error
    /// instead.
    pub fn client(&self) -> ClientBuilder {
        self.berth.builder()
    }

    /// Calls `look` with the state machine between two commands, on the thread that applies them, and waits for the
    /// result. The protocol makes no progress meanwhile.
    ///
    /// # Errors
    /// Returns an error if the state machine is poisoned, or if its thread has ended.
    ///
    /// # Panics
    /// Panics if `look` panics. The node continues.
    pub fn inspect<T: Send + 'static>(&self, look: impl FnOnce(&S) -> T + Send + 'static) -> Result<T, NodeError> {
        let answer = looked(&self.looks, look);
        self.host.answer();
        answer.wait(&self.host.status().name, || false)
    }

    /// Asks another member to take over leadership. [`status`](Node::status) shows when that member leads.
    ///
    /// # Errors
    /// Returns an error if this node does not lead, or if `to` is not another member of the group, or if that member
    /// cannot lead now.
    pub fn hand_over(&mut self, to: &str) -> Result<(), NodeError> {
        self.host.hand_over(to)
    }

    /// Returns the state machine after it has applied all delivered commands. Waits for that for at most 10 s.
    ///
    /// # Errors
    /// Returns an error if that takes longer, or if the state machine is unusable.
    pub fn into_machine(self) -> Result<S, NodeError> {
        self.host.into_machine()
    }
}

/// The descriptor is readable when there may be work after [`Turn::Idle`]. The descriptor changes when the node starts
/// over after a panic of its state machine, and when embedded clients connect or end. Call `as_fd` again before each
/// sleep.
impl<S> AsFd for Node<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.descriptor().unwrap_or_else(|| self.never.as_fd())
    }
}

/// The next step of an event loop after a round of a [`Node`], a [`LocalClient`](crate::LocalClient) or another value
/// that the loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "it says whether to turn again, to sleep or to end"]
pub enum Turn {
    /// Run another round before sleeping.
    Busy,
    /// There is no work. Sleep until the descriptor is readable, but not beyond this moment.
    Idle(Instant),
    /// The node was asked to stop and has left its group. Drop the node.
    Stopped,
}

/// A handle that stops a node. Cloning it is cheap.
#[derive(Clone, Debug, Default)]
pub struct Stopper {
    stop: Arc<Stop>,
    sleeper: Sleeper,
}

impl Stopper {
    /// Asks the node to stop. The node leaves its group in its next rounds, and then stops. This call wakes a node that
    /// sleeps, and an event loop that sleeps on the node's descriptor.
    pub fn stop(&self) {
        self.stop.stop();
        self.sleeper.wake();
    }
}
