//! `stentor bench switch`: multicast by a software switch beside the same by unicast, its forwarding beside a plain copier on the
//! same sockets, and what it saves: packets of the sender, and connecting anew.

mod ends;
mod forward;
mod last;
mod packets;
mod sender;
mod step;
mod topology;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use stentor_campaign::switch::ablation;
use stentor_soft_switch::SoftSwitch;
use stentor_switch::Aggregation;

use super::datagrams::own_network;
use super::environment::Environment;
use super::errand::{pin, processors};
use super::report::{Aggregated, Report, Row, SwitchReport};
use super::samples::{Summary, median};
use crate::args::BenchSwitch;
use crate::failure::Failure;

/// Receivers of the rows that have several.
const RECEIVERS: [u8; 2] = [8, 32];
/// Runs of each line of the ablation.
const ABLATIONS: u32 = 400;

/// An address of this bench.
fn address(third: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, own_network(), third, last)
}

/// The switch's two.
fn switch_addresses() -> [Ipv4Addr; 2] {
    [address(40, 1), address(40, 2)]
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::run(error, "bench switch", "run `stentor doctor`")
}

/// Microseconds as a row has them.
fn summary(us: &[f64]) -> Summary {
    let mut sorted = us.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| sorted.get(((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1)));
    let place = |part| at(part).copied().unwrap_or_default();
    let mean = us.iter().sum::<f64>() / us.len().max(1) as f64;
    let variance = us.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / us.len().max(1) as f64;
    Summary {
        iterations: us.len() as u64,
        min: place(0.0),
        max: place(1.0),
        typical: median(us.iter().copied()),
        avg: mean,
        stdev: variance.sqrt(),
        p99: place(0.99),
        p999: place(0.999),
    }
}

/// The switch in a thread of its own, on the second processor if there is one; ends with this value.
struct Running {
    switch: Arc<Mutex<SoftSwitch>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(switch: SoftSwitch) -> Self {
        let (switch, stop) = (Arc::new(Mutex::new(switch)), Arc::new(AtomicBool::new(false)));
        let (own, ends) = (Arc::clone(&switch), Arc::clone(&stop));
        let processors = processors().unwrap_or_default();
        let thread = std::thread::spawn(move || {
            if let Some(processor) = processors.get(1) {
                // It runs anywhere as well.
                let _ = pin(&[*processor]);
            }
            while !ends.load(Ordering::Relaxed) {
                // Nobody else locks it while something is measured.
                let Ok(mut switch) = own.lock() else { return };
                for _ in 0..64 {
                    if switch.round().is_err() {
                        return;
                    }
                }
            }
        });
        if let Some(processor) = self::processors_of_this().first() {
            let _ = pin(&[*processor]);
        }
        Running { switch, stop, thread: Some(thread) }
    }
}

fn processors_of_this() -> Vec<usize> {
    processors().unwrap_or_default()
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn run(args: &BenchSwitch) -> Result<Report, Failure> {
    let all = processors().map_err(failed)?;
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
    let switch = SwitchReport {
        sender: if wants("packets") { sender::lines(args.size)? } else { Vec::new() },
        aggregation: if wants("aggregation") { aggregation() } else { Vec::new() },
    };
    Ok(Report { environment, rows, trial: None, switch: Some(switch) })
}

/// Rounds with a bitmap against the exact least.
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
