//! The processes that may be killed: the members, and one client; all of this same program.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use stentor::runtime::{ClusterRuntime, ShmFabric};
use stentor_fabric::ProcessId;
use stentor_support::args::LoopbackFabric;
use stentor_support::live::{Answer, Question, ask, meeting_name};
use stentor_support::{Failure, remedy_of};

use super::Patience;
use super::process::{READY, WorkerSpec};
use super::scene::Scene;
use crate::args::BenchFailover;

/// How long a process may take to end when it is told to.
const STOPPING: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(2);

/// One process, in one of its lives after the other. Its standard input is held open: it ends when that ends.
struct Running {
    name: String,
    life: u32,
    child: Child,
    /// It was killed on purpose.
    killed: bool,
}

/// All of them. None outlives this.
pub(super) struct Fleet<'a> {
    scene: &'a Scene,
    args: &'a BenchFailover,
    /// By process.
    members: Vec<Running>,
    client: Running,
    /// The highest epoch of each group that anybody told, and who leads in it.
    epochs: Vec<(u64, String)>,
    /// The directory of the members' control sockets, among the sockets.
    meeting: String,
}

/// Files for what a process says.
fn says(scene: &Scene, name: &str, life: u32, what: &str) -> PathBuf {
    scene.path().join(format!("{name}.{life}.{what}"))
}

fn spawn(scene: &Scene, name: &str, life: u32, mut command: Command) -> Result<Running, Failure> {
    let file = |what: &str| {
        let path = says(scene, name, life, what);
        File::create(&path).map_err(|error| Failure::cannot_write(&path, &error))
    };
    command.stdin(Stdio::piped()).stdout(file("out")?).stderr(file("err")?);
    // A signal from the terminal is for us: we end them in order.
    let child = command.process_group(0).spawn().map_err(|error| unstarted(name, &error))?;
    Ok(Running { name: name.to_owned(), life, child, killed: false })
}

fn program() -> Result<Command, Failure> {
    std::env::current_exe().map(Command::new).map_err(|error| unstarted("stentor", &error))
}

fn member(scene: &Scene, args: &BenchFailover, name: &str, life: u32) -> Result<Running, Failure> {
    let mut command = program()?;
    command.args(["node", "--json", "--until-eof", "--id", name]);
    if !args.full {
        command.arg("--operations");
    }
    command.args(["--wait", args.wait.to_possible_value().expect("none is skipped").get_name()]);
    #[cfg(feature = "zookeeper")]
    if !args.zookeeper.is_empty() {
        command.args(["--zookeeper", &args.zookeeper.join(",")]);
    }
    command.arg("--config").arg(scene.config()).arg("--directory").arg(scene.sockets());
    command.arg("--history").arg(scene.history(name, life)).arg("--life").arg(life.to_string());
    if args.fabric == LoopbackFabric::Roce {
        command.args(scene.captures().arguments(name, life));
    }
    spawn(scene, name, life, command)
}

/// Messages per second; `None`: as many as there is room for.
pub(super) fn pace(args: &BenchFailover) -> Option<u32> {
    (!args.full).then_some(args.rate)
}

fn client(scene: &Scene, args: &BenchFailover, life: u32) -> Result<Running, Failure> {
    let spec = WorkerSpec {
        config: scene.config(),
        sockets: scene.sockets(),
        histories: scene.path().to_owned(),
        life,
        captures: scene.captures().clone(),
        seed: args.seed.wrapping_add(u64::from(life)),
        rate: pace(args),
        wait: args.wait,
        parent: std::process::id() as i32,
    };
    let mut command = program()?;
    command.args(["bench", "load", &serde_json::to_string(&spec).expect("a specification has string keys")]);
    spawn(scene, "client", life, command)
}

