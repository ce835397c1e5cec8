//! `stentor bench neb`: one broadcast at a time, beside the bare chain of its stores and loads; then many, beside what its
//! writes and reads cost.

mod chain;
pub(super) mod process;

use stentor_support::Failure;
use stentor_support::args::{LoopbackFabric, Network, name_of};

use super::datagrams;
use super::environment::Environment;
use super::harness::{Harness, ITERATIONS, messages, sizes, two_processors};
use super::kinds::kinds;
use super::plain::STREAM_ALL_LINES;
use super::report::{Bound, Report, Row};
use super::roce;
use super::samples::{Samples, median};
use super::shared_area::Shape;
use super::worker_spec::{Neb, Part, Setting};
use crate::args::{BenchLength, BenchNeb, NebMode, Pinning};

/// A run with a window makes this many times as many broadcasts as one without.
const WINDOWED: u64 = 5;

const MAX_BYTES: usize = 64 << 10;

kinds! { Connect, Chain, Broadcast, Lines }

struct Bench<'a> {
    harness: Harness<'a>,
    neb: Neb,
}

pub(super) fn run(args: &BenchNeb) -> Result<Report, Failure> {
    let remedy = "the floor of the throughput is measured on two: allow this process two (taskset)";
    let processors = two_processors("bench neb", remedy)?;
    let sizes = sizes(&args.length, |size| {
        let what = format!("{size} bytes: this bench goes up to {MAX_BYTES}");
        (size > MAX_BYTES).then_some((what, "choose a smaller size"))
    })?;
    let mut rows = Vec::new();
    let pinning = format!("{} processes on {} processors, {}", args.processes, processors.len(), how(args.pin));
    let environment =
        Environment::new(name_of(&args.fabric), name_of(&args.wait), pinning).with(&args.network.networks);
    let captures = roce::captures(&args.network, args.fabric == LoopbackFabric::Roce, "stentor bench neb")?;
    captures.check((0..args.processes.into()).map(roce::name), sizes.len() as u32 * (1 + u32::from(args.signed)))?;
    let mut life = 0;
    for bytes in sizes {
        for signed in if args.signed { vec![false, true] } else { vec![false] } {
            let BenchNeb { processes, mode, window, wait, pin, no_fast, .. } = *args;
            let network = datagrams::network(args.fabric);
            let setting = Setting { window, bytes: bytes as u32, wait, pin, network };
            let neb = Neb { processes, mode, fast: !no_fast, signed, setting };
            process::config(&neb).check().map_err(|error| {
                Failure::usage(error, "the arguments of `stentor bench neb`", "choose other values")
            })?;
            life += 1;
            let traffic = |process| captures.of(&roce::name(process), life);
            let mut bench = Bench::start(neb, &args.length, &processors, traffic)?;
            rows.push(bench.one()?);
            if window > 1 {
                rows.push(bench.window()?);
            }
        }
    }
    Ok(Report::of(environment, rows))
}

fn how(pin: Pinning) -> &'static str {
    match pin {
        Pinning::None => "not pinned",
        Pinning::Spread | Pinning::Groups => "each pinned to the next processor",
    }
}

impl<'a> Bench<'a> {
    fn start(
        neb: Neb,
        length: &'a BenchLength,
        processors: &[usize],
        traffic: impl Fn(usize) -> Network,
    ) -> Result<Self, Failure> {
        let lines = chain::lines(&neb).max(STREAM_ALL_LINES);
        let samples = messages(length, ITERATIONS * WINDOWED) * 5 / 4 + 2;
        let shape = Shape { processes: neb.processes(), lines, samples: samples as usize };
        let place = |process: usize| (neb.setting.pin != Pinning::None).then(|| processors[process % processors.len()]);
        let places: Vec<_> = (0..neb.processes()).map(place).collect();
        let part = (Part::Neb(neb), neb.setting.bytes, Kind::Connect.number());
        Ok(Bench { harness: Harness::start(part, length, shape, (&places, processors), traffic)?, neb })
    }

    fn name(&self, what: &str) -> String {
        let mode = match self.neb.mode {
            NebMode::All => "all",
            NebMode::LyingSender => "quorum, lying-sender",
            NebMode::LyingHosts => "quorum, lying-hosts",
        };
        let path = match (self.neb.mode, self.neb.fast) {
            (NebMode::All, _) => "",
            (_, true) => ", fast path",
            (_, false) => ", no fast path",
        };
        let signed = if self.neb.signed { ", signed" } else { "" };
        format!("neb {mode}{path}{signed}, {} processes, {what}", self.neb.processes)
    }

