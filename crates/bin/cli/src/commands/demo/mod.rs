//! `stentor demo`: real processes on shared memory, RoCEv2, an RDMA device or libfabric multicast a real text, and
//! every property is checked.

mod cluster;
mod copier;
mod leader_kill;
mod load;
mod neb;
mod outcome;
mod report;
mod stage;
mod text;

use std::time::Duration;

use stentor::runtime::{ClusterFabric, ClusterRuntime};
use stentor::with_fabric;
use stentor_checker::check_files;
use stentor_fabric::ProcessId;

use crate::args;
use cluster::Nodes;
use copier::Copier;
use leader_kill::LeaderKill;
use load::Sent;
pub(super) use neb::process;
use outcome::Outcome;
use report::DemoReport;
use stage::{CLUSTER, Stage};
use stentor_support::args::DemoFabric;
use stentor_support::live::{self, Captures, Interrupt, Joining, unstarted};
use stentor_support::{Failure, Output, Verdict};
use text::Text;

/// Longest time without a delivery. If each process has a processor, also the longest time for processes to find each
/// other.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest factor by which processes may take longer to find each other on a host with fewer processors than processes.
const MOST_CROWDED: u32 = 8;

/// Returns the longest time for this number of processes to find each other on this host.
fn patience(processes: usize) -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    TIMEOUT * (processes.div_ceil(processors) as u32).clamp(1, MOST_CROWDED)
}

pub(super) fn run(args: &args::Demo, output: Output) -> Result<Verdict, Failure> {
    if args.fabric == DemoFabric::Shm {
        live::refuse_network(None, Captures::from(&args.network).asked(), "stentor demo")?;
    }
    args.ofi.refuse_unless(args.fabric == DemoFabric::Ofi, "stentor demo")?;
    if matches!(args.fabric, DemoFabric::Verbs | DemoFabric::Ofi) {
        live::refuse_traffic(Captures::from(&args.network).asked(), "stentor demo")?;
    }
    if args.switch && args.fabric != DemoFabric::Roce {
        let what = "a software switch copies packets of RoCEv2 only";
        return Err(Failure::usage(what, "stentor demo", "use --switch with --fabric roce, or leave it out"));
    }
    if args.neb {
        return neb::run(args, output);
    }
    let config = stage::config(args)?;
    let text = Text::read(args, config.limits().message_bytes as usize)?;
    let plan = ClusterRuntime::new(config).map_err(|error| unstarted(error, std::path::Path::new("stentor demo")))?;
    let processes = (0..plan.topology().processes() as u16).map(|process| plan.name(ProcessId(process)).to_owned());
    Captures::from(&args.network).check(processes, 1)?;
    let interrupt = Interrupt::catch()?;
    let stage = Stage::set(args, &plan)?;
    let mut copier = args.switch.then(|| Copier::start(&stage, CLUSTER, args.wait)).transpose()?;
    let mut nodes = Nodes::start(&plan, &stage, args.wait)?;
    let look = || {
        interrupt.check()?;
        copier.as_ref().map_or(Ok(()), Copier::check)?;
        nodes.check()
    };
    let scene = Scene { args, plan: &plan, stage: &stage, nodes: &nodes, text: &text, check: &look, output };
    let sent = with_fabric!(plan.config().fabric(), F => scene.send::<F>())?;
    sent.troubles.iter().for_each(|trouble| output.note(trouble));
    let served = nodes.stop(&interrupt)?;
    let switched = copier.as_mut().map(|copier| copier.stop(sent.counts.copies(), &interrupt)).transpose()?;
    let report = check_files(&stage.histories(&plan, sent.crash.map(|crash| crash.process)), true)?;
    let outcome = Outcome::read(&plan, &stage, &sent)?;
    stage.keep();
    let shown = DemoReport::new(&plan, &stage, &text, &sent, &served, &report, &outcome).copied(switched);
    output.conclude(&shown, Verdict::of(shown.ok))
}

/// Minimum number of lines of a text that is long enough for a process to be killed and restarted.
const SHORTEST_WITH_KILL: usize = 100;

/// The parameters of the client.
#[derive(Clone, Copy)]
struct Scene<'a> {
    args: &'a args::Demo,
    plan: &'a ClusterRuntime,
    stage: &'a Stage,
    nodes: &'a Nodes<'a>,
    text: &'a Text,
    /// Checks the other processes.
    check: &'a dyn Fn() -> Result<(), Failure>,
    output: Output,
}

impl Scene<'_> {
    fn send<F: ClusterFabric>(&self) -> Result<Sent, Failure> {
        let Scene { args, plan, stage, nodes, text, check, output } = *self;
        let (config, sockets) = (stage.config(), stage.sockets());
        let told = |name: &str| stage.captures.of(name, 1);
        let start = |client| live::start_client::<F>(plan, client, (&config, &sockets), told);
        let (wait, timeout) = (args.wait.into(), patience(plan.topology().processes()));
        let joining = Joining { wait, timeout, check, ..Joining::to_all(plan, &config, stage.path(), &start) };
        let joined = joining.join(None, |text| output.note(text))?;
        let bar = output.progress_count("multicasting", text.lines.len() as u64);
        // A smaller group would lose its majority.
        let kills = !args.no_kill && args.replicas >= 3 && text.lines.len() >= SHORTEST_WITH_KILL;
        let leader_kill = kills.then_some(LeaderKill { nodes, crash: None });
        let mut loader = load::Loader::new(*self, &bar, joined, leader_kill)?;
        let sent = if args.switch { loader.wait_for_copies() } else { Ok(()) };
        let sent = sent.and_then(|()| loader.run());
        bar.finish_and_clear();
        sent
    }
}
