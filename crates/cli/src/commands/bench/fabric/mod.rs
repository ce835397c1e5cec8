//! `stentor bench fabric`: the verbs between two pinned processes, each row beside plain stores and loads of the same
//! payload; on a network beside plain datagrams.

mod datagrams;
pub(super) mod process;
mod verbs;

use std::time::{Duration, Instant};

use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD};

use super::clock::Grain;
use super::crew::Crew;
use super::datagrams::{network, packets_of};
use super::environment::{Environment, fabric_name};
use super::errand::{Part, broken, processors};
use super::plain::{BATCH, lines_of};
use super::report::{Floor, Report, Row};
use super::roce;
use super::samples::{Samples, median};
use super::stage::{Command, Shape};
use crate::args::{BadNetwork, BenchFabric, BenchLength, DemoFabric, Network};
use crate::failure::Failure;

/// Posts between two flushes of a stream.
const POSTS_PER_FLUSH: u64 = 16;
/// The longest payload, bytes.
const MAX_BYTES: usize = 1 << 20;
/// Iterations of a row, over its rounds; on a network.
const ITERATIONS: u64 = 140_000;
const ON_NETWORK: u64 = 42_000;
/// Datagrams that go to and fro to find what one hop takes.
const HOPS: u64 = 10_000;
/// Samples of one round, at most.
const MAX_SAMPLES: u64 = 1 << 20;
/// Lines of the floors: two areas of the longest payload, a line apart.
const FLOOR_LINES: usize = 2 * (MAX_BYTES / 64) + 2;

/// What happens in a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Connect,
    PlainLines,
    PlainLoad,
    PlainStore,
    PlainStream,
    RawWrite,
    SealedInAll,
    Sealed,
    Send,
    Read,
    WriteSignalled,
    WriteUnsignalled,
    WriteUc,
    WriteImm,
    Stream,
    /// A payload there and back.
    Datagrams,
    /// A request there, a payload back.
    DatagramAsk,
    /// A payload there, an acknowledgement back.
    DatagramGot,
    DatagramStream,
}

impl Kind {
    const ALL: [Kind; 19] = [
        Kind::Connect,
        Kind::PlainLines,
        Kind::PlainLoad,
        Kind::PlainStore,
        Kind::PlainStream,
        Kind::RawWrite,
        Kind::SealedInAll,
        Kind::Sealed,
        Kind::Send,
        Kind::Read,
        Kind::WriteSignalled,
        Kind::WriteUnsignalled,
        Kind::WriteUc,
        Kind::WriteImm,
        Kind::Stream,
        Kind::Datagrams,
        Kind::DatagramAsk,
        Kind::DatagramGot,
        Kind::DatagramStream,
    ];

    /// 0 ends the processes.
    fn number(self) -> u64 {
        self as u64 + 1
    }

    fn of(number: u64) -> Self {
        Kind::ALL[number as usize - 1]
    }

    /// A floor on a network.
    fn is_datagrams(self) -> bool {
        matches!(self, Kind::Datagrams | Kind::DatagramAsk | Kind::DatagramGot | Kind::DatagramStream)
    }

    /// The floor, and what is told of it.
    fn floor(self, on_network: bool) -> (Kind, &'static str) {
        if on_network {
            return match self {
                Kind::Read => (Kind::DatagramAsk, "a request and the payload back, plain datagrams"),
                Kind::WriteSignalled => (Kind::DatagramGot, "the payload and an acknowledgement back, plain datagrams"),
                Kind::Stream => (Kind::DatagramStream, "plain datagrams one after the other"),
                _ => (Kind::Datagrams, "half a ping-pong of plain datagrams with the payload"),
            };
        }
        match self {
            Kind::Read => (Kind::PlainLoad, "plain loads of the peer's words, the peer idle"),
            Kind::WriteSignalled => (Kind::PlainStore, "plain stores of the words and a full fence, the peer idle"),
            Kind::Stream => (Kind::PlainStream, "plain stores of the words, one place after the other"),
            _ => {
                (Kind::PlainLines, "hand-over of the payload's cache lines: half a ping-pong of plain stores and loads")
            }
        }
    }