    /// Latency of broadcasts one at a time, from the call to the delivery at the last receiver.
    fn one(&mut self) -> Result<Row, Failure> {
        let (iterations, receivers) = (messages(self.harness.length, ITERATIONS), self.receivers());
        let (mut bounds, mut subjects) = (Samples::plain(), Samples::plain());
        let rounds = self.harness.rounds(|harness| {
            for (kind, samples) in [(Kind::Chain, &mut bounds), (Kind::Broadcast, &mut subjects)] {
                let measured = harness.run(kind.number(), iterations, 1)?;
                samples.round(measured.map(|at| harness.latency(0, receivers.clone(), at)));
            }
            Ok(())
        })?;
        let what = match self.neb.setting.network {
            None => "the same chain of plain stores and loads by the same processes in the same wait mode",
            Some(_) => {
                "the same chain of datagrams over plain UDP sockets by the same processes in the same wait mode, by \
                 the same system calls; nothing is checked, acknowledged or sent again"
            }
        };
        Ok(self.harness.alone(self.name("one outstanding"), rounds, (&bounds, &subjects), what))
    }

    /// Rate of broadcasts with a window, beside what their writes and reads cost.
    fn window(&mut self) -> Result<Row, Failure> {
        let (iterations, receivers) = (messages(self.harness.length, ITERATIONS * WINDOWED), self.receivers());
        let window = u64::from(self.neb.setting.window);
        let (on_network, mut subjects) = (self.neb.setting.network.is_some(), Samples::plain());
        let (mut costs, mut rates, mut made, mut broadcasts) = (Vec::new(), Vec::new(), [0; 2], 0);
        let rounds = self.harness.rounds(|harness| {
            costs.push(harness.stream_cost(Kind::Lines.number(), on_network)?);
            let before: [u64; 2] = harness.sums();
            let measured = harness.run(Kind::Broadcast.number(), iterations, window)?;
            let after: [u64; 2] = harness.sums();
            made.iter_mut().zip(before).zip(after).for_each(|((made, before), after)| *made += after - before);
            broadcasts += measured.end;
            // From the first call to the last delivery.
            let (start, end) =
                (harness.time(0, measured.start), harness.delivered(receivers.clone(), measured.end - 1));
            rates.push(iterations as f64 * 1e9 / end.saturating_sub(start).max(1) as f64);
            subjects.round(measured.map(|at| harness.latency(0, receivers.clone(), at)));
            Ok(())
        })?;
        let (cost, rate) = (median(costs), median(rates));
        let bound = match self.neb.setting.network {
            None => lines_bound(self.lines_per_broadcast(), cost),
            Some(_) => datagrams_bound(made.map(|count| count as f64 / broadcasts as f64), cost),
        };
        let name = self.name(&format!("{window} outstanding"));
        Ok(Row::rate(name, self.neb.setting.bytes as usize, rounds, bound, rate).with_latency(&subjects.summary()))
    }

    /// Lines that are handed from one process to another for one broadcast: the sender's writes; in mode `quorum` a
    /// register at every other host by every receiver; in mode `all`, and without the fast path, what is read.
    fn lines_per_broadcast(&self) -> u64 {
        let config = process::config(&self.neb);
        let receivers = self.neb.processes() as u64 - 1;
        let lines = config.slot_bytes() / 64;
        let hosts = match self.neb.mode {
            NebMode::All => return lines * (receivers + receivers * (receivers - 1)),
            NebMode::LyingSender => receivers,
            NebMode::LyingHosts => receivers + 1,
        };
        let published = receivers * (hosts - 1);
        let read = if self.neb.fast { 0 } else { receivers * (hosts - 1) * (receivers - 1) };
        lines * (receivers + published + read)
    }

    fn receivers(&self) -> std::ops::Range<usize> {
        1..self.neb.processes()
    }
}

fn lines_bound(lines: u64, cost: f64) -> Bound {
    let what = format!(
        "{lines} lines written or read for each broadcast by all processes together, at {cost:.1} ns each: a \
         64-byte line stored and fenced on one processor, and picked up on another"
    );
    Bound::rate(what, 1e9 / (cost * lines as f64))
}

/// What was written and read for each broadcast.
fn datagrams_bound([writes, reads]: [f64; 2], cost: f64) -> Bound {
    let what = format!(
        "{writes:.1} writes and {reads:.1} reads, as many as were made for each broadcast by all processes together, at \
         {cost:.0} ns for a write and twice that for a read: a datagram of {} bytes in a stream over plain UDP sockets from one \
         processor to another, by the same system calls in batches of {}",
        datagrams::LENGTH,
        datagrams::BATCH
    );
    Bound::rate(what, 1e9 / (cost * (writes + 2.0 * reads)))
}
