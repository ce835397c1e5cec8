//! How much memory each process keeps for the multicast: fixed by the configuration, known before the start.

use std::collections::BTreeMap;

use stentor_multicast::{INBOX_BYTES, Limits};
use stentor_session::Sessions;

use super::{ClusterConfig, FabricKind};

/// One kind of memory at one kind of process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryRow {
    /// What it is for.
    pub what: &'static str,
    /// How many there are, in words of the configuration.
    pub formula: &'static str,
    /// How many there are.
    pub count: u64,
    /// Bytes of each.
    pub bytes_each: u64,
    /// Whether peers write it (a region), or only its owner.
    pub registered: bool,
    /// Whether it is taken rarely: while a member gets another one's state, or where all sessions use their windows.
    pub rare: bool,
}

impl MemoryRow {
    /// Bytes of all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count * self.bytes_each
    }
}

/// The memory of each of several alike processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessMemory {
    /// Members of a group of this size; `None` for clients.
    pub group_size: Option<usize>,
    /// How many processes are alike.
    pub processes: u64,
    /// What each keeps.
    pub rows: Vec<MemoryRow>,
}

impl ProcessMemory {
    /// Returns the bytes of each of these processes, but for what is taken rarely.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.rows.iter().filter(|row| !row.rare).map(MemoryRow::bytes).sum()
    }
}

/// The memory of all processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryPlan {
    /// Members by the size of their group, then clients.
    pub processes: Vec<ProcessMemory>,
}

impl MemoryPlan {
    /// Returns the memory of each member of a group of this size; `None`: of each client.
    #[must_use]
    pub fn of(&self, group_size: Option<usize>) -> Option<&ProcessMemory> {
        self.processes.iter().find(|process| process.group_size == group_size)
    }

    /// Returns the memory of the process of a member in which so many clients are [embedded](crate::NodeHandle::client), bytes, but for what
    /// is taken rarely: each costs what any client does. `None`: no group has this size.
    #[must_use]
    pub fn with_embedded(&self, group_size: usize, clients: u64) -> Option<u64> {
        let (member, client) = (self.of(Some(group_size))?, self.of(None)?);
        Some(member.bytes() + clients * client.bytes())
    }

    /// All members and all places for clients together, bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.processes * process.bytes()).sum()
    }
}

/// Puts the multicast's sizes together: what a process that works for long keeps, if all its clients are there and use their
/// windows. The fabric's own queues and the program come on top, and what waits when something fails.
pub(super) fn plan(config: &ClusterConfig) -> MemoryPlan {
    let topology = config.topology();
    let limits = config.limits().multicast();
    let (clients, members) = (topology.clients() as u64, topology.all_members() as u64);
    let groups = topology.groups() as u64;
    let body = limits.body_ring(&topology).bytes();
    // The line behind the ring is where a leader sees that it leads.
    let stream = limits.stream_ring(&topology).bytes();
    let stream_region = limits.stream_region_bytes(&topology);
    let control_ring = limits.control_ring(&topology);
    // What stands before the ring in a control region; a client's control regions are nothing else.
    let credits = control_ring.offset;
    let control = credits + control_ring.bytes();
    // Records that are longer than what the fabric takes inline are posted from a ring of one's own.
    let staged = matches!(config.fabric(), FabricKind::Verbs | FabricKind::Ofi);
    let others_staged = if staged { members - 1 } else { 0 };
    // So are the replies' ones, all of them together.
    let inline_bytes = if staged { 0 } else { u32::MAX };
    let queries_read = if limits.has_replies() { limits.query_ring().bytes() } else { 0 };
    let replies_written = limits.member_reply_bytes(&topology, inline_bytes) / clients - queries_read;
    // For each, where it was applied and the buffer's head come on top of its bytes.
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
            row("private copies of them", "clients", clients, body, false),
            row("control rings", "other members", members - 1, control, true),
            row("stream rings", "other members of the group", size as u64 - 1, stream_region, true),
            row("the stream as it was written", "one", 1, stream, false),
            row("control rings before they are sent", "other members", others_staged, control_ring.bytes(), true),
            row("replies before they are sent, and their credits", "clients", clients, replies_written, true),
            row("query rings", "clients", clients, queries_read, true),
            row("places of messages", "clients × window", clients * window, place, false),
            row("their groups, times and votes", "clients × window", clients * window, named, false),
            row("receives and greetings", "clients and other members", clients + members - 1, INBOX_BYTES, false),
            rare("while it gets a state: that state", "at most", limits.snapshot_bytes),
            rare("while it gives its state: what it delivers meanwhile", "at most", limits.backlog_bytes),
            rare("replies that clients of sessions have not acknowledged", "at most", replies_kept),
            rare("while it is observed: what it applied lately", "at most", observed),
        ],
    };
    let client = ProcessMemory {
        group_size: None,
        processes: clients,
        rows: vec![
            row("credits", "members", members, credits, true),
            row("message rings", "groups", groups, body, true),
            row("reply rings", "members", members, replies_read, true),
            row("queries before they are sent, and their credits", "members", members, queries_written, true),
            row("messages that are awaited", "groups × window", groups * window, Limits::awaited_bytes(), false),
            row("receives and greetings", "members", members, INBOX_BYTES, false),
        ],
    };
    let mut sizes = BTreeMap::new();
    for group in config.groups() {
        let size = group.members().len();
        *sizes.entry(size).or_insert(0) += size as u64;
    }
    MemoryPlan { processes: sizes.into_iter().map(member).chain([client]).collect() }
}
