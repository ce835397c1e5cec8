//! The memory that each process keeps for the multicast. It follows from the configuration, so it is known before the
//! start.

use std::collections::BTreeMap;

use stentor_multicast::{INBOX_BYTES, Limits};
use stentor_session::Sessions;

use super::{ClusterConfig, FabricKind};

/// One kind of memory at one kind of process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryRow {
    /// Purpose of the memory.
    pub what: &'static str,
    /// Formula for `count`, in words of the configuration.
    pub formula: &'static str,
    /// Number of pieces.
    pub count: u64,
    /// Size of each piece, in bytes.
    pub bytes_each: u64,
    /// `true` if the memory is registered with the fabric: peers write to it, or the owner posts from it.
    pub registered: bool,
    /// `true` if the memory is in use only at times, for example during a state transfer or while observers are
    /// connected.
    pub rare: bool,
}

impl MemoryRow {
    /// Returns the size of all pieces together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count * self.bytes_each
    }
}

/// The memory of each of several equal processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessMemory {
    /// Size of the group that the members belong to; `None` for clients.
    pub group_size: Option<usize>,
    /// Number of equal processes.
    pub processes: u64,
    /// Memory of each process, by kind.
    pub rows: Vec<MemoryRow>,
}

impl ProcessMemory {
    /// Returns the memory of each of these processes in bytes, without the rare kinds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.rows.iter().filter(|row| !row.rare).map(MemoryRow::bytes).sum()
    }
}

/// The memory of all processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryPlan {
    /// Memory of the members, with one entry for each size of a group, followed by the memory of the clients.
    pub processes: Vec<ProcessMemory>,
}

impl MemoryPlan {
    /// Returns the memory of each member of a group of this size, or of each client if the size is `None`.
    #[must_use]
    pub fn of(&self, group_size: Option<usize>) -> Option<&ProcessMemory> {
        self.processes.iter().find(|process| process.group_size == group_size)
    }

    /// Returns the memory in bytes of the process of a member in which this number of clients are
    /// [embedded](crate::NodeHandle::client), without the rare kinds. An embedded client costs as much as any client.
    /// Returns `None` if no group has this size.
    #[must_use]
    pub fn with_embedded(&self, group_size: usize, clients: u64) -> Option<u64> {
        let (member, client) = (self.of(Some(group_size))?, self.of(None)?);
        Some(member.bytes() + clients * client.bytes())
    }

    /// Returns the memory of all members and all client ids together in bytes, without the rare kinds.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.processes * process.bytes()).sum()
    }
}

/// Computes the memory that a process keeps once its buffers have grown, if all its clients are connected and use their
/// windows. It does not include the fabric's own queues, the program, or data that waits during failures.
pub(super) fn plan(config: &ClusterConfig) -> MemoryPlan {
    let topology = config.topology();
    let limits = config.limits().multicast();
    let (clients, members) = (topology.clients() as u64, topology.all_members() as u64);
    let groups = topology.groups() as u64;
    let body = limits.body_ring(&topology).bytes();
    // The stream region has one more cache line than the ring, to which the leader writes in order to confirm that it
    // still leads.
    let stream = limits.stream_ring(&topology).bytes();
    let stream_region = limits.stream_region_bytes(&topology);
    let control_ring = limits.control_ring(&topology);
    // The credits precede the ring in a control region. A client's control regions contain only credits.
    let credits = control_ring.offset;
    let control = credits + control_ring.bytes();
    // Records that exceed the fabric's inline limit are posted from a local staging ring.
    let staged = matches!(config.fabric(), FabricKind::Verbs | FabricKind::Ofi);
    let others_staged = if staged { members - 1 } else { 0 };
    // With an inline limit of 0, the reply and query sizes below include their staging.
    let inline_bytes = if staged { 0 } else { u32::MAX };
    let queries_read = if limits.has_replies() { limits.query_ring().bytes() } else { 0 };
    let replies_written = limits.member_reply_bytes(&topology, inline_bytes) / clients - queries_read;
    // Each kept reply also needs its position and the header of its buffer.
    let each_kept = u64::from(config.limits().reply_bytes) + Sessions::KEPT_BYTES;
    let replies_kept = if limits.has_replies() {
        u64::from(config.limits().sessions) * u64::from(limits.window) * each_kept
    } else {
        0
    };
    let observed = u64::from(config.limits().observed_mib) << 20;
    let replies_read = if limits.has_replies() { limits.reply_ring().bytes() } else { 0 };
    let queries_written = limits.client_reply_bytes(&topology, inline_bytes) / members - replies_read;
    let window = u64::from(limits.window);
    let (place, named) = (Limits::slot_bytes(), Limits::slot_heap_bytes(&topology));
    let row = |what, formula, count, bytes_each, registered| {
        let rare = false;
        MemoryRow { what, formula, count, bytes_each, registered, rare }
    };
    let rare = |what, formula, bytes_each| MemoryRow { rare: true, ..row(what, formula, 1, bytes_each, false) };
    let member = |(size, processes): (usize, u64)| ProcessMemory {
        group_size: Some(size),
        processes,
        rows: vec![
            row("message rings", "clients", clients, body, true),
            row("private copies of message rings", "clients", clients, body, false),
            row("control rings", "other members", members - 1, control, true),
            row("stream rings", "other members of the group", size as u64 - 1, stream_region, true),
            row("local copy of the stream", "one", 1, stream, false),
            row("staging of control rings", "other members", others_staged, control_ring.bytes(), true),
            row("staging of replies, with their credits", "clients", clients, replies_written, true),
            row("query rings", "clients", clients, queries_read, true),
            row("message slots", "clients × window", clients * window, place, false),
            row("groups, times and votes of the slots", "clients × window", clients * window, named, false),
            row("receives and hellos", "clients and other members", clients + members - 1, INBOX_BYTES, false),
            rare("state transfer, receiver: the state", "at most", limits.snapshot_bytes),
            rare("state transfer, donor: the backlog", "at most", limits.backlog_bytes),
            rare("replies that clients of sessions have not acknowledged", "at most", replies_kept),
            rare("observers: the journal of recent commands", "at most", observed),
        ],
    };
    let client = ProcessMemory {
        group_size: None,
        processes: clients,
        rows: vec![
            row("credits", "members", members, credits, true),
            row("message rings", "groups", groups, body, true),
            row("reply rings", "members", members, replies_read, true),
            row("staging of queries, with their credits", "members", members, queries_written, true),
            row("messages in flight", "groups × window", groups * window, Limits::awaited_bytes(), false),
            row("receives and hellos", "members", members, INBOX_BYTES, false),
        ],
    };
    let mut sizes = BTreeMap::new();
    for group in config.groups() {
        let size = group.members().len();
        *sizes.entry(size).or_insert(0) += size as u64;
    }
    MemoryPlan { processes: sizes.into_iter().map(member).chain([client]).collect() }
}
