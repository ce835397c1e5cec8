//! Transport of the steps of a chain between the processes of a bound: the trait, and its implementation in plain
//! memory that the processes share.

use std::io;

use stentor_fabric::WaitMode;
use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD};

use super::bells::Bells;
use super::shared_area::SharedArea;

/// Carries the steps of a chain.
pub(super) trait Way {
    /// Receives all steps that have arrived. [`sees`](Self::sees) may report a step only after this call.
    fn look(&mut self) -> io::Result<()>;

    /// Sends a step with the payload of the message, which has `bytes` bytes.
    fn body(&mut self, reader: usize, step: usize, bytes: usize, number: u64);

    /// Sends a step of message `number` to another process.
    fn tell(&mut self, reader: usize, step: usize, number: u64);

    /// Returns whether `writer` has sent this step of message `number` to this process.
    fn sees(&self, writer: usize, step: usize, number: u64) -> bool;

    /// Sends all steps that were written, and wakes sleeping readers.
    fn flush(&mut self);

    /// Pauses after a round.
    fn pause(&mut self, worked: bool) -> io::Result<()>;
}

/// One cache line of shared memory for each writer, reader and step. A line holds only the beginning of a longer
/// payload.
pub(super) struct Lines<'a> {
    area: &'a SharedArea,
    processes: usize,
    steps: usize,
    me: usize,
    bells: Bells<'a>,
}

impl<'a> Lines<'a> {
    /// Creates the cache lines between processes. Each process can send `steps` steps to each other process.
    pub(super) fn new(area: &'a SharedArea, (processes, steps): (usize, usize), me: usize, mode: WaitMode) -> Self {
        Lines { area, processes, steps, me, bells: Bells::new(area, processes, me, mode) }
    }

    #[inline]
    fn line(&self, writer: usize, reader: usize, step: usize) -> usize {
        (writer * self.processes + reader) * self.steps + step
    }

    /// Returns the last number that `writer` stored for `reader`, which need not be this process.
    #[inline]
    pub(super) fn load(&self, writer: usize, reader: usize, step: usize) -> u64 {
        self.area.line(self.line(writer, reader, step))[0].load(Ordering::Acquire)
    }
}

impl Way for Lines<'_> {
    #[inline]
    fn look(&mut self) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn body(&mut self, reader: usize, step: usize, bytes: usize, number: u64) {
        let line = self.area.line(self.line(self.me, reader, step));
        let words = (bytes / WORD).min(LINE_WORDS);
        line.iter().take(words).skip(1).for_each(|word| word.store(number, Ordering::Relaxed));
        self.tell(reader, step, number);
    }

    #[inline]
    fn tell(&mut self, reader: usize, step: usize, number: u64) {
        self.area.line(self.line(self.me, reader, step))[0].store(number, Ordering::Release);
        if reader != self.me {
            self.bells.touch(reader);
        }
    }

    #[inline]
    fn sees(&self, writer: usize, step: usize, number: u64) -> bool {
        self.load(writer, self.me, step) == number
    }

    #[inline]
    fn flush(&mut self) {
        self.bells.flush();
    }

    #[inline]
    fn pause(&mut self, worked: bool) -> io::Result<()> {
        self.bells.pause(worked)
    }
}
