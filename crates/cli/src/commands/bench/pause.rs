//! What the floors do when there is nothing to do: exactly what [`Backoff`](stentor_fabric::Backoff) does on a fabric.

use std::io;
use std::time::Duration;

use stentor_fabric::WaitMode;

use super::stage::Stage;
use crate::args::Waiting;

/// Longest sleep; as in the loops of members and clients.
const LONGEST: Duration = Duration::from_millis(20);

/// The wait mode of a word on the command line.
pub(super) fn mode(waiting: Waiting) -> WaitMode {
    match waiting {
        Waiting::Poll => WaitMode::POLL,
        Waiting::Yield => WaitMode::YIELD,
        Waiting::Block => WaitMode::BLOCK,
        Waiting::Adaptive => WaitMode::ADAPTIVE,
    }
}

/// Pauses one process of a floor.
pub(super) struct Pause<'a> {
    stage: &'a Stage,
    bell: usize,
    mode: WaitMode,
    idle: u32,
    armed: bool,
}

impl<'a> Pause<'a> {
    pub(super) fn new(stage: &'a Stage, process: usize, mode: WaitMode) -> Self {
        Pause { stage, bell: stage.bell(process), mode, idle: 0, armed: false }
    }

    /// After every round.
    #[inline]
    pub(super) fn after(&mut self, worked: bool) -> io::Result<()> {
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
        self.long()
    }

    fn long(&mut self) -> io::Result<()> {
        let yields_until = self.mode.spins.saturating_add(self.mode.yields);
        if !self.mode.sleep || self.idle < yields_until {
            self.idle = self.idle.saturating_add(1).min(yields_until);
            std::thread::yield_now();
        } else if self.armed {
            self.armed = false;
            self.stage.memory().doze(self.bell, LONGEST)?;
        } else {
            self.armed = true;
            self.stage.memory().arm(self.bell);
        }
        Ok(())
    }
}
