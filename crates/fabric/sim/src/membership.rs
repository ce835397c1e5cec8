//! The network's state of a set, and a process's state as a member of one.

use stentor_fabric::{ProcessId, QpId};

/// A process that waits for a life of a set, or is in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seat {
    pub(crate) life: u32,
    pub(crate) end: QpId,
}

/// The network's state of a set.
pub(crate) struct Set {
    pub(crate) members: Vec<ProcessId>,
    /// Processes that have joined for the next life, by rank.
    pub(crate) waiting: Vec<Option<Seat>>,
    /// Processes that are in the newest life and have not left it, by rank.
    pub(crate) seats: Vec<Option<Seat>>,
    /// The newest life; 0 before the first.
    pub(crate) life: u64,
    /// `true` if a member was notified of the end of the newest life.
    pub(crate) dying: bool,
    /// Time since which the next life is awaited, in nanoseconds; `None` while no process waits.
    pub(crate) since: Option<u64>,
}

/// A process's state as a member of a set.
pub(crate) struct Membership {
    pub(crate) members: Vec<ProcessId>,
    pub(crate) rank: usize,
    pub(crate) end: QpId,
    /// Queue pairs on which the copies of each member arrive, by rank.
    pub(crate) from: Vec<QpId>,
    /// Process lives of the members of the newest life, by rank.
    pub(crate) lives: Vec<u32>,
    /// Members that the current life reaches, as a bit mask of ranks.
    pub(crate) reaches: u32,
    /// The newest life that included the member and broke at this process, for each member by rank.
    pub(crate) owed: Vec<u64>,
    /// The newest life that each member is known to have left, by rank.
    pub(crate) left: Vec<u64>,
    /// Number of copies posted to each member, by rank.
    pub(crate) posted: Vec<u64>,
    /// Time of the newest planned arrival at each member, by rank, in nanoseconds.
    pub(crate) last_arrival: Vec<u64>,
    /// Time until which the network holds back arriving copies to each member, by rank, in nanoseconds.
    pub(crate) kept_until: Vec<u64>,
    /// Time at which the last write leaves the NIC, in nanoseconds.
    pub(crate) departs: u64,
}

impl Membership {
    pub(crate) fn rank_of(&self, peer: ProcessId) -> Option<usize> {
        self.members.iter().position(|member| *member == peer)
    }

    pub(crate) fn is_reached(&self, rank: usize) -> bool {
        self.reaches >> rank & 1 == 1
    }
}
