//! Wake-ups between the processes of a bound in shared memory, and the pauses of idle processes.

use std::io;

use stentor_fabric::WaitMode;
use stentor_fabric::memory::{Ordering, fence};

use super::pause::Pause;
use super::shared_area::SharedArea;

/// The processes for which this process has stored data, and the means to wake those that sleep.
pub(super) struct Bells<'a> {
    area: &'a SharedArea,
    /// Processes for which this process has stored data since the last flush.
    touched: Vec<usize>,
    pause: Pause<'a>,
}

impl<'a> Bells<'a> {
    /// Creates the bells of process `me`, one of `processes`.
    pub(super) fn new(area: &'a SharedArea, processes: usize, me: usize, mode: WaitMode) -> Self {
        Bells { area, touched: Vec::with_capacity(processes), pause: Pause::new(area, me, mode) }
    }

    /// Notes that this process has stored data for `reader`.
    #[inline]
    pub(super) fn touch(&mut self, reader: usize) {
        if !self.touched.contains(&reader) {
            self.touched.push(reader);
        }
    }

    /// Wakes the noted processes that sleep, after one full fence.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        fence(Ordering::SeqCst);
        for reader in self.touched.drain(..) {
            self.area.memory().ring(self.area.bell(reader));
        }
    }

    /// Pauses after a round.
    #[inline]
    pub(super) fn pause(&mut self, worked: bool) -> io::Result<()> {
        self.pause.after(worked)
    }
}
