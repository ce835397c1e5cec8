//! Hooks by which a program replaces parts of a node or observes it.

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_multicast::{Delivered, Member};

use crate::operator::{Elects, Operator};
use crate::runtime::{ClusterRuntime, FabricDiagnostics, StartError};

/// A receiver of a node's messages. Its arguments are a level and a text without the node's name. Any thread of the
/// node may call it.
pub type Voice = Arc<dyn Fn(log::Level, &str) + Send + Sync>;

/// The parts of a node that a program can replace: its election, its messages, and the recording of deliveries and
/// rounds. The methods are called by the thread that starts the node, and later by the thread that runs it.
pub trait Hooks: Send + 'static {
    /// The election that keeps the node's group led.
    type Election: Elects;

    /// Creates the election, at the start of the node and when it starts over.
    ///
    /// # Errors
    /// Returns why the node does not start.
    fn election(&self, plan: &ClusterRuntime, me: ProcessId) -> Result<Self::Election, StartError>;

    /// Returns the receiver of the messages of the node `name`.
    fn voice(&self, name: &str) -> Voice;

    /// Called when the member has started and has run no step yet. Also called when the node starts over.
    fn started<F: FabricDiagnostics>(&mut self, plan: &ClusterRuntime, member: &mut Member<F>) {
        let _ = (plan, member);
    }

    /// Called after a delivery. If the state machine runs on the protocol's thread, it has applied the message, and
    /// `command` is the applied command. `command` is `None` if the machine has applied no command: the message is a
    /// query, a copy, a time or version entry, or a message of the session protocol (such as a renewal), or the machine
    /// is poisoned. It is also `None` if the machine runs on another thread.
    #[inline]
    fn delivered(&mut self, delivered: &Delivered<'_>, command: Option<&[u8]>) {
        let _ = (delivered, command);
    }

    /// Called when the state is frozen for another member.
    fn freezes(&mut self) {}

    /// Called when the state of the first `number` deliveries was restored or, if the machine runs on another thread,
    /// was passed to that thread. 0 means that the group begins.
    fn restored(&mut self, number: u64) {
        let _ = number;
    }

    /// Called after the member's step, the election's round and the operators' questions. Returns whether the node
    /// continues.
    fn round<F: FabricDiagnostics>(&mut self, round: Round<'_, F, Self::Election>) -> Wish;

    /// Called when the node ends, by itself or because it was asked to. Not called for a node that is dropped. `member`
    /// is `None` if the node ends while it starts over.
    fn ended<F: FabricDiagnostics>(&mut self, member: Option<&mut Member<F>>) {
        let _ = member;
    }
}

/// The state of a node after a round.
#[derive(Debug)]
pub struct Round<'a, F: FabricDiagnostics, E> {
    /// Time since the start, as of the last reading of the clock.
    pub now: Duration,
    /// The configuration.
    pub plan: &'a ClusterRuntime,
    /// The node's process.
    pub me: ProcessId,
    /// The member.
    pub member: &'a mut Member<F>,
    /// The election of the member's group.
    pub election: &'a E,
    /// The endpoint that answers operators.
    pub operator: &'a mut Operator,
    /// `true` if the node was asked to stop before this call.
    pub leaves: bool,
}

/// The decision of a hook whether the node continues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wish {
    /// The node continues.
    GoOn,
    /// The node stops, as by [`Stopper::stop`](super::Stopper::stop): it hands over and announces that it leaves.
    Leave,
    /// The node ends at once, like a process that dies.
    End,
}
