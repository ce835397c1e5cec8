//! `stentor bench channel`: messages of a channel beside the fabric's own operation with the same bytes, on the same
//! fabric in the same run. The ways of sending a message are rows side by side.

mod bare;
mod line;
mod pingpong;
pub(super) mod process;
mod raw;
mod talk;

use stentor_channel::{Config, MAX_MESSAGE_BYTES, Scheme};
use stentor_fabric::memory::Ordering;

use super::clock::Grain;
use super::datagrams::network;
use super::environment::Environment;
use super::harness::{due_name, messages_at, two_processors};
use super::kinds::kinds;
use super::ofi;
use super::report::{Bound, Report, Row};
use super::roce;
use super::samples::{Samples, median};
use super::shared_area::{Command, Shape};
use super::worker_spec::Part;
use super::workers::Workers;
use crate::args::{BenchChannel, Repeats};
use pingpong::PingPong;
use stentor_support::args::{ChannelFabric, LoopbackFabric, name_of};
use stentor_support::live::{Captures, refuse_traffic};
use stentor_support::{Failure, TAGGED_PIECE_BYTES};

/// Payload of the bandwidth rows, in bytes.
const LARGE: usize = 1 << 20;
/// Iterations of an 8-byte row on shared memory, in all its rounds together.
const ITERATIONS: u64 = 70_000;
/// Iterations of an 8-byte row on a network, in all its rounds together.
const ON_NETWORK: u64 = 21_000;
/// Number of 8-byte messages that one message of a bandwidth row replaces.
const PER_LARGE: u64 = 64;

kinds! {
    /// Open a new fabric for the subject that `extra` names.
    Open,
    /// Ping-pong of messages.
    PingPong,
    /// Messages one after the other, acknowledged by the receiver.
    Stream,
    /// Messages at a fixed rate, answered at the end.
    Rate,
    /// Close the fabric.
    Close,
}

/// The subject of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    /// The fabric's own operation, or the provider's on libfabric, from and to registered memory. This is the bound.
    Raw,
    /// The channel's default: a short message travels with its length.
    Default,
    /// The default scheme, but a message is sent from registered memory and read where it arrives.
    InPlace,
    /// The length and the payload are sent separately, however short the payload is.
    Apart,
}

impl Subject {
    const ALL: [Subject; 4] = [Subject::Raw, Subject::Default, Subject::InPlace, Subject::Apart];

    fn of(number: u64) -> Self {
        Subject::ALL[number as usize]
    }

    /// Returns the parameters of the channel on a fabric with or without tags.
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