impl<'a> Fleet<'a> {
    /// The members; the client comes when they are there.
    pub(super) fn start(plan: &ClusterRuntime, scene: &'a Scene, args: &'a BenchFailover) -> Result<Self, Failure> {
        let names = (0..plan.topology().all_members() as u16).map(|n| plan.name(ProcessId(n)).to_owned());
        let members = names.map(|name| member(scene, args, &name, 1)).collect::<Result<Vec<_>, _>>()?;
        let epochs = vec![(0, String::new()); plan.topology().groups()];
        Ok(Fleet { scene, args, members, client: client(scene, args, 1)?, epochs, meeting: meeting_name(plan) })
    }

    /// Whether the client multicasts.
    pub(super) fn client_is_in(&self) -> bool {
        self.client_name().is_some()
    }

    /// The place that the client took, once it is in.
    pub(super) fn client_name(&self) -> Option<String> {
        let said = fs::read_to_string(says(self.scene, "client", self.client.life, "out")).ok()?;
        said.lines().find_map(|line| Some(line.strip_prefix(READY)?.to_owned()))
    }

    /// Kills a member as `kill -9` does. Returns its life, once it is gone.
    pub(super) fn kill(&mut self, process: ProcessId) -> Result<u32, Failure> {
        let running = &mut self.members[process.index()];
        running.kill()?;
        cut(&self.scene.history(&running.name, running.life))?;
        Ok(running.life)
    }

    /// Kills the client. Returns its life.
    pub(super) fn kill_client(&mut self) -> Result<u32, Failure> {
        let name = self.client_name();
        self.client.kill()?;
        name.into_iter().try_for_each(|name| cut(&self.scene.history(&name, self.client.life)))?;
        Ok(self.client.life)
    }

    /// Starts a member again that was killed.
    pub(super) fn restart(&mut self, process: ProcessId) -> Result<(), Failure> {
        let running = &mut self.members[process.index()];
        *running = member(self.scene, self.args, &running.name, running.life + 1)?;
        Ok(())
    }

    /// Starts the client again.
    pub(super) fn restart_client(&mut self) -> Result<(), Failure> {
        self.client = client(self.scene, self.args, self.client.life + 1)?;
        Ok(())
    }

