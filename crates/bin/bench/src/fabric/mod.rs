//! `stentor bench fabric`: the verbs between two pinned processes. Each row that has a bound is beside plain stores and
//! loads of the same payload, or on a network beside plain datagrams.

mod datagrams;
pub(super) mod process;
mod verbs;

pub(super) use verbs::expect_success;

use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD};
use stentor_fabric::seal::record_words;
use stentor_support::Failure;
use stentor_support::args::{device_address, name_of};
use stentor_support::live::{Captures, refuse_traffic};

use super::clock::Grain;
use super::datagrams::{own_network, packets_of};
use super::environment::Environment;
use super::harness::{rounds, sizes};
use super::kinds::kinds;
use super::plain::{BATCH, lines_of};
use super::report::{Bound, Report, Row};
use super::roce;
use super::samples::{Samples, median};
use super::shared_area::{Command, Shape};
use super::worker_spec::{Carrier, Part, broken, processors};
use super::workers::Workers;
use crate::args::{BenchFabric, BenchLength, MeasuredFabric, Repeats};

/// Number of posts between two flushes of a stream.
const POSTS_PER_FLUSH: u64 = 16;
/// Longest payload, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Iterations of a row on shared memory, in all its rounds together.
const ITERATIONS: u64 = 140_000;
/// Iterations of a row on a network, in all its rounds together.
const ON_NETWORK: u64 = 42_000;
/// Iterations of a row on a device, which may be emulated in software.
const ON_DEVICE: u64 = 14_000;
/// Largest number of samples of one round.
const MAX_SAMPLES: u64 = 1 << 20;
/// Number of lines of the bounds. They have room for two areas of the longest payload, with a line between them.
const BOUND_LINES: usize = 2 * (MAX_BYTES / 64) + 2;

kinds! {
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
    StreamRegion,
    StreamSend,
    /// A payload in each direction.
    Datagrams,
    /// A request, and a payload back.
    DatagramAsk,
    /// A payload, and an acknowledgement back.
    DatagramGot,
    DatagramStream,
    /// Each datagram carries as many payloads as fit into a packet.
    DatagramStreamJoined,
}

impl Kind {
    /// Returns whether this is a bound on a network.
    fn is_datagrams(self) -> bool {
        use Kind::{DatagramAsk, DatagramGot, DatagramStream, DatagramStreamJoined, Datagrams};
        matches!(self, Datagrams | DatagramAsk | DatagramGot | DatagramStream | DatagramStreamJoined)
    }

    /// Returns the number of bytes that this kind sends inline for a payload.
    fn inline_bytes(self, payload: usize) -> u64 {
        let bytes = match self {
            Kind::RawWrite | Kind::SealedInAll | Kind::WriteUc | Kind::WriteImm | Kind::Stream => payload,
            Kind::Sealed => record_words(payload) * WORD,
            _ => 0,
        };
        bytes as u64
    }

    /// Returns whether this is a measured row whose operations follow one another without an answer. Returns `false`
    /// for bounds.
    fn is_stream(self) -> bool {
        matches!(self, Kind::Stream | Kind::StreamRegion | Kind::StreamSend)
    }

    /// Returns the bound and its description. A device has no bound, because the programs of perftest measure it. On a
    /// network, streams of messages of several packets have no bound either: the kernel accepts the packets of a
    /// message as one run, and single datagrams would be slower than the subject.
    fn bound(self, carrier: Carrier, bytes: usize) -> Option<(Kind, &'static str)> {
        let on_network = match carrier {
            Carrier::Shm => false,
            Carrier::Roce(_) if self.is_stream() && packets_of(bytes) > 1 => return None,
            Carrier::Roce(_) => true,
            Carrier::Verbs { .. } => return None,
        };
        Some(match (self, on_network) {
            (Kind::Read, true) => (Kind::DatagramAsk, "a request and the payload back, plain datagrams"),
            (Kind::Read, false) => (Kind::PlainLoad, "plain loads of the peer's words, the peer idle"),
            (Kind::WriteSignalled, true) => {
                (Kind::DatagramGot, "the payload and an acknowledgement back, plain datagrams")
            }
            (Kind::WriteSignalled, false) => {
                (Kind::PlainStore, "plain stores of the words and a full fence, the peer idle")
            }
            // Adjacent whole lines leave as one WRITE.
            (Kind::Stream, true) if bytes.is_multiple_of(LINE_WORDS * WORD) => (
                Kind::DatagramStreamJoined,
                "as many payloads as a packet carries, in plain datagrams one after the other",
            ),
            (kind, true) if kind.is_stream() => (Kind::DatagramStream, "plain datagrams one after the other"),
            (kind, false) if kind.is_stream() => {
                (Kind::PlainStream, "plain stores of the words, one place after the other")
            }
            (_, true) => (Kind::Datagrams, "half a ping-pong of plain datagrams with the payload"),
            (_, false) => {
                (Kind::PlainLines, "hand-over of the payload's cache lines: half a ping-pong of plain stores and loads")
            }
        })
    }

