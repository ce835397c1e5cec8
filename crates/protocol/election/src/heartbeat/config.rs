//! Configuration of an election by heartbeats.

use std::time::Duration;

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::Mutant;

/// Members of the group, and the timing of their failure detectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeartbeatConfig {
    /// This process.
    pub me: ProcessId,
    /// Life of this process, from 1. It must be larger after every restart. A process that loses its memory cannot know
    /// its earlier lives, so its caller must supply a larger number.
    pub incarnation: u64,
    /// Members of the group, in the order in which they are candidates. The first one that is alive and willing claims
    /// leadership.
    pub members: Vec<ProcessId>,
    /// Longest time between two rounds in which the owner polls, publishes and reads the others.
    pub interval: Duration,
    /// Shortest silence for which a process may be suspected. At least four intervals.
    pub timeout_min: Duration,
    /// Silence above which a process is always suspected. A process that has just started also waits that long for the
    /// others before it continues without them, and a candidate has that long to claim leadership.
    pub timeout_max: Duration,
    /// Number of members, itself included, that a process must reach to claim and to keep leadership. `None` means a
    /// majority, which the multicast needs to decide anything in any case. With 1, a single survivor can lead.
    pub quorum: Option<usize>,
    /// Epochs that this process announces are larger than this one.
    pub floor: u64,
    /// Mutant that is switched on, for tests.
    #[doc(hidden)]
    pub mutant: Mutant,
}

impl HeartbeatConfig {
    /// Largest number of members of a group.
    pub const MAX_MEMBERS: usize = 64;
    /// Upper bound of [`timeout_max`](HeartbeatConfig::timeout_max).
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
    /// Minimum length of the shortest timeout, in intervals.
    pub const INTERVALS: u32 = 4;

    /// Returns the configuration of a first life among `members` with rounds every `interval`. Timeouts are between 4
    /// and 64 intervals.
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

/// Reason why a configuration is invalid.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatError {
    /// The group has no members, or too many.
    #[error("{members} members: a group has 1 to {max}", max = HeartbeatConfig::MAX_MEMBERS)]
    Members {
        /// Number of members.
        members: usize,
    },
    /// This process is not one of the members.
    #[error("{process} is not among the members: only they take part in the election")]
    NotAMember {
        /// This process.
        process: ProcessId,
    },
    /// A member is named twice.
    #[error("{process} is named twice among the members: name each once")]
    Twice {
        /// The member.
        process: ProcessId,
    },
    /// The life is 0, the number of a process that has not started.
    #[error("incarnation 0: incarnations are numbered from 1")]
    Incarnation,
    /// The interval is 0.
    #[error("the interval is 0: set how often the process polls, for example every microsecond")]
    Interval,
    /// The shortest timeout spans too few intervals, so any short delay would cause a suspicion.
    #[error(
        "the shortest timeout, {min:?}, must be at least {} times the interval, {interval:?}",
        HeartbeatConfig::INTERVALS
    )]
    TooShort {
        /// Configured shortest timeout.
        min: Duration,
        /// Configured interval.
        interval: Duration,
    },
    /// The longest timeout is too short or too long.
    #[error(
        "the longest timeout, {max:?}, must be between the shortest, {min:?}, and {:?}",
        HeartbeatConfig::MAX_TIMEOUT
    )]
    Maximum {
        /// Configured shortest timeout.
        min: Duration,
        /// Configured longest timeout.
        max: Duration,
    },
    /// With this quorum no member could ever claim leadership, or every one could.
    #[error("a quorum of {quorum} among {members} members: it must be between 1 and their number")]
    Quorum {
        /// Configured quorum.
        quorum: usize,
        /// Number of members of the group.
        members: usize,
    },
}
