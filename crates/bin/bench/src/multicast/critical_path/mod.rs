//! `stentor bench multicast --critical-path`: the latency in a cluster with a processor for each process, computed on
//! two processors.
//!
//! Each process of the cluster is measured alone. The measured process polls on its own processor. All others take
//! turns on another processor: one of them takes a step, then all pause while the measured process reacts. The inputs
//! of the measured process, and the lines that it writes to its peers, are therefore in another processor's cache,
//! while its code and its own state are warm. A reaction is timed from the end of the flush that caused it. That time
//! contains the hop and the rest of the polling round in which the write arrives.
//!
//! A message is then composed from the reactions of each process to one message. A reaction begins when all its inputs
//! have left their writers and the process has finished its earlier reaction ([`path`]). The latency is the longest
//! such chain from the client's call to a delivery. To check the model, the latency of a client and a group of one is
//! both computed and measured directly, in alternating rounds.
//!
//! The model assumes that
//! - all writes of a flush arrive when the flush ends, so the first of several receivers is charged for all of them;
//! - a process has the same work whether its inputs arrive close together or apart;
//! - all processors are as far from each other as these two.

mod log;
mod path;
pub(in super::super) mod process;
mod reaction;
mod stamped;
mod turns;

use std::collections::BTreeMap;

use stentor_fabric::memory::Ordering;
use stentor_support::Failure;
use stentor_support::args::Network;

use super::super::clock::Grain;
use super::super::computed::{Computed, PathStep};
use super::super::harness::{messages, rounds};
use super::super::kinds::kinds;
use super::super::report::{Bound, Row};
use super::super::samples::{Samples, median};
use super::super::shared_area::{Command, Shape};
use super::super::worker_spec::{Cluster, Part, Setting};
use super::super::workers::Workers;
use super::{Bench, LONE, chain, hand_over_cost, latency, sent};
use crate::args::{BenchLength, BenchMulticast, Pinning, Waiting};
use log::ENTRY_WORDS;
use path::{Step, longest};
use reaction::{Reactions, is_interrupted, of_messages};

/// Result: number of entries in the log of the phase.
const COUNT: usize = 0;
/// Result: number of messages that the process delivered, in all phases.
const DELIVERED: usize = 1;

/// Number of messages in all rounds together, for each measured process. It is smaller than in other benches because of
/// the pauses.
const ITERATIONS: u64 = 2100;
/// Pause between two messages of the measured client and group of one, in nanoseconds. It is about as long as the pause
/// between two computed messages, so that both find idle processes.
const REST_NS: u64 = 10_000;
/// Largest number of words of all logs: 128 MiB.
const MOST_WORDS: u64 = 1 << 24;

kinds! {
    Connect,
    /// One process is measured.
    Measure,
}

/// The measured processes of one cluster.
struct Subject {
    workers: Workers,
    cluster: Cluster,
    /// Number of warm-up messages of a phase.
    warmup: u64,
    /// Number of measured messages of a phase.
    messages: u64,
    clock_ns: f64,
    samples: Samples,
    /// The steps of each message, by the roles on its path.
    paths: BTreeMap<Vec<&'static str>, Vec<Vec<Step>>>,
    dropped: u64,
    /// Number of messages that were processed completely while one process was measured, summed over all processes.
    reacted: u64,
    /// Number of those messages at which the measured process was interrupted.
    interrupted: u64,
}

/// Returns the number of marks of one process for one message, on average, for which its log has room.
fn most_entries(cluster: &Cluster) -> u64 {
    4 * cluster.processes() as u64 + 16
}

/// Returns the role of a process. Members of the same role differ by chance, so they are not distinguished.
fn role(cluster: &Cluster, process: usize) -> &'static str {
    match process % usize::from(cluster.replicas) {
        _ if process >= cluster.members() => "client",
        0 => "leader",
        _ => "follower",
    }
}

