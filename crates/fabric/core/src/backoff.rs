//! What a polling loop does when there is nothing to do: spin, then yield, then sleep.

use std::time::{Duration, Instant};

use crate::{Fabric, WaitError};

/// How long to poll before giving the processor away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitMode {
    /// Idle rounds that only spin.
    pub spins: u32,
    /// Idle rounds after those that give up the time slice.
    pub yields: u32,
    /// Whether to sleep after those, until the fabric wakes the process; otherwise it goes on yielding.
    pub sleep: bool,
}

impl WaitMode {
    /// One process per core: never leaves the processor.
    pub const POLL: WaitMode = WaitMode { spins: u32::MAX, yields: 0, sleep: false };
    /// More processes than cores, latency first: gives up the time slice each idle round, never sleeps.
    pub const YIELD: WaitMode = WaitMode { spins: 0, yields: 1, sleep: false };
    /// More processes than cores, or mostly idle: sleeps soon.
    pub const BLOCK: WaitMode = WaitMode { spins: 16, yields: 0, sleep: true };
    /// The default: hardly spin, yield for some hundred microseconds, then sleep. With more processes than cores every
    /// idle round that only spins is taken from the peer that this process waits for.
    pub const ADAPTIVE: WaitMode = WaitMode { spins: 2, yields: 200, sleep: true };

    /// Returns the mode of a loop that has had nothing but routine work (heartbeats, timers) for so long. A mode that sleeps
    /// neither spins nor yields after [`REST_AFTER`]: what comes next pays a wake-up, and an idle process costs hardly
    /// anything. A mode that never sleeps stays what it is.
    #[must_use]
    pub fn after(self, quiet: Duration) -> WaitMode {
        if self.sleep && quiet >= REST_AFTER { WaitMode { spins: 0, yields: 0, sleep: true } } else { self }
    }
}

/// The time without work after which a loop rests; see [`WaitMode::after`].
pub const REST_AFTER: Duration = Duration::from_secs(1);

impl Default for WaitMode {
    fn default() -> Self {
        WaitMode::ADAPTIVE
    }
}

/// A yield that takes longer has let another process run.
const CROWDED: Duration = Duration::from_micros(1);

/// On a crowded processor so many yields are made for each that is timed.
const YIELDS_PER_LOOK: u32 = 16;

/// What a polling loop does after an idle round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Idle {
    /// Poll again.
    Poll,
    /// Arm ([`Fabric::arm`]), then poll once more.
    Arm,
    /// Sleep ([`Fabric::wait`]).
    Sleep,
}

/// Counts idle rounds of one polling loop and pauses accordingly.
///
/// Spinning is for processes that have a processor each: while yields find that other processes wait for this one, no
/// round spins.
#[derive(Clone, Debug)]
pub struct Backoff {
    /// The mode at this time.
    mode: WaitMode,
    /// The mode while there is work.
    awake: WaitMode,
    idle: u32,
    armed: bool,
    crowded: bool,
    yields: u32,
}

impl Backoff {
    /// Starts active.
    #[must_use]
    pub fn new(mode: WaitMode) -> Self {
        Backoff { mode, awake: mode, idle: 0, armed: false, crowded: false, yields: 0 }
    }

    /// Says for how long the loop has had nothing but routine work, which changes its mode; see [`WaitMode::after`]. A loop
    /// that never calls this never rests.
    #[inline]
    pub fn quiet_for(&mut self, quiet: Duration) {
        self.mode = self.awake.after(quiet);
    }

    /// Call after every round of the loop. `worked`: whether the round did anything. Returns at once after work;
    /// otherwise spins, yields, or arms the fabric (so that the next round polls once more) and then sleeps, at most
    /// `longest`. Returns whether it slept.
    ///
    /// # Errors
    /// What [`Fabric::wait`] says.
    #[inline]
    pub fn pause<F: Fabric>(&mut self, fabric: &mut F, worked: bool, longest: Duration) -> Result<bool, WaitError> {
        match self.after(worked) {
            Idle::Poll => Ok(false),
            Idle::Arm => {
                fabric.arm();
                Ok(false)
            }
            Idle::Sleep => fabric.wait(longest).map(|_| true),
        }
    }

