//! `stentor bench multicast`: one message at a time, beside the bare chain of its stores and loads; then many, beside what
//! its writes cost.

mod chain;
pub(super) mod process;

use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_multicast::Step;
use stentor_support::Failure;
use stentor_support::args::{LoopbackFabric, Network};

use super::clock::Grain;
use super::crew::Crew;
use super::datagrams;
use super::environment::{Environment, fabric_name, wait_name};
use super::errand::{Cluster, Part, broken, processors};
use super::plain::STREAM_ALL_LINES;
use super::report::{Floor, Report, Row, Writes};
use super::roce;
use super::samples::{Samples, median};
use super::stage::{Command, Shape, Stage};
use crate::args::{BenchLength, BenchMulticast, Pinning, Protocol, Waiting};

/// Results beside the counts, words.
const NS: usize = 8;
const READY: usize = 9;
const FIRST: usize = 10;
const LAST: usize = 11;
const DONE: usize = 12;

/// Messages one at a time, over all rounds.
const ITERATIONS: u64 = 14_000;
/// So many times as many with a window.
const WINDOWED: u64 = 10;
/// Messages of one round, at most.
const MAX_SAMPLES: u64 = 1 << 20;
/// Lines that are streamed to find what one of many costs.
const LINES: u64 = 400_000;
/// Lines that are handed over and back to find what a write and its pick-up cost.
const HAND_OVERS: u64 = 20_000;
/// Datagrams that are streamed to find what one of many costs.
const DATAGRAMS: u64 = 50_000;
/// The longest payload, bytes.
const MAX_BYTES: usize = 1 << 20;

/// What happens in a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Connect = 1,
    Chain = 2,
    One = 3,
    Window = 4,
    /// A stream of lines, each a write of its own.
    Lines = 5,
    /// A stream of lines in bulk.
    Bulk = 6,
    /// Lines handed over to and fro.
    HandOver = 7,
    /// A stream of datagrams, in batches.
    Datagrams = 8,
}

impl Kind {
    fn of(number: u64) -> Self {
        match number {
            1 => Kind::Connect,
            2 => Kind::Chain,
            3 => Kind::One,
            4 => Kind::Window,
            5 => Kind::Lines,
            6 => Kind::Bulk,
            7 => Kind::HandOver,
            _ => Kind::Datagrams,
        }
    }
}

struct Bench<'a> {
    crew: Crew,
    cluster: Cluster,
    length: &'a BenchLength,
    processors: Vec<usize>,
}

pub(super) fn run(args: &BenchMulticast) -> Result<Report, Failure> {
    if args.dest > args.groups {
        let what = format!("messages to {} of {} groups", args.dest, args.groups);
        return Err(Failure::usage(what, "--dest", "choose as many as there are groups, or fewer"));
    }
    let processors = processors().map_err(broken("ask for processors"))?;
    if processors.len() < 2 {
        let remedy =
            "the floor of the throughput is measured on two: allow this process two (taskset, container limits)";
        return Err(Failure::run("one processor", "bench multicast", remedy));
    }
    let mut rows = Vec::new();
    let environment = Environment::new(fabric_name(args.fabric), wait_name(args.wait), pinning(args, &processors))
        .with(&args.network.networks);
    let captures = roce::captures(&args.network, args.fabric == LoopbackFabric::Roce, "stentor bench multicast")?;
    let sizes = sizes(&args.length)?;
    let any = cluster(args, 0);
    captures.check((0..any.processes()).map(|process| name(&any, process)), sizes.len() as u32)?;
    for (n, bytes) in sizes.into_iter().enumerate() {
        let cluster = cluster(args, bytes);
        let traffic = |process| captures.of(&name(&cluster, process), n as u32 + 1);
        let mut bench = Bench::start(cluster, &args.length, processors.clone(), traffic)?;
        rows.push(bench.one()?);
        if cluster.window > 1 {
            rows.push(bench.window()?);
        }
    }
    Ok(Report { environment, rows, trial: None, switch: None })
}

fn sizes(length: &BenchLength) -> Result<Vec<usize>, Failure> {
    if length.all {
        return Ok((3..=16).map(|shift| 1 << shift).collect());
    }
    if length.size > MAX_BYTES {
        let what = format!("{} bytes: benches go up to {MAX_BYTES}", length.size);
        return Err(Failure::usage(what, "--size", "choose a smaller size"));
    }
    Ok(vec![length.size])
}

fn cluster(args: &BenchMulticast, bytes: usize) -> Cluster {
    let BenchMulticast { groups, replicas, dest, clients, window, wait, pin, variant, .. } = *args;
    let network = datagrams::network(args.fabric);
    Cluster { groups, replicas, dest, clients, window, bytes: bytes as u32, wait, pin, variant, network }
}