    /// Fails if one of them is gone that should not be.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let scene = self.scene;
        for running in self.members.iter_mut().chain([&mut self.client]).filter(|running| !running.killed) {
            if let Ok(Some(status)) = running.child.try_wait() {
                return Err(running.gone(scene, status));
            }
        }
        Ok(())
    }

    /// Who leads a group, as its members tell.
    pub(super) fn leader(&mut self, plan: &ClusterRuntime, group: usize) -> Option<ProcessId> {
        let members = &plan.config().groups()[group];
        for running in self.members.iter().filter(|r| members.members().iter().any(|member| member.id() == r.name)) {
            let said = fs::read_to_string(says(self.scene, &running.name, running.life, "err")).unwrap_or_default();
            if let Some((epoch, name)) = said.lines().filter_map(epoch).max()
                && epoch > self.epochs[group].0
            {
                self.epochs[group] = (epoch, name.to_owned());
            }
        }
        plan.process(&self.epochs[group].1).ok()
    }

    /// Tells the client to end, and waits for it; meanwhile `round` is called.
    pub(super) fn stop_client(&mut self, round: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        let scene = self.scene;
        self.client.stop(scene, round)
    }

    /// Tells the members to end, and waits for them.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        self.check_members()?;
        for running in &mut self.members {
            drop(running.child.stdin.take());
        }
        let scene = self.scene;
        let pause = || {
            std::thread::sleep(LOOK);
            Ok(())
        };
        self.members.iter_mut().try_for_each(|running| running.stop(scene, pause))
    }

    pub(super) fn check_members(&mut self) -> Result<(), Failure> {
        self.client.killed = true;
        self.check()
    }

    /// What they said last, for whoever must find out why nothing goes on.
    pub(super) fn last_words(&self) -> String {
        let all = self.members.iter().chain([&self.client]);
        let last = |running: &Running| {
            let said = fs::read_to_string(says(self.scene, &running.name, running.life, "err")).unwrap_or_default();
            said.lines().last().map(str::to_owned)
        };
        let stand = (0..self.members.len() as u16).map(|process| self.standing(ProcessId(process)));
        all.filter_map(last).chain(stand).collect::<Vec<_>>().join("; ")
    }

    /// Whether every member has its group's state.
    pub(super) fn all_are_in(&self) -> bool {
        let mut members = (0..self.members.len() as u16).map(ProcessId);
        members.all(|member| matches!(self.show(member), Ok(Some(Answer::Standing(standing))) if !standing.joining))
    }

    /// Whether the members of each group have all delivered the same number of messages.
    pub(super) fn is_level(&self, plan: &ClusterRuntime) -> bool {
        let delivered = |member| match self.show(member) {
            Ok(Some(Answer::Standing(standing))) if !standing.joining => Some(standing.delivered),
            _ => None,
        };
        plan.topology().group_ids().all(|group| {
            let mut members = plan.topology().members(group).map(delivered);
            let first = members.next().flatten();
            first.is_some() && members.all(|other| other == first)
        })
    }

    /// Asks a member how it stands.
    fn show(&self, process: ProcessId) -> std::io::Result<Option<Answer>> {
        let paths = ShmFabric::all_beside(&self.scene.sockets(), &self.meeting, process).unwrap_or_default();
        ask(&paths, &Question::Show)
    }

    /// How a member stands, in its own words.
    fn standing(&self, process: ProcessId) -> String {
        match self.show(process) {
            Ok(Some(Answer::Standing(standing))) => serde_json::to_string(&standing).unwrap_or_default(),
            other => format!("{process}: {other:?}"),
        }
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        for running in self.members.iter_mut().chain([&mut self.client]) {
            // Nothing happens if it has ended.
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

impl Running {
    fn kill(&mut self) -> Result<(), Failure> {
        self.killed = true;
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|error| unstarted(&self.name, &error))
    }

    fn stop(&mut self, scene: &Scene, mut round: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let mut patience = Patience::new();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.gone(scene, status)),
                Ok(None) if patience.look() < STOPPING => round()?,
                Ok(None) => {
                    let what = format_args!("`{}` does not stop", self.name);
                    return Err(Failure::run(what, "bench failover", "it is killed; report this as a bug"));
                }
                Err(error) => return Err(unstarted(&self.name, &error)),
            }
        }
    }

    fn gone(&self, scene: &Scene, status: ExitStatus) -> Failure {
        let said = fs::read_to_string(says(scene, &self.name, self.life, "err")).unwrap_or_default();
        let said = said.lines().map(str::trim).collect::<Vec<_>>();
        let remedy = remedy_of(said.iter().copied());
        let last = said[said.len().saturating_sub(4)..].join("; ");
        let what = format_args!("`{}` ended before it was told to ({status}): {last}", self.name);
        Failure::run(what, scene.path().display(), remedy.unwrap_or("report this as a bug, with that directory"))
    }
}

/// `NAME: epoch N: LEADER leads`.
fn epoch(line: &str) -> Option<(u64, &str)> {
    let (_, rest) = line.split_once(": epoch ")?;
    let (number, rest) = rest.split_once(": ")?;
    Some((number.parse().ok()?, rest.strip_suffix(" leads")?))
}

/// Removes a line that was cut off in its middle.
fn cut(path: &Path) -> Result<(), Failure> {
    let cut = || -> io::Result<()> {
        let text = fs::read(path)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        OpenOptions::new().write(true).open(path)?.set_len(whole as u64)
    };
    cut().map_err(|error| Failure::cannot_write(path, &error))
}

fn unstarted(name: &str, error: &io::Error) -> Failure {
    let what = format_args!("cannot start or end `{name}`");
    Failure::system(
        what,
        error,
        "bench failover",
        "allow more processes; `stentor doctor` says what this machine can do",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_read_from_what_nodes_say() {
        assert_eq!(epoch("g1.2: epoch 17: g1.3 leads"), Some((17, "g1.3")));
        for other in ["g1.2: ready, leads its group", "g1.2: epoch x: g1.3 leads", "g1.2: epoch 3: g1.3 follows", ""] {
            assert_eq!(epoch(other), None, "{other}");
        }
    }
}
