//! The configuration of a cluster, `cluster.toml`.
//!
//! ```toml
//! cluster = "example"            # part of every handshake and of every seal's salt
//! fabric  = "shm"                # shm | roce | verbs | ofi | sim
//! key     = "env:STENTOR_KEY"    # or file:PATH; for roce, verbs and ofi, whose processes show each other that they have it
//! client_timeout_ms = 2000       # a client that is away for so long is given up, if others wait for what it left out
//! total_loss = "begin"           # or "refuse": a group that nobody remembers begins only when an operator says so
//!
//! [election]
//! kind = "heartbeat"
//! timeout_min_ms = 1000          # a silence shorter than this is never suspicious
//! timeout_max_ms = 2000          # a longer one always is
//!
//! [limits]
//! message_bytes = 65536          # longest payload
//! window = 1024                  # messages one client may have in flight at a group
//! clients = 16                   # places for clients: c0, c1, …
//! ring_kib = 64                  # each control ring between two members
//! body_ring_kib = 1024           # the ring for one client's messages at one member
//! reply_bytes = 1024             # longest reply of a member to a client; 0: there are none
//! reply_ring_kib = 64            # the ring for one member's replies at one client
//! sessions = 256                 # sessions of clients that a group keeps at a time
//! snapshot_mib = 2048            # the largest state that one member gives another
//! backlog_mib = 256              # what is delivered meanwhile and kept for the other
//! slowed_percent = 25            # as that fills up, clients are slowed, at most to this share of their rate
//! expel_ms = 500                 # a member that takes nothing for so long holds nobody up any more; a tenth, if there is no room
//! observed_mib = 32              # what a member keeps for observers of what it applied lately; 0: it has none
//!
//! [[group]]
//! id = "g1"
//! process = [ { id = "g1.1", address = "127.0.0.1:7101" }, … ]
//!
//! [neb]                          # the broadcast of a group's processes, if there is to be one
//! group = "g1"                   # not needed if it is the only one
//! mode = "quorum"                # or "all"
//! fault_model = "lying-hosts"    # or "lying-sender"; of mode "quorum"
//! faults = 1                     # how many lie, or crash
//! window = 64                    # broadcasts of one sender that may be undelivered somewhere
//! payload_bytes = 1024           # longest payload
//! keys = { "g1.1" = "…", … }     # Ed25519 public keys of all processes, 64 hexadecimal digits; then values are signed
//!
//! [verbs]                        # for fabric = "verbs"; what is not set is chosen by the address of each process
//! device = "mlx5_0"              # `stentor doctor` lists devices, ports and GIDs
//! port = 1
//! gid_index = 3
//! numa_node = 0                  # whose devices are preferred where the address leaves a choice; that of the processors, if
//!                                # the process is kept on those of one node
//! mtu = 1024                     # payload of a packet; the port's, if it is not set
//! timeout = 15                   # 4.096 us times two to this: how long to wait for an acknowledgement
//! retry_cnt = 6                  # how often to send again without one
//! rnr_retry = 6                  # how often to send again to who has no receive posted; 7 is for ever
//! min_rnr_timer = 24             # how long such a sender shall wait (24 is 41 ms)
//! rd_atomic = 16                 # READs and atomics of a queue pair at a time
//! traffic_class = 0
//! service_level = 0
//! inline_bytes = 512             # inline data that is asked for
//!
//! [ofi]                          # for fabric = "ofi"
//! provider = "efa,tcp;ofi_rxm"   # as libfabric names them: tried in this order, and no others; `stentor doctor` lists them
//! device = "eth0"                # the provider's; the one with the process's address, if it is not set
//! rnr_timeout_ms = 250           # how long a SEND waits for the peer to post a receive
//! fence_timeout_ms = 250         # how long a peer may take to leave a revoked region alone
//! as_efa = "efa"                 # or "efa-direct": impose what EFA restricts on this provider; for tests, slow
//!
//! [switch]                       # for fabric = "roce" or "verbs": a switch that makes the copies of writes (`stentor switch`)
//! control = "127.0.1.1:7480"     # where its control plane listens; while it is not there each peer is written to by itself
//! lease_ms = 10000               # how long a sender may be silent and keep its set
//! ```
//!
//! Everything is checked when it is read: unknown keys, duplicate ids, empty groups, sizes beyond the [`limits`],
//! addresses that nobody can reach. Every [`ConfigError`] names the file, the line and the remedy. A [`ClusterConfig`]
//! that exists is valid.

