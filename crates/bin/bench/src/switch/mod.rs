//! `stentor bench switch`: multicast through a software switch beside unicast, its forwarding beside a plain copier on
//! the same sockets, and its savings: fewer packets of the sender, and no new connections.

mod bars;
mod ends;
mod forward;
mod last;
mod packets;
mod sender;
mod step;
mod topology;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stentor_simulation::switch::ablation;
use stentor_soft_switch::SoftSwitch;
use stentor_switch::Aggregation;

use super::clock::Grain;
use super::datagrams::own_network;
use super::environment::Environment;
use super::report::{Report, Row};
use super::samples::Samples;
use super::switch_report::{Aggregated, SwitchReport};

use super::worker_spec::{pin, processors};
use crate::args::BenchSwitch;

use stentor_support::live::thread;
use stentor_support::{Failure, Verdict};

/// Numbers of receivers in the rows about forwarded copies.
const RECEIVERS: [u8; 2] = [8, 32];
/// Time after which a part of a row counts as hanging.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of runs for each line of the comparison of aggregations.
const ABLATIONS: u32 = 400;
/// The parts that `--only` selects from.
const PARTS: [&str; 6] = ["step", "forward", "last", "members", "packets", "aggregation"];
/// Names of rows. The number of receivers follows the first two.
const STEP: &str = "step, a packet of data, receivers: ";
const FORWARD: &str = "copies forwarded, receivers: ";
const LAST_OF: &str = "WRITE by the switch, post to seen by the last of 32";
const MEMBERS: &str = "other members: 8 of 16, control to first copy";

/// Returns an address of this bench.
fn address(third: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, own_network(), third, last)
}

/// Returns the two addresses of the switch.
fn switch_addresses() -> [Ipv4Addr; 2] {
    [address(40, 1), address(40, 2)]
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::run(error, "bench switch", "run `stentor doctor`")
}

/// Returns an error once an operation that began at `since` takes too long.
fn in_time(since: Instant, what: impl std::fmt::Display) -> Result<(), Failure> {
    if since.elapsed() > PATIENCE { Err(failed(what)) } else { Ok(()) }
}

/// Latencies of a row, in picoseconds, because a pass of the data plane takes some tens of nanoseconds.
struct Times(Samples);

impl Times {
    fn new() -> Times {
        Times(Samples::new(0.001, Grain { cost_ns: 0.0, step_ns: 1 }))
    }

    /// Records the latencies of a round, in microseconds.
    fn round(&mut self, us: &[f64]) {
        self.0.round(us.iter().map(|us| (us * 1e6) as u64));
    }

    /// Returns the median of the rounds' medians, in microseconds.
    fn typical(&self) -> f64 {
        self.0.summary().typical
    }
}

/// The switch in its own thread, on the second processor if there is one. The thread that starts it moves to the first
/// processor. Dropping this value stops the switch.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(mut switch: SoftSwitch) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let processors = processors().unwrap_or_default();
        let (first, second) = (processors.first().copied(), processors.get(1).copied());
        let work = move || {
            // The switch also works if it cannot be pinned.
            let _ = second.map(|processor| pin(&[processor]));
            while !ends.load(Ordering::Relaxed) && switch.round().is_ok() {}
        };
        let thread = thread("for the switch", work)?;
        let _ = first.map(|processor| pin(&[processor]));
        Ok(Running { stop, thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn run(args: &BenchSwitch) -> Result<(Report, Verdict), Failure> {
    let all = processors().map_err(failed)?;
    if let Some(none) = args.only.iter().find(|only| !PARTS.iter().any(|name| name.contains(only.as_str()))) {
        let what = format!("no part has {none:?} in its name");
        return Err(Failure::usage(what, "--only", format!("name one of {}", PARTS.join(", "))));
    }
    let wants = |name: &str| args.only.is_empty() || args.only.iter().any(|only| name.contains(only.as_str()));
    let pinning = "sender and receivers on one processor, the switch on another".to_owned();
    let environment = Environment::new("roce", "poll", pinning);
    let mut rows: Vec<Row> = Vec::new();
    if wants("step") {
        rows.extend(step::rows(args.size, args.rounds)?);
    }
    for receivers in RECEIVERS.into_iter().filter(|_| wants("forward")) {
        rows.push(forward::row(receivers, args.size, args.rounds)?);
    }
    if wants("last") {
        rows.push(last::row(args.size, args.rounds, args.iterations)?);
    }
    pin(&all).map_err(failed)?;
    if wants("members") {
        rows.push(topology::row(args.rounds)?);
    }
    pin(&all).map_err(failed)?;
    let mut switch = SwitchReport {
        sender: if wants("packets") { sender::lines(args.size)? } else { Vec::new() },
        aggregation: if wants("aggregation") { aggregation() } else { Vec::new() },
        bars: Vec::new(),
    };
    switch.bars = bars::judge(&rows, &switch, environment.profile == "release");
    let verdict = Verdict::of(switch.bars.iter().all(|bar| bar.ok));
    Ok((Report { environment, rows, trial: None, switch: Some(switch) }, verdict))
}

/// Compares aggregation in rounds with a bitmap to the exact minimum.
fn aggregation() -> Vec<Aggregated> {
    let mut lines = Vec::new();
    for receivers in [2, 4, 8, 32] {
        for jitter in [0.5, 2.0] {
            let of = |aggregation| ablation::many(aggregation, receivers, jitter, ABLATIONS, 1);
            let (rounds, exact) = (of(Aggregation::RoundBitmap), of(Aggregation::ExactMin));
            lines.push(Aggregated {
                receivers,
                jitter,
                runs: ABLATIONS,
                round_stalls: rounds.stalls,
                exact_stalls: exact.stalls,
                round_packet_times: rounds.mean,
                exact_packet_times: exact.mean,
            });
        }
    }
    lines
}
