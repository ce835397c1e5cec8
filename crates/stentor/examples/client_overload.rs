//! Measures clients that demand more than a group can deliver: `client_overload FABRIC WAIT [SECONDS]`, where the
//! fabric is `shm` or `roce`, and the wait mode is `poll`, `adaptive` or `block`.
//!
//! Three processes of this program run the nodes. First, one client keeps 512 calls in flight; its rate is the peak.
//! Then it makes calls at twice that rate, whether there is room or not; the rate and the latency of the accepted calls
//! are printed. Last, two modest clients with four calls in flight each are measured alone, beside a third one like
//! them, beside a client that fills its window and sleeps until a call is answered, beside a greedy client whose thread
//! calls whenever there is room and never sleeps, and beside threads that only compute. The rate of the slower one is
//! printed, and its distance in the order between a call's command and the last command that was answered before the
//! call was made.
//!
//! All processes share the machine's processors, so the rates depend on the machine. The distance does not. The rate
//! beside a third modest client is the fair share, and the rate beside threads that compute tells how much of a loss has
//! nothing to do with the order of commands.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use stentor::{Answer, Call, CallError, Client, Cluster, Group, Refused};
use stentor_testutil::TempDir;

#[path = "common/nodes.rs"]
mod nodes;

use nodes::{Nodes, Result, configuration, wait_mode};

const COMMAND: [u8; 64] = [7; 64];
/// Number of calls in flight of one client, for its peak.
const FULL: usize = 512;
const MODEST: usize = 4;
/// Number of calls that an overloaded client accepts at a time.
const TAKEN: u32 = 1024;
/// Time between the moments at which an overloaded client makes the calls that are due. A thread that did not sleep
/// would take a processor from the nodes.
const PAUSE: Duration = Duration::from_micros(50);
/// Number of measurements of the modest clients beside each competitor. Their median is printed.
const TURNS: usize = 5;
/// Number of threads that compute.
const COMPUTING: usize = 4;
/// Number of steps that such a thread computes before it yields: a few tens of microseconds, like a batch of commands.
const STEPS: u32 = 2000;

/// The service that a client with a fixed number of calls in flight receives.
struct Served {
    /// Answered calls per second.
    rate: f64,
    /// Median distance in the order between a call's command and the last command that was answered before the call
    /// was made, in commands of all clients.
    between: u64,
    /// Commands of all clients per second.
    of_all: f64,
}

/// Keeps `depth` calls in flight for `time`.
fn closed_loop(client: &Client, group: Group, depth: usize, time: Duration) -> Result<Served> {
    let (since, mut calls, mut between) = (Instant::now(), VecDeque::new(), Vec::new());
    let (mut first, mut last) = (0, 0);
    while since.elapsed() < time {
        while calls.len() < depth {
            calls.push_back((last, client.call(group, &COMMAND)));
        }
        let Some((before, call)) = calls.pop_front() else { break };
        match call.wait() {
            Err(CallError::NotApplied(Refused::Busy(_))) => {}
            answer => {
                last = answer?.position().index;
                between.push(last - before);
                first = if first == 0 { last } else { first };
            }
        }
    }
    let took = since.elapsed().as_secs_f64();
    calls.into_iter().for_each(|(_, call)| drop(call.wait()));
    let (rate, of_all) = (between.len() as f64 / took, (last - first) as f64 / took);
    between.sort_unstable();
    Ok(Served { rate, between: between.get(between.len() / 2).copied().unwrap_or_default(), of_all })
}

/// The outcomes of calls at a given rate.
struct Overload {
    /// Answered calls per second.
    goodput: f64,
    refused: f64,
    p50: Duration,
    p99: Duration,
}

/// Calls at this rate, whether there is room or not.
///
/// The thread that makes the calls counts those that end at once, which are the refused ones. It hands the other calls
/// to a second thread, which waits for them.
fn open_loop(client: &Client, group: Group, rate: f64, time: Duration) -> Result<Overload> {
    let (sender, made) = std::sync::mpsc::channel::<(Instant, Call)>();
    let since = Instant::now();
    let (at_once, waited) = thread::scope(|scope| {
        let waits = scope.spawn(move || await_calls(made));
        let (mut called, mut at_once) = (0.0, Ended::default());
        let mut context = Context::from_waker(Waker::noop());
        while since.elapsed() < time {
            let due = since.elapsed().as_secs_f64() * rate;
            while called < due {
                called += 1.0;
                let mut call = client.call(group, &COMMAND);
                match Pin::new(&mut call).poll(&mut context) {
                    Poll::Ready(outcome) => at_once.count(outcome, Duration::ZERO)?,
                    Poll::Pending => drop(sender.send((Instant::now(), call))),
                }
            }
            thread::sleep(PAUSE);
        }
        drop(sender);
        Ok::<_, CallError>((at_once, waits.join()))
    })?;
    let Ended { mut times, refused } = waited.map_err(|_| "a thread panicked")??;
    let took = since.elapsed().as_secs_f64();
    times.extend(at_once.times);
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    let refused = f64::from(at_once.refused + refused) / took;
    Ok(Overload { goodput: times.len() as f64 / took, refused, p50: at(50), p99: at(99) })
}

type Outcome<T> = std::result::Result<T, CallError>;

/// Calls that have ended.
#[derive(Default)]
struct Ended {
    /// Latencies of those that were answered.
    times: Vec<Duration>,
    /// Number of those that were refused for lack of room.
    refused: u32,
}