mod address;
mod error;
mod file;
mod fingerprint;
mod key;
pub mod limits;
mod memory;
mod names;
mod neb;
mod number;
mod ofi;
mod processes;
mod switch;
mod template;
mod validate;
mod verbs;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_net::config_file;
pub use stentor_fabric_net::config_file::Position;
use stentor_multicast::{Topology, TotalLoss};
use stentor_switch_host::SwitchConfig;

pub use error::{ConfigError, First, Problem};
pub use key::KeyError;
pub use limits::Limits;
use limits::MAX_FILE_BYTES;
pub use memory::{MemoryPlan, MemoryRow, ProcessMemory};
pub use neb::{NebConfig, digits};
pub use ofi::{AsEfa, OfiSettings};
pub use processes::{ProcessEntry, ProcessTable, Role};
pub use template::{Ground, Template};
pub use verbs::{Tuning, VerbsSettings};

/// Version of the file's format and of everything that is derived from it; part of the fingerprint.
pub const FORMAT_VERSION: u16 = 2;

/// Which fabric a cluster runs on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FabricKind {
    /// The processes of one host, through shared memory.
    Shm,
    /// RoCEv2 in user space, over UDP sockets: processes of any hosts, each with an IP address of its own.
    Roce,
    /// RDMA devices, through rdma-core.
    Verbs,
    /// A provider of libfabric: EFA, verbs, shared memory, TCP, UDP.
    Ofi,
    /// Simulated network cards, one thread, virtual time.
    Sim,
}

impl FabricKind {
    /// The name in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FabricKind::Shm => "shm",
            FabricKind::Roce => "roce",
            FabricKind::Verbs => "verbs",
            FabricKind::Ofi => "ofi",
            FabricKind::Sim => "sim",
        }
    }

    /// Whether its processes may be on several hosts, where they find each other by their addresses and the cluster's key.
    #[must_use]
    pub const fn is_between_hosts(self) -> bool {
        matches!(self, FabricKind::Roce | FabricKind::Verbs | FabricKind::Ofi)
    }
}

impl fmt::Display for FabricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the cluster's key is. Neither `shm` nor `sim` uses one; `roce`, `verbs` and `ofi` need one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeySource {
    /// An environment variable.
    Env(String),
    /// A file; a relative path is relative to the directory of the configuration.
    File(PathBuf),
}

/// How leaders are found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElectionKind {
    /// Heartbeats in the fabric itself.
    Heartbeat,
}

impl ElectionKind {
    /// The name in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ElectionKind::Heartbeat => "heartbeat",
        }
    }
}

/// How patient the election is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ElectionTimes {
    /// A silence shorter than this is never suspicious.
    pub min: Duration,
    /// A longer one always is.
    pub max: Duration,
}

impl ElectionTimes {
    /// How often members look at each other.
    pub const INTERVAL: Duration = Duration::from_millis(5);
    /// How often, at most, they do while they have nothing to do.
    const REST: Duration = Duration::from_millis(50);

    /// Returns the time between two looks at each other of members that have nothing to do: a 20th of a silence that
    /// may be suspicious, between [`INTERVAL`](Self::INTERVAL) and 50 ms. The cost of an idle member is its wake-ups, and
    /// each look takes three to five of them at every member.
    #[must_use]
    pub fn rest_tick(&self) -> Duration {
        (self.min / 20).clamp(Self::INTERVAL, Self::REST)
    }
}

impl Default for ElectionTimes {
    fn default() -> Self {
        ElectionTimes { min: Duration::from_millis(1000), max: Duration::from_millis(2000) }
    }
}

/// A group of processes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupConfig {
    id: String,
    members: Vec<MemberConfig>,
}

impl GroupConfig {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its processes, in the order of the file. Never empty.
    #[must_use]
    pub fn members(&self) -> &[MemberConfig] {
        &self.members
    }

    /// How many processes are a majority: ⌊n/2⌋+1 of the configured group, whoever is connected.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }
}

/// A process of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MemberConfig {
    id: String,
    address: String,
}

impl MemberConfig {
    /// Its name, unique in the cluster.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `host:port`, where it listens for its peers on `roce`, `verbs` and `ofi`. `shm` and `sim` do not use it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// A checked configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterConfig {
    cluster: String,
    fabric: FabricKind,
    key: Option<KeySource>,
    client_timeout: Duration,
    total_loss: TotalLoss,
    clock_bound: Duration,
    election: ElectionKind,
    times: ElectionTimes,
    limits: Limits,
    groups: Vec<GroupConfig>,
    neb: Option<NebConfig>,
    verbs: VerbsSettings,
    ofi: OfiSettings,
    switch: Option<SwitchConfig>,
}

