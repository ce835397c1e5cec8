//! `stentor bench neb`: one broadcast at a time, beside the bare chain of its stores and loads; then many broadcasts,
//! beside the cost of their writes and reads.

mod chain;
mod config;
pub(super) mod process;
mod stream;

use std::ops::Range;

use stentor_support::Failure;
use stentor_support::args::{LoopbackFabric, Network, name_of};

use super::datagrams;
use super::environment::Environment;
use super::harness::{Harness, ITERATIONS, due_name, messages, messages_at, sizes, two_processors};
use super::kinds::kinds;
use super::packets;
use super::report::{Report, Row};
use super::rings;
use super::roce;
use super::samples::Samples;
use super::shared_area::Shape;
use super::worker_spec::{Neb, Part, Setting};
use crate::args::{BenchLength, BenchNeb, NebMode, Pinning};

/// Ratio of the broadcasts in a run with a window to those in a run with one outstanding broadcast.
const WINDOWED: u64 = 5;

const MAX_BYTES: usize = 64 << 10;

kinds! {
    Connect,
    Chain,
    Broadcast,
    /// The slots of a stream of broadcasts, without the broadcast.
    Stream,
}

struct Bench<'a> {
    harness: Harness<'a>,
    neb: Neb,
}

pub(super) fn run(args: &BenchNeb) -> Result<Report, Failure> {
    let remedy = "the bound of the throughput is measured on two: allow this process two (taskset)";
    let processors = two_processors("bench neb", remedy)?;
    let sizes = sizes(&args.length, |size| {
        let what = format!("{size} bytes: this bench goes up to {MAX_BYTES}");
        (size > MAX_BYTES).then_some((what, "choose a smaller size"))
    })?;
    let mut rows = Vec::new();
    let pinning = format!("{} processes on {} processors, {}", args.processes, processors.len(), how(args.pin));
    let environment = Environment::new(name_of(&args.fabric), name_of(&args.wait), pinning)
        .with(&args.network.networks)
        .with_processes(args.processes.into());
    let captures = roce::captures(&args.network, args.fabric == LoopbackFabric::Roce, "stentor bench neb")?;
    captures.check((0..args.processes.into()).map(roce::name), sizes.len() as u32 * (1 + u32::from(args.signed)))?;
    let mut life = 0;
    for bytes in sizes {
        for signed in if args.signed { vec![false, true] } else { vec![false] } {
            let BenchNeb { processes, mode, wait, pin, no_fast, .. } = *args;
            let window = args.window.iter().copied().max().unwrap_or(1);
            let network = datagrams::network(args.fabric);
            let setting = Setting { window, bytes: bytes as u32, wait, pin, network };
            let neb = Neb { processes, mode, fast: !no_fast, signed, setting };
            config::config(&neb).check().map_err(|error| {
                Failure::usage(error, "the arguments of `stentor bench neb`", "choose other values")
            })?;
            life += 1;
            let traffic = |process| captures.of(&roce::name(process), life);
            let mut bench = Bench::start(neb, &args.length, &processors, &args.rates.rate, traffic)?;
            rows.push(bench.one()?);
            for window in args.window.iter().filter(|window| **window > 1) {
                rows.push(bench.window(*window)?);
            }
            for rate in &args.rates.rate {
                rows.push(bench.rate(*rate)?);
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
        rates: &[u32],
        traffic: impl Fn(usize) -> Network,
    ) -> Result<Self, Failure> {
        let streamed = match neb.setting.network {
            None => rings::lines(&stream::rings(&neb)),
            Some(_) => packets::lines(neb.processes()),
        };
        let lines = chain::lines(&neb).max(streamed);
        let most = rates.iter().map(|rate| messages_at(&length.repeats, *rate)).max().unwrap_or(0);
        let samples = Harness::samples(length, most.max(messages(length, ITERATIONS * WINDOWED)));
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

    /// Measures the latency of broadcasts that are sent one at a time, from the call to the last receiver's delivery.
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

    /// Measures the rate of broadcasts with a window, beside the same slots without the broadcast.
    fn window(&mut self, window: u32) -> Result<Row, Failure> {
        let (iterations, receivers) = (messages(self.harness.length, ITERATIONS * WINDOWED), self.receivers());
        let (mut subjects, mut bare, mut rates) = (Samples::plain(), Vec::new(), Vec::new());
        self.harness.rounds(|harness| {
            let measured = harness.run(Kind::Stream.number(), iterations, window.into())?;
            bare.push(rate(harness, receivers.clone(), &measured));
            let measured = harness.run(Kind::Broadcast.number(), iterations, window.into())?;
            rates.push(rate(harness, receivers.clone(), &measured));
            subjects.round(measured.map(|at| harness.latency(0, receivers.clone(), at)));
            Ok(())
        })?;
        let what = if self.neb.setting.network.is_some() { IN_PACKETS } else { IN_MEMORY };
        let name = self.name(&format!("{window} outstanding"));
        Ok(Row::rate_beside(name, self.neb.setting.bytes as usize, what, (&bare, &rates)).with_samples(&subjects))
    }

    /// Measures the latency of broadcasts at a fixed rate, each from its due time.
    fn rate(&mut self, due: u32) -> Result<Row, Failure> {
        let (iterations, receivers) = (messages_at(&self.harness.length.repeats, due), self.receivers());
        let window = self.neb.setting.window.into();
        let (mut subjects, mut rates) = (Samples::plain(), Vec::new());
        let rounds = self.harness.rounds(|harness| {
            let measured = harness.run_at(Kind::Broadcast.number(), iterations, window, due)?;
            rates.push(rate(harness, receivers.clone(), &measured));
            subjects.round(measured.map(|at| harness.latency(0, receivers.clone(), at)));
            Ok(())
        })?;
        let row = Row::alone(self.name(&due_name(due)), self.neb.setting.bytes as usize, rounds);
        Ok(row.with_due(due.into(), &rates).with_samples(&subjects))
    }

    fn receivers(&self) -> Range<usize> {
        1..self.neb.processes()
    }
}

/// Returns the rate in broadcasts per second, from the first call to the last delivery.
fn rate(harness: &Harness<'_>, receivers: Range<usize>, measured: &Range<usize>) -> f64 {
    let (start, end) = (harness.time(0, measured.start), harness.delivered(receivers, measured.end - 1));
    measured.len() as f64 * 1e9 / end.saturating_sub(start).max(1) as f64
}

/// Description of the bound of a rate in shared memory.
const IN_MEMORY: &str = "the same slots between the same processes in the same wait mode, as many broadcasts outstanding: each slot that \
    is written or read is a record as long, sealed and opened, and what is there at once goes at once; nothing is compared";
/// Description of the bound of a rate on a network.
const IN_PACKETS: &str = "the same slots between the same processes in the same wait mode, as many broadcasts outstanding, in packets over \
    plain UDP sockets by the same system calls, in runs: each slot is a record with a checksum, each packet has a CRC; what the \
    broadcast reads is sent at once; nothing is compared, acknowledged or sent again";
