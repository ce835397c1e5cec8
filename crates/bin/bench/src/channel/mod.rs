//! `stentor bench channel`: messages of a channel beside the same bytes by the fabric's own operation, on the same fabric in
//! the same run, and the ways of sending them side by side.

mod bare;
mod line;
mod pingpong;
pub(super) mod process;
mod raw;
mod talk;

use stentor_channel::{Config, MAX_MESSAGE_BYTES, Scheme};
use stentor_fabric::memory::Ordering;

use super::datagrams::network;
use super::environment::Environment;
use super::harness::two_processors;
use super::kinds::kinds;
use super::ofi;
use super::report::{Bound, Report, Row};
use super::roce;
use super::samples::{Samples, median};
use super::shared_area::{Command, Shape};
use super::worker_spec::Part;
use super::workers::Workers;
use crate::args::BenchChannel;
use pingpong::PingPong;
use stentor_support::args::{ChannelFabric, LoopbackFabric, name_of};
use stentor_support::live::{Captures, refuse_traffic};
use stentor_support::{Failure, TAGGED_PIECE_BYTES};

/// Payloads of the latencies, bytes.
const SIZES: [usize; 3] = [8, 4 << 10, 64 << 10];
/// The payload of the bandwidth, bytes.
const LARGE: usize = 1 << 20;
/// Iterations of an 8-byte row, over its rounds; on a network.
const ITERATIONS: u64 = 70_000;
const ON_NETWORK: u64 = 21_000;
/// A message of the bandwidth stands for so many of 8 bytes.
const PER_LARGE: u64 = 64;

kinds! {
    /// A new fabric, for the subject that `extra` names.
    Open,
    /// Messages to and fro.
    PingPong,
    /// Messages one after the other, answered at the end.
    Stream,
    /// The fabric is given up.
    Close,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    /// The fabric's own operation, on libfabric the provider's, from and to registered memory: the bound.
    Raw,
    /// The channel's default: short messages go with their length.
    Default,
    /// The same from registered memory, and read where it arrives.
    InPlace,
    /// As in the notes: a length, then a payload, however short.
    Apart,
}

impl Subject {
    const ALL: [Subject; 4] = [Subject::Raw, Subject::Default, Subject::InPlace, Subject::Apart];

    fn of(number: u64) -> Self {
        Subject::ALL[number as usize]
    }

    /// A channel's parameters on a fabric with tags, or without.
    fn config(self, tagged: bool) -> Config {
        let base = match (tagged, self) {
            (true, Subject::Apart) => Config::with(Scheme::LengthPayload),
            (true, _) => Config::with(Scheme::Eager),
            (false, Subject::Apart) => Config { eager_bytes: 0, ..Config::with(Scheme::Counted) },
            (false, _) => Config::with(Scheme::Counted),
        };
        let piece_bytes = if tagged { TAGGED_PIECE_BYTES } else { base.piece_bytes };
        Config { message_bytes: MAX_MESSAGE_BYTES, piece_bytes, ..base }
    }

    fn name(self, tagged: bool) -> String {
        let scheme = self.config(tagged).scheme.name();
        match self {
            Subject::Raw => "raw".to_owned(),
            Subject::Default => format!("channel, {scheme}"),
            Subject::InPlace => format!("channel, {scheme}, sent and read in place"),
            Subject::Apart if tagged => format!("channel, {scheme} (the notes)"),
            Subject::Apart => format!("channel, {scheme}, length and payload apart (the notes)"),
        }
    }
}

/// Returns the operation that the bound measures.
fn operation(fabric: ChannelFabric, tagged: bool) -> &'static str {
    match (fabric, tagged) {
        (ChannelFabric::Ofi, _) => "the provider's own tagged sends (fi_tsend)",
        (_, true) => "tagged sends",
        (_, false) => "WRITE_WITH_IMM",
    }
}

/// What the rounds of one subject at one size came to.
struct Measured {
    subject: Subject,
    bytes: usize,
    samples: Samples,
    rates: Vec<f64>,
}

