//! The adaptive limit on the commands that wait for the apply thread.

use std::time::Duration;

/// The limit on the commands that may wait, so that a new command waits only for a short time.
///
/// Commands are applied in order, so a command of a client with few commands in flight waits for the commands of all
/// other clients. Commands that do not fit into this queue wait at the leader, where each client has a share. The queue
/// therefore holds the machine's work for [`Depth::WORK`]: more than the machine can do before the next round of the
/// protocol's thread.
///
/// # Invariants
/// - The limit is at most the node's configured bound, and at least the smaller of [`Depth::LEAST`] and that bound.
#[derive(Debug)]
pub(super) struct Depth {
    most: usize,
    limit: usize,
    /// Weighted number of applied commands and answered queries. Older batches have a lower weight.
    commands: f64,
    /// Time for which the apply thread processed these batches, in seconds, with the same weights.
    seconds: f64,
}

impl Depth {
    /// Machine time that the queue holds: several rounds of the protocol's thread, of a few to a few tens of µs each.
    const WORK: Duration = Duration::from_micros(200);
    /// Minimum limit. Even if a command takes longer than `WORK`, the next commands are queued before it ends.
    const LEAST: usize = 16;

    pub(super) fn new(most: usize) -> Self {
        Depth { most, limit: most, commands: 0.0, seconds: 0.0 }
    }

    /// Returns the number of commands that may wait.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Records that a batch of `commands` commands and queries was processed.
    pub(super) fn note(&mut self, commands: usize, took: Duration) {
        if commands == 0 {
            return;
        }
        // The weight of earlier batches decays by one eighth, so the estimate follows the last batches.
        self.commands = self.commands * 0.875 + commands as f64;
        self.seconds = self.seconds * 0.875 + took.as_secs_f64();
        // If the time is zero, the quotient is infinite, and the cast saturates.
        let work = Self::WORK.as_secs_f64() / self.seconds * self.commands;
        let limit = (work.round() as usize).max(Self::LEAST);
        self.limit = limit.min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(most: usize, batches: u32, commands: usize, each: Duration) -> usize {
        let mut depth = Depth::new(most);
        (0..batches).for_each(|_| depth.note(commands, each * commands as u32));
        depth.limit()
    }

    #[test]
    fn a_slow_machine_has_a_short_queue() {
        assert_eq!(after(1024, 1, 100, Duration::from_micros(4)), 50);
        assert_eq!(after(1024, 100, 3, Duration::from_micros(4)), 50);
        assert_eq!(after(1024, 5, 1, Duration::from_secs(5)), Depth::LEAST);
    }

    #[test]
    fn a_fast_machine_has_the_configured_bound() {
        assert_eq!(after(1024, 100, 64, Duration::from_nanos(50)), 1024);
        assert_eq!(after(1024, 3, 0, Duration::from_secs(1)), 1024, "nothing was applied");
        assert_eq!(after(1024, 3, 7, Duration::ZERO), 1024);
        assert_eq!(after(4, 5, 1, Duration::from_secs(5)), 4, "it is never above the bound");
    }

    #[test]
    fn recent_batches_dominate() {
        let mut depth = Depth::new(1024);
        (0..50).for_each(|_| depth.note(64, Duration::from_micros(64 * 20)));
        assert_eq!(depth.limit(), Depth::LEAST);
        (0..50).for_each(|_| depth.note(64, Duration::from_micros(64)));
        assert!((190..=200).contains(&depth.limit()), "{}", depth.limit());
        depth.note(1, Duration::MAX);
        assert_eq!(depth.limit(), Depth::LEAST);
    }
}