    /// Operations to one sample.
    fn batch(self) -> u64 {
        match self {
            Kind::Read | Kind::WriteSignalled => BATCH,
            _ => 1,
        }
    }

    /// Half of a round trip is one way; the others are operations in a batch.
    fn scale(self) -> f64 {
        match self {
            Kind::Read | Kind::WriteSignalled => 1.0 / BATCH as f64,
            _ => 0.5,
        }
    }
}

/// The rows of a report.
const ROWS: [(Kind, &str); 10] = [
    (Kind::RawWrite, "raw WRITE inline, write to seen"),
    (Kind::SealedInAll, "sealed record of that size in all, write to seen"),
    (Kind::Sealed, "sealed record with that payload, write to seen"),
    (Kind::Send, "SEND/RECV, one way"),
    (Kind::Read, "READ, to completion"),
    (Kind::WriteSignalled, "WRITE signalled, to completion"),
    (Kind::WriteUnsignalled, "WRITE unsignalled, write to seen"),
    (Kind::WriteUc, "WRITE inline unsignalled UC, write to seen"),
    (Kind::WriteImm, "WRITE_WITH_IMM inline signalled, one way"),
    (Kind::Stream, "WRITE inline unsignalled, rate"),
];

/// How much one round does.
#[derive(Clone, Copy, Debug)]
struct Length {
    iterations: u64,
    rounds: u32,
    duration: Option<Duration>,
}

impl Length {
    fn of(length: &BenchLength, fabric: DemoFabric) -> Self {
        let rounds = length.rounds;
        let usual = if fabric == DemoFabric::Roce { ON_NETWORK } else { ITERATIONS };
        let all = length.iterations.unwrap_or(usual);
        let iterations = (all / u64::from(rounds)).clamp(1, MAX_SAMPLES);
        Length { iterations, rounds, duration: length.duration.map(Duration::from_secs) }
    }

    /// Whether there is another round.
    fn goes_on(&self, done: u32, since: Instant) -> bool {
        self.duration.map_or(done < self.rounds, |duration| done < 3 || since.elapsed() < duration)
    }
}

pub(super) fn run(args: &BenchFabric) -> Result<Report, Failure> {
    let sizes = sizes(&args.length)?;
    let length = Length::of(&args.length, args.fabric);
    let available = processors().map_err(broken("ask for processors"))?;
    let [first, .., last] = available[..] else {
        return Err(Failure::run("one processor", "bench fabric", "two processes that spin need two processors"));
    };
    let pinning = format!("two processes, pinned to processors {first} and {last}");
    let environment = Environment::new(fabric_name(args.fabric), "poll", pinning).with(&args.network.networks);
    let network = network(args.fabric);
    let longest = sizes.iter().copied().max().unwrap_or(8);
    let captures = roce::captures(&args.network, args.fabric, "stentor bench fabric")?;
    let BadNetwork { drop_chance, duplicate_chance, reorder_chance, corrupt_chance, .. } = args.network.networks.bad;
    if [drop_chance, duplicate_chance, reorder_chance, corrupt_chance].iter().any(|chance| *chance > 0.0) {
        let what = "one of the verbs is on an unreliable connection: what is lost there is waited for in vain";
        return Err(Failure::usage(
            what,
            "stentor bench fabric",
            "leave out the chances; `bench multicast` takes them",
        ));
    }
    captures.check((0..2).map(roce::name), 1)?;
    let traffic = |process| captures.of(&roce::name(process), 1);
    let shape = Shape { processes: 2, lines: FLOOR_LINES, samples: length.iterations.max(BATCH) as usize };
    let mut crew = Crew::start(Part::Fabric { bytes: longest, network }, shape, &[Some(first), Some(last)], traffic)?;
    crew.run(Command { kind: Kind::Connect.number(), ..Command::default() })?;
    let mut rows = Vec::new();
    for bytes in sizes {
        for (kind, name) in ROWS {
            // A record has at least a word of payload.
            if kind != Kind::SealedInAll || bytes >= 32 {
                rows.push(row(&mut crew, kind, name, bytes, length, environment.clock, network.is_some())?);
            }
        }
    }
    Ok(Report { environment, rows, trial: None })
}