fn pinning(args: &BenchMulticast, processors: &[usize]) -> String {
    let count = args.groups * args.replicas + args.clients;
    let how = match args.pin {
        Pinning::None => "not pinned",
        Pinning::Spread => "each pinned to the next processor",
        Pinning::Groups => "each group pinned to a processor, clients to the next",
    };
    format!("{count} processes on {} processors, {how}", processors.len())
}

/// As the cluster's configuration has it.
fn name(cluster: &Cluster, process: usize) -> String {
    let replicas = usize::from(cluster.replicas);
    match process.checked_sub(cluster.members()) {
        Some(client) => format!("c{client}"),
        None => format!("g{}.{}", process / replicas + 1, process % replicas + 1),
    }
}

/// Where a process stays.
fn place(cluster: &Cluster, processors: &[usize], process: usize) -> Option<usize> {
    let at = match cluster.pin {
        Pinning::None => return None,
        Pinning::Spread => process,
        Pinning::Groups => process / usize::from(cluster.replicas),
    };
    Some(processors[at % processors.len()])
}

/// Remote writes of one message alone, by the protocol's formula.
fn formula(cluster: &Cluster) -> u64 {
    let (g, p) = (u64::from(cluster.dest), u64::from(cluster.replicas));
    let all = g * p;
    let leader = match cluster.variant {
        Protocol::V1 => (g - 1) + (p - 1) + (p - 1) * (g - 1) + all - 1,
        Protocol::V2 => (g - 1) + (p - 1) + if g > 1 { p - 1 } else { 0 } + if p == 1 { all - 1 } else { 0 },
    };
    all + g * leader + g * (p - 1) * (all - 1)
}

/// What it costs to hand a line over to another processor, ns: two processes that do nothing else.
pub(super) fn hand_over(processors: &[usize]) -> Result<f64, Failure> {
    let cluster = Cluster {
        groups: 1,
        replicas: 1,
        dest: 1,
        clients: 1,
        window: 1,
        bytes: 64,
        wait: Waiting::Poll,
        pin: Pinning::None,
        variant: Protocol::V2,
        network: None,
    };
    let length = BenchLength { size: 64, all: false, iterations: Some(100), duration: None, rounds: 1 };
    Bench::start(cluster, &length, processors.to_vec(), |_| Network::default())?.hand_over_cost()
}

impl<'a> Bench<'a> {
    fn start(
        cluster: Cluster,
        length: &'a BenchLength,
        processors: Vec<usize>,
        traffic: impl Fn(usize) -> Network,
    ) -> Result<Self, Failure> {
        let lines = chain::lines(&cluster).max(STREAM_ALL_LINES);
        let samples = (Self::messages(length, WINDOWED) * 5 / 4 + 1) * u64::from(cluster.clients);
        let shape = Shape { processes: cluster.processes(), lines, samples: samples as usize };
        let places: Vec<_> = (0..cluster.processes()).map(|process| place(&cluster, &processors, process)).collect();
        let mut crew = Crew::start(Part::Multicast(cluster), shape, &places, traffic)?;
        crew.run(Command { kind: Kind::Connect as u64, ..Command::default() })?;
        Ok(Bench { crew, cluster, length, processors })
    }

    /// Messages of one round.
    fn messages(length: &BenchLength, times: u64) -> u64 {
        let all = length.iterations.unwrap_or(ITERATIONS * times);
        (all / u64::from(length.rounds)).clamp(10, MAX_SAMPLES)
    }

    fn command(&self, kind: Kind, iterations: u64, window: u64) -> Command {
        let bytes = u64::from(self.cluster.bytes);
        Command { kind: kind as u64, bytes, warmup: iterations / 4, iterations, window, extra: 0 }
    }

    fn goes_on(&self, done: u32, since: Instant) -> bool {
        let duration = self.length.duration.map(Duration::from_secs);
        duration.map_or(done < self.length.rounds, |duration| done < 3 || since.elapsed() < duration)
    }

    fn name(&self, what: &str) -> String {
        let Cluster { groups, replicas, dest, clients, variant, .. } = self.cluster;
        let variant = if variant == Protocol::V1 { "V1" } else { "V2" };
        format!(
            "multicast {variant}, {groups}x{replicas} to {dest}, {clients} client{}, {what}",
            if clients == 1 { "" } else { "s" }
        )
    }

