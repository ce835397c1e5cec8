//! What a session asks its groups, until they have answered.

use std::time::Duration;

/// After that, what is delivered and not answered goes out again.
pub(super) const AGAIN: Duration = Duration::from_millis(250);

/// How often the rest after a widening that was refused is doubled, at most.
const MOST_RESTS: u32 = 4;

/// A message of the session itself, or a question.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    sequence: u64,
    /// When it went out; then when it was found to be delivered.
    at: Duration,
    is_delivered: bool,
}

impl Asked {
    pub(super) fn new(sequence: u64, at: Duration) -> Asked {
        Asked { sequence, at, is_delivered: false }
    }

    /// Returns whether it is due again. While it is not delivered another copy would only take another place at the groups.
    pub(super) fn is_due(&mut self, now: Duration, is_delivered: impl FnOnce(u64) -> bool) -> bool {
        if !self.is_delivered {
            self.is_delivered = is_delivered(self.sequence);
            self.at = if self.is_delivered { now } else { self.at };
        }
        self.is_delivered && now.saturating_sub(self.at) >= AGAIN
    }
}

/// Returns how long the session rests after a widening that failed, when `refusals` before it failed in a row: at least half of the longest
/// rest of that number, and a random `part` of the other half.
pub(super) fn rest_of(refusals: u32, part: u64) -> Duration {
    let longest = AGAIN * (1 << refusals.min(MOST_RESTS));
    longest / 2 + Duration::from_nanos(part % (longest / 2).as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_goes_out_again_after_it_is_delivered() {
        let mut asked = Asked::new(7, Duration::ZERO);
        let late = AGAIN * 9;
        assert!(!asked.is_due(late, |_| false), "another copy would wait behind the first");
        assert!(!asked.is_due(late, |sent| sent == 7), "its answers may be on their way");
        assert!(!asked.is_due(late + AGAIN / 2, |_| false));
        assert!(asked.is_due(late + AGAIN, |_| false));
    }

    #[test]
    fn rests_double_and_are_not_in_step() {
        for (refusals, longest) in [(0, AGAIN), (1, AGAIN * 2), (4, AGAIN * 16), (u32::MAX, AGAIN * 16)] {
            assert_eq!(rest_of(refusals, 0), longest / 2);
            let half = (longest / 2).as_nanos() as u64;
            assert_eq!(rest_of(refusals, half - 1), longest - Duration::from_nanos(1));
        }
    }
}
