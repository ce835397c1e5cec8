//! Whether the messages of a member move.

use std::time::Duration;

use stentor_multicast::Replica;

/// How often it is looked whether messages move. A process that did not look for ten times as long was stopped itself.
const MOVES: Duration = Duration::from_millis(50);

/// Whether messages move.
#[derive(Debug, Default)]
pub(super) struct Moves {
    delivered: u64,
    /// When some were delivered, or there were none to deliver.
    pub(super) last: Duration,
    looked: Duration,
    /// This process did not look for so long.
    pub(super) pause: Option<Duration>,
}

impl Moves {
    /// Looks, between two rounds.
    #[inline]
    pub(super) fn look(&mut self, now: Duration, replica: &Replica) {
        if self.looked.is_zero() {
            // What was before the first look is no pause.
            self.looked = now;
        }
        let pause = now.saturating_sub(self.looked);
        if pause < MOVES {
            return;
        }
        if pause > 10 * MOVES {
            self.pause = Some(pause);
        }
        self.looked = now;
        let delivered = replica.delivered();
        if delivered != self.delivered || pause > 10 * MOVES || replica.undelivered().next().is_none() {
            (self.delivered, self.last) = (delivered, now);
        }
    }
}
