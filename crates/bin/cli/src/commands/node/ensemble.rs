//! Election of leaders by ZooKeeper.

use std::time::Duration;

use stentor::config::ElectionTimes;
use stentor::runtime::{ClusterRuntime, ElectionDriver, FabricDiagnostics, Member, StartError};
use stentor_election_zookeeper::{ZookeeperConfig, ZookeeperElection};
use stentor_fabric::ProcessId;
use stentor_multicast::ProcessRole;

/// Interval at which the state of the election is checked.
const LOOK: Duration = Duration::from_millis(100);

/// The election driver, and the last reported state of its servers.
pub(super) struct Ensemble {
    pub(super) keeper: ElectionDriver<ZookeeperElection>,
    next: Duration,
    error: Option<String>,
    connected: bool,
}

impl Ensemble {
    /// Starts the election. A cluster's znodes are below `/stentor/CLUSTER`. The requested session timeout is the
    /// longest election timeout.
    pub(super) fn new(plan: &ClusterRuntime, me: ProcessId, servers: &[String]) -> Result<Self, StartError> {
        let Some(ProcessRole::Member { group, .. }) = plan.topology().role(me) else {
            return Err(StartError::Role(plan.name(me).to_owned(), "member of a group"));
        };
        let members: Vec<ProcessId> = plan.topology().members(group).collect();
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        let name = plan.group_name(group);
        let root = format!("/stentor/{}", plan.config().cluster());
        let ElectionTimes { max, .. } = plan.config().election_times();
        let config =
            ZookeeperConfig { session_timeout: max, ..ZookeeperConfig::new(me, &members, &servers, &root, name) };
        let election =
            ZookeeperElection::start(config).map_err(|error| StartError::Servers { source: error.into() })?;
        let keeper = ElectionDriver::new(election, me, &members, ElectionTimes::INTERVAL, max);
        Ok(Ensemble { keeper, next: Duration::ZERO, error: None, connected: false })
    }

    pub(super) fn round<F: FabricDiagnostics>(
        &mut self,
        now: Duration,
        member: &mut Member<F>,
        say: impl FnOnce(&str),
    ) {
        self.keeper.round_by(now, member, ZookeeperElection::stand);
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        let status = self.keeper.election().status();
        if status.error.is_some() && status.error != self.error {
            say(&format!("ZooKeeper: {}", status.error.as_deref().unwrap_or_default()));
        } else if status.connected && !self.connected {
            say(&format!("ZooKeeper: in line, session {:#x}", status.session));
        }
        (self.error, self.connected) = (status.error, status.connected);
    }
}