impl Subject {
    fn start(cluster: Cluster, length: &BenchLength, ends: [usize; 2]) -> Result<Self, Failure> {
        let room = MOST_WORDS / (cluster.processes() as u64 * most_entries(&cluster) * ENTRY_WORDS as u64);
        let percent = u64::from(length.repeats.warm_up);
        let messages = messages(length, ITERATIONS).min(room * 100 / (100 + percent)).max(10);
        let warmup = length.repeats.warm_up(messages);
        let entries = (warmup + messages) * most_entries(&cluster);
        let shape = Shape { processes: cluster.processes(), lines: 1, samples: entries as usize * ENTRY_WORDS };
        let places: Vec<_> = (0..cluster.processes()).map(|process| Some(ends[process % 2])).collect();
        let mut workers = Workers::start(Part::CriticalPath { cluster, ends }, shape, &places, |_| Network::default())?;
        workers.run(Command { kind: Kind::Connect.number(), ..Command::default() })?;
        let clock_ns = Grain::measure().cost_ns;
        let (samples, paths) = (Samples::plain(), BTreeMap::new());
        Ok(Subject {
            workers,
            cluster,
            warmup,
            messages,
            clock_ns,
            samples,
            paths,
            dropped: 0,
            reacted: 0,
            interrupted: 0,
        })
    }

    /// Measures the reactions of one process to each message.
    fn measure(&mut self, measured: usize) -> Result<Vec<Reactions>, Failure> {
        let Subject { workers, cluster, warmup, messages, clock_ns, .. } = self;
        turns::begin(&workers.area, cluster, measured);
        workers.run(Command {
            kind: Kind::Measure.number(),
            bytes: cluster.setting.bytes.into(),
            warmup: *warmup,
            iterations: *messages,
            window: 1,
            extra: measured as u64,
        })?;
        let log = |process| {
            let count = workers.area.results(process)[COUNT].load(Ordering::Relaxed);
            log::load(workers.area.samples(process), count as usize)
        };
        let logs: Vec<_> = (0..cluster.processes()).map(log).collect();
        let mut all = of_messages(&logs, cluster.members(), measured, *clock_ns);
        let mut all = all.split_off((*warmup as usize).min(all.len()));
        let (before, longest) = (all.len(), turns::gap_ns(cluster) as f64);
        all.retain(|reactions| !is_interrupted(reactions, longest));
        self.interrupted += (before - all.len()) as u64;
        self.reacted += before as u64;
        Ok(all)
    }

    /// Measures each process once, and composes the messages.
    fn round(&mut self) -> Result<(), Failure> {
        let all = (0..self.cluster.processes()).map(|process| self.measure(process));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        let messages = all.iter().map(Vec::len).min().unwrap_or(0);
        let mut latencies = Vec::with_capacity(messages);
        for n in 0..messages {
            let one: Vec<_> = all.iter().map(|of_process| &of_process[n]).collect();
            match longest(&one, self.cluster.destinations()) {
                Some(steps) => {
                    latencies.push(steps.last().map_or(0.0, |(_, at)| *at) as u64);
                    let through = steps.iter().map(|(process, _)| role(&self.cluster, *process)).collect();
                    self.paths.entry(through).or_default().push(steps);
                }
                None => self.dropped += 1,
            }
        }
        if latencies.len() * 10 <= messages {
            let what = format!("{} of {messages} messages have a path to a delivery", latencies.len());
            let remedy = "repeat it with nothing else running, or report this as a bug";
            return Err(Failure::run(what, "bench multicast --critical-path", remedy));
        }
        self.samples.round(latencies);
        Ok(())
    }