    /// Returns the number of operations per sample.
    fn batch(self) -> u64 {
        match self {
            Kind::Read | Kind::WriteSignalled => BATCH,
            _ => 1,
        }
    }

    /// Returns the factor from a sample to one operation. A sample is a batch of operations, or a round trip, of which
    /// one half counts.
    fn scale(self) -> f64 {
        match self {
            Kind::Read | Kind::WriteSignalled => 1.0 / BATCH as f64,
            _ => 0.5,
        }
    }
}

/// The rows of a report.
const ROWS: [(Kind, &str); 12] = [
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
    (Kind::StreamRegion, "WRITE unsignalled, rate"),
    (Kind::StreamSend, "SEND/RECV, rate"),
];

/// The number and the length of a row's rounds.
#[derive(Clone, Copy, Debug)]
struct Length<'a> {
    repeats: &'a Repeats,
    iterations: u64,
    rounds: u32,
    /// Duration in seconds.
    duration: Option<u64>,
}

impl<'a> Length<'a> {
    fn of(length: &'a BenchLength, fabric: MeasuredFabric) -> Self {
        let rounds = length.repeats.rounds;
        let usual = match fabric {
            MeasuredFabric::Shm => ITERATIONS,
            MeasuredFabric::Roce => ON_NETWORK,
            MeasuredFabric::Verbs => ON_DEVICE,
        };
        let all = length.repeats.iterations.unwrap_or(usual);
        let iterations = (all / u64::from(rounds)).clamp(1, MAX_SAMPLES);
        Length { iterations, rounds, duration: length.duration, repeats: &length.repeats }
    }
}

pub(super) fn run(args: &BenchFabric) -> Result<Report, Failure> {
    let sizes = sizes(&args.length, |size| {
        let what = format!("{size} bytes: one-sided verbs take multiples of 8, up to {MAX_BYTES}");
        (size == 0 || !size.is_multiple_of(8) || size > MAX_BYTES).then_some((what, "choose such a size"))
    })?;
    let length = Length::of(&args.length, args.fabric);
    let chosen = chosen(&args.only)?;
    let captures = captures(args)?;
    let available = processors().map_err(broken("ask for processors"))?;
    let (carrier, places) = place(args.fabric, &available)?;
    let environment = environment(args, carrier, places);
    let longest = sizes.iter().copied().max().unwrap_or(8);
    let traffic = |process| captures.of(&roce::name(process), 1);
    let shape = Shape { processes: 2, lines: BOUND_LINES, samples: length.iterations.max(BATCH) as usize };
    let mut workers = Workers::start(Part::Fabric { bytes: longest, carrier }, shape, &places.map(Some), traffic)?;
    workers.run(Command { kind: Kind::Connect.number(), ..Command::default() })?;
    let inline = workers.area.results(0)[1].load(Ordering::Relaxed);
    let mut rows = Vec::new();
    for bytes in sizes {
        for &(kind, name) in &chosen {
            // A record has at least one word of payload.
            if kind.inline_bytes(bytes) <= inline && (kind != Kind::SealedInAll || bytes >= 32) {
                rows.push(row(&mut workers, kind, name, bytes, length, environment.clock, carrier)?);
            }
        }
    }
    Ok(Report::of(environment, rows))
}

/// Returns the rows that the user selected, or all of them.
fn chosen(only: &[String]) -> Result<Vec<(Kind, &'static str)>, Failure> {
    if let Some(none) = only.iter().find(|only| !ROWS.iter().any(|(_, name)| name.contains(*only))) {
        let names = ROWS.map(|(_, name)| format!("{name:?}")).join(", ");
        let what = format!("no row has {none:?} in its name");
        return Err(Failure::usage(what, "--only", format!("the rows are {names}")));
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| name.contains(only));
    Ok(ROWS.into_iter().filter(|(_, name)| wanted(name)).collect())
}

