//! `stentor bench multicast`: one message at a time, beside the bare chain of its stores and loads; then many messages,
//! beside the cost of their writes.

mod chain;
pub(super) mod critical_path;
pub(super) mod hosts;
pub(super) mod process;
mod stream;

use stentor_fabric::memory::Ordering;
use stentor_multicast::Step;
use stentor_support::Failure;
use stentor_support::args::{LoopbackFabric, Network, name_of};

use super::datagrams;
use super::environment::Environment;
use super::harness::{Harness, ITERATIONS, due_name, messages, messages_at, sizes, two_processors};
use super::kinds::kinds;
use super::packets;
use super::plain::HAND_OVER_LINES;
use super::report::{Report, Row, Writes};
use super::rings;
use super::roce;
use super::samples::Samples;
use super::shared_area::Shape;
use super::worker_spec::{Cluster, Part, Setting};
use crate::args::{BenchLength, BenchMulticast, Pinning, Protocol, Waiting};

/// Number of steps whose writes are counted. The steps after them belong to reads.
const COUNTED: usize = Step::Reply as usize + 1;
/// Indices of the results after the counts of writes.
const FIRST: usize = 10;
const LAST: usize = 11;
const DONE: usize = 12;

/// Ratio of the messages in a run with a window to those in a run with one outstanding message.
const WINDOWED: u64 = 10;

/// Number of round trips of a cache line that measure the cost of a write and its detection.
const HAND_OVERS: u64 = 20_000;

/// Longest payload, in bytes.
const MAX_BYTES: usize = 1 << 20;

kinds! {
    Connect,
    Chain,
    One,
    /// One message at a time, each after a rest.
    Rested,
    Window,
    /// Messages at a fixed rate.
    Rate,
    /// The records of a stream of messages, without the multicast.
    Stream,
    /// A cache line handed over and back.
    HandOver,
}

struct Bench<'a> {
    harness: Harness<'a>,
    cluster: Cluster,
}

pub(super) fn run(args: &BenchMulticast) -> Result<Report, Failure> {
    if args.dest > args.groups {
        let what = format!("messages to {} of {} groups", args.dest, args.groups);
        return Err(Failure::usage(what, "--dest", "choose at most the number of groups"));
    }
    if args.critical_path && args.fabric != LoopbackFabric::Shm {
        let what = format!("a critical path on {}: it is computed on shared memory only", name_of(&args.fabric));
        return Err(Failure::usage(what, "--critical-path", "use `--fabric shm`"));
    }
    let remedy = "the bound of the throughput is measured on two: allow this process two (taskset, container limits)";
    let processors = two_processors("bench multicast", remedy)?;
    let mut rows = Vec::new();
    let environment = Environment::new(name_of(&args.fabric), name_of(&args.wait), pinning(args, &processors))
        .with(&args.network.networks)
        .with_processes(cluster(args, 0).processes());
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
        let mut bench = Bench::start(cluster, &args.length, &processors, &args.rates.rate, traffic)?;
        rows.push(bench.one()?);
        for window in args.window.iter().filter(|window| **window > 1) {
            rows.push(bench.window(*window)?);
        }
        for rate in &args.rates.rate {
            rows.push(bench.rate(*rate)?);
        }
        if args.critical_path {
            drop(bench);
            rows.extend(critical_path::rows(args, bytes, &processors)?);
        }
    }
    Ok(Report::of(environment, rows))
}