/// How long a datagram with a line takes from one processor to another, ns: two processes that do nothing else.
pub(super) fn hop(processors: &[usize]) -> Result<f64, Failure> {
    let [first, .., last] = *processors else {
        return Err(Failure::run("one processor", "bench failover", "two processes that spin need two processors"));
    };
    let (bytes, network) = (LINE_WORDS * WORD, network(DemoFabric::Roce));
    let shape = Shape { processes: 2, lines: FLOOR_LINES, samples: HOPS as usize };
    let places = [Some(first), Some(last)];
    let mut crew = Crew::start(Part::Fabric { bytes, network }, shape, &places, |_| Network::default())?;
    let kind = Kind::Datagrams.number();
    crew.run(Command { kind, bytes: bytes as u64, warmup: HOPS / 4, iterations: HOPS, ..Command::default() })?;
    let mut samples = Samples::new(Kind::Datagrams.scale(), Grain::measure());
    samples.round(crew.stage.samples(0).iter().map(|sample| sample.load(Ordering::Relaxed)));
    Ok(samples.summary().typical * 1000.0)
}

fn sizes(length: &BenchLength) -> Result<Vec<usize>, Failure> {
    if length.all {
        return Ok((3..=16).map(|shift| 1 << shift).collect());
    }
    let size = length.size;
    if size == 0 || !size.is_multiple_of(8) || size > MAX_BYTES {
        let what = format!("{size} bytes: one-sided verbs take multiples of 8, up to {MAX_BYTES}");
        return Err(Failure::usage(what, "--size", "choose such a size"));
    }
    Ok(vec![size])
}

/// One row: its floor and it take turns.
fn row(
    crew: &mut Crew,
    kind: Kind,
    name: &str,
    bytes: usize,
    length: Length,
    clock: Grain,
    on_network: bool,
) -> Result<Row, Failure> {
    let (floor_kind, floor_what) = kind.floor(on_network);
    let batch = kind.batch();
    let iterations = (length.iterations / (1 + bytes as u64 / 4096)).max(10).next_multiple_of(batch);
    let command = |kind: Kind| Command {
        kind: kind.number(),
        bytes: bytes as u64,
        warmup: iterations / 10,
        iterations,
        ..Command::default()
    };
    let (mut floors, mut subjects) = (Samples::new(kind.scale(), clock), Samples::new(kind.scale(), clock));
    let (mut floor_rates, mut rates) = (Vec::new(), Vec::new());
    let (since, mut rounds) = (Instant::now(), 0);
    while length.goes_on(rounds, since) {
        rounds += 1;
        for (kind, samples, rates) in [(floor_kind, &mut floors, &mut floor_rates), (kind, &mut subjects, &mut rates)] {
            crew.run(command(kind))?;
            let results = &crew.stage.results(0)[0];
            rates.push(iterations as f64 * 1e9 / results.load(Ordering::Acquire).max(1) as f64);
            let taken = &crew.stage.samples(0)[..(iterations / batch) as usize];
            samples.round(taken.iter().map(|sample| sample.load(Ordering::Relaxed)));
        }
    }
    if kind == Kind::Stream {
        let (floor, rate) = (median(floor_rates), median(rates));
        let floor = Floor { what: floor_what.to_owned(), value: floor, unit: "msgs/s" };
        let ratio = floor.value / rate;
        let row = Row::new(name, bytes, rounds, floor, ratio).with_rate(rate);
        return Ok(Row { iterations: iterations * u64::from(rounds), ..row });
    }
    let (floor, mut subject) = (floors.summary(), subjects.summary());
    subject.iterations *= batch;
    let what = if on_network {
        format!("{floor_what} ({} a message, as long as packets; nothing is checked)", packets_of(bytes))
    } else {
        format!("{floor_what} ({} of 64 bytes)", lines_of(bytes))
    };
    let floor = Floor { what, value: floor.typical, unit: "us" };
    let ratio = subject.typical / floor.value;
    Ok(Row::new(name, bytes, rounds, floor, ratio).with_latency(&subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_go_through_the_command_and_back() {
        for kind in Kind::ALL {
            assert_ne!(kind.number(), Command::END);
            assert_eq!(Kind::of(kind.number()), kind);
        }
    }
}