/// Returns the fabric of the two processes, and their processors. Each process has its own processor, except on a
/// device, where they may share one and yield it to each other.
fn place(fabric: MeasuredFabric, available: &[usize]) -> Result<(Carrier, [usize; 2]), Failure> {
    let places = match (available, fabric) {
        ([first, .., last], _) => [*first, *last],
        ([only], MeasuredFabric::Verbs) => [*only, *only],
        _ => return Err(Failure::run("one processor", "bench fabric", "two processes that spin need two processors")),
    };
    let carrier = match fabric {
        MeasuredFabric::Shm => Carrier::Shm,
        MeasuredFabric::Roce => Carrier::Roce(own_network()),
        MeasuredFabric::Verbs => {
            let address = device_address("stentor bench fabric")?;
            Carrier::Verbs { address, yields: places[0] == places[1] }
        }
    };
    Ok((carrier, places))
}

fn environment(args: &BenchFabric, carrier: Carrier, [first, last]: [usize; 2]) -> Environment {
    let yields = matches!(carrier, Carrier::Verbs { yields: true, .. });
    let (wait, pinning) = if yields {
        ("yield", format!("two processes on processor {first}"))
    } else {
        ("poll", format!("two processes, pinned to processors {first} and {last}"))
    };
    Environment::new(name_of(&args.fabric), wait, pinning).with(&args.network.networks)
}

/// Returns the captures of packets. Refuses random faults, because a process would wait for a lost packet forever.
fn captures(args: &BenchFabric) -> Result<Captures, Failure> {
    if args.fabric == MeasuredFabric::Verbs {
        let traffic = Captures::from(&args.network);
        refuse_traffic(traffic.asked(), "stentor bench fabric")?;
        return Ok(traffic);
    }
    let captures = roce::captures(&args.network, args.fabric == MeasuredFabric::Roce, "stentor bench fabric")?;
    if args.network.networks.bad.named().iter().any(|(.., chance)| *chance > 0.0) {
        let what = "one of the verbs uses an unreliable connection: the bench would wait for a lost packet for ever";
        let remedy = "leave out the chances; `bench multicast` accepts them";
        return Err(Failure::usage(what, "stentor bench fabric", remedy));
    }
    captures.check((0..2).map(roce::name), 1)?;
    Ok(captures)
}

/// Measures one row. Rounds of the row alternate with rounds of its bound, if it has one.
fn row(
    workers: &mut Workers,
    kind: Kind,
    name: &str,
    bytes: usize,
    length: Length<'_>,
    clock: Grain,
    carrier: Carrier,
) -> Result<Row, Failure> {
    let bound = kind.bound(carrier, bytes);
    let batch = kind.batch();
    let iterations = (length.iterations / (1 + bytes as u64 / 4096)).max(10).next_multiple_of(batch);
    let command = |kind: Kind| Command {
        kind: kind.number(),
        bytes: bytes as u64,
        warmup: length.repeats.warm_up(iterations),
        iterations,
        ..Command::default()
    };
    let (mut bounds, mut subjects) = (Samples::new(kind.scale(), clock), Samples::new(kind.scale(), clock));
    let (mut bound_rates, mut rates) = (Vec::new(), Vec::new());
    let rounds = rounds((length.rounds, length.duration), || {
        let beside = bound.map(|(kind, _)| (kind, &mut bounds, &mut bound_rates));
        for (kind, samples, rates) in beside.into_iter().chain([(kind, &mut subjects, &mut rates)]) {
            workers.run(command(kind))?;
            let results = &workers.area.results(0)[0];
            rates.push(iterations as f64 * 1e9 / results.load(Ordering::Acquire).max(1) as f64);
            let taken = &workers.area.samples(0)[..(iterations / batch) as usize];
            samples.round(taken.iter().map(|sample| sample.load(Ordering::Relaxed)));
        }
        Ok(())
    })?;
    if kind.is_stream() {
        let row = match bound {
            Some((_, what)) => Row::rate(name, bytes, Bound::rate(what, median(bound_rates)), &rates),
            None => Row::alone(name, bytes, rounds).with_rates(&rates),
        };
        return Ok(Row { iterations: iterations * u64::from(rounds), ..row });
    }
    let iterations = subjects.summary().iterations * batch;
    let Some((_, what)) = bound else {
        return Ok(Row { iterations, ..Row::alone(name, bytes, rounds).with_samples(&subjects) });
    };
    let what = match carrier {
        Carrier::Shm => format!("{what} ({} of 64 bytes)", lines_of(bytes)),
        _ => format!("{what} ({} a message, as long as packets; nothing is checked)", packets_of(bytes)),
    };
    let bound = Bound::us(what, bounds.summary().typical);
    Ok(Row { iterations, ..Row::latency(name, bytes, rounds, bound, &subjects) })
}
