//! Hints for polling loops: the processes whose data may have landed.

use crate::ProcessId;

/// The result of [`Fabric::poll_hint`](crate::Fabric::poll_hint). A hint may name processes from which nothing has
/// landed. It omits no process from which data has landed, except data of
/// [`write_quietly`](crate::Fabric::write_quietly) and of peers that break the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollHint {
    /// One bit for every process, by its number modulo 64.
    from: u64,
    /// `true` if completions may wait to be polled.
    completed: bool,
}

impl PollHint {
    /// Nothing landed and nothing completed: a round of polling would find nothing new.
    pub const NOTHING: PollHint = PollHint { from: 0, completed: false };
    /// Data of every process may have landed, and completions may wait to be polled.
    pub const ANYBODY: PollHint = PollHint { from: u64::MAX, completed: true };
    /// Only completions may wait to be polled.
    pub const COMPLETIONS: PollHint = PollHint { from: 0, completed: true };

    /// Returns the hint that data from `process` may have landed.
    #[inline]
    #[must_use]
    pub fn from(process: ProcessId) -> PollHint {
        PollHint { from: 1 << (process.0 % 64), completed: false }
    }

    /// Returns whether a round of polling would find nothing new.
    #[inline]
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == PollHint::NOTHING
    }

    /// Returns whether data from `process` may have landed.
    #[inline]
    #[must_use]
    pub fn is_from(self, process: ProcessId) -> bool {
        self.from >> (process.0 % 64) & 1 == 1
    }

    /// Returns the processes with numbers below `processes` whose data may have landed, in rising order.
    #[inline]
    pub fn among(self, processes: usize) -> impl Iterator<Item = ProcessId> + use<> {
        let below = |processes: usize| if processes < 64 { (1 << processes) - 1 } else { u64::MAX };
        let (mut first, mut left) = (0, self.from & below(processes));
        std::iter::from_fn(move || {
            while left == 0 {
                first += 64;
                if first >= processes {
                    return None;
                }
                left = self.from & below(processes - first);
            }
            let bit = left.trailing_zeros() as usize;
            left &= left - 1;
            Some(ProcessId((first + bit) as u16))
        })
    }

    /// Returns the union of both hints.
    #[inline]
    #[must_use]
    pub fn and(self, other: PollHint) -> PollHint {
        PollHint { from: self.from | other.from, completed: self.completed | other.completed }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hints_add_up() {
        let (a, b) = (ProcessId(3), ProcessId(64));
        let heard = PollHint::from(a).and(PollHint::NOTHING);
        assert!(heard.is_from(a) && !heard.is_from(b) && !heard.is_nothing());
        assert!(heard.and(PollHint::from(b)).is_from(ProcessId(0)), "processes 0 and 64 share a bit");
        assert!(!PollHint::COMPLETIONS.is_nothing() && !PollHint::COMPLETIONS.is_from(a));
        assert!(PollHint::ANYBODY.is_from(a) && PollHint::NOTHING.is_nothing());
    }

    #[test]
    fn among_yields_the_processes_whose_bit_is_set() {
        let heard = PollHint::from(ProcessId(5)).and(PollHint::from(ProcessId(66)));
        let among = |processes| heard.among(processes).map(|process| process.0).collect::<Vec<_>>();
        assert_eq!((among(2), among(6), among(64), among(70)), (vec![], vec![2, 5], vec![2, 5], vec![2, 5, 66, 69]));
        assert_eq!(PollHint::NOTHING.among(70).count(), 0);
        assert_eq!(PollHint::ANYBODY.among(70).count(), 70);
    }
}