    /// Latency of messages one at a time, from the call to the delivery at the last destination.
    fn one(&mut self) -> Result<Row, Failure> {
        let iterations = Self::messages(self.length, 1);
        let (mut floors, mut subjects, mut written) =
            (Samples::new(1.0, Grain::default()), Samples::new(1.0, Grain::default()), Written::default());
        let (since, mut rounds) = (Instant::now(), 0);
        while self.goes_on(rounds, since) {
            rounds += 1;
            let chain = self.command(Kind::Chain, iterations, 1);
            self.crew.run(chain)?;
            floors.round((chain.warmup..chain.warmup + iterations).map(|n| self.latency(0, n as usize)));
            let subject = self.command(Kind::One, iterations, 1);
            let before = self.writes();
            self.crew.run(subject)?;
            written.add(before, self.writes(), subject.warmup + iterations);
            subjects.round(self.sent(0).map(|at| self.latency(0, at)));
        }
        let (floor, subject) = (floors.summary(), subjects.summary());
        let what = match self.cluster.network {
            None => "the same chain of plain stores and loads by the same processes in the same wait mode".to_owned(),
            Some(_) => format!(
                "the same chain of datagrams over plain UDP sockets by the same processes in the same wait mode: each as \
                 long as a packet of RoCEv2 ({} bytes with one line), by the same system calls; nothing is checked, \
                 acknowledged or sent again",
                datagrams::LENGTH
            ),
        };
        let floor = Floor { what, value: floor.typical, unit: "us" };
        let ratio = subject.typical / floor.value;
        let row = Row::new(self.name("one outstanding"), self.cluster.bytes as usize, rounds, floor, ratio);
        let row = row.with_latency(&subject).with_rate(1e6 / subject.avg);
        Ok(Row { writes: Some(written.per_message(&self.cluster)), ..row })
    }

    /// Rate of messages with a window, beside what their writes cost.
    fn window(&mut self) -> Result<Row, Failure> {
        let iterations = Self::messages(self.length, WINDOWED);
        let window = u64::from(self.cluster.window);
        let (mut subjects, mut written) = (Samples::new(1.0, Grain::default()), Written::default());
        let (mut costs, mut rates) = (Costs::default(), Vec::new());
        let (since, mut rounds) = (Instant::now(), 0);
        while self.goes_on(rounds, since) {
            rounds += 1;
            self.measure_costs(&mut costs)?;
            let subject = self.command(Kind::Window, iterations, window);
            let before = self.writes();
            self.crew.run(subject)?;
            let clients = u64::from(self.cluster.clients);
            written.add(before, self.writes(), (subject.warmup + iterations) * clients);
            rates.push(self.rate());
            let clients = 0..usize::from(self.cluster.clients);
            subjects.round(
                clients
                    .flat_map(|client| self.sent(client).map(move |at| (client, at)))
                    .map(|(client, at)| self.latency(client, at)),
            );
        }
        let rate = median(rates);
        let writes = written.per_message(&self.cluster);
        let floor = costs.floor(&writes);
        let ratio = floor.value / rate;
        let name = self.name(&format!("{window} outstanding"));
        let row = Row::new(name, self.cluster.bytes as usize, rounds, floor, ratio);
        let row = row.with_latency(&subjects.summary()).with_rate(rate);
        Ok(Row { writes: Some(writes), ..row })
    }

    /// What a write costs at best.
    fn measure_costs(&mut self, costs: &mut Costs) -> Result<(), Failure> {
        if self.cluster.network.is_some() {
            costs.datagrams.push(self.stream_cost(Kind::Datagrams, DATAGRAMS)?);
            return Ok(());
        }
        costs.hand_overs.push(self.hand_over_cost()?);
        costs.lines.push(self.stream_cost(Kind::Lines, LINES)?);
        costs.bulk.push(self.stream_cost(Kind::Bulk, LINES)?);
        Ok(())
    }

    /// What it costs to hand a line over to another processor, ns.
    fn hand_over_cost(&mut self) -> Result<f64, Failure> {
        let (first, last) = (self.processors[0], self.processors[self.processors.len() - 1]);
        let command = self.command(Kind::HandOver, HAND_OVERS, first as u64);
        self.crew.run(Command { extra: last as u64, ..command })?;
        Ok(self.crew.stage.results(0)[NS].load(Ordering::Relaxed) as f64 / (2 * HAND_OVERS) as f64)
    }

    /// What each of many lines or datagrams, sent on one processor and picked up on another, costs, ns.
    fn stream_cost(&mut self, kind: Kind, count: u64) -> Result<f64, Failure> {
        let (first, last) = (self.processors[0], self.processors[self.processors.len() - 1]);
        let command = self.command(kind, count, first as u64);
        self.crew.run(Command { extra: last as u64, ..command })?;
        Ok(self.crew.stage.results(1)[NS].load(Ordering::Relaxed) as f64 / count as f64)
    }

    fn stage(&self) -> &Stage {
        &self.crew.stage
    }

