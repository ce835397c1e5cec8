//! The commented configuration file with which users start.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use stentor_multicast::{CLIENT_TIMEOUT, PhysicalClock};

use super::error::Problem;
use super::limits::{MAX_GROUP_PROCESSES, MAX_GROUPS};
use super::{AsEfa, FabricKind, Limits, OfiSettings};

/// The parameters of the file that `stentor config init` writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// Name of the cluster.
    pub cluster: String,
    /// Number of groups; they are named `g1`, `g2`, …
    pub groups: usize,
    /// Number of processes in each group; they are named `g1.1`, `g1.2`, …
    pub replicas: usize,
    /// The sizes.
    pub limits: Limits,
    /// Fabric and addresses of the cluster.
    pub ground: Ground,
}

/// The fabric of a cluster on one host. The location of a key has the text form of a [`KeySource`](super::KeySource).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ground {
    /// Shared memory.
    Shm,
    /// RoCEv2 in user space, each process with the loopback address 127.network.group.process.
    Roce {
        /// Second number of the addresses.
        network: u8,
        /// Location of the key.
        key: String,
    },
    /// A provider of libfabric, each process with the loopback address 127.network.group.process.
    Ofi {
        /// Second number of the addresses.
        network: u8,
        /// Location of the key.
        key: String,
        /// Provider, or several separated by commas; `None`: the first available provider of libfabric.
        provider: Option<String>,
        /// Restrictions to impose.
        as_efa: Option<AsEfa>,
    },
    /// An RDMA device, all processes at its address.
    Verbs {
        /// Address of the device.
        address: IpAddr,
        /// Location of the key.
        key: String,
    },
}

impl Ground {
    /// Returns the fabric.
    #[must_use]
    pub const fn kind(&self) -> FabricKind {
        match self {
            Ground::Shm => FabricKind::Shm,
            Ground::Roce { .. } => FabricKind::Roce,
            Ground::Verbs { .. } => FabricKind::Verbs,
            Ground::Ofi { .. } => FabricKind::Ofi,
        }
    }
}

/// The section of the broadcast, commented out.
const NEB: &str = r#"
# [neb]    # `stentor neb run`: broadcast between the processes of one group, some of which may lie
# group = "g1"    # not needed if there is only one group
# mode = "quorum"    # or "all": every process must answer
# fault_model = "lying-hosts"    # n >= 3 faults + 1 | lying-sender: n - 1 >= 2 faults + 1
# faults = 1
# window = 64    # broadcasts of one process that may be undelivered somewhere
# payload_bytes = 1024    # longest payload
# patience_ms = 10000    # how long a sender waits for a process that is one window behind
# keys = { "g1.1" = "" }    # public keys of all processes, from `stentor neb key FILE`: values are signed
"#;

/// Step between the first ports of two groups, from [`FIRST_PORT`].
const PORTS_PER_GROUP: usize = 100;
const FIRST_PORT: usize = 7101;

impl Template {
    /// Checks the counts alone, before a text of that size is rendered.
    ///
    /// # Errors
    /// Returns the problem for which the file would be refused.
    pub fn check_counts(&self) -> Result<(), Problem> {
        let (groups, replicas) = (self.groups, self.replicas);
        match () {
            () if groups == 0 => Err(Problem::NoGroups),
            () if groups > MAX_GROUPS => Err(Problem::TooManyGroups { count: groups }),
            () if replicas == 0 => Err(Problem::EmptyGroup { group: "g1".to_owned() }),
            () if replicas > MAX_GROUP_PROCESSES => {
                Err(Problem::TooManyProcesses { group: "g1".to_owned(), count: replicas })
            }
            () => Ok(()),
        }
    }

