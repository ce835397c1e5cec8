//! The builder of an observer.

use std::time::{Duration, Instant};

use super::error::{ObserveError, Problem};
use super::observing::{Observer, Plan};
use super::position::ObservedPosition;
use super::target::targets;
use crate::config::FabricKind;
use crate::{Cluster, Group};

/// Default time in which a member must serve an observer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A builder of an observer. [`Cluster::observe`] creates one.
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

    /// Sets the [position](Observer::position) of an earlier observer, after which this one continues. By default, the
    /// first event is a state. If states are refused, the observer begins by default with the commands that are applied
    /// after it has connected.
    pub fn from(self, position: ObservedPosition) -> Self {
        ObserverBuilder { from: Some(position), ..self }
    }

    /// Sets the member that serves the observer. By default any member of the group serves it, preferably a follower.
    pub fn member(self, name: &str) -> Self {
        ObserverBuilder { member: Some(name.to_owned()), ..self }
    }

    /// Sets for how long the observer waits for a member that serves it, at its start and after a lost connection. The
    /// default is 10 s.
    pub fn patience(self, patience: Duration) -> Self {
        ObserverBuilder { patience, ..self }
    }

    /// Refuses states. If no member keeps the records after the observer's position, calls of the observer return an
    /// error that contains the first index that is kept.
    pub fn without_states(self) -> Self {
        ObserverBuilder { states: false, ..self }
    }

    /// Sets the maximum size of a state in bytes. The default is the size that `snapshot_mib` in `[limits]` permits.
    pub fn longest_state(self, bytes: u64) -> Self {
        ObserverBuilder { longest_state: bytes, ..self }
    }

    /// Connects to a member, and waits until it serves the observer.
    ///
    /// # Errors
    /// Returns why no member serves the observer, with the reason of each member and the remedy.
    pub fn connect(self) -> Result<Observer, ObserveError> {
        let runtime = self.cluster.runtime();
        let named =
            |problem: Problem| ObserveError { group: Some(runtime.group_name(self.group.0).to_owned()), problem };
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