pub(super) fn run(args: &BenchChannel) -> Result<Report, Failure> {
    let available = two_processors("bench channel", "two processes that spin need two processors")?;
    let (first, last) = (available[0], available[available.len() - 1]);
    let pinning = format!("two processes, pinned to processors {first} and {last}");
    let environment = Environment::new(name_of(&args.fabric), "poll", pinning).with(&args.network.networks);
    let usual = if args.fabric == ChannelFabric::Shm { ITERATIONS } else { ON_NETWORK };
    let a_round = (args.iterations.unwrap_or(usual) / u64::from(args.rounds)).max(PER_LARGE);
    let captures = captures(args)?;
    // Each fabric of the run has its own file.
    captures.check((0..2).map(roce::name), args.rounds * Subject::ALL.len() as u32)?;
    let shape = Shape { processes: 2, lines: 1, samples: a_round as usize };
    let (part, carrier) = part(args)?;
    let environment = Environment { carrier, ..environment };
    let mut beside = match &part {
        Part::Channel { ofi: Some(provider), .. } => Some(PingPong::new(provider, [first, last], &SIZES)),
        _ => None,
    };
    let mut workers = Workers::start(part, shape, &[Some(first), Some(last)], |_| captures.asked().clone())?;
    let sizes = SIZES.iter().copied().chain([LARGE]);
    let new =
        |subject, bytes| Measured { subject, bytes, samples: Samples::new(0.5, environment.clock), rates: vec![] };
    let mut all: Vec<_> =
        Subject::ALL.iter().flat_map(|subject| sizes.clone().map(move |bytes| new(*subject, bytes))).collect();
    for round in 0..args.rounds {
        for subject in Subject::ALL {
            let phase = |kind: Kind| Command { kind: kind.number(), extra: subject as u64, ..Command::default() };
            workers.run(Command { window: u64::from(round), ..phase(Kind::Open) })?;
            for measured in all.iter_mut().filter(|measured| measured.subject == subject) {
                one(&mut workers, phase, measured, a_round)?;
            }
            workers.run(phase(Kind::Close))?;
        }
        if let Some(beside) = &mut beside {
            beside.round(|bytes| messages(a_round, bytes));
        }
    }
    let tagged = workers.area.results(0)[2].load(Ordering::Acquire) != 0;
    Ok(Report::of(
        environment,
        rows(&all, beside.as_ref(), operation(args.fabric, tagged), tagged, (args.rounds, a_round)),
    ))
}

/// What becomes of packets, where that can be seen.
fn captures(args: &BenchChannel) -> Result<Captures, Failure> {
    let place = "stentor bench channel";
    if args.fabric == ChannelFabric::Ofi {
        refuse_traffic(Captures::from(&args.network).asked(), place)?;
        return Ok(Captures::from(&args.network));
    }
    args.ofi.refuse_unless(false, place)?;
    roce::captures(&args.network, args.fabric == ChannelFabric::Roce, place)
}

/// What the processes are told, and what carries their messages, where that is chosen at start.
fn part(args: &BenchChannel) -> Result<(Part, Option<String>), Failure> {
    let network = network(LoopbackFabric::Roce);
    Ok(match args.fabric {
        ChannelFabric::Shm => (Part::Channel { network: None, ofi: None }, None),
        ChannelFabric::Roce => (Part::Channel { network, ofi: None }, None),
        ChannelFabric::Ofi => {
            args.ofi.refuse_efa("stentor bench channel", "leave out --as-efa: what it restricts is measured here")?;
            let info = ofi::provider(&args.ofi, network.unwrap_or_default())?;
            let ofi = Some(info.provider().to_owned());
            (Part::Channel { network, ofi }, Some(format!("libfabric's provider {info}")))
        }
    })
}

/// How many messages of so many bytes a round has.
fn messages(a_round: u64, bytes: usize) -> u64 {
    if bytes == LARGE { (a_round / PER_LARGE).max(1) } else { (a_round / (1 + bytes as u64 / 4096)).max(10) }
}

fn one(
    workers: &mut Workers,
    phase: impl Fn(Kind) -> Command,
    measured: &mut Measured,
    a_round: u64,
) -> Result<(), Failure> {
    let iterations = messages(a_round, measured.bytes).min(a_round);
    let kind = if measured.bytes == LARGE { Kind::Stream } else { Kind::PingPong };
    workers.run(Command { bytes: measured.bytes as u64, warmup: iterations / 10, iterations, ..phase(kind) })?;
    if kind == Kind::Stream {
        let time_ns = workers.area.results(0)[0].load(Ordering::Acquire).max(1);
        measured.rates.push(iterations as f64 * 1e9 / time_ns as f64);
    } else {
        let taken = &workers.area.samples(0)[..iterations as usize];
        measured.samples.round(taken.iter().map(|sample| sample.load(Ordering::Relaxed)));
    }
    Ok(())
}

/// The median of what the rounds of two give, each beside the other's in the same round: a machine that changes its pace between rounds
/// changes both.
fn paired(
    ours: impl Iterator<Item = f64>,
    theirs: impl Iterator<Item = f64>,
    compare: impl Fn(f64, f64) -> f64,
) -> f64 {
    median(ours.zip(theirs).map(|(ours, theirs)| compare(ours, theirs)))
}

/// The means of `fi_pingpong`'s rounds, if it has any at this size.
fn means_beside(beside: Option<&PingPong>, bytes: usize) -> Option<&[f64]> {
    let (_, means) = beside?.found.iter().find(|found| found.0 == bytes)?;
    (!means.is_empty()).then_some(means.as_slice())
}

