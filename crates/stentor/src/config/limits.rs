//! The sizes that are fixed at start, and how far they go.

use std::ops::RangeInclusive;
use std::time::Duration;

use stentor_session::{ReplyRecord, SessionLimits};

/// Groups in a cluster, at most.
pub const MAX_GROUPS: usize = 256;
/// Processes in a group, at most.
pub const MAX_GROUP_PROCESSES: usize = 64;
/// Processes in a cluster, places for clients included, at most: [`ProcessId`](stentor_fabric::ProcessId) is a `u16`.
pub const MAX_PROCESSES: usize = 65_535;
/// Characters in the cluster's name and in ids, at most. On `shm` both stand in the path of a Unix socket, which ends at
/// 107 bytes; with `/run/user/UID` before them and numbers behind them this is what remains for each.
pub const MAX_NAME: usize = 24;
/// Bytes of a configuration's file, at most: several times what the other limits allow.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// Longest payload of one message, bytes.
pub const MESSAGE_BYTES: RangeInclusive<u32> = 1..=16 << 20;
/// Messages that one client may have in flight at one group; a power of two.
pub const WINDOW: RangeInclusive<u32> = 1..=65_536;
/// Shortest silence of a leader that is suspicious, and longest that is not, ms: at least four looks.
pub const TIMEOUT_MS: RangeInclusive<u32> = 20..=60_000;
/// How long a client may be away that others wait for, ms: longer than it takes members to pass on what one of them lacks.
pub const CLIENT_TIMEOUT_MS: RangeInclusive<u32> = 100..=600_000;
/// How far clocks may be apart that are taken for right together, ms: longer than four looks of a member that rests.
pub const CLOCK_BOUND_MS: RangeInclusive<u32> = 200..=3_600_000;
/// Places for clients.
pub const CLIENTS: RangeInclusive<u16> = 1..=1024;
/// How long a member may take nothing of what is written to it before others go on without it, ms.
pub const EXPEL_MS: RangeInclusive<u32> = 50..=600_000;
/// Size of a control ring between two members, KiB.
pub const RING_KIB: RangeInclusive<u32> = 16..=65_536;
/// Size of the ring for one client's messages at one member, KiB.
pub const BODY_RING_KIB: RangeInclusive<u32> = 16..=1_048_576;
/// Longest reply of a member to a client, bytes; 0: there are none.
pub const REPLY_BYTES: RangeInclusive<u32> = 0..=1 << 20;
/// Sessions of clients that a group keeps.
pub const SESSIONS: RangeInclusive<u32> = 1..=65_536;
/// Size of the ring for one member's replies at one client, KiB.
pub const REPLY_RING_KIB: RangeInclusive<u32> = 1..=65_536;

/// The largest state of an application that one member gives another, MiB.
pub const SNAPSHOT_MIB: RangeInclusive<u32> = 1..=1_048_576;
/// Deliveries that a member keeps for another one that gets its state, MiB: at least one of the longest messages.
pub const BACKLOG_MIB: RangeInclusive<u32> = 32..=1_048_576;
/// The share of their usual rate down to which clients are slowed when that is nearly full, percent.
pub const SLOWED_PERCENT: RangeInclusive<u32> = 1..=100;

/// What a member keeps for observers of what it applied lately, MiB; 0: it has no observers.
pub const OBSERVED_MIB: RangeInclusive<u32> = 0..=65_536;

// What a configuration allows, the protocol can do; if one side moves this stops the build.
const _: () = assert!(*MESSAGE_BYTES.end() as usize == stentor_multicast::Limits::MAX_MESSAGE_BYTES);
const _: () = assert!(*WINDOW.end() == stentor_multicast::Limits::MAX_WINDOW);
const _: () = assert!((*BODY_RING_KIB.end() as u64) << 10 <= stentor_multicast::Limits::MAX_RING_BYTES);
const _: () = assert!((*RING_KIB.end() as u64) << 10 <= stentor_multicast::Limits::MAX_RING_BYTES);
const _: () =
    assert!(*REPLY_BYTES.end() as usize + ReplyRecord::HEAD_BYTES <= stentor_multicast::Limits::MAX_REPLY_BYTES);
const _: () = assert!((*REPLY_RING_KIB.end() as u64) << 10 <= stentor_multicast::Limits::MAX_RING_BYTES);
const _: () = assert!((*SNAPSHOT_MIB.end() as u64) << 20 <= stentor_multicast::Limits::MAX_SNAPSHOT_BYTES);
const _: () = assert!((*BACKLOG_MIB.end() as u64) << 20 <= stentor_multicast::Limits::MAX_SNAPSHOT_BYTES);
const _: () = assert!((*BACKLOG_MIB.start() as u64) << 20 > *MESSAGE_BYTES.end() as u64 + 64);
const _: () = assert!(MAX_GROUPS == stentor_multicast::GroupSet::CAPACITY);
const _: () = assert!(MAX_GROUP_PROCESSES == stentor_multicast::Topology::MAX_MEMBERS);
// The other limits keep the table within `u16`; if one is raised this stops the build.
const _: () = assert!(MAX_GROUPS * MAX_GROUP_PROCESSES + *CLIENTS.end() as usize <= MAX_PROCESSES);

