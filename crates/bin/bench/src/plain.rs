//! The bounds: plain stores and loads to cache lines that processes share, without a protocol and a fabric.

use std::hint::black_box;

use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD, Word, fence};
use stentor_support::Failure;

use super::clock::now;
use super::shared_area::{NS, SharedArea};
use super::worker_spec::{Task, broken, pin, processors};

/// An exchange of messages between two processes.
pub(super) trait Exchange {
    /// Sends a message that the other process recognizes by `tag`. The tag increases with each message.
    fn send(&mut self, tag: u64) -> Result<(), Failure>;
    /// Spins until the message with `tag` has arrived completely.
    fn receive(&mut self, tag: u64) -> Result<(), Failure>;
}

/// Runs a ping-pong: process 0 sends and process 1 answers. The samples of process 0 are round trips.
pub(super) fn ping_pong(task: &Task<'_>, exchange: &mut impl Exchange) -> Result<(), Failure> {
    let tags = task.base() + 1..=task.base() + task.total();
    if task.me != 0 {
        for tag in tags {
            exchange.receive(tag)?;
            exchange.send(tag)?;
        }
        return Ok(());
    }
    let first = tags.start() + task.command.warmup;
    let samples = task.area.samples(0);
    let mut last = now();
    for tag in tags {
        exchange.send(tag)?;
        exchange.receive(tag)?;
        let time = now();
        if tag >= first {
            samples[(tag - first) as usize].store(time - last, Ordering::Relaxed);
        }
        last = time;
    }
    Ok(())
}

/// Returns the number of lines that hold `bytes` bytes.
pub(super) fn lines_of(bytes: usize) -> usize {
    bytes.div_ceil(LINE_WORDS * WORD).max(1)
}

/// An exchange of cache lines. The sender stores every word, and the last word signals that all have been stored.
pub(super) struct Lines<'a> {
    out: &'a [Word],
    back: &'a [Word],
}

impl<'a> Lines<'a> {
    pub(super) fn new(area: &'a SharedArea, process: usize, bytes: usize) -> Self {
        let lines = lines_of(bytes);
        let words = (bytes / WORD).max(1);
        // The two directions are one line apart, so that no prefetcher couples them.
        let (there, back) = (&area.lines(0, lines)[..words], &area.lines(lines + 1, lines)[..words]);
        if process == 0 { Lines { out: there, back } } else { Lines { out: back, back: there } }
    }
}

impl Exchange for Lines<'_> {
    #[inline]
    fn send(&mut self, tag: u64) -> Result<(), Failure> {
        let (last, rest) = self.out.split_last().expect("at least one word");
        for word in rest {
            word.store(tag, Ordering::Relaxed);
        }
        last.store(tag, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn receive(&mut self, tag: u64) -> Result<(), Failure> {
        let (last, rest) = self.back.split_last().expect("at least one word");
        while last.load(Ordering::Acquire) != tag {}
        for word in rest {
            black_box(word.load(Ordering::Relaxed));
        }
        Ok(())
    }
}

/// Number of lines that [`hand_over`] needs.
pub(super) const HAND_OVER_LINES: usize = 3;

/// Runs the command's number of round trips, each of which hands one line over and another one back. Returns the time
/// of all measured hand-overs at this process, in nanoseconds.
pub(super) fn hand_over(task: &Task<'_>) -> Result<u64, Failure> {
    let mut lines = Lines::new(task.area, task.me, LINE_WORDS * WORD);
    let mut start = now();
    for n in 0..task.total() {
        if n == task.command.warmup {
            start = now();
        }
        let tag = task.base() + n + 1;
        if task.me == 0 {
            lines.send(tag)?;
            lines.receive(tag)?;
        } else {
            lines.receive(tag)?;
            lines.send(tag)?;
        }
    }
    Ok(now() - start)
}

/// Number of operations per sample of [`repeat`]. A single operation may be shorter than the resolution of the clock.
pub(super) const BATCH: u64 = 16;

/// Repeats an operation in process 0, with one sample for each [`BATCH`].
pub(super) fn repeat(task: &Task<'_>, mut operation: impl FnMut(u64) -> Result<(), Failure>) -> Result<(), Failure> {
    if task.me != 0 {
        return Ok(());
    }
    (0..task.command.warmup).try_for_each(&mut operation)?;
    for (batch, sample) in (0..task.command.iterations / BATCH).zip(task.area.samples(0)) {
        let start = now();
        (batch * BATCH..(batch + 1) * BATCH).try_for_each(&mut operation)?;
        sample.store(now() - start, Ordering::Relaxed);
    }
    Ok(())
}

/// Loads the peer's words.
pub(super) fn load(from: &[Word], to: &mut [u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.load(Ordering::Relaxed);
    }
    black_box(to);
}

/// Stores words into the peer's memory, followed by a full fence.
pub(super) fn store(to: &[Word], value: u64) {
    for to in to {
        to.store(value, Ordering::Relaxed);
    }
    fence(Ordering::SeqCst);
}

/// Pins each of the first two processes of a bench to the processor that the command names for it, and runs `measure`
/// there. Stores the time that `measure` returns, in nanoseconds, as a result of the process. Afterwards the process
/// returns to its previous processors.
pub(super) fn on_processors(task: &Task<'_>, measure: impl FnOnce() -> Result<u64, Failure>) -> Result<(), Failure> {
    if task.me > 1 {
        return Ok(());
    }
    let back = processors().map_err(broken("ask for processors"))?;
    let own = if task.me == 0 { task.command.window } else { task.command.extra };
    pin(&[own as usize]).map_err(broken("stay on one processor"))?;
    task.area.results(task.me)[NS].store(measure()?, Ordering::Relaxed);
    pin(&back).map_err(broken("return to its processors"))
}