impl Ended {
    fn count(&mut self, outcome: Outcome<Answer>, latency: Duration) -> Outcome<()> {
        match outcome {
            Ok(_) => self.times.push(latency),
            Err(CallError::NotApplied(Refused::Busy(_))) => self.refused += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Waits for calls in the order in which they were made.
fn await_calls(made: Receiver<(Instant, Call)>) -> Outcome<Ended> {
    let mut ended = Ended::default();
    for (at, call) in made {
        ended.count(call.wait(), at.elapsed())?;
    }
    Ok(ended)
}

/// The load beside which the two modest clients are measured.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    Modest,
    Full,
    Greedy,
    Computing,
}

impl Beside {
    const ALL: [(Beside, &str); 5] = [
        (Beside::Nothing, "alone"),
        (Beside::Modest, "beside a third one"),
        (Beside::Full, "beside one that fills its window and waits"),
        (Beside::Greedy, "beside a greedy one"),
        (Beside::Computing, "beside threads that compute"),
    ];

    /// Competes with the two modest clients until `ends` is set.
    fn run(self, client: &Client, group: Group, time: Duration, ends: &AtomicBool) {
        match self {
            Beside::Nothing => {}
            Beside::Modest => drop(closed_loop(client, group, MODEST, time)),
            Beside::Full => drop(closed_loop(client, group, TAKEN as usize, time)),
            Beside::Greedy => {
                while !ends.load(Ordering::Relaxed) {
                    // The greedy client does not wait for its calls.
                    drop(client.call(group, &COMMAND));
                    if client.room() == 0 {
                        thread::yield_now();
                    }
                }
            }
            Beside::Computing => thread::scope(|scope| {
                for _ in 0..COMPUTING {
                    scope.spawn(|| {
                        while !ends.load(Ordering::Relaxed) {
                            (0..STEPS).for_each(|_| std::hint::spin_loop());
                            thread::yield_now();
                        }
                    });
                }
            }),
        }
    }
}

/// Runs two modest clients concurrently, and returns the service of the slower one.
fn modest(clients: &[Client; 2], group: Group, time: Duration) -> Result<Served> {
    let rates = thread::scope(|scope| {
        let run = |client| {
            let measured = move || closed_loop(client, group, MODEST, time).map_err(|error| error.to_string());
            scope.spawn(measured)
        };
        clients.each_ref().map(run).map(|running| running.join().map_err(|_| "a thread panicked".to_owned())?)
    });
    let [first, second] = rates;
    let (first, second) = (first?, second?);
    Ok(if first.rate < second.rate { first } else { second })
}

/// Measures two modest clients beside each competitor in turns. Returns the medians in the order of [`Beside::ALL`].
fn compete(both: &[Client; 2], third: &Client, group: Group, time: Duration) -> Result<[Served; 5]> {
    let mut served = Beside::ALL.map(|_| Vec::new());
    for _ in 0..TURNS {
        for ((beside, _), served) in Beside::ALL.iter().zip(&mut served) {
            let ends = AtomicBool::new(false);
            served.push(thread::scope(|scope| {
                scope.spawn(|| beside.run(third, group, time, &ends));
                let served = modest(both, group, time);
                ends.store(true, Ordering::Relaxed);
                served
            })?);
        }
    }
    Ok(served.map(|mut served| {
        served.sort_unstable_by(|one, other| one.rate.total_cmp(&other.rate));
        served.swap_remove(served.len() / 2)
    }))
}

fn measure(fabric: &str, mode: &str, seconds: u64) -> Result<()> {
    let (time, wait) = (Duration::from_secs(seconds), wait_mode(mode)?);
    let directory = TempDir::new();
    let path = configuration(fabric, &directory)?;
    let nodes = Nodes::start(&path, mode)?;
    let cluster = Cluster::load(&path)?.in_directory(&*directory);
    let group = cluster.group("g1")?;
    let client = cluster.client().wait(wait).calls(TAKEN).connect()?;
    closed_loop(&client, group, FULL, time / 2)?;
    let Served { rate: peak, .. } = closed_loop(&client, group, FULL, time)?;
    println!("{fabric} {mode} peak: {peak:.0} calls/s, {FULL} under way");
    let over = open_loop(&client, group, 2.0 * peak, time)?;
    let Overload { goodput, refused, p50, p99 } = over;
    println!(
        "{fabric} {mode} at twice that: {goodput:.0} answered/s, {refused:.0} refused/s, p50 {:.1} ms, p99 {:.1} ms; {:.0} % of the peak",
        p50.as_secs_f64() * 1e3,
        p99.as_secs_f64() * 1e3,
        100.0 * goodput / peak
    );
    let connect = || cluster.client().wait(wait).connect();
    let both = [connect()?, connect()?];
    let served = compete(&both, &client, group, time / 2)?;
    for (Served { rate, between, of_all }, (_, beside)) in served.iter().zip(Beside::ALL) {
        println!(
            "{fabric} {mode} the slower of two modest clients {beside}: {rate:.0} calls/s, {:.2}; {between} commands from answer to command; {of_all:.0} commands/s of all",
            rate / served[0].rate
        );
    }
    drop(nodes);
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["node", path, name, mode] => Nodes::run(path, name, mode),
        [fabric, mode] => measure(fabric, mode, 4),
        [fabric, mode, seconds] => measure(fabric, mode, seconds.parse()?),
        _ => Err("usage: client_overload shm|roce poll|adaptive|block [SECONDS]".into()),
    }
}
