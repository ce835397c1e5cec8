//! The pause of an idle bound. It follows the same [`Backoff`] as members and clients.

use std::io;
use std::time::Duration;

use stentor_fabric::{Backoff, Idle, WaitMode};

use super::shared_area::SharedArea;
use crate::args::Waiting;

/// Longest sleep, as in the loops of members and clients.
pub(super) const LONGEST: Duration = Duration::from_millis(20);

/// Returns the wait mode for an argument.
pub(super) fn mode(waiting: Waiting) -> WaitMode {
    match waiting {
        Waiting::Poll => WaitMode::POLL,
        Waiting::Yield => WaitMode::YIELD,
        Waiting::Block => WaitMode::BLOCK,
        Waiting::Adaptive => WaitMode::ADAPTIVE,
    }
}

/// The pauses of one process of a bound.
pub(super) struct Pause<'a> {
    area: &'a SharedArea,
    bell: usize,
    backoff: Backoff,
}

impl<'a> Pause<'a> {
    pub(super) fn new(area: &'a SharedArea, process: usize, mode: WaitMode) -> Self {
        Pause { area, bell: area.bell(process), backoff: Backoff::new(mode) }
    }

    /// Pauses after a round.
    #[inline]
    pub(super) fn after(&mut self, worked: bool) -> io::Result<()> {
        match self.backoff.after(worked) {
            Idle::Poll => Ok(()),
            Idle::Arm => {
                self.area.memory().arm(self.bell);
                Ok(())
            }
            Idle::Sleep => self.area.memory().doze(self.bell, LONGEST),
        }
    }
}