impl ClusterConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// See [`Problem`]; the error names the file, the line and the remedy.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = config_file::read(path, MAX_FILE_BYTES).map_err(|error| error::unreadable(path, &error))?;
        Self::parse(path, &text)
    }

    /// Checks a text; `path` is what errors call it.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file = config_file::parse(text).map_err(|(span, flaw)| (span, flaw.into()));
        let checked = file.and_then(|file| validate::validate(file, text));
        checked.map_err(|(span, problem)| ConfigError::at(path, text, &span, problem))
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The fabric.
    #[must_use]
    pub fn fabric(&self) -> FabricKind {
        self.fabric
    }

    /// Where the key is, if one is named.
    #[must_use]
    pub fn key(&self) -> Option<&KeySource> {
        self.key.as_ref()
    }

    /// How long a client may be away before it is given up, if it left out something that others wait for.
    #[must_use]
    pub fn client_timeout(&self) -> Duration {
        self.client_timeout
    }

    /// Whether a group of which nobody has memory begins by itself.
    #[must_use]
    pub fn total_loss(&self) -> TotalLoss {
        self.total_loss
    }

    /// How far clocks may be apart that are taken for right together. A member whose clock is farther off the median of those
    /// that it hears does not lead while another can.
    #[must_use]
    pub fn clock_bound(&self) -> Duration {
        self.clock_bound
    }

    /// How leaders are found.
    #[must_use]
    pub fn election(&self) -> ElectionKind {
        self.election
    }

    /// How patient the election is.
    #[must_use]
    pub fn election_times(&self) -> ElectionTimes {
        self.times
    }

    /// The sizes that are fixed at start.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The groups, in the order of the file. Never empty.
    #[must_use]
    pub fn groups(&self) -> &[GroupConfig] {
        &self.groups
    }

    /// The broadcast, if there is one.
    #[must_use]
    pub fn neb(&self) -> Option<&NebConfig> {
        self.neb.as_ref()
    }

    /// How devices are used, on `verbs`.
    #[must_use]
    pub fn verbs(&self) -> &VerbsSettings {
        &self.verbs
    }

    /// How libfabric is used, on `ofi`.
    #[must_use]
    pub fn ofi(&self) -> &OfiSettings {
        &self.ofi
    }

    /// The switch that makes the copies of what clients and senders of a broadcast write, if there is one. Each process may have
    /// another, or none: that is no part of the [`fingerprint`](Self::fingerprint).
    #[must_use]
    pub fn switch(&self) -> Option<&SwitchConfig> {
        self.switch.as_ref()
    }

    /// The index of a group in [`groups`](Self::groups).
    #[must_use]
    pub fn group_index(&self, id: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.id == id)
    }

    /// Everybody: the members in the order of the file from [`ProcessId`]`(0)`, then the places for clients.
    #[must_use]
    pub fn process_table(&self) -> ProcessTable {
        ProcessTable::new(self)
    }

    /// How many processes the table has, places for clients included.
    #[must_use]
    pub fn processes(&self) -> u16 {
        let members: usize = self.groups.iter().map(|group| group.members.len()).sum();
        u16::try_from(members).expect("the limits keep it below 65536") + self.limits.clients
    }

    /// The process with this name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<ProcessId> {
        self.process_table().find(name)
    }

    /// What all processes of a cluster must agree on, as one number: xxh3-64 over a canonical form of the format
    /// version, cluster name, fabric, election, limits and the ids of groups and processes in their order. Not over
    /// the key (a secret's place may differ by host) and the addresses (a host may be reached under several names).
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        fingerprint::fingerprint(self)
    }

    /// The salt of every seal in this cluster, from the fingerprint: a record of another cluster, or of another
    /// configuration of this one, never validates.
    #[must_use]
    pub fn salt(&self) -> u64 {
        fingerprint::salt(self)
    }

    /// The groups and places as the multicast numbers them: as in [`process_table`](Self::process_table).
    ///
    /// # Panics
    /// Never: the [`limits`] are within the multicast's.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let sizes: Vec<_> = self.groups.iter().map(|group| group.members.len()).collect();
        Topology::new(&sizes, self.limits.clients).expect("the limits are within the multicast's")
    }

    /// The memory that each process keeps for the multicast, by the formula.
    #[must_use]
    pub fn memory(&self) -> MemoryPlan {
        memory::plan(self)
    }
}

#[cfg(test)]
mod tests;
