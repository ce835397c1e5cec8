//! A member of a group with everything that it needs: the protocol, the election of the group's leader, the clock, the connections.
//!
//! # Calls
//! [`Cluster::node`](crate::Cluster::node) begins a builder. [`NodeBuilder::start`] gives a [`Node`] for the caller's thread, which
//! [`Node::run`] runs, or [`Node::turn`] in an event loop of the caller's. [`NodeBuilder::spawn`] gives it a thread of its own.
//!
//! # States
//! *Joining*: it has no state of its group; the group takes it in, or begins when all its members are there. *Follows*, *leads*. *Leaving*:
//! it was told to stop; it hands over if it leads, and stays until the others have read that it leaves. *Stopped*. *Poisoned*, beside any of
//! these: its state machine has panicked; it votes, and applies nothing. *Starts over*: from that, as if the process were started again.

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

/// A member of a group, on the thread that runs or turns it.
pub struct Node<S> {
    host: Box<dyn Host<S>>,
    stopper: Stopper,
    /// What [`as_fd`](AsFd::as_fd) returns where the fabric has no descriptor: one that is never readable.
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
    /// Runs the node on this thread until [`Stopper::stop`], or until there is a reason not to go on. A node that is stopped hands over if
    /// it leads. That takes up to half a second.
    ///
    /// # Errors
    /// Why it cannot go on, with the remedy.
    pub fn run(&mut self) -> Result<(), NodeError> {
        let stop = Arc::clone(&self.stopper.stop);
        self.host.run(&stop)
    }

    /// Does one round, and never sleeps: for an event loop of the caller's. Rounds do what `run` does.
    ///
    /// # Errors
    /// As [`run`](Node::run).
    pub fn turn(&mut self) -> Result<Turn, NodeError> {
        let stop = Arc::clone(&self.stopper.stop);
        self.host.turn(&stop)
    }

    /// Returns what stops the node, from any thread and from handlers of signals.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns how the node and its group stand.
    #[must_use]
    pub fn status(&self) -> Status {
        self.host.status()
    }

    /// Begins a client in this process that the node turns; see [`NodeHandle::client`]. It connects on another thread while the node is
    /// run or turned: on this one that would wait for itself, which is an error.
    pub fn client(&self) -> ClientBuilder {
        self.berth.builder()
    }

    /// Looks at the value between two commands, on the thread that applies them, and waits for that. The protocol is not turned meanwhile.
    ///
    /// # Errors
    /// If the state machine has panicked.
    ///
    /// # Panics
    /// If `look` does. The node goes on.
    pub fn inspect<T: Send + 'static>(&self, look: impl FnOnce(&S) -> T + Send + 'static) -> Result<T, NodeError> {
        let answer = looked(&self.looks, look);
        self.host.answer();
        answer.wait(&self.host.status().name, || false)
    }

    /// Asks another member to lead. [`status`](Node::status) says when it does.
    ///
    /// # Errors
    /// If this node does not lead, or the other one is no member of the group or cannot lead now.
    pub fn hand_over(&mut self, to: &str) -> Result<(), NodeError> {
        self.host.hand_over(to)
    }

    /// Returns the value after all commands that were delivered, which it waits for, but for no longer than 10 s.
    ///
    /// # Errors
    /// If that takes longer, or the state machine has panicked.
    pub fn into_machine(self) -> Result<S, NodeError> {
        self.host.into_machine()
    }
}

/// Readable when there may be something to do, after [`Turn::Idle`]. A node that starts over after a panic of its state machine has another
/// descriptor from then on, and so has one whose embedded clients come or go: ask for it before each sleep.
impl<S> AsFd for Node<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.descriptor().unwrap_or_else(|| self.never.as_fd())
    }
}

/// The next step of an event loop, after a round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "it says whether to turn again, to sleep or to end"]
pub enum Turn {
    /// Turn again before sleeping.
    Busy,
    /// Nothing to do: sleep until the node's descriptor is readable, and no longer than until this moment.
    Idle(Instant),
    /// The node was told to stop, and has left its group. Drop it.
    Stopped,
}

/// Stops a node. Cloning it is cheap.
#[derive(Clone, Debug, Default)]
pub struct Stopper {
    stop: Arc<Stop>,
    sleeper: Sleeper,
}

impl Stopper {
    /// Asks the node to stop. It does so within its next rounds; if it sleeps, it is woken, and so is an event loop that sleeps on its
    /// descriptor.
    pub fn stop(&self) {
        self.stop.stop();
        self.sleeper.wake();
    }
}
