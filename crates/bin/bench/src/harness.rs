//! The common part of the protocol benches: processes send messages, one or many at a time, and record in shared memory
//! when each was sent and delivered.

use std::ops::Range;
use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_support::Failure;
use stentor_support::args::Network;

use super::report::{Bound, Row};
use super::samples::Samples;
use super::shared_area::{Command, NS, Shape, SharedArea};
use super::worker_spec::{Part, broken, processors};
use super::workers::Workers;
use crate::args::{BenchLength, Repeats};

/// Number of messages sent one at a time, over all rounds.
pub(super) const ITERATIONS: u64 = 14_000;
/// Largest number of messages of one round.
const MAX_MESSAGES: u64 = 1 << 20;
/// Smallest number of rounds of a row that is limited by time.
const LEAST_ROUNDS: u32 = 3;

/// Returns the payload sizes to measure, in bytes. `refuse` returns an error and a remedy for a size that is not
/// possible.
pub(super) fn sizes(
    length: &BenchLength,
    refuse: impl Fn(usize) -> Option<(String, &'static str)>,
) -> Result<Vec<usize>, Failure> {
    let (sizes, place) = if length.all {
        ((3..=16).map(|shift| 1 << shift).collect(), "--all")
    } else {
        (length.size.clone(), "--size")
    };
    match sizes.iter().find_map(|size| refuse(*size)) {
        Some((what, remedy)) => Err(Failure::usage(what, place, remedy)),
        None => Ok(sizes),
    }
}

/// Returns the processors that this process may use, which must be at least two.
pub(super) fn two_processors(place: &str, remedy: &str) -> Result<Vec<usize>, Failure> {
    let processors = processors().map_err(broken("ask for processors"))?;
    if processors.len() < 2 { Err(Failure::run("there is one processor", place, remedy)) } else { Ok(processors) }
}

/// Returns the number of messages per round. `usual` is the number over all rounds unless the user chose another.
pub(super) fn messages(length: &BenchLength, usual: u64) -> u64 {
    (length.repeats.iterations.unwrap_or(usual) / u64::from(length.repeats.rounds)).clamp(10, MAX_MESSAGES)
}

/// Returns the number of messages per round at a fixed rate: those of one second, unless the user chose a number.
pub(super) fn messages_at(repeats: &Repeats, rate: u32) -> u64 {
    repeats.iterations.map_or(u64::from(rate), |all| all / u64::from(repeats.rounds)).clamp(10, MAX_MESSAGES)
}

/// Returns the part of a row's name that describes a fixed rate.
pub(super) fn due_name(rate: u32) -> String {
    format!("{rate}/s due at each sender")
}

/// Runs the requested number of rounds, or rounds for the requested time. Returns their number.
pub(super) fn rounds(
    (rounds, duration): (u32, Option<u64>),
    mut round: impl FnMut() -> Result<(), Failure>,
) -> Result<u32, Failure> {
    let (since, mut done) = (Instant::now(), 0);
    let duration = duration.map(Duration::from_secs);
    while duration.map_or(done < rounds, |duration| done < LEAST_ROUNDS || since.elapsed() < duration) {
        round()?;
        done += 1;
    }
    Ok(done)
}

/// The processes of a protocol bench.
pub(super) struct Harness<'a> {
    workers: Workers,
    /// The two processors between which the hand-over of cache lines is measured.
    ends: [usize; 2],
    bytes: u32,
    pub(super) length: &'a BenchLength,
}

impl<'a> Harness<'a> {
    /// Starts one process for each of `places` and connects them with a phase of kind `connect`.
    pub(super) fn start(
        (part, bytes, connect): (Part, u32, u64),
        length: &'a BenchLength,
        shape: Shape,
        (places, processors): (&[Option<usize>], &[usize]),
        traffic: impl Fn(usize) -> Network,
    ) -> Result<Self, Failure> {
        let mut workers = Workers::start(part, shape, places, traffic)?;
        workers.run(Command { kind: connect, ..Command::default() })?;
        let ends = [processors[0], processors[processors.len() - 1]];
        Ok(Harness { workers, ends, bytes, length })
    }

    /// Returns the memory that the processes share.
    pub(super) fn area(&self) -> &SharedArea {
        &self.workers.area
    }

    /// Runs the requested number of rounds, or rounds for the requested time. Returns the number of rounds.
    pub(super) fn rounds(&mut self, mut round: impl FnMut(&mut Self) -> Result<(), Failure>) -> Result<u32, Failure> {
        rounds((self.length.repeats.rounds, self.length.duration), || round(self))
    }

