//! What a program hangs on a node beside its state machine.

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_multicast::{Delivered, Member};

use crate::operator::{Elects, Operator};
use crate::runtime::{ClusterRuntime, FabricDiagnostics, StartError};

/// Where a node says what happens: level and text, without the node's name. Any thread of the node may call it.
pub type Voice = Arc<dyn Fn(log::Level, &str) + Send + Sync>;

/// The parts of a node that a program can replace: the election, what is said, and what is recorded of deliveries and rounds. Calls come
/// from the thread that starts the node, and then from the one that turns it.
pub trait Hooks: Send + 'static {
    /// What keeps the node's group led.
    type Election: Elects;

    /// Makes the election, at the start of the node and when it starts over.
    ///
    /// # Errors
    /// Why the node does not start.
    fn election(&self, plan: &ClusterRuntime, me: ProcessId) -> Result<Self::Election, StartError>;

    /// Returns where the node `name` says what happens.
    fn voice(&self, name: &str) -> Voice;

    /// The member has started, and has done no step yet. Also when the node starts over.
    fn started<F: FabricDiagnostics>(&mut self, plan: &ClusterRuntime, member: &mut Member<F>) {
        let _ = (plan, member);
    }

    /// A message was delivered. Where the state machine runs on the thread of the protocol it has applied the message, and `command` is what
    /// it applied. `None`: nothing, because the message is a query, a copy or a session's own, or the machine has panicked; or the machine is on
    /// another thread.
    #[inline]
    fn delivered(&mut self, delivered: &Delivered<'_>, command: Option<&[u8]>) {
        let _ = (delivered, command);
    }

    /// The state is frozen for another member.
    fn freezes(&mut self) {}

    /// The state of the first `number` deliveries was taken over. 0: the group begins.
    fn restored(&mut self, number: u64) {
        let _ = number;
    }

    /// After the member's step, its election's round and the operators' questions. Returns whether the node goes on.
    fn round<F: FabricDiagnostics>(&mut self, round: Round<'_, F, Self::Election>) -> Wish;

    /// The node ends, by itself or because it was told to; not called for one that is dropped. `member` is there unless the node ends while it
    /// starts over.
    fn ended<F: FabricDiagnostics>(&mut self, member: Option<&mut Member<F>>) {
        let _ = member;
    }
}

/// A node, as it is after a round.
#[derive(Debug)]
pub struct Round<'a, F: FabricDiagnostics, E> {
    /// The time since the start, as of the last look at the clock.
    pub now: Duration,
    /// The configuration.
    pub plan: &'a ClusterRuntime,
    /// The node's process.
    pub me: ProcessId,
    /// The member.
    pub member: &'a mut Member<F>,
    /// What keeps its group led.
    pub election: &'a E,
    /// What answers operators.
    pub operator: &'a mut Operator,
    /// Whether the node was told to stop before this round.
    pub leaves: bool,
}

/// Whether a node goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wish {
    /// It goes on.
    GoOn,
    /// It is to stop, as by [`Stopper::stop`](super::Stopper::stop): it hands over, and says that it leaves.
    Leave,
    /// It is to end at once, as a process that dies.
    End,
}
