//! The configuration of a cluster, `cluster.toml`.
//!
//! ```toml
//! cluster = "example"            # part of every handshake and of the salt of every seal
//! fabric  = "shm"                # shm | roce | verbs | ofi | sim
//! key     = "env:STENTOR_KEY"    # or file:PATH; on roce, verbs and ofi, processes prove that they have it
//! client_timeout_ms = 2000       # time until an absent client expires, if others wait for its unfinished messages
//! total_loss = "begin"           # or "refuse": a group that nobody remembers starts only by an operator's reset
//!
//! [election]
//! kind = "heartbeat"
//! timeout_min_ms = 1000          # a leader that is silent for less is never suspected
//! timeout_max_ms = 2000          # a leader that is silent for longer is always suspected
//!
//! [limits]
//! message_bytes = 65536          # longest payload
//! window = 1024                  # messages that one client may have in flight at a group
//! clients = 16                   # number of client ids: c0, c1, …
//! ring_kib = 64                  # each control ring between two members
//! body_ring_kib = 1024           # the ring for one client's messages at one member
//! reply_bytes = 1024             # longest reply of a member to a client; 0: no replies
//! reply_ring_kib = 64            # the ring for one member's replies at one client
//! sessions = 256                 # client sessions that a group keeps at a time
//! snapshot_mib = 2048            # largest state that one member transfers to another
//! backlog_mib = 256              # deliveries that the donor keeps for the receiver during a transfer
//! slowed_percent = 25            # as the backlog fills, clients are throttled, down to this share of their rate
//! expel_ms = 500                 # expels a member that frees nothing; a tenth of it if a ring or window is full
//! observed_mib = 32              # journal of recent commands that a member keeps for observers; 0: no observers
//!
//! [[group]]
//! id = "g1"
//! process = [ { id = "g1.1", address = "127.0.0.1:7101" }, … ]
//!
//! [neb]                          # optional: the broadcast of a group's processes
//! group = "g1"                   # not needed if there is only one group
//! mode = "quorum"                # or "all"
//! fault_model = "lying-hosts"    # or "lying-sender"; for mode "quorum"
//! faults = 1                     # number of processes that lie or crash
//! window = 64                    # broadcasts of one sender that may be undelivered somewhere
//! payload_bytes = 1024           # longest payload
//! keys = { "g1.1" = "…", … }     # Ed25519 public keys of all processes (64 hex digits each): values are signed
//!
//! [verbs]                        # for fabric = "verbs"; the address of a process selects an unset device, port or GID
//! device = "mlx5_0"              # `stentor doctor` lists devices, ports and GIDs
//! port = 1
//! gid_index = 3
//! numa_node = 0                  # NUMA node whose devices are preferred if the address allows several; by default the
//!                                # node of the process's processors, if it is bound to one node
//! mtu = 1024                     # payload of a packet; default: the port's
//! timeout = 15                   # acknowledgement timeout: 4.096 us times two to this power
//! retry_cnt = 6                  # retransmissions without an acknowledgement
//! rnr_retry = 6                  # retransmissions to a receiver without a posted receive; 7: without end
//! min_rnr_timer = 24             # delay before such a retransmission, encoded (24 is 41 ms)
//! rd_atomic = 16                 # READs and atomics in flight per queue pair
//! traffic_class = 0
//! service_level = 0
//! inline_bytes = 512             # inline data that is requested
//!
//! [ofi]                          # for fabric = "ofi"
//! provider = "efa,tcp;ofi_rxm"   # libfabric's names, tried in this order, no others; `stentor doctor` lists them
//! device = "eth0"                # device of the provider; default: the one with the process's address
//! rnr_timeout_ms = 250           # how long a SEND waits for the peer to post a receive
//! fence_timeout_ms = 250         # how long a peer may take to stop accessing a revoked region
//! as_efa = "efa"                 # or "efa-direct": impose EFA's restrictions on this provider; for tests, slow
//!
//! [switch]                       # for fabric = "roce" or "verbs": a switch that copies writes (`stentor switch`)
//! control = "127.0.1.1:7480"     # address of its control plane; while it is down, each peer is written separately
//! lease_ms = 10000               # how long a silent sender keeps its fan-out set
//! ```
//!
//! A file is checked completely when it is read: unknown keys, duplicate ids, empty groups, sizes beyond the
//! [`limits`], malformed addresses. Every [`ConfigError`] names the file, the line if the problem lies in one, and the
//! remedy. A [`ClusterConfig`] that exists is valid.

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