/// The sizes that are fixed at start, and who is waited for. Memory follows from them, see
/// [`Cluster::memory`](crate::Cluster::memory).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Longest payload of one message, bytes; within [`MESSAGE_BYTES`].
    pub message_bytes: u32,
    /// Messages that one client may have in flight at one group; a power of two within [`WINDOW`].
    pub window: u32,
    /// Places for clients; within [`CLIENTS`].
    pub clients: u16,
    /// Size of a control ring between two members, KiB; within [`RING_KIB`].
    pub ring_kib: u32,
    /// Size of the ring for one client's messages at one member, KiB; within [`BODY_RING_KIB`]. Rounded up to two of
    /// the longest messages.
    pub body_ring_kib: u32,
    /// Longest reply of a state machine to a client, bytes; within [`REPLY_BYTES`]. If it is 0 there are no replies, and no clients with
    /// sessions.
    pub reply_bytes: u32,
    /// Size of the ring for one member's replies at one client, KiB; within [`REPLY_RING_KIB`]. Rounded up to two of the
    /// longest replies.
    pub reply_ring_kib: u32,
    /// Sessions that a group keeps at a time; within [`SESSIONS`]. For each of them a member keeps the replies to up to a window of
    /// commands.
    pub sessions: u32,
    /// The largest state of an application that one member gives another, MiB; within [`SNAPSHOT_MIB`].
    pub snapshot_mib: u32,
    /// Deliveries that a member keeps for another one that gets its state, MiB; within [`BACKLOG_MIB`].
    pub backlog_mib: u32,
    /// The share of their usual rate down to which clients are slowed when that is nearly full, percent; within
    /// [`SLOWED_PERCENT`].
    pub slowed_percent: u32,
    /// How long a member may take nothing of what is written to it, while a majority of its group does, before others go on
    /// without it, ms; within [`EXPEL_MS`]. When there is no room for more, a tenth of that.
    pub expel_ms: u32,
    /// What a member keeps for observers of what it applied lately, MiB; within [`OBSERVED_MIB`]. It is taken while somebody observes, and
    /// two minutes longer. If it is 0 the member has no observers.
    pub observed_mib: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Limits {
    /// The sizes where a configuration names none.
    pub const DEFAULT: Limits = Limits {
        message_bytes: 65_536,
        window: 1024,
        clients: 16,
        ring_kib: 64,
        body_ring_kib: 1024,
        reply_bytes: 1024,
        reply_ring_kib: 64,
        sessions: 256,
        snapshot_mib: 2048,
        backlog_mib: 256,
        slowed_percent: 25,
        expel_ms: stentor_multicast::EXPEL_AFTER.as_millis() as u32,
        observed_mib: 32,
    };

    /// Returns how long a member may take nothing before others go on without it.
    #[must_use]
    pub fn expel_after(&self) -> Duration {
        Duration::from_millis(u64::from(self.expel_ms))
    }

    /// The longest record in which a reply travels, bytes.
    fn reply_record_bytes(&self) -> usize {
        if self.reply_bytes == 0 { 0 } else { ReplyRecord::HEAD_BYTES + self.reply_bytes as usize }
    }

    /// The bounds of a group's table of sessions.
    #[must_use]
    pub(crate) fn sessions(&self) -> SessionLimits {
        SessionLimits {
            sessions: self.sessions,
            ended: 4 * self.sessions,
            window: self.window,
            reply_bytes: self.reply_bytes,
            ..SessionLimits::default()
        }
    }

    /// The sizes as the multicast takes them.
    #[must_use]
    pub(crate) fn multicast(&self) -> stentor_multicast::Limits {
        stentor_multicast::Limits {
            message_bytes: self.message_bytes as usize,
            window: self.window,
            body_ring_bytes: u64::from(self.body_ring_kib) << 10,
            control_ring_bytes: u64::from(self.ring_kib) << 10,
            snapshot_bytes: u64::from(self.snapshot_mib) << 20,
            backlog_bytes: u64::from(self.backlog_mib) << 20,
            slowed_percent: self.slowed_percent,
            reply_bytes: self.reply_record_bytes(),
            reply_ring_bytes: u64::from(self.reply_ring_kib) << 10,
        }
    }
}
