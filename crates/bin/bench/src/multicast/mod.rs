//! `stentor bench multicast`: one message at a time, beside the bare chain of its stores and loads; then many, beside what
//! its writes cost.

mod chain;
pub(super) mod process;

use stentor_fabric::memory::Ordering;
use stentor_multicast::Step;
use stentor_support::Failure;
use stentor_support::args::{LoopbackFabric, Network, name_of};

use super::datagrams;
use super::environment::Environment;
use super::harness::{Harness, ITERATIONS, messages, sizes, two_processors};
use super::kinds::kinds;
use super::plain::STREAM_ALL_LINES;
use super::report::{Bound, Report, Row, Writes};
use super::roce;
use super::samples::{Samples, median};
use super::shared_area::Shape;
use super::worker_spec::{Cluster, Part, Setting};
use crate::args::{BenchLength, BenchMulticast, Pinning, Protocol, Waiting};

/// Results beside the counts, words.
const FIRST: usize = 10;
const LAST: usize = 11;
const DONE: usize = 12;

/// So many times as many with a window.
const WINDOWED: u64 = 10;

/// Lines that are handed over and back to find what a write and its pick-up cost.
const HAND_OVERS: u64 = 20_000;

/// The longest payload, bytes.
const MAX_BYTES: usize = 1 << 20;

kinds! {
    Connect,
    Chain,
    One,
    Window,
    /// A stream of lines, each a write of its own.
    Lines,
    /// A stream of lines in bulk.
    Bulk,
    /// Lines handed over to and fro.
    HandOver,
    /// A stream of datagrams, in batches.
    Datagrams,
}

struct Bench<'a> {
    harness: Harness<'a>,
    cluster: Cluster,
}

pub(super) fn run(args: &BenchMulticast) -> Result<Report, Failure> {
    if args.dest > args.groups {
        let what = format!("messages to {} of {} groups", args.dest, args.groups);
        return Err(Failure::usage(what, "--dest", "choose as many as there are groups, or fewer"));
    }
    let remedy = "the floor of the throughput is measured on two: allow this process two (taskset, container limits)";
    let processors = two_processors("bench multicast", remedy)?;
    let mut rows = Vec::new();
    let environment = Environment::new(name_of(&args.fabric), name_of(&args.wait), pinning(args, &processors))
        .with(&args.network.networks);
    let captures = roce::captures(&args.network, args.fabric == LoopbackFabric::Roce, "stentor bench multicast")?;
    let sizes = sizes(&args.length, |size| {
        let what = format!("{size} bytes: benches go up to {MAX_BYTES}");
        (size > MAX_BYTES).then_some((what, "choose a smaller size"))
    })?;
    let any = cluster(args, 0);
    captures.check((0..any.processes()).map(|process| name(&any, process)), sizes.len() as u32)?;
    for (n, bytes) in sizes.into_iter().enumerate() {
        let cluster = cluster(args, bytes);
        let traffic = |process| captures.of(&name(&cluster, process), n as u32 + 1);
        let mut bench = Bench::start(cluster, &args.length, &processors, traffic)?;
        rows.push(bench.one()?);
        if cluster.setting.window > 1 {
            rows.push(bench.window()?);
        }
    }
    Ok(Report::of(environment, rows))
}

