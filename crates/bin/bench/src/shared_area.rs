//! The memory that all processes of a bench share: commands, states of the processes, results, and lines for the
//! bounds.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stentor_fabric::memory::{LINE_WORDS, Ordering, Word};
use stentor_fabric_shm::BareMemory;

/// Word that counts phases. The processes sleep on it between two phases.
const PHASE: usize = 0;
/// Word that counts finished parts. The conductor sleeps on it.
const PROGRESS: usize = LINE_WORDS;
/// Word with the last phase that was ended.
const OVER: usize = 2 * LINE_WORDS;
/// First word of the command, and its length.
const COMMAND: usize = 3 * LINE_WORDS;
const COMMAND_WORDS: usize = 6;
/// First word of the lines that belong to single processes.
const OWN: usize = 4 * LINE_WORDS;
/// Number of results of one process.
pub(super) const RESULTS: usize = 16;
const OWN_WORDS: usize = 3 * LINE_WORDS + RESULTS;
/// Index of the result with a time, in nanoseconds.
pub(super) const NS: usize = 8;
/// Index of the result that reports that a process is connected.
const READY: usize = 9;
/// Index of the result with the phase in which one of two processes was connected.
const CONNECTED: usize = 15;
/// Offsets of words in the lines of one process.
const ARRIVED: usize = 0;
const FINISHED: usize = LINE_WORDS;
const BELL: usize = 2 * LINE_WORDS;
const RESULT: usize = 3 * LINE_WORDS;

/// Sizes of the shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Shape {
    /// Number of processes, without the conductor.
    pub(super) processes: usize,
    /// Number of lines for the bounds.
    pub(super) lines: usize,
    /// Number of samples of each process.
    pub(super) samples: usize,
}

impl Shape {
    fn words(self) -> usize {
        self.first_sample(self.processes)
    }

    fn first_line(self) -> usize {
        OWN + self.processes * OWN_WORDS
    }

    fn first_sample(self, process: usize) -> usize {
        self.first_line() + self.lines * LINE_WORDS + process * self.samples.next_multiple_of(LINE_WORDS)
    }
}

/// The command for one phase, which all processes receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Command {
    /// Kind of the phase, as the bench numbers them; 0 ends the processes.
    pub(super) kind: u64,
    /// Payload, in bytes.
    pub(super) bytes: u64,
    /// Number of warm-up iterations.
    pub(super) warmup: u64,
    /// Number of measured iterations.
    pub(super) iterations: u64,
    /// Number of outstanding messages, or another parameter of the kind.
    pub(super) window: u64,
    /// Further parameter of the kind.
    pub(super) extra: u64,
}

impl Command {
    /// Kind that ends the processes.
    pub(super) const END: u64 = 0;

    fn encode(self) -> [u64; COMMAND_WORDS] {
        [self.kind, self.bytes, self.warmup, self.iterations, self.window, self.extra]
    }

    fn decode([kind, bytes, warmup, iterations, window, extra]: [u64; COMMAND_WORDS]) -> Self {
        Command { kind, bytes, warmup, iterations, window, extra }
    }
}

/// The shared memory.
#[derive(Debug)]
pub(super) struct SharedArea {
    memory: BareMemory,
    shape: Shape,
}

impl SharedArea {
    pub(super) fn create(shape: Shape) -> io::Result<Self> {
        Ok(SharedArea { memory: BareMemory::create(shape.words())?, shape })
    }

    pub(super) fn adopt(fd: std::os::fd::OwnedFd, shape: Shape) -> io::Result<Self> {
        Ok(SharedArea { memory: BareMemory::adopt(fd, shape.words())?, shape })
    }

