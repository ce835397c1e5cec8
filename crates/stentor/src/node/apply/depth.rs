//! How many commands may wait for the apply thread.

use std::time::Duration;

/// How many commands may wait, so that the one that comes next waits for a short time only.
///
/// Commands are applied in their order, so a client that has few of them under way waits behind all those of others. What does not wait
/// here waits at the leader, where each client has a share. The queue therefore holds what the machine does in [`Depth::WORK`]: more
/// than it can do while the protocol's thread makes its next round.
///
/// # Invariants
/// - The limit is at most the bound that the node was given, and at least [`Depth::LEAST`] or that bound.
#[derive(Debug)]
pub(super) struct Depth {
    most: usize,
    limit: usize,
    /// Commands that were applied, and the seconds that they took; older batches count less.
    commands: f64,
    seconds: f64,
}

impl Depth {
    /// What the queue holds, in time: some rounds of the protocol's thread, each of which takes some microseconds to some tens of them.
    const WORK: Duration = Duration::from_micros(200);
    /// Where one command takes longer than all that, the next one is there before it ends.
    const LEAST: usize = 16;

    pub(super) fn new(most: usize) -> Self {
        Depth { most, limit: most, commands: 0.0, seconds: 0.0 }
    }

    /// How many commands may wait.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// A batch was applied.
    pub(super) fn note(&mut self, commands: usize, took: Duration) {
        if commands == 0 {
            return;
        }
        // One eighth is forgotten, so that what is left follows the last batches.
        self.commands = self.commands * 0.875 + commands as f64;
        self.seconds = self.seconds * 0.875 + took.as_secs_f64();
        // If the time is zero, this is infinite, and so the greatest number.
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
    fn a_fast_machine_has_what_the_node_was_given() {
        assert_eq!(after(1024, 100, 64, Duration::from_nanos(50)), 1024);
        assert_eq!(after(1024, 3, 0, Duration::from_secs(1)), 1024, "nothing was applied");
        assert_eq!(after(1024, 3, 7, Duration::ZERO), 1024);
        assert_eq!(after(4, 5, 1, Duration::from_secs(5)), 4, "it is never above the bound");
    }

    #[test]
    fn the_last_batches_count() {
        let mut depth = Depth::new(1024);
        (0..50).for_each(|_| depth.note(64, Duration::from_micros(64 * 20)));
        assert_eq!(depth.limit(), Depth::LEAST);
        (0..50).for_each(|_| depth.note(64, Duration::from_micros(64)));
        assert!((190..=200).contains(&depth.limit()), "{}", depth.limit());
        depth.note(1, Duration::MAX);
        assert_eq!(depth.limit(), Depth::LEAST);
    }
}