    /// Runs a phase with `iterations` measured messages. Returns the range of the measured messages among all messages
    /// of the phase.
    pub(super) fn run(&mut self, kind: u64, iterations: u64, window: u64) -> Result<Range<usize>, Failure> {
        self.run_command(self.command(kind, iterations, window))
    }

    /// Runs a phase in which each sender sends `rate` messages per second, as far as its window has room.
    pub(super) fn run_at(
        &mut self,
        kind: u64,
        iterations: u64,
        window: u64,
        rate: u32,
    ) -> Result<Range<usize>, Failure> {
        let command = self.command(kind, iterations, window);
        self.run_command(Command { extra: rate.into(), ..command })
    }

    /// Runs a phase with one message at a time and `rest_ns` nanoseconds between two messages.
    pub(super) fn run_resting(&mut self, kind: u64, iterations: u64, rest_ns: u64) -> Result<Range<usize>, Failure> {
        let command = self.command(kind, iterations, 1);
        self.run_command(Command { extra: rest_ns, ..command })
    }

    fn run_command(&mut self, command: Command) -> Result<Range<usize>, Failure> {
        self.workers.run(command)?;
        Ok(command.warmup as usize..(command.warmup + command.iterations) as usize)
    }

    /// Returns the row of messages sent one at a time, beside the bare chain of their steps.
    pub(super) fn alone(&self, name: String, rounds: u32, (bounds, subjects): (&Samples, &Samples), what: &str) -> Row {
        let bound = Bound::us(what, bounds.summary().typical);
        Row::latency(name, self.bytes as usize, rounds, bound, subjects).with_rate(1e6 / subjects.summary().avg)
    }

    /// Returns the command of a phase with `iterations` measured messages after the warm-up.
    fn command(&self, kind: u64, iterations: u64, window: u64) -> Command {
        let warmup = self.length.repeats.warm_up(iterations);
        Command { kind, bytes: self.bytes.into(), warmup, iterations, window, extra: 0 }
    }

    /// Returns the number of samples that a phase needs, including its warm-up.
    pub(super) fn samples(length: &BenchLength, most: u64) -> u64 {
        most + length.repeats.warm_up(most) + 1
    }

    /// Runs a phase in which the first two processes are pinned to the first and the last processor. Returns the time
    /// of `process`, in nanoseconds.
    pub(super) fn between_ends(&mut self, kind: u64, count: u64, process: usize) -> Result<f64, Failure> {
        let [first, last] = self.ends.map(|processor| processor as u64);
        let command = self.command(kind, count, first);
        self.workers.run(Command { extra: last, ..command })?;
        Ok(self.workers.area.results(process)[NS].load(Ordering::Relaxed) as f64)
    }

    /// Returns the time at which a process sent or delivered the message at index `at`.
    pub(super) fn time(&self, process: usize, at: usize) -> u64 {
        self.workers.area.samples(process)[at].load(Ordering::Relaxed)
    }

    /// Returns the time at which the last of these processes delivered the message.
    pub(super) fn delivered(&self, receivers: Range<usize>, at: usize) -> u64 {
        receivers.map(|process| self.time(process, at)).max().unwrap_or(0)
    }

    /// Returns the time from the sender's call to the last delivery at the receivers.
    pub(super) fn latency(&self, sender: usize, receivers: Range<usize>, at: usize) -> u64 {
        self.delivered(receivers, at).saturating_sub(self.time(sender, at))
    }

    /// Returns the sum of each of the first `N` results over all processes.
    pub(super) fn sums<const N: usize>(&self) -> [u64; N] {
        let all = || (0..self.area().shape().processes).map(|process| self.area().results(process));
        std::array::from_fn(|result| all().map(|results| results[result].load(Ordering::Relaxed)).sum())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        length: BenchLength,
    }

    #[test]
    fn impossible_sizes_are_refused_before_the_first_measurement() {
        let of = |arguments: &[&str]| {
            let command = Command::try_parse_from([&["bench"], arguments].concat()).expect("valid arguments");
            let refuse = |size| (size > 1024).then_some((format!("{size} bytes"), "choose a smaller size"));
            sizes(&command.length, refuse).map_err(|failure| (failure.what, failure.place))
        };
        assert_eq!(of(&["-s", "64,1024"]), Ok(vec![64, 1024]));
        assert_eq!(of(&["-s", "64,1025"]), Err(("1025 bytes".to_owned(), "--size".to_owned())));
        assert_eq!(of(&["--all"]), Err(("2048 bytes".to_owned(), "--all".to_owned())));
    }
}