    /// The same for loops that sleep in their own way: spins and yields here, and says what else to do.
    #[inline]
    pub fn after(&mut self, worked: bool) -> Idle {
        if worked {
            self.idle = 0;
            self.armed = false;
            return Idle::Poll;
        }
        if self.idle < self.mode.spins && !self.crowded {
            self.idle = self.idle.saturating_add(1);
            std::hint::spin_loop();
            return Idle::Poll;
        }
        self.long()
    }

    fn long(&mut self) -> Idle {
        let spins = if self.crowded { 0 } else { self.mode.spins };
        let yields_until = spins.saturating_add(self.mode.yields);
        if !self.mode.sleep || self.idle < yields_until {
            self.idle = self.idle.saturating_add(1).min(yields_until);
            self.give_way();
            Idle::Poll
        } else if self.armed {
            self.armed = false;
            Idle::Sleep
        } else {
            self.armed = true;
            Idle::Arm
        }
    }

    fn give_way(&mut self) {
        self.yields = self.yields.wrapping_add(1);
        // A crowd does not go away between two yields; to read the clock at each would cost more than it tells.
        if self.mode.spins == 0 || self.crowded && !self.yields.is_multiple_of(YIELDS_PER_LOOK) {
            std::thread::yield_now();
            return;
        }
        let before = Instant::now();
        std::thread::yield_now();
        self.crowded = before.elapsed() > CROWDED;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn idle_rounds(backoff: &mut Backoff, rounds: usize) -> Vec<Idle> {
        (0..rounds).map(|_| backoff.after(false)).collect()
    }

    #[test]
    fn it_spins_yields_arms_polls_once_more_and_sleeps() {
        let mut backoff = Backoff::new(WaitMode { spins: 3, yields: 0, sleep: true });
        let poll = Idle::Poll;
        let expected = [poll, poll, poll, Idle::Arm, Idle::Sleep, Idle::Arm, Idle::Sleep];
        assert_eq!(idle_rounds(&mut backoff, 7), expected);
        assert_eq!(backoff.after(true), poll);
        assert_eq!(idle_rounds(&mut backoff, 4), expected[..4]);
        assert_eq!(backoff.after(true), poll, "work between arming and sleeping");
        assert_eq!(idle_rounds(&mut backoff, 4), expected[..4]);
    }

    /// Returns the number of rounds that a loop polls before it arms and sleeps, when its only work is a heartbeat.
    fn polls_per_heartbeat(quiet: Duration) -> usize {
        let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
        let mut polls = 0;
        for _ in 0..10 {
            backoff.quiet_for(quiet);
            assert_eq!(backoff.after(true), Idle::Poll);
            loop {
                match backoff.after(false) {
                    Idle::Poll => polls += 1,
                    Idle::Arm => {}
                    Idle::Sleep => break,
                }
            }
        }
        polls / 10
    }

    #[test]
    fn a_loop_that_had_only_heartbeats_for_a_second_sleeps_at_once() {
        assert_eq!(polls_per_heartbeat(REST_AFTER), 0);
        let before = polls_per_heartbeat(REST_AFTER.saturating_sub(Duration::from_nanos(1)));
        assert!(before >= 200, "{before}");
        for mode in [WaitMode::POLL, WaitMode::YIELD] {
            assert_eq!(mode.after(Duration::MAX), mode);
        }
        assert_eq!(WaitMode::BLOCK.after(Duration::MAX), WaitMode::ADAPTIVE.after(REST_AFTER));
    }

    #[test]
    fn a_crowded_processor_is_not_spun_on() {
        let mut backoff = Backoff::new(WaitMode { spins: 3, yields: 2, sleep: true });
        backoff.crowded = true;
        for _ in 0..2 {
            assert_eq!(backoff.after(false), Idle::Poll);
            backoff.crowded = true;
        }
        assert_eq!(backoff.after(false), Idle::Arm);
    }

    #[test]
    fn who_never_sleeps_yields_for_ever() {
        let mut backoff = Backoff::new(WaitMode::YIELD);
        assert!(idle_rounds(&mut backoff, 100).iter().all(|idle| *idle == Idle::Poll));
    }
}
