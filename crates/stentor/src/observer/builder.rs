//! The builder of an observer.

use std::time::{Duration, Instant};

use super::error::{ObserveError, Problem};
use super::observing::{Observer, Plan};
use super::position::ObservedPosition;
use super::target::targets;
use crate::config::FabricKind;
use crate::{Cluster, Group};

/// How long members have to serve an observer if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// An observer that is being put together. [`Cluster::observe`] begins one.
#[derive(Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct ObserverBuilder {
    cluster: Cluster,
    group: Group,
    from: Option<ObservedPosition>,
    member: Option<String>,
    patience: Duration,
    states: bool,
    longest_state: u64,
}

impl ObserverBuilder {
    pub(crate) fn new(cluster: Cluster, group: Group) -> Self {
        let longest_state = u64::from(cluster.runtime().config().limits().snapshot_mib) << 20;
        let (from, member) = (None, None);
        ObserverBuilder { cluster, group, from, member, patience: PATIENCE, states: true, longest_state }
    }

    /// Goes on behind a position that an earlier observer [came to](Observer::position). Without one the first thing seen is a state; or, if
    /// states are refused, what is applied from now on.
    pub fn from(self, position: ObservedPosition) -> Self {
        ObserverBuilder { from: Some(position), ..self }
    }

    /// Names the member that serves the observer. Without it any member of the group does, and a follower rather than the leader.
    pub fn member(self, name: &str) -> Self {
        ObserverBuilder { member: Some(name.to_owned()), ..self }
    }

    /// Sets how long the members have to serve the observer, at its beginning and after a connection was lost: 10 s without it.
    pub fn patience(self, patience: Duration) -> Self {
        ObserverBuilder { patience, ..self }
    }

    /// Refuses states. Where the members do not keep what comes behind the position, the observer ends with an error that names the first
    /// index that is kept.
    pub fn without_states(self) -> Self {
        ObserverBuilder { states: false, ..self }
    }

    /// Sets how many bytes a state may have: without it as many as `snapshot_mib` in `[limits]` allows.
    pub fn longest_state(self, bytes: u64) -> Self {
        ObserverBuilder { longest_state: bytes, ..self }
    }

    /// Connects to a member, and waits until it serves the observer.
    ///
    /// # Errors
    /// Why no member does, with what each said and the remedy.
    pub fn connect(self) -> Result<Observer, ObserveError> {
        let runtime = self.cluster.runtime();
        let named = |problem: Problem| ObserveError { group: runtime.group_name(self.group.0).to_owned(), problem };
        if runtime.config().fabric() == FabricKind::Sim {
            return Err(named(Problem::Simulated));
        }
        if self.from.is_some_and(|from| from.group != self.group) {
            return Err(named(Problem::OtherGroup));
        }
        let targets = targets(&self.cluster, self.group, self.member.as_deref()).map_err(named)?;
        let plan = Plan {
            group: self.group,
            patience: self.patience,
            states: self.states,
            longest_state: self.longest_state,
            runtime: runtime.clone(),
        };
        let mut observer = Observer::new(plan, targets, self.from)?;
        let until = Instant::now() + self.patience;
        while !observer.turn()? {
            observer.sleep(until)?;
        }
        Ok(observer)
    }
}