/// Version of the file format and of all values derived from it; part of the fingerprint.
pub const FORMAT_VERSION: u16 = 2;

/// The fabric that a cluster runs on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FabricKind {
    /// Shared memory, between the processes of one host.
    Shm,
    /// RoCEv2 in user space, over UDP sockets, between any hosts. Each process has its own IP address.
    Roce,
    /// RDMA devices, through rdma-core.
    Verbs,
    /// A provider of libfabric: EFA, verbs, shared memory, TCP, UDP.
    Ofi,
    /// Simulated network cards, in one thread and virtual time.
    Sim,
}

impl FabricKind {
    /// Returns the name in the file.
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

    /// Returns whether the processes may run on several hosts, where they find each other by addresses and the cluster
    /// key.
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

/// The location of the cluster key. `shm` and `sim` use no key; `roce`, `verbs` and `ofi` need one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeySource {
    /// An environment variable.
    Env(String),
    /// A file; a relative path is relative to the directory of the configuration.
    File(PathBuf),
}

/// The way in which leaders are elected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElectionKind {
    /// Heartbeats in the fabric itself.
    Heartbeat,
}

impl ElectionKind {
    /// Returns the name in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ElectionKind::Heartbeat => "heartbeat",
        }
    }
}

/// The timeouts of the election.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ElectionTimes {
    /// Time of silence below which a leader is never suspected.
    pub min: Duration,
    /// Time of silence above which a leader is always suspected.
    pub max: Duration,
}

impl ElectionTimes {
    /// Interval at which members check each other's heartbeats.
    pub const INTERVAL: Duration = Duration::from_millis(5);
    /// Longest interval at which idle members check each other's heartbeats.
    const REST: Duration = Duration::from_millis(50);

    /// Returns the interval at which idle members check each other's heartbeats: a 20th of the shortest suspicious
    /// silence, between [`INTERVAL`](Self::INTERVAL) and 50 ms. Wake-ups are the cost of an idle member, and each check
    /// wakes every member three to five times.
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
    /// Returns the name of the group.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the processes of the group, in the order of the file. Never empty.
    #[must_use]
    pub fn members(&self) -> &[MemberConfig] {
        &self.members
    }

