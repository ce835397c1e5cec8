//! The bounds: plain stores and loads to lines that processes share, no protocol and no fabric.

use std::hint::black_box;

use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD, Word, fence};
use stentor_support::Failure;

use super::clock::now;
use super::shared_area::{NS, SharedArea};
use super::worker_spec::{Task, broken, pin, processors};

/// One direction of a ping-pong and back.
pub(super) trait Exchange {
    /// Sends something that the other process can tell by `tag`, which rises.
    fn send(&mut self, tag: u64) -> Result<(), Failure>;
    /// Spins until the other's `tag` is there, wholly.
    fn receive(&mut self, tag: u64) -> Result<(), Failure>;
}

/// Process 0 sends, process 1 answers; the samples of process 0 are round trips.
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

/// Lines that hold so many bytes.
pub(super) fn lines_of(bytes: usize) -> usize {
    bytes.div_ceil(LINE_WORDS * WORD).max(1)
}

/// Hands lines over: every word is stored, the last one tells.
pub(super) struct Lines<'a> {
    out: &'a [Word],
    back: &'a [Word],
}

impl<'a> Lines<'a> {
    pub(super) fn new(area: &'a SharedArea, process: usize, bytes: usize) -> Self {
        let lines = lines_of(bytes);
        let words = (bytes / WORD).max(1);
        // A line apart, so that no prefetcher couples the two directions.
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

/// Lines that [`hand_over`] takes.
pub(super) const HAND_OVER_LINES: usize = 3;

/// Hands one line over, and another one back, as often as the command says; returns the time of all hand-overs, ns, at
/// process 0.
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

/// Operations to one sample of [`repeat`]: one alone takes less than the clock can tell.
pub(super) const BATCH: u64 = 16;

/// Times one thing after the other in process 0: a sample for each [`BATCH`].
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

/// Stores words into the peer's memory, and lets nothing pass.
pub(super) fn store(to: &[Word], value: u64) {
    for to in to {
        to.store(value, Ordering::Relaxed);
    }
    fence(Ordering::SeqCst);
}

/// Has the first two processes of a bench measure something on the processors that the command names, and leaves the time, ns,
/// among the results; afterwards they go back to where they were.
pub(super) fn on_processors(task: &Task<'_>, measure: impl FnOnce() -> Result<u64, Failure>) -> Result<(), Failure> {
    if task.me > 1 {
        return Ok(());
    }
    let back = processors().map_err(broken("ask for processors"))?;
    let own = if task.me == 0 { task.command.window } else { task.command.extra };
    pin(&[own as usize]).map_err(broken("stay on one processor"))?;
    task.area.results(task.me)[NS].store(measure()?, Ordering::Relaxed);
    pin(&back).map_err(broken("go back to its processors"))
}
