//! `stentor chaos`: injects faults into a cluster of real processes on this host, and judges their histories.
//!
//! The members are processes of this same program (`stentor node`). The clients are threads of the command's own
//! process and live as long as the run. The main thread injects the faults. `--service` replaces the load: see
//! [`service`].
//!
//! # Faults, and when each may begin
//!
//! | fault | effect | precondition, besides the budget |
//! |---|---|---|
//! | kill | SIGKILL; a start after 0 to 2 s, one time in four at once | the member is ready |
//! | stop | SIGSTOP; SIGCONT after at most 2 s | the member is ready |
//! | restart | SIGTERM; a start 0 to 2 s after exit code 0 | the member is ready |
//! | cut | for 0.2 to 3 s, packets from or to others are lost | the member is ready; `roce` |
//! | loss | for 0.2 to 3 s, 0.5 to 5 % of its packets are lost | ready, without another loss; `roce` |
//! | clock | for 2 to 6 s, its clock is set or changes its rate | ready; no wrong clock in the group; libfaketime |
//! | client | SIGKILL of a client's process; a start after 0 to 2 s | `--service`; the client has its session |
//! | move | the leader is asked to hand over, as by `leader move` | both members are sound |
//!
//! A stop or a cut ends before the load has filled half of a window or of a ring. A cut concerns the packets from or to
//! one other process, or from or to all. A loss does not count in the budget. No fault except a loss begins at a member
//! that is cut.
//!
//! Cuts and losses affect datagrams only, not the TCP connections by which processes find each other.
//!
//! # States of a member
//!
//! `starting` (first start), `ready`, `stopped` (SIGSTOP), `ending` (SIGTERM was sent), `killed` (no process; its next
//! start is scheduled), `restarting` (started again), `returning` (continued, or no longer cut). A member is *sound*
//! while it is `ready`, not cut, and its clock is right. A member in `starting`, `restarting` or `returning` becomes
//! `ready` when it reports on its control socket that it has its group's state. In `restarting` and `returning`, every
//! client of the multicast must also count it for flow control.
//!
//! # Budget
//!
//! In each group, at most a minority of the members is not sound at any time. A fault that would violate this waits,
//! and so do all later faults, so that the order of faults is that of the seed.
//!
//! # Progress, and the guarantee of the hang detector
//!
//! Each client watches one message: its oldest that is not known to be delivered by a majority of each destination
//! group or, if there is none, the one for which it finds no room. Progress means that this message is delivered or
//! finds room.
//!
//! The detector reports a message that made no progress for 5 s during which every destination group had a majority of
//! sound members. The clock of a message starts again when one of its groups loses such a majority. Only time during
//! which this process ran counts: a pause of the whole machine counts at most 0.25 s.
//!
//! It also reports a member that is not `ready` after 30 s in `restarting` or `returning`, or has not ended 20 s after
//! SIGTERM, and a cluster that is not at rest 30 s after the last fault. If the members and clients have not joined 60
//! s after the start, the command fails.
//!
//! The detector misses a message without progress if its client has an older undelivered one. Before the end, it also
//! misses a minority of a group that delivers nothing.
//!
//! # Exceptions
//!
//! The command does not test stops that outlast a window, clients that begin while a member is down, or groups that
//! lose a majority.

mod board;
mod clients;
mod clock;
mod conductor;
mod fleet;
mod hang;
mod load;
mod poller;
mod report;
mod scene;
mod schedule;
mod service;
mod shim;

use std::time::Instant;

use stentor::runtime::{BindConfig, ClusterFabric};
use stentor::with_fabric;
use stentor_checker::check_files;

use crate::args::{self, ChaosPlant, Fault};
use conductor::{Conductor, RunOutcome};
use load::Loads;
use report::{CheckResult, RunReport};
use scene::Scene;
use schedule::Bounds;
use service::Callers;
use shim::Shim;
use stentor_support::live::Interrupt;
use stentor_support::{Failure, Output, Verdict};

/// The command's name in errors.
const PLACE: &str = "stentor chaos";

/// The parameters of a run, with every default resolved.
struct Script<'a> {
    args: &'a args::Chaos,
    scene: &'a Scene,
    seed: u64,
    faults: Vec<Fault>,
    bounds: Bounds,
    output: Output,
}