    /// Returns the size of a majority: ⌊n/2⌋+1 of the n configured processes, no matter how many are connected.
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
    /// Returns the name of the process, unique in the cluster.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns `host:port`, where the process listens for its peers on `roce`, `verbs` and `ofi`. `shm` and `sim`
    /// ignore it.
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
    /// See [`Problem`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = config_file::read(path, MAX_FILE_BYTES).map_err(|error| error::unreadable(path, &error))?;
        Self::parse(path, &text)
    }

    /// Checks a text. Errors name it by `path`.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file = config_file::parse(text).map_err(|(span, flaw)| (span, flaw.into()));
        let checked = file.and_then(|file| validate::validate(file, text));
        checked.map_err(|(span, problem)| ConfigError::at(path, text, &span, problem))
    }

    /// Returns the name of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the fabric.
    #[must_use]
    pub fn fabric(&self) -> FabricKind {
        self.fabric
    }

    /// Returns the location of the key, if the file names one.
    #[must_use]
    pub fn key(&self) -> Option<&KeySource> {
        self.key.as_ref()
    }

    /// Returns the time after which an absent client expires, if other messages wait for its unfinished ones.
    #[must_use]
    pub fn client_timeout(&self) -> Duration {
        self.client_timeout
    }

    /// Returns how a group starts if no process remembers its state: by itself, or only by an operator's reset.
    #[must_use]
    pub fn total_loss(&self) -> TotalLoss {
        self.total_loss
    }

    /// Returns the largest difference between two clocks that both count as right. A member whose clock differs by more
    /// from the median of the clocks that it knows does not lead while another member can.
    #[must_use]
    pub fn clock_bound(&self) -> Duration {
        self.clock_bound
    }

    /// Returns how leaders are elected.
    #[must_use]
    pub fn election(&self) -> ElectionKind {
        self.election
    }

    /// Returns the timeouts of the election.
    #[must_use]
    pub fn election_times(&self) -> ElectionTimes {
        self.times
    }

    /// Returns the sizes, which are fixed at start.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the groups, in the order of the file. Never empty.
    #[must_use]
    pub fn groups(&self) -> &[GroupConfig] {
        &self.groups
    }

    /// Returns the broadcast, if the file has one.
    #[must_use]
    pub fn neb(&self) -> Option<&NebConfig> {
        self.neb.as_ref()
    }

    /// Returns how `verbs` uses devices.
    #[must_use]
    pub fn verbs(&self) -> &VerbsSettings {
        &self.verbs
    }

    /// Returns how `ofi` uses libfabric.
    #[must_use]
    pub fn ofi(&self) -> &OfiSettings {
        &self.ofi
    }

    /// Returns the switch that copies the writes of clients and of senders of a broadcast, if the file names one. Each
    /// process may have another switch, or none, so the switch is not part of the [`fingerprint`](Self::fingerprint).
    #[must_use]
    pub fn switch(&self) -> Option<&SwitchConfig> {
        self.switch.as_ref()
    }

    /// Returns the index of a group in [`groups`](Self::groups).
    #[must_use]
    pub fn group_index(&self, id: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.id == id)
    }

    /// Returns all processes: the members in the order of the file from [`ProcessId`]`(0)`, then the client ids.
    #[must_use]
    pub fn process_table(&self) -> ProcessTable {
        ProcessTable::new(self)
    }

    /// Returns the number of processes in the table, including the client ids.
    #[must_use]
    pub fn processes(&self) -> u16 {
        let members: usize = self.groups.iter().map(|group| group.members.len()).sum();
        u16::try_from(members).expect("the limits keep it below 65536") + self.limits.clients
    }

    /// Returns the process with this name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<ProcessId> {
        self.process_table().find(name)
    }

    /// Returns one number for everything that all processes of a cluster must agree on: xxh3-64 over a canonical form
    /// of the format version, the cluster name, the fabric, the election, the limits from `message_bytes` to
    /// `sessions`, the ids of groups and processes in their order, and the broadcast. The key and the addresses are not
    /// part of it: a secret's location may differ by host, and a host may have several names. Nor are settings that may
    /// differ between processes, such as timeouts and devices.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        fingerprint::fingerprint(self)
    }

    /// Returns the salt of every seal in this cluster, derived from the same values as the fingerprint. A record from a
    /// cluster with another salt does not validate.
    #[must_use]
    pub fn salt(&self) -> u64 {
        fingerprint::salt(self)
    }

    /// Returns the groups and client ids as the multicast numbers them, which is the order of
    /// [`process_table`](Self::process_table).
    ///
    /// # Panics
    /// Never panics: the [`limits`] are within those of the multicast.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let sizes: Vec<_> = self.groups.iter().map(|group| group.members.len()).collect();
        Topology::new(&sizes, self.limits.clients).expect("the limits are within the multicast's")
    }

    /// Returns the memory that each process keeps for the multicast, computed from the sizes.
    #[must_use]
    pub fn memory(&self) -> MemoryPlan {
        memory::plan(self)
    }
}

#[cfg(test)]
mod tests;
