//! Retransmission of a session's pending command, such as its opening, and of questions about the outcome of commands,
//! until the groups have answered.

use std::time::Duration;

/// Time after which a message that is delivered and not answered is resent.
pub(super) const AGAIN: Duration = Duration::from_millis(250);

/// Maximum number of times that the pause after a refused widening is doubled. A widening adds groups to the session.
const MOST_RESTS: u32 = 4;

/// The state of the last transmission of a session's pending command or of a question.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    sequence: u64,
    /// Time at which the message was sent or, after its delivery, time at which the delivery was detected.
    at: Duration,
    is_delivered: bool,
}

impl Asked {
    pub(super) fn new(sequence: u64, at: Duration) -> Asked {
        Asked { sequence, at, is_delivered: false }
    }

    /// Returns whether the message must be resent. Before its delivery, another copy would only occupy another slot at
    /// the groups.
    pub(super) fn is_due(&mut self, now: Duration, is_delivered: impl FnOnce(u64) -> bool) -> bool {
        if !self.is_delivered {
            self.is_delivered = is_delivered(self.sequence);
            self.at = if self.is_delivered { now } else { self.at };
        }
        self.is_delivered && now.saturating_sub(self.at) >= AGAIN
    }
}

/// Returns the pause of a session after a failed widening. `refusals` is the number of consecutive failed widenings
/// before it. The pause is half of the longest pause for that number, plus a part of the other half that the random
/// number `part` selects.
pub(super) fn rest_of(refusals: u32, part: u64) -> Duration {
    let longest = AGAIN * (1 << refusals.min(MOST_RESTS));
    longest / 2 + Duration::from_nanos(part % (longest / 2).as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_question_is_resent_only_after_delivery() {
        let mut asked = Asked::new(7, Duration::ZERO);
        let late = AGAIN * 9;
        assert!(!asked.is_due(late, |_| false), "another copy would wait behind the first");
        assert!(!asked.is_due(late, |sent| sent == 7), "its answers may be on their way");
        assert!(!asked.is_due(late + AGAIN / 2, |_| false));
        assert!(asked.is_due(late + AGAIN, |_| false));
    }

    #[test]
    fn pauses_double_and_are_random() {
        for (refusals, longest) in [(0, AGAIN), (1, AGAIN * 2), (4, AGAIN * 16), (u32::MAX, AGAIN * 16)] {
            assert_eq!(rest_of(refusals, 0), longest / 2);
            let half = (longest / 2).as_nanos() as u64;
            assert_eq!(rest_of(refusals, half - 1), longest - Duration::from_nanos(1));
        }
    }
}
