//! The idle strategy of a polling loop: spin, then yield the processor, then sleep.

use std::time::{Duration, Instant};

use crate::{Fabric, WaitError};

/// The idle strategy of a polling loop: the number of idle rounds that spin, the number that yield, and whether the
/// loop then sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitMode {
    /// Number of idle rounds that only spin.
    pub spins: u32,
    /// Number of idle rounds, after the spinning ones, that yield the time slice. A round in which other processes wait
    /// for the processor counts for four.
    pub yields: u32,
    /// `true` if the loop then sleeps until the fabric wakes the process. Otherwise the loop continues to yield.
    pub sleep: bool,
}

impl WaitMode {
    /// Mode for one process per core. The loop spins for 2^32 − 1 idle rounds in a row before it yields the processor.
    pub const POLL: WaitMode = WaitMode { spins: u32::MAX, yields: 0, sleep: false };
    /// Mode for more processes than cores, if latency matters most. The loop yields the time slice in each idle round
    /// and never sleeps.
    pub const YIELD: WaitMode = WaitMode { spins: 0, yields: 1, sleep: false };
    /// Mode for more processes than cores, or for processes that are mostly idle. The loop spins for 16 idle rounds,
    /// polls once more, then sleeps.
    pub const BLOCK: WaitMode = WaitMode { spins: 16, yields: 0, sleep: true };
    /// The default mode. The loop spins in 2 idle rounds, yields in 200 (50 while other processes wait for the
    /// processor), then sleeps. It hardly spins because, with more processes than cores, every spinning round takes
    /// processor time from the peer that this process waits for.
    pub const ADAPTIVE: WaitMode = WaitMode { spins: 2, yields: 200, sleep: true };

    /// Returns the mode of a loop that has had nothing but routine work (heartbeats, timers) for the time `quiet`. A
    /// mode that sleeps stops spinning and yielding once `quiet` reaches [`REST_AFTER`]. The next message then pays for
    /// a wake-up, but an idle process uses hardly any processor time. A mode that never sleeps does not change.
    #[must_use]
    pub fn after(self, quiet: Duration) -> WaitMode {
        if self.sleep && quiet >= REST_AFTER { WaitMode { spins: 0, yields: 0, sleep: true } } else { self }
    }
}

/// Time without work after which a loop sleeps at once; see [`WaitMode::after`].
pub const REST_AFTER: Duration = Duration::from_secs(1);

impl Default for WaitMode {
    fn default() -> Self {
        WaitMode::ADAPTIVE
    }
}

/// Maximum duration of a yield during which no other process ran. A longer yield shows that the processor is crowded.
const CROWDED: Duration = Duration::from_micros(1);

/// Number of yields that one yield on a crowded processor counts for, so that the loop sleeps earlier there. Such a yield
/// costs a change of context, and delays the processes that have work. Measured with the store in `examples/kv` on two
/// cores, one SET in flight for each of 50 clients: if a loop yields 50 times before it sleeps instead of 200 times, the
/// rate is 1.28 to 1.44 times as high. If it yields 10 times, the rate is 1.16 times as high; if never, 0.83 times.
const CROWDED_WEIGHT: u32 = 4;

/// Number of yields per timed yield while the processor is crowded.
const YIELDS_PER_LOOK: u32 = 16;

/// The next step of a polling loop after an idle round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Idle {
    /// Poll again.
    Poll,
    /// Arm the fabric ([`Fabric::arm`]), then poll once more.
    Arm,
    /// Sleep ([`Fabric::wait`]).
    Sleep,
}

/// Counts the idle rounds of one polling loop and pauses accordingly.
///
/// Spinning helps only if each process has a processor. While timed yields show that other processes wait for this
/// processor, no round spins.
#[derive(Clone, Debug)]
pub struct Backoff {
    /// The current mode.
    mode: WaitMode,
    /// The mode that was passed to `new`. [`quiet_for`](Backoff::quiet_for) derives the current mode from it.
    awake: WaitMode,
    idle: u32,
    armed: bool,
    crowded: bool,
    yields: u32,
}

impl Backoff {
    /// Creates the state of a loop that has just done work.
    #[must_use]
    pub fn new(mode: WaitMode) -> Self {
        Backoff { mode, awake: mode, idle: 0, armed: false, crowded: false, yields: 0 }
    }

    /// Selects the mode of a loop that has had nothing but routine work for the time `quiet`; see [`WaitMode::after`].
    /// A loop that never calls this keeps its first mode.
    #[inline]
    pub fn quiet_for(&mut self, quiet: Duration) {
        self.mode = self.awake.after(quiet);
    }

    /// Pauses after one round of the loop and returns whether it slept. Call this after every round; `worked` is `true`
    /// if the round did any work. After work it returns at once. After an idle round it spins, yields, arms the fabric,
    /// or sleeps for at most `longest`. It sleeps only if the round since the arming was idle, too.
    ///
    /// # Errors
    /// Returns the error of [`Fabric::wait`].
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

    /// Spins or yields after an idle round, and returns the next step. Loops that arm and sleep in another way call
    /// this function instead of [`pause`](Backoff::pause).
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
            let weight = if self.crowded { CROWDED_WEIGHT } else { 1 };
            self.idle = self.idle.saturating_add(weight).min(yields_until);
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
        // While the processor is crowded, only one yield in `YIELDS_PER_LOOK` is timed: the processor stays crowded for
        // many yields, and reading the clock at each one would cost more than it saves.
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
    fn a_loop_with_only_heartbeats_for_a_second_sleeps_at_once() {
        assert_eq!(polls_per_heartbeat(REST_AFTER), 0);
        let before = polls_per_heartbeat(REST_AFTER.saturating_sub(Duration::from_nanos(1)));
        // The processor may be crowded while this test runs.
        assert!(before >= 200 / CROWDED_WEIGHT as usize, "{before}");
        for mode in [WaitMode::POLL, WaitMode::YIELD] {
            assert_eq!(mode.after(Duration::MAX), mode);
        }
        assert_eq!(WaitMode::BLOCK.after(Duration::MAX), WaitMode::ADAPTIVE.after(REST_AFTER));
    }

    #[test]
    fn no_round_spins_on_a_crowded_processor() {
        let mut backoff = Backoff::new(WaitMode { spins: 3, yields: 2 * CROWDED_WEIGHT, sleep: true });
        backoff.crowded = true;
        for _ in 0..2 {
            assert_eq!(backoff.after(false), Idle::Poll);
            backoff.crowded = true;
        }
        assert_eq!(backoff.after(false), Idle::Arm);
    }

    #[test]
    fn a_mode_without_sleep_yields_for_ever() {
        let mut backoff = Backoff::new(WaitMode::YIELD);
        assert!(idle_rounds(&mut backoff, 100).iter().all(|idle| *idle == Idle::Poll));
    }
}
