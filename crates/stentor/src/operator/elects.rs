//! The interface to the election of a member's group, for a node and for operators' questions.

use std::time::Duration;

use stentor_election::{Election, HandOverError, Heartbeat, Life};
use stentor_fabric::ProcessId;
use stentor_multicast::Member;

use crate::runtime::{Applied, ElectionDriver, FabricDiagnostics, Presence};

/// The election that keeps a member's group led.
pub trait Elects: Send + 'static {
    /// Takes part in the election, after each step of the member. Reports events to `say`.
    fn round<F: FabricDiagnostics>(&mut self, now: Duration, member: &mut Member<F>, say: impl FnOnce(&str));

    /// Prepares the end of the process, and returns whether it may end; see [`ElectionDriver::leave`].
    fn leave<F: FabricDiagnostics>(&mut self, now: Duration, member: &Member<F>) -> bool;

    /// Returns the member to which this process hands over before it ends.
    fn heir(&self) -> Option<ProcessId>;

    /// Sets the progress of this member's application; see [`ElectionDriver::set_applied`].
    fn set_applied(&mut self, applied: Applied);

    /// Returns the number of commands that another member had applied, or of messages that it had delivered, as it last
    /// published.
    fn delivered(&self, process: ProcessId) -> u64;

    /// Returns the index of the command at which another member's state machine is poisoned, as it last published.
    fn poisoned(&self, process: ProcessId) -> Option<u64>;

    /// Returns whether another member stands for election, as it last published. Returns `None` if servers run the
    /// election.
    fn stands(&self, process: ProcessId) -> Option<bool>;

    /// Returns whether this member does not stand for election because its clock is wrong, or because its state machine
    /// is poisoned.
    fn stands_back(&self) -> bool;

    /// Returns whether the election names this member as the leader.
    fn is_named(&self) -> bool;

    /// Returns the time of another member's last heartbeat; see [`ElectionDriver::heard`].
    fn heard(&self, process: ProcessId) -> Option<Duration>;

    /// Returns whether another member is alive and does not stand for election. Returns `false` if the election does
    /// not know.
    fn waits(&self, process: ProcessId) -> bool;

    /// Starts to hand leadership over to another member.
    ///
    /// # Errors
    /// Returns why that is impossible now.
    fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError>;
}

/// An election that an [`ElectionDriver`] runs in a node. An election of one's own needs no method of this trait: the
/// defaults are those of an election that reads no heartbeats of members.
pub trait NodeElection: Election + Send + Sized + 'static {
    /// Runs one round of the driver, after each step of the member.
    #[inline]
    fn round<F: FabricDiagnostics>(driver: &mut ElectionDriver<Self>, now: Duration, member: &mut Member<F>) {
        driver.round_by(now, member, Self::stand);
    }

    /// Receives the eligibility of this member whenever it changes. An ineligible member should not be named.
    fn stand(&self, stands: bool) {
        let _ = stands;
    }

    /// Returns whether another member stands for election, or `None` if the election does not know.
    fn stands(&self, process: ProcessId) -> Option<bool> {
        let _ = process;
        None
    }

    /// Returns whether another member is alive and does not stand for election. Returns `false` if the election does
    /// not know.
    fn waits(&self, process: ProcessId) -> bool {
        let _ = process;
        false
    }
}

impl NodeElection for Heartbeat {
    #[inline]
    fn round<F: FabricDiagnostics>(driver: &mut ElectionDriver<Self>, now: Duration, member: &mut Member<F>) {
        driver.watch(|process| Presence::of(member.fabric(), process));
        driver.round(now, member);
    }

    fn stands(&self, process: ProcessId) -> Option<bool> {
        Some(Heartbeat::stands(self, process))
    }

    fn waits(&self, process: ProcessId) -> bool {
        self.life(process) == Some(Life::Alive) && !Heartbeat::stands(self, process)
    }
}

impl<E: NodeElection> Elects for ElectionDriver<E> {
    #[inline]
    fn round<F: FabricDiagnostics>(&mut self, now: Duration, member: &mut Member<F>, _: impl FnOnce(&str)) {
        E::round(self, now, member);
    }

    fn leave<F: FabricDiagnostics>(&mut self, now: Duration, member: &Member<F>) -> bool {
        ElectionDriver::leave(self, now, member)
    }

    fn heir(&self) -> Option<ProcessId> {
        ElectionDriver::heir(self)
    }

    #[inline]
    fn set_applied(&mut self, applied: Applied) {
        ElectionDriver::set_applied(self, applied);
    }

    fn delivered(&self, process: ProcessId) -> u64 {
        ElectionDriver::delivered(self, process)
    }

    fn poisoned(&self, process: ProcessId) -> Option<u64> {
        ElectionDriver::poisoned(self, process)
    }

    fn stands(&self, process: ProcessId) -> Option<bool> {
        self.election().stands(process)
    }

    fn stands_back(&self) -> bool {
        ElectionDriver::stands_back(self)
    }

    fn is_named(&self) -> bool {
        ElectionDriver::is_named(self)
    }

    fn heard(&self, process: ProcessId) -> Option<Duration> {
        ElectionDriver::heard(self, process)
    }

    fn waits(&self, process: ProcessId) -> bool {
        self.election().waits(process)
    }

    fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError> {
        ElectionDriver::hand_over(self, to)
    }
}
