//! Delays the end of a process that was asked to stop, until its peers have had time to read that it leaves.

use std::time::Duration;

/// Time that the other members of the group need to read that this one is leaving. Idle members publish and check at
/// least every 50 ms.
const STAYS: Duration = Duration::from_millis(150);

/// The delay before the end of a process that was asked to stop.
#[derive(Debug, Default)]
pub struct Goodbye {
    rounds: u32,
    since: Duration,
}

impl Goodbye {
    /// Returns whether the other members had time to read that this process leaves. Call it in each round after the
    /// request. The round after the first call publishes that this process leaves.
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
    fn delay_starts_with_the_round_that_publishes_it() {
        let mut goodbye = Goodbye::default();
        let said = [1000, 2000, 2149, 2150].map(|ms| goodbye.is_said(Duration::from_millis(ms)));
        assert_eq!(said, [false, false, false, true]);
    }
}
