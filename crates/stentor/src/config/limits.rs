//! The sizes that are fixed at start, and their ranges.

use std::ops::RangeInclusive;
use std::time::Duration;

use stentor_session::{ReplyRecord, SessionLimits};

/// Largest number of groups in a cluster.
pub const MAX_GROUPS: usize = 256;
/// Largest number of processes in a group.
pub const MAX_GROUP_PROCESSES: usize = 64;
/// Largest number of processes in a cluster, including client ids: [`ProcessId`](stentor_fabric::ProcessId) is a `u16`.
pub const MAX_PROCESSES: usize = 65_535;
/// Longest cluster name and longest id, in characters. On `shm` both are part of the path of a Unix socket, which has
/// at most 107 bytes. This limit leaves room for `/run/user/UID` before the names and for numbers after them.
pub const MAX_NAME: usize = 24;
/// Largest configuration file, in bytes: several times what the other limits allow.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// Longest payload of one message, in bytes.
pub const MESSAGE_BYTES: RangeInclusive<u32> = 1..=16 << 20;
/// Messages that one client may have in flight at one group; a power of two.
pub const WINDOW: RangeInclusive<u32> = 1..=65_536;
/// Both timeouts of the election, in milliseconds: the silence below which a leader is never suspected, and the silence
/// above which it is always suspected. The smallest value is four heartbeat checks.
pub const TIMEOUT_MS: RangeInclusive<u32> = 20..=60_000;
/// Time after which an absent client expires if other messages wait for its unfinished ones, in milliseconds. The
/// smallest value is longer than the time in which members forward a message to a member that lacks it.
pub const CLIENT_TIMEOUT_MS: RangeInclusive<u32> = 100..=600_000;
/// Largest difference between two clocks that both count as right, in milliseconds. The smallest value is four
/// heartbeat checks of an idle member.
pub const CLOCK_BOUND_MS: RangeInclusive<u32> = 200..=3_600_000;
/// Number of client ids.
pub const CLIENTS: RangeInclusive<u16> = 1..=1024;
/// Time after which a member that frees nothing is expelled, in milliseconds.
pub const EXPEL_MS: RangeInclusive<u32> = 50..=600_000;
/// Size of a control ring between two members, in KiB.
pub const RING_KIB: RangeInclusive<u32> = 16..=65_536;
/// Size of the ring for one client's messages at one member, in KiB.
pub const BODY_RING_KIB: RangeInclusive<u32> = 16..=1_048_576;
/// Longest reply of a member to a client, in bytes; 0: no replies.
pub const REPLY_BYTES: RangeInclusive<u32> = 0..=1 << 20;
/// Client sessions that a group keeps.
pub const SESSIONS: RangeInclusive<u32> = 1..=65_536;
/// Size of the ring for one member's replies at one client, in KiB.
pub const REPLY_RING_KIB: RangeInclusive<u32> = 1..=65_536;

/// Largest state of an application that one member transfers to another, in MiB.
pub const SNAPSHOT_MIB: RangeInclusive<u32> = 1..=1_048_576;
/// Backlog of deliveries that a donor keeps for the receiver of its state, in MiB. The smallest value holds one of the
/// longest messages.
pub const BACKLOG_MIB: RangeInclusive<u32> = 32..=1_048_576;
/// Share of their usual rate that clients keep when the backlog is nearly full, in percent.
pub const SLOWED_PERCENT: RangeInclusive<u32> = 1..=100;

/// Journal of recent commands that a member keeps for observers, in MiB; 0: no observers.
pub const OBSERVED_MIB: RangeInclusive<u32> = 0..=65_536;

// The protocol supports everything that a configuration allows. If either side changes, this stops the build.
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
// The other limits keep the process table within `u16`. If one is raised, this stops the build.
const _: () = assert!(MAX_GROUPS * MAX_GROUP_PROCESSES + *CLIENTS.end() as usize <= MAX_PROCESSES);

/// The sizes that are fixed at start, and the time after which a slow member is expelled. They determine the memory,
/// see [`Cluster::memory`](crate::Cluster::memory).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Longest payload of one message, in bytes; within [`MESSAGE_BYTES`].
    pub message_bytes: u32,
    /// Messages that one client may have in flight at one group; a power of two within [`WINDOW`].
    pub window: u32,
    /// Number of client ids; within [`CLIENTS`].
    pub clients: u16,
    /// Size of a control ring between two members, in KiB; within [`RING_KIB`].
    pub ring_kib: u32,
    /// Size of the ring for one client's messages at one member, in KiB; within [`BODY_RING_KIB`]. Rounded up to two of
    /// the longest messages.
    pub body_ring_kib: u32,
    /// Longest reply of a state machine to a client, in bytes; within [`REPLY_BYTES`]. If it is 0, there are no
    /// replies, and no clients with sessions.
    pub reply_bytes: u32,
    /// Size of the ring for one member's replies at one client, in KiB; within [`REPLY_RING_KIB`]. Rounded up to two of
    /// the longest replies.
    pub reply_ring_kib: u32,
    /// Sessions that a group keeps at a time; within [`SESSIONS`]. For each session, a member keeps the replies to up
    /// to one window of commands.
    pub sessions: u32,
    /// Largest state of an application that one member transfers to another, in MiB; within [`SNAPSHOT_MIB`].
    pub snapshot_mib: u32,
    /// Backlog of deliveries that a donor keeps for the receiver of its state, in MiB; within [`BACKLOG_MIB`].
    pub backlog_mib: u32,
    /// Share of their usual rate that clients keep when the backlog is nearly full, in percent; within
    /// [`SLOWED_PERCENT`].
    pub slowed_percent: u32,
    /// Time after which a member is expelled if it frees nothing that is written to it while a majority of its group is
    /// not stalled, in milliseconds; within [`EXPEL_MS`]. If a ring or window is full, the member is expelled after a
    /// tenth of this time. The other members continue without an expelled member.
    pub expel_ms: u32,
    /// Journal of recent commands that a member keeps for observers, in MiB; within [`OBSERVED_MIB`]. It exists while
    /// an observer is connected, and for two minutes afterwards. If it is 0, the member has no observers.
    pub observed_mib: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Limits {
    /// The sizes that apply if a configuration sets none.
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

    /// Returns the time after which a member that frees nothing is expelled.
    #[must_use]
    pub fn expel_after(&self) -> Duration {
        Duration::from_millis(u64::from(self.expel_ms))
    }

    /// Returns the length of the longest record that carries a reply, in bytes.
    fn reply_record_bytes(&self) -> usize {
        if self.reply_bytes == 0 { 0 } else { ReplyRecord::HEAD_BYTES + self.reply_bytes as usize }
    }

    /// Returns the bounds of a group's session table.
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

    /// Returns the sizes in the form that the multicast expects.
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
