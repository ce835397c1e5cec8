//! What a session asks its groups, until they have answered.

use std::time::Duration;

/// After that, what is delivered and not answered goes out again.
pub(super) const AGAIN: Duration = Duration::from_millis(250);

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
}
