//! `stentor bench failover`: kills real processes under load, one after the other, restarts them, and measures the time
//! without deliveries. It also measures fail-overs in virtual time, with links of 1 µs.
//!
//! Every process writes its history, and all histories are checked, because figures of a run that violated a property
//! are worthless.

pub(super) mod death;
mod fleet;
mod load;
mod outages;
pub(super) mod process;
mod rounds;
mod scene;
mod sim;

use std::time::Duration;

use stentor::runtime::ClusterRuntime;
use stentor_checker::check_files;
use stentor_fabric::ProcessId;

use super::environment::Environment;
use super::report::{Bound, Report, Row, Trial};
use super::samples::{Samples, median};
use super::worker_spec::{broken, processors};
use crate::args::{BenchFailover, Victims};
use outages::Outages;
use rounds::{Kill, Play, Role};
use scene::Scene;
use sim::Sign;
use stentor_support::args::{LoopbackFabric, name_of};
use stentor_support::live::{Captures, Interrupt, refuse_network, unstarted};
use stentor_support::{Failure, Output, Verdict, verdicts};

/// Target for the outage of a simulated fail-over that the members must detect themselves, in microseconds.
const SILENT_US: f64 = 1000.0;
/// Target for the outage of a simulated fail-over of which the members are notified, in microseconds from the
/// notification.
const TOLD_US: f64 = 50.0;

pub(super) fn run(args: &BenchFailover, output: Output) -> Result<(Report, Verdict), Failure> {
    let interrupt = Interrupt::catch()?;
    let processors = processors().map_err(broken("ask for processors"))?;
    let environment = Environment::new(
        name_of(&args.fabric),
        name_of(&args.wait),
        format!("{} members and 2 clients on {} processors, not pinned", args.groups * args.replicas, processors.len()),
    )
    .with(&args.networks);
    let captures = Captures::new(&args.networks, args.seed);
    if args.fabric == LoopbackFabric::Shm {
        refuse_network(None, captures.asked(), "stentor bench failover")?;
    }
    let mut rows = Vec::new();
    let mut trial = None;
    if args.rounds > 0 {
        let (found, outages, memory) = real(args, captures, &interrupt, output)?;
        rows.extend(row(args, &outages, memory)?);
        trial = Some(found);
    }
    if args.sim_runs > 0 {
        rows.push(simulated(args, &interrupt, Sign::SILENCE, SILENT_US)?);
        rows.push(simulated(args, &interrupt, Sign::told(), TOLD_US)?);
    }
    let verdict = Verdict::of(trial.as_ref().is_none_or(|trial| trial.ok));
    Ok((Report { environment, rows, trial, switch: None }, verdict))
}

/// Kills and restarts processes, then checks their histories. The histories are kept after a failure.
fn real(
    args: &BenchFailover,
    captures: Captures,
    interrupt: &Interrupt,
    output: Output,
) -> Result<(Trial, Outages, u64), Failure> {
    let scene = Scene::set(args, captures)?;
    let plan = ClusterRuntime::new(scene.cluster()?).map_err(|error| unstarted(error, &scene.config()))?;
    // Every member and every client id may write a capture.
    let processes = 0..plan.topology().processes() as u16;
    scene.captures.check(processes.map(|process| plan.name(ProcessId(process)).to_owned()), 1)?;
    let play = Play { args, plan: &plan, scene: &scene, interrupt };
    let killed = rounds::play(play, output).inspect_err(|_| scene.keep())?;
    let files = scene.histories()?;
    let report = check_files(&files, true).inspect_err(|_| scene.keep())?;
    let outages = Outages::read(&files, &killed)?;
    let kills = |role: Role| killed.iter().filter(|kill| kill.role == role).count() as u64;
    let leaders = kills(Role::Leader);
    let properties = verdicts(&report);
    let good = |(name, verdict): (&&str, &&str)| {
        // M11 cannot be checked if no member was restarted, and M7 cannot be checked if writes are not recorded.
        let silent = *name == "M11" && leaders + kills(Role::Follower) == 0 || *name == "M7" && args.full;
        *verdict == "ok" || (*verdict == "not_checked" && silent)
    };
    let ok = properties.iter().all(good);
    if !ok {
        scene.keep();
    }
    let back: Vec<u64> = killed.iter().filter(|kill| kill.role != Role::Client).map(Kill::rejoin_ns).collect();
    let trial = Trial {
        ok,
        seed: args.seed,
        kills: [("leader", leaders), ("follower", kills(Role::Follower)), ("client", kills(Role::Client))].into(),
        properties,
        counter_example: report.counter_example,
        messages: report.counts.messages,
        deliveries: report.counts.deliveries,
        outage_ms: outages.ns.iter().map(|ns| *ns as f64 / 1e6).collect(),
        rejoin_ms: back.iter().map(|ns| *ns as f64 / 1e6).collect(),
        unobserved: outages.unobserved,
        history: scene.kept(),
    };
    let memory = plan.config().memory().of(Some(usize::from(args.replicas))).map_or(0, |member| member.bytes());
    Ok((trial, outages, memory))
}

