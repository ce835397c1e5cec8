//! How long a process that was told to stop stays, so that the others know that it was.

use std::time::Duration;

/// The others of its group read that it does not stand any more. Those who rest publish and look every 50 ms.
const STAYS: Duration = Duration::from_millis(150);

/// The time for which a process that was told to stop stays.
#[derive(Debug, Default)]
pub struct Goodbye {
    rounds: u32,
    since: Duration,
}

impl Goodbye {
    /// Returns whether the others had the time to read that this process leaves. Call it in each round from when it was told:
    /// a round after the first publishes that.
    #[must_use]
    pub fn is_said(&mut self, now: Duration) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= 2 {
            self.since = now;
        }
        now.saturating_sub(self.since) >= STAYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_begins_with_the_round_that_publishes_it_however_late_that_is() {
        let mut goodbye = Goodbye::default();
        let said = [1000, 2000, 2149, 2150].map(|ms| goodbye.is_said(Duration::from_millis(ms)));
        assert_eq!(said, [false, false, false, true]);
    }
}