fn cluster(args: &BenchMulticast, bytes: usize) -> Cluster {
    let BenchMulticast { groups, replicas, dest, clients, window, wait, pin, variant, .. } = *args;
    let network = datagrams::network(args.fabric);
    let setting = Setting { window, bytes: bytes as u32, wait, pin, network };
    Cluster { groups, replicas, dest, clients, variant, setting }
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
    let at = match cluster.setting.pin {
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

/// A member and a client that do nothing else.
const LONE: Cluster = Cluster {
    groups: 1,
    replicas: 1,
    dest: 1,
    clients: 1,
    variant: Protocol::V2,
    setting: Setting { window: 1, bytes: 64, wait: Waiting::Poll, pin: Pinning::None, network: None },
};

/// Measures the time to hand a line over to another processor, ns. Two processes do nothing else.
pub(super) fn hand_over(processors: &[usize]) -> Result<f64, Failure> {
    let length = BenchLength { size: 64, all: false, iterations: Some(100), duration: None, rounds: 1 };
    hand_over_cost(&mut Bench::start(LONE, &length, processors, |_| Network::default())?.harness)
}

impl<'a> Bench<'a> {
    fn start(
        cluster: Cluster,
        length: &'a BenchLength,
        processors: &[usize],
        traffic: impl Fn(usize) -> Network,
    ) -> Result<Self, Failure> {
        let lines = chain::lines(&cluster).max(STREAM_ALL_LINES);
        let samples = (messages(length, ITERATIONS * WINDOWED) * 5 / 4 + 1) * u64::from(cluster.clients);
        let shape = Shape { processes: cluster.processes(), lines, samples: samples as usize };
        let places: Vec<_> = (0..cluster.processes()).map(|process| place(&cluster, processors, process)).collect();
        let part = (Part::Multicast(cluster), cluster.setting.bytes, Kind::Connect.number());
        Ok(Bench { harness: Harness::start(part, length, shape, (&places, processors), traffic)?, cluster })
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
        let (iterations, cluster) = (messages(self.harness.length, ITERATIONS), self.cluster);
        let (mut bounds, mut subjects, mut written) = (Samples::plain(), Samples::plain(), Written::default());
        let rounds = self.harness.rounds(|harness| {
            let measured = harness.run(Kind::Chain.number(), iterations, 1)?;
            bounds.round(measured.map(|at| latency(harness, &cluster, 0, at)));
            let before = harness.sums();
            let measured = harness.run(Kind::One.number(), iterations, 1)?;
            written.add(before, harness.sums(), measured.end as u64);
            subjects.round(sent(harness, &cluster, 0).map(|at| latency(harness, &cluster, 0, at)));
            Ok(())
        })?;
        let what = match self.cluster.setting.network {
            None => "the same chain of plain stores and loads by the same processes in the same wait mode".to_owned(),
            Some(_) => format!(
                "the same chain of datagrams over plain UDP sockets by the same processes in the same wait mode: each as \
                long as a packet of RoCEv2 ({} bytes with one line), by the same system calls; nothing is checked, \
                acknowledged or sent again",
                datagrams::LENGTH
            ),
        };
        let row = self.harness.alone(self.name("one outstanding"), rounds, (&bounds, &subjects), &what);
        Ok(Row { writes: Some(written.per_message(&self.cluster)), ..row })
    }

    /// Rate of messages with a window, beside what their writes cost.
    fn window(&mut self) -> Result<Row, Failure> {
        let (iterations, cluster) = (messages(self.harness.length, ITERATIONS * WINDOWED), self.cluster);
        let window = u64::from(cluster.setting.window);
        let (mut subjects, mut written) = (Samples::plain(), Written::default());
        let (mut costs, mut rates) = (Costs::default(), Vec::new());
        let rounds = self.harness.rounds(|harness| {
            costs.measure(harness, cluster.setting.network.is_some())?;
            let before = harness.sums();
            let measured = harness.run(Kind::Window.number(), iterations, window)?;
            written.add(before, harness.sums(), measured.end as u64 * u64::from(cluster.clients));
            let clients = 0..usize::from(cluster.clients);
            let sent = |client| sent(harness, &cluster, client).map(move |at| (client, at));
            let all: Vec<_> = clients.flat_map(sent).collect();
            rates.push(rate(harness, &cluster, &all));
            subjects.round(all.into_iter().map(|(client, at)| latency(harness, &cluster, client, at)));
            Ok(())
        })?;
        let rate = median(rates);
        let writes = written.per_message(&self.cluster);
        let bound = costs.bound(&writes);
        let name = self.name(&format!("{window} outstanding"));
        let row = Row::rate(name, self.cluster.setting.bytes as usize, rounds, bound, rate);
        Ok(Row { writes: Some(writes), ..row.with_latency(&subjects.summary()) })
    }
}

/// Measures the time to hand a line over to another processor, ns.
fn hand_over_cost(harness: &mut Harness<'_>) -> Result<f64, Failure> {
    Ok(harness.between_ends(Kind::HandOver.number(), HAND_OVERS, 0)? / (2 * HAND_OVERS) as f64)
}

/// Where the measured messages of a client are.
fn sent(harness: &Harness<'_>, cluster: &Cluster, client: usize) -> impl Iterator<Item = usize> + use<> {
    let results = harness.area().results(cluster.members() + client);
    let (first, last) = (results[FIRST].load(Ordering::Relaxed), results[LAST].load(Ordering::Relaxed));
    let (cluster, samples) = (*cluster, harness.area().shape().samples);
    (first..=last).map(move |sequence| process::sample(&cluster, samples, client, sequence))
}

fn latency(harness: &Harness<'_>, cluster: &Cluster, client: usize, at: usize) -> u64 {
    harness.latency(cluster.members() + client, 0..cluster.destinations(), at)
}

/// Messages per second, from the first call to the last delivery. `sent`: their clients, and where they are.
fn rate(harness: &Harness<'_>, cluster: &Cluster, sent: &[(usize, usize)]) -> f64 {
    let starts = sent.iter().map(|(client, at)| harness.time(cluster.members() + client, *at));
    let ends = sent.iter().map(|(_, at)| harness.delivered(0..cluster.destinations(), *at));
    let (start, end) = (starts.min().unwrap_or(u64::MAX), ends.max().unwrap_or(0));
    sent.len() as f64 * 1e9 / end.saturating_sub(start).max(1) as f64
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
    /// Measures the least time of a write.
    fn measure(&mut self, harness: &mut Harness<'_>, on_network: bool) -> Result<(), Failure> {
        if on_network {
            self.datagrams.push(harness.stream_cost(Kind::Datagrams.number(), true)?);
            return Ok(());
        }
        self.hand_overs.push(hand_over_cost(harness)?);
        self.lines.push(harness.stream_cost(Kind::Lines.number(), false)?);
        self.bulk.push(harness.stream_cost(Kind::Bulk.number(), false)?);
        Ok(())
    }

    /// The rate of messages with these writes.
    fn bound(self, writes: &Writes) -> Bound {
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
        Bound::rate(what, 1e9 / (cost * count))
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
        let cluster = |dest, replicas, variant| Cluster { groups: dest, replicas, dest, variant, ..LONE };
        assert_eq!(formula(&cluster(2, 3, Protocol::V2)), 36);
        assert_eq!(formula(&cluster(2, 3, Protocol::V1)), 46);
        assert_eq!(formula(&cluster(1, 3, Protocol::V2)), 3 + 2 + 4);
        assert_eq!(formula(&cluster(2, 1, Protocol::V2)), 2 + 2 + 2);
    }
}