/// Returns the row, or `None` if no outage was found. The bound is the time to detect the death of bare processes with
/// `memory` bytes.
fn row(args: &BenchFailover, outages: &Outages, memory: u64) -> Result<Option<Row>, Failure> {
    let mut samples = Samples::plain();
    samples.round(outages.ns.iter().copied());
    if samples.summary().iterations == 0 {
        return Ok(None);
    }
    let deaths = death::measure(args.fabric, memory)?;
    let what = format!(
        "a bare program sees that a process with {} MiB of shared memory has died: {}",
        memory.div_ceil(1 << 20),
        death::way(args.fabric)
    );
    let bound = Bound::us(what, median(deaths.iter().map(|ns| *ns as f64 / 1000.0)));
    let killed = if args.kill == Victims::Leader { "leaders" } else { "processes" };
    let name = format!(
        "fail-over, {}x{}, {killed} killed: from the kill to the first delivery of what was sent after it",
        args.groups, args.replicas
    );
    Ok(Some(Row::latency(name, load::PAYLOAD_BYTES, args.rounds, bound, &samples)))
}

/// Measures simulated fail-overs with this kind of detection, beside a target in microseconds.
fn simulated(args: &BenchFailover, interrupt: &Interrupt, sign: Sign, target_us: f64) -> Result<Row, Failure> {
    let mut samples = Samples::plain();
    let mut outages = Vec::new();
    for run in 0..args.sim_runs {
        interrupt.check()?;
        outages.push(sim::outage(args.seed.wrapping_add(u64::from(run)), usize::from(args.replicas), sign)?);
    }
    samples.round(outages);
    let Sign { interval, timeout_min, timeout_max, told_after, .. } = sign;
    let what = format!(
        "a target: {target_us} us; virtual time, links of 1 us, members look at each other every {interval:?} and suspect after {timeout_min:?} to {timeout_max:?}"
    );
    let from = told_after.map_or("from the crash".to_owned(), |after| format!("death told after {after:?}: from then"));
    let name = format!(
        "fail-over, simulated, 1x{}, {from} to the first delivery of what was sent after the crash",
        args.replicas
    );
    Ok(Row::latency(name, load::PAYLOAD_BYTES, args.sim_runs, Bound::us(what, target_us), &samples))
}

/// A clock that counts only the time during which this process ran. While this process was stopped or had no processor,
/// the other processes may have been stopped, too.
#[derive(Debug)]
struct Patience {
    last: std::time::Instant,
    spent: Duration,
}

impl Patience {
    /// Largest time between two calls that counts.
    const STEP: Duration = Duration::from_millis(50);

    fn new() -> Self {
        Patience { last: std::time::Instant::now(), spent: Duration::ZERO }
    }

    /// Returns the counted time since the creation.
    fn look(&mut self) -> Duration {
        let now = std::time::Instant::now();
        self.spent += (now - std::mem::replace(&mut self.last, now)).min(Self::STEP);
        self.spent
    }
}