    fn name(self, tagged: bool, every_byte: bool) -> String {
        let scheme = self.config(tagged).scheme.name();
        match self {
            Subject::Raw => "raw".to_owned(),
            Subject::Default => format!("channel, {scheme}"),
            Subject::InPlace if every_byte => format!("channel, {scheme}, sent and read in place, every byte"),
            Subject::InPlace => format!("channel, {scheme}, sent and read in place"),
            Subject::Apart => format!("channel, {scheme}, length and payload apart"),
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

/// A pattern of messages of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Ping-pong: half a round trip is the latency.
    PingPong,
    /// Stream: the rate of messages one after the other.
    Stream,
    /// One-way latency at a fixed rate, in messages per second.
    Rate(u32),
}

/// The results of the rounds of one subject at one size in one pattern.
struct Measured {
    subject: Subject,
    bytes: usize,
    way: Way,
    samples: Samples,
    rates: Vec<f64>,
}

pub(super) fn run(args: &BenchChannel) -> Result<Report, Failure> {
    let available = two_processors("bench channel", "two processes that spin need two processors")?;
    let (first, last) = (available[0], available[available.len() - 1]);
    let pinning = format!("two processes, pinned to processors {first} and {last}");
    let mut environment = Environment::new(name_of(&args.fabric), "poll", pinning).with(&args.network.networks);
    let usual = if args.fabric == ChannelFabric::Shm { ITERATIONS } else { ON_NETWORK };
    let repeats = &args.repeats;
    let a_round = (repeats.iterations.unwrap_or(usual) / u64::from(repeats.rounds)).max(PER_LARGE);
    let captures = captures(args)?;
    // Each fabric of the run writes its own file.
    captures.check((0..2).map(roce::name), repeats.rounds * Subject::ALL.len() as u32)?;
    let at_rates = args.rates.rate.iter().map(|rate| messages_at(repeats, *rate));
    let samples = at_rates.fold(a_round, u64::max);
    let shape = Shape { processes: 2, lines: 1, samples: samples as usize };
    let (part, carrier) = part(args)?;
    environment.carrier = carrier;
    let mut beside = match &part {
        Part::Channel { ofi: Some(provider), .. } => Some(PingPong::new(provider, [first, last], &args.size)),
        _ => None,
    };
    let mut workers = Workers::start(part, shape, &[Some(first), Some(last)], |_| captures.asked().clone())?;
    let mut all = all(args, environment.clock);
    for round in 0..repeats.rounds {
        for subject in Subject::ALL {
            let phase = |kind: Kind| Command { kind: kind.number(), extra: subject as u64, ..Command::default() };
            workers.run(Command { window: u64::from(round), ..phase(Kind::Open) })?;
            for measured in all.iter_mut().filter(|measured| measured.subject == subject) {
                one(&mut workers, phase, measured, (repeats, a_round))?;
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
        rows(
            &all,
            beside.as_ref(),
            operation(args.fabric, tagged),
            (tagged, args.every_byte),
            (repeats.rounds, a_round),
        ),
    ))
}

/// Returns an entry for each measurement: each subject in a ping-pong at each size and in a stream of [`LARGE`]
/// messages, and each channel at each size and fixed rate.
fn all(args: &BenchChannel, clock: Grain) -> Vec<Measured> {
    let ways = |subject| {
        let (sizes, rates) = (args.size.iter().copied(), &args.rates.rate);
        let to_and_fro = sizes.clone().map(|bytes| (bytes, Way::PingPong));
        let channels = if subject == Subject::Raw { &[][..] } else { &rates[..] };
        let at = channels.iter().flat_map(move |rate| sizes.clone().map(|bytes| (bytes, Way::Rate(*rate))));
        to_and_fro.chain([(LARGE, Way::Stream)]).chain(at).collect::<Vec<_>>()
    };
    let new = |subject, (bytes, way)| {
        let scale = if way == Way::PingPong { 0.5 } else { 1.0 };
        let clock = if way == Way::PingPong { clock } else { Grain::default() };
        Measured { subject, bytes, way, samples: Samples::new(scale, clock), rates: vec![] }
    };
    Subject::ALL.iter().flat_map(|subject| ways(*subject).into_iter().map(|way| new(*subject, way))).collect()
}

/// Returns the captures and faults of the network, if the fabric supports them.
fn captures(args: &BenchChannel) -> Result<Captures, Failure> {
    let place = "stentor bench channel";
    if args.fabric == ChannelFabric::Ofi {
        refuse_traffic(Captures::from(&args.network).asked(), place)?;
        return Ok(Captures::from(&args.network));
    }
    args.ofi.refuse_unless(false, place)?;
    roce::captures(&args.network, args.fabric == ChannelFabric::Roce, place)
}

/// Returns the part of the processes, and the name of the carrier if it is chosen at start.
fn part(args: &BenchChannel) -> Result<(Part, Option<String>), Failure> {
    let network = network(LoopbackFabric::Roce);
    let every_byte = args.every_byte;
    Ok(match args.fabric {
        ChannelFabric::Shm => (Part::Channel { network: None, ofi: None, every_byte }, None),
        ChannelFabric::Roce => (Part::Channel { network, ofi: None, every_byte }, None),
        ChannelFabric::Ofi => {
            args.ofi
                .refuse_efa("stentor bench channel", "leave out --as-efa: this bench measures what it restricts")?;
            let info = ofi::provider(&args.ofi, network.unwrap_or_default())?;
            let ofi = Some(info.provider().to_owned());
            (Part::Channel { network, ofi, every_byte }, Some(format!("libfabric's provider {info}")))
        }
    })
}

/// Returns the number of messages of `bytes` in a round.
fn messages(a_round: u64, bytes: usize) -> u64 {
    if bytes == LARGE { (a_round / PER_LARGE).max(1) } else { (a_round / (1 + bytes as u64 / 4096)).max(10) }
}

fn one(
    workers: &mut Workers,
    phase: impl Fn(Kind) -> Command,
    measured: &mut Measured,
    (repeats, a_round): (&Repeats, u64),
) -> Result<(), Failure> {
    let (kind, iterations, rate) = match measured.way {
        Way::PingPong => (Kind::PingPong, messages(a_round, measured.bytes).min(a_round), 0),
        Way::Stream => (Kind::Stream, messages(a_round, measured.bytes).min(a_round), 0),
        Way::Rate(rate) => (Kind::Rate, messages_at(repeats, rate), rate),
    };
    let (bytes, warmup) = (measured.bytes as u64, repeats.warm_up(iterations));
    workers.run(Command { bytes, warmup, iterations, window: rate.into(), ..phase(kind) })?;
    let times = |process| workers.area.samples(process)[..iterations as usize].iter();
    let times = |process| times(process).map(|sample| sample.load(Ordering::Relaxed));
    if measured.way != Way::PingPong {
        let time_ns = workers.area.results(0)[0].load(Ordering::Acquire).max(1);
        measured.rates.push(iterations as f64 * 1e9 / time_ns as f64);
    }
    match measured.way {
        Way::PingPong => measured.samples.round(times(0)),
        Way::Stream => {}
        Way::Rate(_) => measured.samples.round(times(1).zip(times(0)).map(|(at, due)| at.saturating_sub(due))),
    }
    Ok(())
}

/// Returns the median of a comparison between paired rounds. If the machine's speed changes between rounds, both
/// figures of a pair change, and their ratio does not.
fn paired(
    ours: impl Iterator<Item = f64>,
    theirs: impl Iterator<Item = f64>,
    compare: impl Fn(f64, f64) -> f64,
) -> f64 {
    median(ours.zip(theirs).map(|(ours, theirs)| compare(ours, theirs)))
}

/// Returns the means of the rounds of `fi_pingpong`, if it ran at this size.
fn means_beside(beside: Option<&PingPong>, bytes: usize) -> Option<&[f64]> {
    let (_, means) = beside?.found.iter().find(|found| found.0 == bytes)?;
    (!means.is_empty()).then_some(means.as_slice())
}

fn rows(
    all: &[Measured],
    beside: Option<&PingPong>,
    operation: &str,
    (tagged, every_byte): (bool, bool),
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
            let Measured { subject, bytes, way, samples, rates } = measured;
            let name = subject.name(tagged, every_byte);
            if let Way::Rate(rate) = way {
                let row = Row::alone(format!("{name}, {}", due_name(*rate)), *bytes, rounds);
                return Some(row.with_due((*rate).into(), rates).with_samples(samples));
            }
            let raw = raw(*bytes)?;
            if *way == Way::Stream {
                let bound = median(raw.rates.iter().copied());
                let ratio = paired(raw.rates.iter().copied(), rates.iter().copied(), |bound, rate| bound / rate);
                let what = format!("{operation} one after the other, from and to registered memory, nothing copied");
                let iterations = messages(a_round, *bytes) * u64::from(rounds);
                let row = Row::new(name, *bytes, rounds, Bound::rate(what, bound), ratio).with_rates(rates);
                return Some(Row { iterations, ..row });
            }
            let (bound, summary) = (latency(raw), samples.summary());
            let ratio = paired(samples.medians(), raw.samples.medians(), |ours, bound| ours / bound);
            let row = Row::new(name, *bytes, rounds, bound, ratio).with_samples(samples);
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
    // Rows of one size are adjacent.
    rows.sort_by_key(|row| row.bytes);
    rows
}

#[cfg(test)]
mod tests {
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
            let way = if bytes == LARGE { Way::Stream } else { Way::PingPong };
            Measured { subject, bytes, way, samples, rates: rates.to_vec() }
        };
        // The machine becomes four times slower in the second round, after the bound was measured. Unpaired medians
        // would give ratios of 6 and 8 for the 8-byte messages.
        let all = [
            measured(Subject::Raw, 8, [1000, 1000, 4000], [0.0; 3]),
            measured(Subject::Raw, LARGE, [1; 3], [3000.0, 3000.0, 700.0]),
            measured(Subject::Default, 8, [1500, 6000, 6000], [0.0; 3]),
            measured(Subject::Default, LARGE, [1; 3], [1000.0, 100.0, 233.3]),
            measured(Subject::Apart, 8, [2000, 8000, 8000], [0.0; 3]),
        ];
        let mut beside = PingPong::new("x", [0, 1], &[]);
        beside.found = vec![(8, vec![3.0, 3.0, 12.0])];
        let rows = rows(&all, Some(&beside), "WRITE_WITH_IMM", (false, false), (1, 640));
        let told: Vec<_> = rows.iter().map(|row| (row.bytes, (row.ratio.unwrap() * 10.0).round() as u32)).collect();
        // Half of a round trip of 1000 ns is 0.5 µs.
        assert_eq!(told, [(8, 15), (8, 20), (8, 60), (LARGE, 30)]);
        let above: Vec<_> = rows.iter().map(|row| row.above_pingpong_us.map(|above| (above * 100.0).round())).collect();
        assert_eq!(above, [Some(-225.0), Some(-200.0), None, None]);
        assert!(rows[1].name.contains("apart"), "{}", rows[1].name);
        assert_eq!((rows[2].p50_us, rows[2].rounds), (Some(3.0), 3));
    }
}
