//! What a polling loop does when there is nothing to do: spin, then yield, then sleep.

use std::time::Duration;

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
    /// The default: spin a little, yield a little, then sleep.
    pub const ADAPTIVE: WaitMode = WaitMode { spins: 64, yields: 32, sleep: true };
}

impl Default for WaitMode {
    fn default() -> Self {
        WaitMode::ADAPTIVE
    }
}

/// Counts idle rounds of one polling loop and pauses accordingly.
#[derive(Clone, Debug)]
pub struct Backoff {
    mode: WaitMode,
    idle: u32,
    armed: bool,
}

impl Backoff {
    /// Starts active.
    #[must_use]
    pub fn new(mode: WaitMode) -> Self {
        Backoff { mode, idle: 0, armed: false }
    }

    /// Call after every round of the loop. `worked`: whether the round did anything. Returns at once after work;
    /// otherwise spins, yields, or arms the fabric (so that the next round polls once more) and then sleeps, at most
    /// `longest`.
    ///
    /// # Errors
    /// What [`Fabric::wait`] says.
    #[inline]
    pub fn pause<F: Fabric>(&mut self, fabric: &mut F, worked: bool, longest: Duration) -> Result<(), WaitError> {
        if worked {
            self.idle = 0;
            self.armed = false;
            return Ok(());
        }
        if self.idle < self.mode.spins {
            self.idle = self.idle.saturating_add(1);
            std::hint::spin_loop();
            return Ok(());
        }
        self.pause_long(fabric, longest)
    }

    fn pause_long<F: Fabric>(&mut self, fabric: &mut F, longest: Duration) -> Result<(), WaitError> {
        let yields_until = self.mode.spins.saturating_add(self.mode.yields);
        if !self.mode.sleep || self.idle < yields_until {
            self.idle = self.idle.saturating_add(1).min(yields_until);
            std::thread::yield_now();
        } else if self.armed {
            self.armed = false;
            fabric.wait(longest)?;
        } else {
            self.armed = true;
            fabric.arm();
        }
        Ok(())
    }
}
