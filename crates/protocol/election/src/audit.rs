//! Checks the stream of changes of any implementation of [`Election`](crate::Election).

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::Change;

/// A checker of one process's stream of changes. It reports each change that breaks a rule of the crate's
/// documentation, an invalid epoch, and a repeated [`Change::Pending`].
#[derive(Clone, Debug)]
pub struct Audit {
    me: ProcessId,
    highest: Option<(u64, ProcessId)>,
    last: Option<Change>,
}

/// Rule that a change breaks.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum AuditError {
    /// The epoch is not between 1 and 2^46 - 1.
    #[error("{epoch} is not an epoch: epochs are numbered from 1 to 2^46 - 1")]
    NotAnEpoch {
        /// Epoch of the change.
        epoch: u64,
    },
    /// Rule 1: the pair (epoch, leader) of a change is smaller than an earlier pair of the stream.
    #[error("({}, {}) follows ({}, {}): pairs of epoch and process never go down", now.0, now.1, before.0, before.1)]
    WentDown {
        /// Largest pair of the stream before the change.
        before: (u64, ProcessId),
        /// Pair of the change.
        now: (u64, ProcessId),
    },
    /// Rule 1: a change repeats the last pair (epoch, leader). This is allowed only directly after [`Change::Pending`],
    /// and only if the leader is another process than the one whose stream is checked.
    #[error("({}, {}) is repeated: only a pair of another process may be, after `Pending`", again.0, again.1)]
    Again {
        /// The repeated pair.
        again: (u64, ProcessId),
    },
    /// Rule 2: this process stopped leading without a resignation.
    #[error("leadership of epoch {epoch} ended without being resigned")]
    NotResigned {
        /// Epoch under which this process led.
        epoch: u64,
    },
    /// Rule 3: a resignation names an epoch under which this process does not lead.
    #[error("resigned from epoch {epoch}, under which this process does not lead")]
    NeverLed {
        /// Epoch of the resignation.
        epoch: u64,
    },
    /// Two consecutive changes are `Pending`.
    #[error("two consecutive changes are `Pending`")]
    PendingTwice,
}

impl Audit {
    /// Creates an audit of the stream of process `me`.
    #[must_use]
    pub fn new(me: ProcessId) -> Self {
        Audit { me, highest: None, last: None }
    }

    /// Returns the epoch under which this process leads, if it does.
    #[must_use]
    pub fn leading(&self) -> Option<u64> {
        match self.last {
            Some(Change::Leader { epoch, process }) if process == self.me => Some(epoch),
            _ => None,
        }
    }

    /// Returns the epoch and the leader of the last change, if it names one.
    #[must_use]
    pub fn leader(&self) -> Option<(u64, ProcessId)> {
        match self.last {
            Some(Change::Leader { epoch, process }) => Some((epoch, process)),
            _ => None,
        }
    }

    /// Checks the next change.
    ///
    /// # Errors
    /// Returns the rule that the change breaks. The audit applies the change in any case.
    pub fn check(&mut self, change: Change) -> Result<(), AuditError> {
        let result = self.judge(change);
        if let Change::Leader { epoch, process } = change {
            self.highest = self.highest.max(Some((epoch, process)));
        }
        self.last = Some(change);
        result
    }

    fn judge(&self, change: Change) -> Result<(), AuditError> {
        match (self.leading(), change) {
            (Some(led), Change::Resigned { epoch }) if led == epoch => return Ok(()),
            (_, Change::Resigned { epoch }) => return Err(AuditError::NeverLed { epoch }),
            (Some(epoch), Change::Pending) => return Err(AuditError::NotResigned { epoch }),
            (Some(epoch), Change::Leader { process, .. }) if process != self.me => {
                return Err(AuditError::NotResigned { epoch });
            }
            (None, Change::Pending) if self.last == Some(Change::Pending) => return Err(AuditError::PendingTwice),
            _ => {}
        }
        match change {
            Change::Leader { epoch, process } => self.judge_leader((epoch, process)),
            _ => Ok(()),
        }
    }

    fn judge_leader(&self, now: (u64, ProcessId)) -> Result<(), AuditError> {
        if !(1..1 << 46).contains(&now.0) {
            return Err(AuditError::NotAnEpoch { epoch: now.0 });
        }
        match self.highest {
            Some(before) if now < before => Err(AuditError::WentDown { before, now }),
            Some(before) if now == before && (now.1 == self.me || self.last != Some(Change::Pending)) => {
                Err(AuditError::Again { again: now })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: ProcessId = ProcessId(1);

    fn leader(epoch: u64, process: u16) -> Change {
        Change::Leader { epoch, process: ProcessId(process) }
    }

    fn resigned(epoch: u64) -> Change {
        Change::Resigned { epoch }
    }

    fn run(stream: &[Change]) -> Result<(), AuditError> {
        let mut audit = Audit::new(ME);
        stream.iter().try_for_each(|change| audit.check(*change))
    }

    #[test]
    fn valid_streams_pass() {
        for stream in [
            &[Change::Pending, leader(1, 0), leader(2, 2), Change::Pending, leader(2, 2)][..],
            &[leader(1, 0), leader(1, 1), resigned(1), leader(1, 2)],
            &[leader(3, 1), leader(5, 1), resigned(5), Change::Pending, leader(6, 1)],
        ] {
            assert_eq!(run(stream), Ok(()), "{stream:?}");
        }
    }

    #[test]
    fn each_broken_rule_is_named() {
        let (before, now) = ((2, ProcessId(0)), (1, ProcessId(2)));
        for (stream, error) in [
            (&[leader(2, 0), leader(1, 2)][..], AuditError::WentDown { before, now }),
            (&[leader(2, 0), leader(2, 0)], AuditError::Again { again: before }),
            (
                &[leader(2, 1), resigned(2), Change::Pending, leader(2, 1)],
                AuditError::Again { again: (2, ProcessId(1)) },
            ),
            (&[leader(2, 1), Change::Pending], AuditError::NotResigned { epoch: 2 }),
            (&[leader(2, 1), leader(3, 0)], AuditError::NotResigned { epoch: 2 }),
            (&[leader(2, 0), resigned(2)], AuditError::NeverLed { epoch: 2 }),
            (&[leader(2, 1), resigned(1)], AuditError::NeverLed { epoch: 1 }),
            (&[leader(2, 1), resigned(2), resigned(2)], AuditError::NeverLed { epoch: 2 }),
            (&[Change::Pending, Change::Pending], AuditError::PendingTwice),
            (&[leader(0, 0)], AuditError::NotAnEpoch { epoch: 0 }),
            (&[leader(1 << 46, 0)], AuditError::NotAnEpoch { epoch: 1 << 46 }),
        ] {
            assert_eq!(run(stream), Err(error), "{stream:?}");
        }
    }
}
