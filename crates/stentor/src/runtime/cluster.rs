//! Creates the members and clients of a configuration, and defines the errors of their start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stentor_election::HeartbeatError;
use stentor_fabric::{Fabric, OsError, ProcessId};
#[cfg(feature = "ofi")]
use stentor_fabric_ofi::StartError as OfiError;
#[cfg(feature = "roce")]
use stentor_fabric_roce::StartError as RoceError;
#[cfg(feature = "verbs")]
use stentor_fabric_verbs::StartError as VerbsError;
use stentor_host::{Source, StartError as SeatError};
use stentor_multicast::{
    Client, ClientId, GroupId, Limits, Member, NodeError, ProcessRole, ReplicaConfig, Topology, TopologyError, Variant,
};
use stentor_session::SessionLimits;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::address::AddressError;
use super::clock::incarnation;
use super::room::Shortage;
use super::twin::told_running;
use crate::config::{ClusterConfig, FabricKind, KeyError, MemberConfig, ProcessTable};

/// Number of ticks that a process without memory waits for processes that remember its group: 300 ms, also when the
/// member is idle. Running processes connect in a fraction of that time.
const FOUNDING_TICKS: u16 = 150;

/// The reason why a process did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration has no process with this name.
    #[error("there is no process `{0}` in the configuration")]
    UnknownProcess(String),
    /// The process has another role than the requested one.
    #[error("`{0}` is not a {1}")]
    Role(String, &'static str),
    /// The protocol does not support what the configuration allows.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The process needs more memory than is left. Its memory regions were not allocated.
    #[error(transparent)]
    Room(#[from] Shortage),
    /// An error of shared memory, or of the directory entry through which this host's commands reach the process.
    #[error(transparent)]
    Fabric(#[from] SeatError),
    /// An error of RoCEv2 in user space.
    #[cfg(feature = "roce")]
    #[error(transparent)]
    Roce(#[from] RoceError),
    /// An error of RDMA devices.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// An error of libfabric.
    #[cfg(feature = "ofi")]
    #[error(transparent)]
    Ofi(#[from] OfiError),
    /// The cluster key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The address of a process cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Regions or queue pairs cannot be created.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The settings of the election are invalid.
    #[error(transparent)]
    Election(#[from] HeartbeatError),
    /// An election by external servers cannot start.
    #[error("the servers of the election cannot be used: {source}")]
    Servers {
        /// The error of the servers.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The configuration names the simulated fabric, on which no real process runs.
    #[error("fabric `sim` has no operating system processes")]
    Simulated,
    /// The configuration names a fabric that this program was built without.
    #[error("this program was built without fabric `{0}`")]
    NotBuiltIn(FabricKind),
    /// The system refuses to start a thread.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// Error of the system.
        source: std::io::Error,
    },
    /// The state machine cannot write the value with which it was started.
    #[error("the initial value cannot be written: {source}")]
    State {
        /// Error of the state machine.
        source: std::io::Error,
    },
}

impl StartError {
    /// Returns the text of the error. `address` is the address of the process according to the configuration, if it is
    /// known.
    pub(crate) fn what(&self, address: Option<&str>) -> String {
        match self.twin(address) {
            Some((what, _)) => what,
            None => self.to_string(),
        }
    }

    /// Returns the text and the remedy if the error is that a process with this name already runs.
    fn twin(&self, address: Option<&str>) -> Option<(String, String)> {
        let StartError::Fabric(SeatError::AlreadyRunning { name, cluster, pid, about, .. }) = self else { return None };
        Some(told_running(name, cluster, *pid, about.as_deref(), address))
    }

    /// Returns the remedy for the error.
    #[must_use]
    pub fn remedy(&self) -> String {
        if let Some((_, remedy)) = self.twin(None) {
            return remedy;
        }
        const DOCTOR: &str = "`stentor doctor` says what this machine can do";
        let remedy = match self {
            StartError::UnknownProcess(_) | StartError::Role(..) => {
                "name a member of a group of the configuration; `Cluster::members` lists those of a group"
            }
            StartError::Topology(_) => "change the groups",
            StartError::Simulated => "use fabric `shm`, `roce`, `verbs` or `ofi`",
            StartError::NotBuiltIn(fabric) => {
                return format!("build it with the feature `{fabric}` of the crate `stentor`");
            }
            StartError::Servers { .. } => "name servers as HOST:PORT, and check [election] and the names",
            StartError::Election(_) => "change timeout_min_ms and timeout_max_ms in [election]",
            StartError::Thread { source } => OsError::remedy_in(source).unwrap_or(DOCTOR),
            StartError::State { .. } => "correct `Frozen::write`",
            StartError::Room(shortage) => return shortage.remedy(),
            StartError::Key(_) => {
                "write `key = \"file:PATH\"` or \"env:NAME\" into the configuration, and give the key 32 random bytes"
            }
            StartError::Address(_) => "correct the address in the configuration of all processes",
            StartError::Node(_) => "lower the limits; `Cluster::memory` returns the memory that they require",
            StartError::Fabric(error) => OsError::remedy_in(error).unwrap_or(DOCTOR),
            #[cfg(feature = "roce")]
            StartError::Roce(error) => OsError::remedy_in(error).unwrap_or(DOCTOR),
            #[cfg(feature = "verbs")]
            StartError::Verbs(error) => OsError::remedy_in(error).unwrap_or(DOCTOR),
            #[cfg(feature = "ofi")]
            StartError::Ofi(error) => OsError::remedy_in(error).unwrap_or(DOCTOR),
        };
        remedy.to_owned()
    }
}

/// A constructor of members.
type Make<F> = fn(F, ReplicaConfig, Limits, u64, u64) -> Result<Member<F>, NodeError>;

/// A configuration with the process table and the topology that follow from it.
#[derive(Clone, Debug)]
pub struct ClusterRuntime {
    config: ClusterConfig,
    table: ProcessTable,
    topology: Arc<Topology>,
    variant: Variant,
    file: Option<PathBuf>,
}

impl ClusterRuntime {
    /// Derives the processes of a configuration.
    ///
    /// # Errors
    /// Returns [`StartError::Topology`] if the protocol does not support the groups of the configuration.
    pub fn new(config: ClusterConfig) -> Result<Self, StartError> {
        let sizes: Vec<usize> = config.groups().iter().map(|group| group.members().len()).collect();
        let topology = Arc::new(Topology::new(&sizes, config.limits().clients)?);
        Ok(ClusterRuntime { table: config.process_table(), config, topology, variant: Variant::V2, file: None })
    }

    /// Sets another variant of the protocol.
    #[must_use]
    pub fn with_variant(self, variant: Variant) -> Self {
        ClusterRuntime { variant, ..self }
    }

    /// Sets the file that the configuration was read from. On one host, two processes with one name cannot start from
    /// one file, even if their sockets are in different directories.
    #[must_use]
    pub fn with_file(self, file: &Path) -> Self {
        ClusterRuntime { file: Some(file.to_owned()), ..self }
    }

    /// Returns the file that the configuration was read from, if it is known.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the source of this configuration, by which running processes are compared, if its file is known.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        let members = self.config.groups().iter().flat_map(|group| group.members());
        let addresses = members.map(|member| member.address().to_owned());
        let addresses = if self.config.fabric().is_between_hosts() { addresses.collect() } else { Vec::new() };
        Some(Source { cluster: self.config.cluster().to_owned(), file: self.file.clone()?, addresses })
    }

    /// Returns the source of the broadcast of this group, if the file is known.
    #[must_use]
    pub fn neb_source(&self, group: usize) -> Option<Source> {
        let source = self.source()?;
        let members = self.config.groups().get(group).map_or(&[][..], |group| group.members());
        let addresses = members.iter().map(|member| member.address().to_owned());
        let addresses = if self.config.fabric().is_between_hosts() { addresses.collect() } else { Vec::new() };
        Some(Source { cluster: format!("{}.neb", source.cluster), addresses, ..source })
    }

    /// Returns the name of the directory in which the cluster's processes on this host, and their operators, find each
    /// other. On fabrics between hosts, the name depends on the configuration and the addresses, so clusters with equal
    /// names and different addresses may run on one host.
    #[must_use]
    pub fn meeting_name(&self) -> String {
        let config = &self.config;
        if !config.fabric().is_between_hosts() {
            return config.cluster().to_owned();
        }
        let members = config.groups().iter().flat_map(|group| group.members());
        let addresses: Vec<_> = members.map(MemberConfig::address).collect();
        format!("{}-{:016x}", config.fabric(), xxh3_64_with_seed(addresses.join(" ").as_bytes(), config.fingerprint()))
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Returns the groups and client ids.
    #[must_use]
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Returns the name of a process, or `?` if the process does not exist.
    #[must_use]
    pub fn name(&self, process: ProcessId) -> &str {
        self.table.entries().get(process.index()).map_or("?", |entry| entry.name.as_str())
    }

    /// Returns the name of a group, or `?` if the group does not exist.
    #[must_use]
    pub fn group_name(&self, group: GroupId) -> &str {
        self.config.groups().get(usize::from(group.0)).map_or("?", |group| group.id())
    }

    /// Returns the process with this name.
    ///
    /// # Errors
    /// Returns [`StartError::UnknownProcess`] if there is no such process.
    pub fn process(&self, name: &str) -> Result<ProcessId, StartError> {
        self.table.find(name).ok_or_else(|| StartError::UnknownProcess(name.to_owned()))
    }

    /// Returns the group with this name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<GroupId> {
        self.config.group_index(name).map(|index| GroupId(index as u16))
    }

    /// Returns the configured limits in the form that the protocol expects.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.config.limits().multicast()
    }

    /// Returns the bounds of each group's session table.
    #[must_use]
    pub fn session_limits(&self) -> SessionLimits {
        self.config.limits().sessions()
    }

    /// Creates the member `me` of a group on a fabric that has started. All members of the group start together.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn member_on<F: Fabric>(&self, fabric: F, me: ProcessId) -> Result<Member<F>, StartError> {
        self.make_on(fabric, me, Member::new)
    }

    /// Creates a member that may return after a restart. Its running group admits it. If all members are connected and
    /// no process remembers the group, the configured `total_loss` decides whether they found it.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn joining_on<F: Fabric>(&self, fabric: F, me: ProcessId) -> Result<Member<F>, StartError> {
        self.make_on(fabric, me, Member::joining)
    }

    /// Checks that a process is a member of a group.
    ///
    /// # Errors
    /// Returns [`StartError::Role`] if the process is not a member.
    pub fn check_member(&self, me: ProcessId) -> Result<(), StartError> {
        match self.topology.role(me) {
            Some(ProcessRole::Member { .. }) => Ok(()),
            _ => Err(StartError::Role(self.name(me).to_owned(), "member of a group")),
        }
    }

    fn make_on<F: Fabric>(&self, fabric: F, me: ProcessId, make: Make<F>) -> Result<Member<F>, StartError> {
        self.check_member(me)?;
        let replica = ReplicaConfig {
            variant: self.variant,
            total_loss: self.config.total_loss(),
            founding_ticks: FOUNDING_TICKS,
            time_entries: self.limits().has_replies(),
            ..ReplicaConfig::new(self.topology.clone(), me, self.config.limits().window)
        };
        let mut member = make(fabric, replica, self.limits(), self.config.salt(), incarnation())?;
        member.set_client_timeout(self.config.client_timeout());
        member.set_expel_after(self.config.limits().expel_after());
        member.set_clock_bound(self.config.clock_bound());
        member.set_rest_tick(self.config.election_times().rest_tick());
        Ok(member)
    }

    /// Creates a client on a fabric that has started with the client's process id.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn client_on<F: Fabric>(&self, fabric: F, client: ClientId) -> Result<Client<F>, StartError> {
        let (limits, salt) = (self.limits(), self.config.salt());
        let mut client = Client::new(fabric, self.topology.clone(), client, limits, salt, incarnation())?;
        client.set_expel_after(self.config.limits().expel_after());
        Ok(client)
    }
}