    /// Describes how the figures were computed.
    fn computed(&self) -> Computed {
        let all: usize = self.paths.values().map(Vec::len).sum();
        let most = self.paths.iter().max_by_key(|(_, messages)| messages.len());
        let (roles, messages) = most.expect("each round has a path");
        let step = |(n, role): (usize, &&'static str)| {
            let since = |steps: &[Step]| if n == 0 { 0.0 } else { steps[n - 1].1 };
            let us = median(messages.iter().map(|steps| (steps[n].1 - since(steps)) / 1000.0));
            PathStep { role, us }
        };
        Computed {
            path: roles.iter().enumerate().map(step).collect(),
            share: messages.len() as f64 / all as f64,
            dropped: self.dropped,
            interrupted: self.interrupted as f64 / self.reacted.max(1) as f64,
            measured_p50_us: None,
            computed_to_measured: None,
        }
    }

    /// Returns the row, beside one hand-over of a cache line for each hop.
    fn row(&self, rounds: u32, hand_over_ns: f64, computed: Computed) -> Row {
        let what = "one hand-over of a cache line between two processors for each hop of the path, nothing else";
        let hops = computed.path.len().saturating_sub(1).max(1);
        let bound = Bound::us(what, hops as f64 * hand_over_ns / 1000.0);
        let name = row_name(&self.cluster, "computed for a processor each");
        let row = Row::latency(name, self.cluster.setting.bytes as usize, rounds, bound, &self.samples);
        Row { computed: Some(computed), ..row }
    }
}

fn row_name(cluster: &Cluster, what: &str) -> String {
    super::row_name(cluster, &format!("one outstanding, {what}"))
}

/// Returns the clusters whose paths are computed: a client and a group of one, and the requested cluster with one
/// client.
fn clusters(args: &BenchMulticast, bytes: usize) -> [Cluster; 2] {
    let setting = Setting { window: 1, bytes: bytes as u32, wait: Waiting::Yield, pin: Pinning::Spread, network: None };
    let asked = Cluster { clients: 1, setting, ..super::cluster(args, bytes) };
    [Cluster { variant: args.variant, setting, ..LONE }, asked]
}

/// Returns three rows: a client and a group of one, measured and computed, and the requested cluster, computed.
pub(super) fn rows(args: &BenchMulticast, bytes: usize, processors: &[usize]) -> Result<Vec<Row>, Failure> {
    let (length, ends) = (&args.length, [processors[0], processors[processors.len() - 1]]);
    let [two, asked] = clusters(args, bytes);
    let polling = Cluster { setting: Setting { wait: Waiting::Poll, ..two.setting }, ..two };
    let mut real = Bench::start(polling, length, &ends, &[], |_| Network::default())?;
    let (mut two, mut asked) = (Subject::start(two, length, ends)?, Subject::start(asked, length, ends)?);
    let (mut bounds, mut measured, mut hops) = (Samples::plain(), Samples::plain(), Vec::new());
    let iterations = messages(length, super::ITERATIONS);
    let rounds = rounds((length.repeats.rounds, length.duration), || {
        let harness = &mut real.harness;
        let range = harness.run(super::Kind::Chain.number(), iterations, 1)?;
        bounds.round(range.map(|at| latency(harness, &polling, 0, at)));
        two.round()?;
        harness.run_resting(super::Kind::Rested.number(), iterations, REST_NS)?;
        measured.round(sent(harness, &polling, 0).map(|at| latency(harness, &polling, 0, at)));
        hops.push(hand_over_cost(harness)?);
        asked.round()
    })?;
    let hand_over = median(hops);
    let ratios = two.samples.medians().zip(measured.medians()).map(|(computed, measured)| computed / measured);
    let checked = Computed {
        computed_to_measured: Some(median(ratios)),
        measured_p50_us: Some(measured.summary().typical),
        ..two.computed()
    };
    let (name, what) = (row_name(&polling, "measured with a processor each"), chain::WHAT);
    Ok(vec![
        real.harness.alone(name, rounds, (&bounds, &measured), what),
        two.row(rounds, hand_over, checked),
        asked.row(rounds, hand_over, asked.computed()),
    ])
}