    /// Returns the text of the file. Like any file, it is checked when it is read: a template beyond the limits renders
    /// to a file that [`ClusterConfig::parse`](super::ClusterConfig::parse) refuses.
    #[must_use]
    pub fn render(&self) -> String {
        let limits = &self.limits;
        // Even an invalid name must not end the string that contains it.
        let cluster = self.cluster.replace('\\', r"\\").replace('"', r#"\""#);
        let fabric = self.ground.kind();
        let key = match &self.ground {
            Ground::Shm => {
                r#"# key = "env:STENTOR_KEY"    # or "file:PATH"; needed on roce, verbs and ofi, not used on shm and sim"#
                    .to_owned()
            }
            Ground::Roce { key, .. } | Ground::Verbs { key, .. } | Ground::Ofi { key, .. } => {
                format!("key = \"{key}\"    # the same bytes at every process")
            }
        };
        let mut text = format!(
            r#"# A Stentor cluster. `stentor config check FILE` checks this file, and prints its processes and memory.

cluster = "{cluster}"    # part of every handshake and of every record's checksum
fabric  = "{fabric}"    # shm: the processes of one host | roce: RoCEv2 over UDP, any hosts | verbs: RDMA cards | ofi: libfabric | sim: simulated network
{key}
# client_timeout_ms = {client_timeout}    # time after which an absent client expires, if others wait for its unfinished messages
# total_loss = "begin"    # a group that nobody remembers starts from nothing; "refuse": only after `stentor group reset`

[election]
kind = "heartbeat"    # a leader that is silent for timeout_max_ms (default: 2000) is replaced

# These sizes determine the memory, which is fixed at start.
[limits]
message_bytes = {message_bytes}    # longest payload
window = {window}    # messages that one client may have in flight at a group; a power of two
clients = {clients}    # number of client ids: c0, c1, …
ring_kib = {ring_kib}    # each control ring between two members
body_ring_kib = {body_ring_kib}    # the ring for one client's messages at one member
reply_bytes = {reply_bytes}    # longest reply of a member to a client; 0: no replies
reply_ring_kib = {reply_ring_kib}    # the ring for one member's replies at one client
sessions = {sessions}         # client sessions that a group keeps at a time
# Memory that is used only while a member receives another member's state:
snapshot_mib = {snapshot_mib}    # largest state that is transferred
backlog_mib = {backlog_mib}    # deliveries that are kept for the receiver during the transfer
slowed_percent = {slowed_percent}    # as the backlog fills, clients are throttled, down to this share of their rate
expel_ms = {expel_ms}    # a member that frees nothing for this long is expelled; a tenth if a ring or window is full
observed_mib = {observed_mib}    # journal of recent commands for observers, used only while there are any; 0: no observers
# clock_bound_ms = {clock_bound}    # a member whose clock is farther off the median does not lead while another can

# A group of n processes works while n/2+1 of them are up. Ids must be unique in the cluster.
# Addresses (host:port) are used on roce, verbs and ofi: there a process listens for its peers (TCP). On roce its packets go to
# UDP port 4791 of the same host, so each process has an IP address of its own; on verbs and ofi it uses the device with
# the address (`[verbs]` and `[ofi]` name another: `stentor doctor`). shm and sim do not use them.
"#,
            client_timeout = CLIENT_TIMEOUT.as_millis(),
            clock_bound = PhysicalClock::BOUND.as_millis(),
            message_bytes = limits.message_bytes,
            window = limits.window,
            clients = limits.clients,
            ring_kib = limits.ring_kib,
            body_ring_kib = limits.body_ring_kib,
            reply_bytes = limits.reply_bytes,
            reply_ring_kib = limits.reply_ring_kib,
            sessions = limits.sessions,
            snapshot_mib = limits.snapshot_mib,
            backlog_mib = limits.backlog_mib,
            slowed_percent = limits.slowed_percent,
            expel_ms = limits.expel_ms,
            observed_mib = limits.observed_mib,
        );
        text += &self.provider();
        for group in 1..=self.groups {
            self.group(&mut text, group);
        }
        text += NEB;
        text
    }

    /// Returns the table `[ofi]`.
    fn provider(&self) -> String {
        let Ground::Ofi { provider, as_efa, .. } = &self.ground else { return String::new() };
        let named = match provider {
            Some(provider) => format!("provider = \"{}\"", provider.replace('\\', r"\\").replace('"', r#"\""#)),
            None => "# provider = \"tcp;ofi_rxm\"".to_owned(),
        };
        let restricted = as_efa.map_or(String::new(), |efa| format!("as_efa = \"{}\"    # for tests\n", efa.name()));
        let order = OfiSettings::ORDER.join(", ");
        format!(
            "\n[ofi]\n# As libfabric names them (`stentor doctor` lists them), tried in this order, and no others: \"efa,tcp;ofi_rxm\".\n\
             # Without it: the first that is there of {order} (shm within a host).\n{named}\n\
             # device = \"eth0\"    # the provider's; if it is not set, the one with the process's address, or the nearest one\n\
             # rnr_timeout_ms = 250    # how long a SEND waits for the peer to post a receive\n\
             # fence_timeout_ms = 250    # how long a peer may take to leave a revoked region alone\n{restricted}"
        )
    }

    fn group(&self, text: &mut String, group: usize) {
        let mut line = |args: std::fmt::Arguments<'_>| text.write_fmt(args).expect("a String takes everything");
        line(format_args!("\n[[group]]\nid = \"g{group}\"\nprocess = [\n"));
        for replica in 1..=self.replicas {
            let port = FIRST_PORT + (group - 1) * PORTS_PER_GROUP + replica - 1;
            let host = match &self.ground {
                Ground::Shm => Ipv4Addr::LOCALHOST.into(),
                Ground::Roce { network, .. } | Ground::Ofi { network, .. } => {
                    IpAddr::from([127, *network, group as u8, replica as u8])
                }
                Ground::Verbs { address, .. } => *address,
            };
            let address = SocketAddr::new(host, port as u16);
            line(format_args!("  {{ id = \"g{group}.{replica}\", address = \"{address}\" }},\n"));
        }
        line(format_args!("]\n"));
    }
}