    /// Where the measured messages of a client are.
    fn sent(&self, client: usize) -> impl Iterator<Item = usize> + use<> {
        let results = self.stage().results(self.cluster.members() + client);
        let (first, last) = (results[FIRST].load(Ordering::Relaxed), results[LAST].load(Ordering::Relaxed));
        let (cluster, samples) = (self.cluster, self.stage().shape().samples);
        (first..=last).map(move |sequence| process::sample(&cluster, samples, client, sequence))
    }

    fn submitted(&self, client: usize, at: usize) -> u64 {
        self.stage().samples(self.cluster.members() + client)[at].load(Ordering::Relaxed)
    }

    /// When the last destination delivered it.
    fn delivered(&self, at: usize) -> u64 {
        let members = 0..self.cluster.destinations();
        members.map(|member| self.stage().samples(member)[at].load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    fn latency(&self, client: usize, at: usize) -> u64 {
        self.delivered(at).saturating_sub(self.submitted(client, at))
    }

    /// Messages per second, from the first call to the last delivery.
    fn rate(&self) -> f64 {
        let (mut start, mut end, mut messages) = (u64::MAX, 0, 0_u64);
        for client in 0..usize::from(self.cluster.clients) {
            for at in self.sent(client) {
                start = start.min(self.submitted(client, at));
                end = end.max(self.delivered(at));
                messages += 1;
            }
        }
        messages as f64 * 1e9 / end.saturating_sub(start).max(1) as f64
    }

    /// Remote writes of all processes so far, by step.
    fn writes(&self) -> [u64; Step::ALL.len()] {
        let of = |process: usize, step: usize| self.stage().results(process)[step].load(Ordering::Relaxed);
        std::array::from_fn(|step| (0..self.cluster.processes()).map(|process| of(process, step)).sum())
    }
}

/// What writes cost at best, ns: by how they are made.
#[derive(Default)]
struct Costs {
    hand_overs: Vec<f64>,
    lines: Vec<f64>,
    bulk: Vec<f64>,
    datagrams: Vec<f64>,
}

impl Costs {
    /// The rate of messages with these writes.
    fn floor(self, writes: &Writes) -> Floor {
        let (count, cost, what) = if self.datagrams.is_empty() {
            let (cost, line, bulk) = (median(self.hand_overs), median(self.lines), median(self.bulk));
            let what = format!(
                "{} writes of the formula at {cost:.1} ns each: from the store of a 64-byte line on one processor until it is seen on another (a line \
                 of a stream that nobody answers costs {line:.1} ns with a full fence for each, {bulk:.1} ns in bulk)",
                writes.formula
            );
            (writes.formula, cost, what)
        } else {
            let (made, cost) = (writes.by_step.values().sum::<f64>(), median(self.datagrams));
            let what = format!(
                "{made:.1} writes, as many as were made, at {cost:.0} ns each: a datagram of {} bytes in a stream over plain UDP sockets from one processor to \
                 another, by the same system calls in batches of {}",
                datagrams::LENGTH,
                datagrams::BATCH
            );
            (made, cost, what)
        };
        Floor { what, value: 1e9 / (cost * count), unit: "msgs/s" }
    }
}

/// Remote writes and the messages that they were for.
#[derive(Default)]
struct Written {
    writes: [u64; Step::ALL.len()],
    messages: u64,
}

impl Written {
    fn add(&mut self, before: [u64; Step::ALL.len()], after: [u64; Step::ALL.len()], messages: u64) {
        for ((sum, before), after) in self.writes.iter_mut().zip(before).zip(after) {
            *sum += after - before;
        }
        self.messages += messages;
    }

    fn per_message(&self, cluster: &Cluster) -> Writes {
        let of = |writes: u64| writes as f64 / self.messages.max(1) as f64;
        Writes {
            per_message: of(self.writes[..Step::Credit as usize].iter().sum()),
            formula: formula(cluster) as f64,
            by_step: Step::ALL.iter().zip(self.writes).map(|(step, writes)| (step.name(), of(writes))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_is_the_documented_one() {
        let cluster = |dest, replicas, variant| Cluster {
            groups: dest,
            replicas,
            dest,
            clients: 1,
            window: 1,
            bytes: 64,
            wait: Waiting::Adaptive,
            pin: Pinning::None,
            variant,
            network: None,
        };
        assert_eq!(formula(&cluster(2, 3, Protocol::V2)), 36);
        assert_eq!(formula(&cluster(2, 3, Protocol::V1)), 46);
        assert_eq!(formula(&cluster(1, 3, Protocol::V2)), 3 + 2 + 4);
        assert_eq!(formula(&cluster(2, 1, Protocol::V2)), 2 + 2 + 2);
    }
}
