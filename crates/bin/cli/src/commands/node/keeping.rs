//! Which election keeps the node's group led.

use std::time::Duration;

use stentor::runtime::{ClusterRuntime, ElectionDriver, FabricDiagnostics, Member, Presence};
use stentor_election::{HandOverError, Heartbeat, Life};
use stentor_fabric::ProcessId;
use stentor_support::Failure;

use crate::args;

#[cfg(feature = "zookeeper")]
use super::ensemble::Ensemble;

/// A keeper, by its election.
pub(super) enum Keeping {
    Heartbeat(Box<ElectionDriver<Heartbeat>>),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Box<Ensemble>),
}

/// Calls a method of the driver, whichever election it is of.
macro_rules! driver {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Keeping::Heartbeat(driver) => driver.$method($($argument),*),
            #[cfg(feature = "zookeeper")]
            Keeping::Zookeeper(ensemble) => ensemble.keeper.$method($($argument),*),
        }
    };
}

impl Keeping {
    pub(super) fn new(plan: &ClusterRuntime, me: ProcessId, args: &args::Node) -> Result<Self, Failure> {
        #[cfg(feature = "zookeeper")]
        if !args.zookeeper.is_empty() {
            return Ok(Keeping::Zookeeper(Box::new(Ensemble::new(plan, me, &args.zookeeper)?)));
        }
        let keeper = ElectionDriver::heartbeat(plan, me).map_err(|error| {
            let place = args.meeting.config.display();
            Failure::usage(error, place, "change timeout_min_ms and timeout_max_ms in [election]")
        })?;
        Ok(Keeping::Heartbeat(Box::new(keeper)))
    }

    /// After each of the member's steps. What there is to tell goes to `say`.
    pub(super) fn round<F: FabricDiagnostics>(
        &mut self,
        now: Duration,
        member: &mut Member<F>,
        say: impl FnOnce(&str),
    ) {
        match self {
            Keeping::Heartbeat(keeper) => {
                // It has no servers of which there is anything to tell.
                let _ = say;
                keeper.watch(|process| Presence::of(member.fabric(), process));
                keeper.round(now, member);
            }
            #[cfg(feature = "zookeeper")]
            Keeping::Zookeeper(ensemble) => ensemble.round(now, member, say),
        }
    }

    pub(super) fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError> {
        driver!(self.hand_over(to))
    }

    /// Prepares the end of this process; see [`ElectionDriver::leave`]. To whom it hands over goes to `say`.
    pub(super) fn leave<F: FabricDiagnostics>(
        &mut self,
        now: Duration,
        member: &Member<F>,
        say: impl FnOnce(ProcessId),
    ) -> bool {
        let before = self.heir();
        let may_end = driver!(self.leave(now, member));
        if let Some(heir) = self.heir().filter(|heir| Some(*heir) != before) {
            say(heir);
        }
        may_end
    }

    fn heir(&self) -> Option<ProcessId> {
        driver!(self.heir())
    }

    /// Returns whether another member was heard and would not lead. An election by servers does not say.
    pub(super) fn waits(&self, process: ProcessId) -> bool {
        match self {
            Keeping::Heartbeat(keeper) => {
                let election = keeper.election();
                election.life(process) == Some(Life::Alive) && !election.stands(process)
            }
            #[cfg(feature = "zookeeper")]
            Keeping::Zookeeper(_) => false,
        }
    }

    /// Whether another member would lead, as it said last. `None`: an election by servers does not say.
    pub(super) fn stands(&self, process: ProcessId) -> Option<bool> {
        match self {
            Keeping::Heartbeat(keeper) => Some(keeper.election().stands(process)),
            #[cfg(feature = "zookeeper")]
            Keeping::Zookeeper(_) => None,
        }
    }

    /// When a member's heart beat last; see [`ElectionDriver::heard`].
    pub(super) fn heard(&self, process: ProcessId) -> Option<Duration> {
        driver!(self.heard(process))
    }

    /// Whether this member does not stand because its clock is off.
    pub(super) fn stands_back(&self) -> bool {
        driver!(self.stands_back())
    }

    pub(super) fn is_named(&self) -> bool {
        driver!(self.is_named())
    }
}