    pub(super) fn memory(&self) -> &BareMemory {
        &self.memory
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    fn word(&self, word: usize) -> &Word {
        &self.memory.words()[word]
    }

    fn own(&self, process: usize, what: usize) -> usize {
        assert!(process < self.shape.processes, "process {process} of {}", self.shape.processes);
        OWN + process * OWN_WORDS + what
    }

    /// Returns the word that wakes a process, for [`BareMemory::ring`].
    pub(super) fn bell(&self, process: usize) -> usize {
        self.own(process, BELL)
    }

    /// Returns a line for the bounds.
    #[inline]
    pub(super) fn line(&self, line: usize) -> &[Word] {
        let first = self.shape.first_line() + line * LINE_WORDS;
        &self.memory.words()[first..first + LINE_WORDS]
    }

    /// Returns consecutive lines for the bounds.
    pub(super) fn lines(&self, first: usize, count: usize) -> &[Word] {
        assert!(first + count <= self.shape.lines, "lines {first}+{count} of {}", self.shape.lines);
        let first = self.shape.first_line() + first * LINE_WORDS;
        &self.memory.words()[first..first + count * LINE_WORDS]
    }

    /// Stores whole words, the first of them at the beginning of a line, as the fabric does.
    #[inline]
    pub(super) fn store(&self, line: usize, bytes: &[u8]) {
        self.memory.store(self.shape.first_line() + line * LINE_WORDS, bytes);
    }

    /// Returns the samples of a process.
    pub(super) fn samples(&self, process: usize) -> &[Word] {
        let first = self.shape.first_sample(process);
        &self.memory.words()[first..first + self.shape.samples]
    }

    /// Returns the results of a process.
    pub(super) fn results(&self, process: usize) -> &[Word] {
        let first = self.own(process, RESULT);
        &self.memory.words()[first..first + RESULTS]
    }

    /// Marks a process as connected.
    pub(super) fn set_ready(&self, process: usize) {
        self.results(process)[READY].store(1, Ordering::Release);
    }

    /// Returns whether a process is connected.
    pub(super) fn is_ready(&self, process: usize) -> bool {
        self.results(process)[READY].load(Ordering::Acquire) == 1
    }

    /// Returns whether all processes are connected.
    pub(super) fn all_are_ready(&self) -> bool {
        (0..self.shape.processes).all(|process| self.is_ready(process))
    }

    /// Calls `turn`, which returns whether this process is connected, until both of two processes are connected. A
    /// process that is connected must continue, because the other one may need its answers.
    pub(super) fn connect_two<E>(
        &self,
        process: usize,
        phase: u64,
        mut turn: impl FnMut() -> Result<bool, E>,
    ) -> Result<(), E> {
        while !turn()? {
            std::thread::yield_now();
        }
        self.results(process)[CONNECTED].store(phase, Ordering::Release);
        while self.results(1 - process)[CONNECTED].load(Ordering::Acquire) != phase {
            turn()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Begins a phase, as the conductor. Returns its number.
    pub(super) fn begin(&self, command: Command) -> u64 {
        for (word, value) in self.memory.words()[COMMAND..].iter().zip(command.encode()) {
            word.store(value, Ordering::Relaxed);
        }
        let phase = self.word(PHASE).fetch_add(1, Ordering::AcqRel) + 1;
        self.memory.wake(PHASE);
        phase
    }

    /// Sleeps until the phase after `last` begins. Returns its number and command.
    pub(super) fn next(&self, last: u64) -> io::Result<(u64, Command)> {
        loop {
            let phase = self.word(PHASE).load(Ordering::Acquire);
            if phase != last {
                let words = &self.memory.words()[COMMAND..];
                return Ok((phase, Command::decode(std::array::from_fn(|n| words[n].load(Ordering::Relaxed)))));
            }
            self.memory.sleep(PHASE, last as u32, Duration::from_secs(1))?;
        }
    }

    /// Waits until all processes have woken up for the phase, so that they begin together.
    pub(super) fn meet(&self, process: usize, phase: u64) {
        self.word(self.own(process, ARRIVED)).store(phase, Ordering::Release);
        let there = |process| self.word(self.own(process, ARRIVED)).load(Ordering::Acquire) >= phase;
        while !(0..self.shape.processes).all(there) {
            std::thread::yield_now();
        }
    }

    /// Ends the phase for all processes, and wakes those that sleep.
    pub(super) fn end(&self, phase: u64) {
        self.word(OVER).store(phase, Ordering::SeqCst);
        for process in 0..self.shape.processes {
            self.memory.ring(self.bell(process));
        }
    }

    /// Returns whether the phase was ended.
    #[inline]
    pub(super) fn is_over(&self, phase: u64) -> bool {
        self.word(OVER).load(Ordering::Relaxed) == phase
    }

    /// Reports that a process has done its part.
    pub(super) fn finish(&self, process: usize, phase: u64) {
        self.word(self.own(process, FINISHED)).store(phase, Ordering::Release);
        self.word(PROGRESS).fetch_add(1, Ordering::AcqRel);
        self.memory.wake(PROGRESS);
    }

    /// Sleeps, as the conductor, until a process has done its part, but not longer than `longest`. Returns whether all
    /// processes have done their part.
    pub(super) fn await_finish(&self, phase: u64, longest: Duration) -> io::Result<bool> {
        let seen = self.word(PROGRESS).load(Ordering::Acquire);
        let done = |process| self.word(self.own(process, FINISHED)).load(Ordering::Acquire) >= phase;
        if (0..self.shape.processes).all(done) {
            return Ok(true);
        }
        self.memory.sleep(PROGRESS, seen as u32, longest)?;
        Ok((0..self.shape.processes).all(done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        let area = SharedArea::create(Shape { processes: 3, lines: 5, samples: 10 }).unwrap();
        let mut places: Vec<(usize, usize)> = vec![(PHASE, 1), (PROGRESS, 1), (OVER, 1), (COMMAND, COMMAND_WORDS)];
        for process in 0..3 {
            places.extend([(area.own(process, ARRIVED), 1), (area.own(process, FINISHED), 1), (area.bell(process), 1)]);
            places.push((area.own(process, RESULT), RESULTS));
            places.push((area.shape.first_sample(process), area.samples(process).len()));
        }
        places.push((area.shape.first_line(), 5 * LINE_WORDS));
        places.sort_unstable();
        for pair in places.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        let (first, words) = *places.last().unwrap();
        assert!(first + words <= area.memory.words().len());
    }

    #[test]
    fn phases_go_round() {
        let area = SharedArea::create(Shape { processes: 2, lines: 0, samples: 0 }).unwrap();
        let command = Command { kind: 3, bytes: 64, warmup: 1, iterations: 2, window: 4, extra: 5 };
        std::thread::scope(|scope| {
            for process in 0..2 {
                let area = &area;
                scope.spawn(move || {
                    let mut phase = 0;
                    loop {
                        let (next, heard) = area.next(phase).unwrap();
                        phase = next;
                        if heard.kind == Command::END {
                            return;
                        }
                        assert_eq!(heard, command);
                        area.meet(process, phase);
                        if process == 0 {
                            area.end(phase);
                        }
                        while !area.is_over(phase) {
                            std::thread::yield_now();
                        }
                        area.finish(process, phase);
                    }
                });
            }
            for _ in 0..50 {
                let phase = area.begin(command);
                while !area.await_finish(phase, Duration::from_secs(1)).unwrap() {}
            }
            area.begin(Command::default());
        });
    }
}