fn cluster(args: &BenchMulticast, bytes: usize) -> Cluster {
    let BenchMulticast { groups, replicas, dest, clients, wait, pin, variant, .. } = *args;
    let window = args.window.iter().copied().max().unwrap_or(1);
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

/// Returns the name of a process in the cluster's configuration.
fn name(cluster: &Cluster, process: usize) -> String {
    let replicas = usize::from(cluster.replicas);
    match process.checked_sub(cluster.members()) {
        Some(client) => format!("c{client}"),
        None => format!("g{}.{}", process / replicas + 1, process % replicas + 1),
    }
}

/// Returns the processor that a process is pinned to.
fn place(cluster: &Cluster, processors: &[usize], process: usize) -> Option<usize> {
    let at = match cluster.setting.pin {
        Pinning::None => return None,
        Pinning::Spread => process,
        Pinning::Groups => process / usize::from(cluster.replicas),
    };
    Some(processors[at % processors.len()])
}

/// Returns the number of remote writes of a lone message, by the protocol's formula.
fn formula(cluster: &Cluster) -> u64 {
    let (g, p) = (u64::from(cluster.dest), u64::from(cluster.replicas));
    let all = g * p;
    let leader = match cluster.variant {
        Protocol::V1 => (g - 1) + (p - 1) + (p - 1) * (g - 1) + all - 1,
        Protocol::V2 => (g - 1) + (p - 1) + if g > 1 { p - 1 } else { 0 } + if p == 1 { all - 1 } else { 0 },
    };
    all + g * leader + g * (p - 1) * (all - 1)
}

/// One member and one client.
const LONE: Cluster = Cluster {
    groups: 1,
    replicas: 1,
    dest: 1,
    clients: 1,
    variant: Protocol::V2,
    setting: Setting { window: 1, bytes: 64, wait: Waiting::Poll, pin: Pinning::None, network: None },
};

impl<'a> Bench<'a> {
    fn start(
        cluster: Cluster,
        length: &'a BenchLength,
        processors: &[usize],
        rates: &[u32],
        traffic: impl Fn(usize) -> Network,
    ) -> Result<Self, Failure> {
        let streamed = match cluster.setting.network {
            None => rings::lines(&stream::rings(&cluster)),
            Some(_) => packets::lines(cluster.processes()),
        };
        let lines = chain::lines(&cluster).max(HAND_OVER_LINES).max(streamed);
        let most = rates.iter().map(|rate| messages_at(&length.repeats, *rate)).max().unwrap_or(0);
        let most = most.max(messages(length, ITERATIONS * WINDOWED));
        let samples = Harness::samples(length, most) * u64::from(cluster.clients);
        let shape = Shape { processes: cluster.processes(), lines, samples: samples as usize };
        let places: Vec<_> = (0..cluster.processes()).map(|process| place(&cluster, processors, process)).collect();
        let part = (Part::Multicast(cluster), cluster.setting.bytes, Kind::Connect.number());
        Ok(Bench { harness: Harness::start(part, length, shape, (&places, processors), traffic)?, cluster })
    }

    fn name(&self, what: &str) -> String {
        row_name(&self.cluster, what)
    }

    /// Measures the latency of messages that are sent one at a time, from the call to the last destination's delivery.
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
            None => chain::WHAT.to_owned(),
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

    /// Measures the rate of messages with a window, beside the same records without the multicast.
    fn window(&mut self, window: u32) -> Result<Row, Failure> {
        let (iterations, cluster) = (messages(self.harness.length, ITERATIONS * WINDOWED), self.cluster);
        let (mut subjects, mut written) = (Samples::plain(), Written::default());
        let (mut bare, mut rates) = (Vec::new(), Vec::new());
        self.harness.rounds(|harness| {
            let measured = harness.run(Kind::Stream.number(), iterations, window.into())?;
            bare.push(rate(harness, &cluster, &all_streamed(&cluster, measured)));
            let before = harness.sums();
            let measured = harness.run(Kind::Window.number(), iterations, window.into())?;
            written.add(before, harness.sums(), measured.end as u64 * u64::from(cluster.clients));
            let all = all_sent(harness, &cluster);
            rates.push(rate(harness, &cluster, &all));
            subjects.round(all.into_iter().map(|(client, at)| latency(harness, &cluster, client, at)));
            Ok(())
        })?;
        let name = self.name(&format!("{window} outstanding"));
        let what = if cluster.setting.network.is_some() { IN_PACKETS } else { IN_MEMORY };
        let row = Row::rate_beside(name, cluster.setting.bytes as usize, what, (&bare, &rates));
        let writes = Some(written.per_message(&self.cluster));
        Ok(Row { writes, ..row.with_samples(&subjects) })
    }

    /// Measures the latency of messages at a fixed rate, each from its due time.
    fn rate(&mut self, rate: u32) -> Result<Row, Failure> {
        let (iterations, cluster) = (messages_at(&self.harness.length.repeats, rate), self.cluster);
        let window = cluster.setting.window.into();
        let (mut subjects, mut rates) = (Samples::plain(), Vec::new());
        let rounds = self.harness.rounds(|harness| {
            harness.run_at(Kind::Rate.number(), iterations, window, rate)?;
            let all = all_sent(harness, &cluster);
            rates.push(self::rate(harness, &cluster, &all));
            subjects.round(all.into_iter().map(|(client, at)| latency(harness, &cluster, client, at)));
            Ok(())
        })?;
        let due = f64::from(rate) * f64::from(cluster.clients);
        let row = Row::alone(self.name(&due_name(rate)), cluster.setting.bytes as usize, rounds);
        Ok(row.with_due(due, &rates).with_samples(&subjects))
    }
}

/// Returns the name of a row of this cluster.
fn row_name(cluster: &Cluster, what: &str) -> String {
    let Cluster { groups, replicas, dest, clients, variant, .. } = *cluster;
    let variant = if variant == Protocol::V1 { "V1" } else { "V2" };
    format!(
        "multicast {variant}, {groups}x{replicas} to {dest}, {clients} client{}, {what}",
        if clients == 1 { "" } else { "s" }
    )
}

/// Measures the time to hand a cache line over to another processor, in nanoseconds.
fn hand_over_cost(harness: &mut Harness<'_>) -> Result<f64, Failure> {
    Ok(harness.between_ends(Kind::HandOver.number(), HAND_OVERS, 0)? / (2 * HAND_OVERS) as f64)
}

/// Returns the sample indices of the measured messages of a client.
fn sent(harness: &Harness<'_>, cluster: &Cluster, client: usize) -> impl Iterator<Item = usize> + use<> {
    let results = harness.area().results(cluster.members() + client);
    let (first, last) = (results[FIRST].load(Ordering::Relaxed), results[LAST].load(Ordering::Relaxed));
    let (cluster, samples) = (*cluster, harness.area().shape().samples);
    (first..=last).map(move |sequence| process::sample(&cluster, samples, client, sequence))
}

/// Returns the clients and sample indices of the bound's messages: see [`stream::Stream`].
fn all_streamed(cluster: &Cluster, measured: std::ops::Range<usize>) -> Vec<(usize, usize)> {
    let clients = usize::from(cluster.clients);
    measured.flat_map(|n| (0..clients).map(move |client| (client, n * clients + client))).collect()
}

/// Returns the clients and sample indices of the measured messages of all clients.
fn all_sent(harness: &Harness<'_>, cluster: &Cluster) -> Vec<(usize, usize)> {
    let of = |client| sent(harness, cluster, client).map(move |at| (client, at));
    (0..usize::from(cluster.clients)).flat_map(of).collect()
}

fn latency(harness: &Harness<'_>, cluster: &Cluster, client: usize, at: usize) -> u64 {
    harness.latency(cluster.members() + client, 0..cluster.destinations(), at)
}

/// Returns the rate in messages per second, from the first call to the last delivery. `sent` has the client and the
/// sample index of each message.
fn rate(harness: &Harness<'_>, cluster: &Cluster, sent: &[(usize, usize)]) -> f64 {
    let starts = sent.iter().map(|(client, at)| harness.time(cluster.members() + client, *at));
    let ends = sent.iter().map(|(_, at)| harness.delivered(0..cluster.destinations(), *at));
    let (start, end) = (starts.min().unwrap_or(u64::MAX), ends.max().unwrap_or(0));
    sent.len() as f64 * 1e9 / end.saturating_sub(start).max(1) as f64
}

/// Description of the bound that a rate in shared memory is compared with.
const IN_MEMORY: &str = "the same records between the same processes in the same wait mode, as many messages outstanding: each step of a \
    message is a record as long as the multicast's, sealed and opened, and what is there at once goes at once; nothing is put in an order";
/// Description of the bound that a rate on a network is compared with.
const IN_PACKETS: &str = "the same records between the same processes in the same wait mode, as many messages outstanding, in packets \
    over plain UDP sockets by the same system calls, in runs: each step of a message is a record as long as the multicast's with a \
    checksum, each packet has a CRC; nothing is put in an order, acknowledged or sent again";

/// Numbers of remote writes by step, and of the messages that caused them.
#[derive(Default)]
struct Written {
    writes: [u64; COUNTED],
    messages: u64,
}

impl Written {
    fn add(&mut self, before: [u64; COUNTED], after: [u64; COUNTED], messages: u64) {
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
