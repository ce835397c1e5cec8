//! Detection of stalls: whether a member delivers messages, and whether its process was suspended.

use std::time::Duration;

use stentor_multicast::Replica;

/// Interval between checks. A gap of more than ten intervals means that this process itself was suspended.
const MOVES: Duration = Duration::from_millis(50);

/// The delivery progress of a member.
#[derive(Debug, Default)]
pub(super) struct Moves {
    delivered: u64,
    /// Time of the last delivery, of the last check without undelivered messages, or of the end of the last suspension.
    pub(super) last: Duration,
    looked: Duration,
    /// Duration of the last suspension of this process.
    pub(super) pause: Option<Duration>,
}

impl Moves {
    /// Checks the progress, between two rounds.
    #[inline]
    pub(super) fn look(&mut self, now: Duration, replica: &Replica) {
        if self.looked.is_zero() {
            // The time before the first check is not a suspension.
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
