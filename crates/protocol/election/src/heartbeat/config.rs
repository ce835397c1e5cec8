//! What an election by heartbeats is told at the start.

use std::time::Duration;

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::Mutant;

/// Who takes part, and how patient to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeartbeatConfig {
    /// This process.
    pub me: ProcessId,
    /// Which life of this process it is, from 1. Larger after every restart; a process that loses its memory gets a new
    /// one from the outside, as for everything else that it could have promised.
    pub incarnation: u64,
    /// The group, in the order in which they are candidates: the first one that is there and willing comes forward.
    pub members: Vec<ProcessId>,
    /// How often at least the owner polls, publishes and reads the others.
    pub interval: Duration,
    /// A silence shorter than this is never suspicious. At least four intervals.
    pub timeout_min: Duration,
    /// A silence longer than this always is. Also how long a process that has just begun waits for the others before it
    /// goes on without them, and how long a candidate is waited for.
    pub timeout_max: Duration,
    /// How many members, itself included, a process must see alive to come forward. Nothing stands for a majority, which
    /// the multicast needs to decide anything anyhow; 1 leaves a single survivor in charge.
    pub quorum: Option<usize>,
    /// Epochs that this process announces are above this one.
    pub floor: u64,
    /// A mutant, for tests.
    #[doc(hidden)]
    pub mutant: Mutant,
}

impl HeartbeatConfig {
    /// Members that a group can have.
    pub const MAX_MEMBERS: usize = 64;
    /// The longest timeout.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
    /// Intervals that the shortest timeout spans at least.
    pub const INTERVALS: u32 = 4;

    /// A first life among `members`, polling every `interval`: timeouts from 4 to 64 intervals.
    #[must_use]
    pub fn new(me: ProcessId, members: &[ProcessId], interval: Duration) -> Self {
        HeartbeatConfig {
            me,
            incarnation: 1,
            members: members.to_vec(),
            interval,
            timeout_min: interval.saturating_mul(Self::INTERVALS),
            timeout_max: interval.saturating_mul(64).min(Self::MAX_TIMEOUT),
            quorum: None,
            floor: 0,
            mutant: Mutant::None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), HeartbeatError> {
        let members = self.members.len();
        if !(1..=Self::MAX_MEMBERS).contains(&members) {
            return Err(HeartbeatError::Members { members });
        }
        if !self.members.contains(&self.me) {
            return Err(HeartbeatError::NotAMember { process: self.me });
        }
        let twice = self.members.iter().enumerate().find(|(n, process)| self.members[..*n].contains(process));
        if let Some((_, &process)) = twice {
            return Err(HeartbeatError::Twice { process });
        }
        if self.incarnation == 0 {
            return Err(HeartbeatError::Incarnation);
        }
        if self.interval.is_zero() {
            return Err(HeartbeatError::Interval);
        }
        let (interval, min, max) = (self.interval, self.timeout_min, self.timeout_max);
        if min < interval.saturating_mul(Self::INTERVALS) {
            return Err(HeartbeatError::TooShort { min, interval });
        }
        if max < min || max > Self::MAX_TIMEOUT {
            return Err(HeartbeatError::Maximum { min, max });
        }
        if self.quorum.is_some_and(|quorum| !(1..=members).contains(&quorum)) {
            return Err(HeartbeatError::Quorum { quorum: self.quorum.unwrap_or_default(), members });
        }
        Ok(())
    }
}

/// Why an election cannot be set up this way.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatError {
    /// Nobody, or too many.
    #[error("{members} members: a group has 1 to {max}", max = HeartbeatConfig::MAX_MEMBERS)]
    Members {
        /// How many.
        members: usize,
    },
    /// This process must be one of them.
    #[error("{process} is not among the members: only they take part in the election")]
    NotAMember {
        /// This process.
        process: ProcessId,
    },
    /// Somebody is named twice.
    #[error("{process} is named twice among the members: name each once")]
    Twice {
        /// Who.
        process: ProcessId,
    },
    /// 0 means that a process has not begun.
    #[error("incarnation 0: they are numbered from 1")]
    Incarnation,
    /// Nobody can poll that often.
    #[error("the interval is 0: say how often the process polls, a microsecond for instance")]
    Interval,
    /// A timeout must span several intervals, or every hiccup is a suspicion.
    #[error(
        "the shortest timeout, {min:?}, must be at least {} times the interval, {interval:?}",
        HeartbeatConfig::INTERVALS
    )]
    TooShort {
        /// As configured.
        min: Duration,
        /// As configured.
        interval: Duration,
    },
    /// The longest timeout is too short or too long.
    #[error(
        "the longest timeout, {max:?}, must be between the shortest, {min:?}, and {:?}",
        HeartbeatConfig::MAX_TIMEOUT
    )]
    Maximum {
        /// As configured.
        min: Duration,
        /// As configured.
        max: Duration,
    },
    /// Nobody could ever come forward.
    #[error("a quorum of {quorum} among {members} members: it must be between 1 and their number")]
    Quorum {
        /// As configured.
        quorum: usize,
        /// In the group.
        members: usize,
    },
}