fn rows(
    all: &[Measured],
    beside: Option<&PingPong>,
    operation: &str,
    tagged: bool,
    (rounds, a_round): (u32, u64),
) -> Vec<Row> {
    let latency = |raw: &Measured| {
        let what = format!("half a ping-pong of {operation} from and to registered memory");
        Bound::us(what, raw.samples.summary().typical)
    };
    let raw = |bytes| all.iter().find(move |measured| measured.subject == Subject::Raw && measured.bytes == bytes);
    let subjects = all.iter().filter(|measured| measured.subject != Subject::Raw);
    let mut rows: Vec<_> = subjects
        .filter_map(|measured| {
            let Measured { subject, bytes, samples, rates } = measured;
            let (raw, name) = (raw(*bytes)?, subject.name(tagged));
            if *bytes == LARGE {
                let (bound, rate) = (median(raw.rates.iter().copied()), median(rates.iter().copied()));
                let ratio = paired(raw.rates.iter().copied(), rates.iter().copied(), |bound, rate| bound / rate);
                let what = format!("{operation} one after the other, from and to registered memory, nothing copied");
                let iterations = messages(a_round, *bytes) * u64::from(rounds);
                let row = Row::new(name, *bytes, rounds, Bound::rate(what, bound), ratio).with_rate(rate);
                return Some(Row { iterations, ..row });
            }
            let (bound, summary) = (latency(raw), samples.summary());
            let ratio = paired(samples.medians(), raw.samples.medians(), |ours, bound| ours / bound);
            let row = Row::new(name, *bytes, rounds, bound, ratio).with_latency(&summary);
            let bound_round_avg_us = Some(raw.samples.summary().round_avg);
            let theirs = means_beside(beside, *bytes);
            let above =
                theirs.map(|theirs| paired(samples.means(), theirs.iter().copied(), |ours, theirs| ours - theirs));
            let round_avg_us = Some(summary.round_avg);
            Some(Row { round_avg_us, bound_round_avg_us, above_pingpong_us: above, ..row })
        })
        .collect();
    for (bytes, means) in beside.iter().flat_map(|beside| &beside.found).filter(|(_, means)| !means.is_empty()) {
        let Some(raw) = raw(*bytes) else { continue };
        let (bound, us) = (latency(raw), median(means.iter().copied()));
        let ratio = paired(means.iter().copied(), raw.samples.medians(), |us, bound| us * 1000.0 / bound);
        let rounds = means.len() as u32;
        let iterations = messages(a_round, *bytes) * u64::from(rounds);
        let row = Row::new(pingpong::ROW, *bytes, rounds, bound, ratio);
        rows.push(Row { iterations, p50_us: Some(us), avg_us: Some(us), round_avg_us: Some(us), ..row });
    }
    // The ways of sending one size beside each other.
    rows.sort_by_key(|row| row.bytes);
    rows
}

#[cfg(test)]
mod tests {
    use super::super::clock::Grain;
    use super::*;

    #[test]
    fn subjects_go_through_the_command_and_back() {
        for subject in Subject::ALL {
            assert_eq!(Subject::of(subject as u64), subject);
            assert!([true, false].iter().all(|tagged| subject.config(*tagged).check().is_ok()));
        }
    }

    #[test]
    fn a_message_is_inline_in_the_default_only() {
        for tagged in [true, false] {
            assert!(Subject::Default.config(tagged).eager_bytes >= 8);
            assert_eq!(Subject::Apart.config(tagged).eager_bytes, 0);
        }
    }

    #[test]
    fn rows_stand_beside_the_bound_of_their_size() {
        let measured = |subject, bytes, latencies: [u64; 3], rates: [f64; 3]| {
            let mut samples = Samples::new(0.5, Grain { cost_ns: 0.0, step_ns: 1 });
            latencies.into_iter().for_each(|latency| samples.round(vec![latency; 10]));
            Measured { subject, bytes, samples, rates: rates.to_vec() }
        };
        // The machine becomes four times slower between the first two rows of the second round: medians for themselves would be 1 and 6.
        let all = [
            measured(Subject::Raw, 8, [1000, 1000, 4000], [0.0; 3]),
            measured(Subject::Raw, LARGE, [1; 3], [3000.0, 3000.0, 700.0]),
            measured(Subject::Default, 8, [1500, 6000, 6000], [0.0; 3]),
            measured(Subject::Default, LARGE, [1; 3], [1000.0, 100.0, 233.3]),
            measured(Subject::Apart, 8, [2000, 8000, 8000], [0.0; 3]),
        ];
        let mut beside = PingPong::new("x", [0, 1], &[]);
        beside.found = vec![(8, vec![3.0, 3.0, 12.0])];
        let rows = rows(&all, Some(&beside), "WRITE_WITH_IMM", false, (1, 640));
        let told: Vec<_> = rows.iter().map(|row| (row.bytes, (row.ratio.unwrap() * 10.0).round() as u32)).collect();
        // Half of a round trip of 1000 ns is 0.5 us.
        assert_eq!(told, [(8, 15), (8, 20), (8, 60), (LARGE, 30)]);
        let above: Vec<_> = rows.iter().map(|row| row.above_pingpong_us.map(|above| (above * 100.0).round())).collect();
        assert_eq!(above, [Some(-225.0), Some(-200.0), None, None]);
        assert!(rows[1].name.contains("notes"), "{}", rows[1].name);
        assert_eq!((rows[2].p50_us, rows[2].rounds), (Some(3.0), 3));
    }
}
