//! What the network knows of a set, and what a process knows of its place in one.

use stentor_fabric::{ProcessId, QpId};

/// One process that wants to be in a life, or is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seat {
    pub(crate) life: u32,
    pub(crate) end: QpId,
}

/// What the network knows of a set.
pub(crate) struct Set {
    pub(crate) members: Vec<ProcessId>,
    /// By rank: who has joined for the next life.
    pub(crate) waiting: Vec<Option<Seat>>,
    /// By rank: who is in the newest life and has not left it.
    pub(crate) seats: Vec<Option<Seat>>,
    /// The newest life; 0 before the first.
    pub(crate) life: u64,
    /// Somebody was told that it is over.
    pub(crate) dying: bool,
    /// Since when the next life is waited for, ns; `None` while nobody does.
    pub(crate) since: Option<u64>,
}

/// What a process knows of a set.
pub(crate) struct Membership {
    pub(crate) members: Vec<ProcessId>,
    pub(crate) rank: usize,
    pub(crate) end: QpId,
    /// By rank: where its copies come in.
    pub(crate) from: Vec<QpId>,
    /// By rank: the life of the process in the newest life.
    pub(crate) lives: Vec<u32>,
    /// Whom the life that is ready reaches.
    pub(crate) reaches: u32,
    /// By rank: the newest life that broke here and was one of that process, too.
    pub(crate) owed: Vec<u64>,
    /// By rank: the newest life that the process is known to have left.
    pub(crate) left: Vec<u64>,
    /// By rank: copies posted.
    pub(crate) posted: Vec<u64>,
    /// By rank: the newest arrival that was planned, ns.
    pub(crate) last_arrival: Vec<u64>,
    /// By rank: until when the network keeps copies, ns.
    pub(crate) kept_until: Vec<u64>,
    /// When the last write leaves the NIC, ns.
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
