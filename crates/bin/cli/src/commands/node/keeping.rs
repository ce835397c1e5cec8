//! The election of the leader of the node's group: by heartbeats, or by ZooKeeper.

use std::time::Duration;

use stentor::operator::Elects;
use stentor::runtime::{Applied, ClusterRuntime, ElectionDriver, FabricDiagnostics, Member, StartError};
use stentor_election::{HandOverError, Heartbeat};
use stentor_fabric::ProcessId;

#[cfg(feature = "zookeeper")]
use super::ensemble::Ensemble;

/// The driver of an election.
pub(super) enum Keeping {
    Heartbeat(Box<ElectionDriver<Heartbeat>>),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Box<Ensemble>),
}

/// Calls a method of the driver of either election.
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
    /// Creates the driver. `zookeeper` has the servers of an ensemble; if it is empty, members elect by heartbeats.
    pub(super) fn new(plan: &ClusterRuntime, me: ProcessId, zookeeper: &[String]) -> Result<Self, StartError> {
        #[cfg(feature = "zookeeper")]
        if !zookeeper.is_empty() {
            return Ok(Keeping::Zookeeper(Box::new(Ensemble::new(plan, me, zookeeper)?)));
        }
        #[cfg(not(feature = "zookeeper"))]
        let _ = zookeeper;
        Ok(Keeping::Heartbeat(Box::new(ElectionDriver::heartbeat(plan, me)?)))
    }
}

impl Elects for Keeping {
    fn round<F: FabricDiagnostics>(&mut self, now: Duration, member: &mut Member<F>, say: impl FnOnce(&str)) {
        match self {
            Keeping::Heartbeat(keeper) => Elects::round(&mut **keeper, now, member, say),
            #[cfg(feature = "zookeeper")]
            Keeping::Zookeeper(ensemble) => ensemble.round(now, member, say),
        }
    }

    fn leave<F: FabricDiagnostics>(&mut self, now: Duration, member: &Member<F>) -> bool {
        driver!(self.leave(now, member))
    }

    fn heir(&self) -> Option<ProcessId> {
        driver!(self.heir())
    }

    fn set_applied(&mut self, applied: Applied) {
        driver!(self.set_applied(applied));
    }

    fn delivered(&self, process: ProcessId) -> u64 {
        driver!(self.delivered(process))
    }

    fn poisoned(&self, process: ProcessId) -> Option<u64> {
        driver!(self.poisoned(process))
    }

    fn stands(&self, process: ProcessId) -> Option<bool> {
        match self {
            Keeping::Heartbeat(keeper) => Elects::stands(&**keeper, process),
            #[cfg(feature = "zookeeper")]
            Keeping::Zookeeper(_) => None,
        }
    }

    fn stands_back(&self) -> bool {
        driver!(self.stands_back())
    }

    fn is_named(&self) -> bool {
        driver!(self.is_named())
    }

    fn heard(&self, process: ProcessId) -> Option<Duration> {
        driver!(self.heard(process))
    }

    fn waits(&self, process: ProcessId) -> bool {
        match self {
            Keeping::Heartbeat(keeper) => keeper.waits(process),
            #[cfg(feature = "zookeeper")]
            Keeping::Zookeeper(_) => false,
        }
    }

    fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError> {
        driver!(self.hand_over(to))
    }
}