pub(super) fn run(args: &args::Chaos, output: Output) -> Result<Verdict, Failure> {
    refuse_foreign_plant(args)?;
    let scene = Scene::set(args)?;
    let seed = args.seed.unwrap_or_else(|| stentor::runtime::life_now() % 1_000_000);
    let bounds = Bounds::of(&scene.plan, args.clients, args.rate);
    let faults = schedule::allowed(args, &scene.plan, &bounds)?;
    if faults.contains(&Fault::Clock) {
        Shim::find(scene.path())?;
    }
    let script = Script { args, scene: &scene, seed, faults, bounds, output };
    script.announce();
    let interrupt = Interrupt::catch()?;
    let begin = Instant::now();
    let played = if args.service { script.play_service(&interrupt) } else { script.play_multicast(&interrupt) };
    let seconds = begin.elapsed().as_secs_f64();
    let (played, judged) = played.inspect_err(|_| {
        scene.keep();
        output.note(&format!(
            "the configuration, the histories and the output of all processes are in {}",
            scene.path().display()
        ));
    })?;
    let document = RunReport::new(&script, &played, &judged, seconds);
    let good = document.ok;
    if !good || args.keep {
        scene.keep();
    }
    output.conclude(&document.kept(scene.kept()), Verdict::of(good))
}

/// Refuses a mutant that this kind of run does not have.
fn refuse_foreign_plant(args: &args::Chaos) -> Result<(), Failure> {
    let of_service = match args.plant {
        None => return Ok(()),
        Some(ChaosPlant::Hang | ChaosPlant::History) => false,
        Some(ChaosPlant::Reply | ChaosPlant::Lost | ChaosPlant::Doubled) => true,
    };
    if of_service == args.service {
        return Ok(());
    }
    let with = if of_service { "only with" } else { "only without" };
    Err(Failure::usage(format_args!("this mutant of --plant is possible {with} --service"), PLACE, "name another one"))
}

/// Runs a process of `stentor chaos --service`.
pub(super) fn process(spec: &str) -> Result<Verdict, Failure> {
    service::process(spec)
}

impl Script<'_> {
    fn announce(&self) {
        let names: Vec<_> = self.faults.iter().map(|fault| schedule::name(*fault)).collect();
        let Bounds { stop_ms, cut_ms, .. } = self.bounds;
        let lasts = |fault: Fault, what: &str, ms: u64| {
            if self.faults.contains(&fault) { format!("; a {what} lasts {ms} ms at most") } else { String::new() }
        };
        self.output.note(&format!(
            "seed {}; faults on {}: {}{}{}; {} {}/s",
            self.seed,
            self.scene.plan.config().fabric(),
            names.join(", "),
            lasts(Fault::Stop, "stop", stop_ms),
            lasts(Fault::Cut, "cut", cut_ms),
            self.args.rate,
            self.what()
        ));
    }

    /// Returns the noun for what the clients do.
    fn what(&self) -> &'static str {
        if self.args.service { "calls" } else { "messages" }
    }

    fn play_multicast(&self, interrupt: &Interrupt) -> Result<(RunOutcome, CheckResult), Failure> {
        let scene = self.scene;
        let played = with_fabric!(scene.plan.config().fabric(), F => self.play::<F>(interrupt))?;
        if self.args.plant == Some(ChaosPlant::History) {
            scene.spoil()?;
        }
        let begin = Instant::now();
        // This command wrote the files itself, so an error is a failed run and not bad usage.
        let report = check_files(&scene.histories()?, false)
            .map_err(|error| Failure { exit_code: 1, ..Failure::from(error) })?;
        let seconds = begin.elapsed().as_secs_f64();
        Ok((played, CheckResult::of_multicast(&report, seconds, scene.history_bytes()?)))
    }

    fn play_service(&self, interrupt: &Interrupt) -> Result<(RunOutcome, CheckResult), Failure> {
        let scene = self.scene;
        let callers = Callers::start(scene, self.args, self.seed)?;
        let played = Conductor::begin(self, &callers, interrupt)?.play()?;
        let begin = Instant::now();
        let judged = service::judge(scene, &callers, played.complete, self.args.plant)?;
        let seconds = begin.elapsed().as_secs_f64();
        let result = CheckResult::of_service(judged, (played.ended, seconds), scene.history_bytes()?);
        Ok((played, result))
    }

    fn play<F: ClusterFabric>(&self, interrupt: &Interrupt) -> Result<RunOutcome, Failure> {
        let (plan, scene) = (&self.scene.plan, self.scene);
        let loads = Loads::new(plan, scene, self.args, self.seed);
        let bind = BindConfig { sockets: scene.sockets(), ..BindConfig::beside(&scene.config()) };
        let start = |client| plan.start_client::<F>(client, &bind);
        std::thread::scope(|scope| {
            // The scope waits for the clients, so they must end on every path.
            let _end = loads.end_with();
            loads.start(scope, &start)?;
            Conductor::begin(self, &loads, interrupt)?.play()
        })
    }
}
