//! The processes that may be killed: the members and one client, all running this same program.

use std::fs;
use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stentor::operator::{Answer, Question, ask};
use stentor::runtime::ClusterRuntime;
use stentor_fabric::ProcessId;
use stentor_support::args::LoopbackFabric;
use stentor_support::live::{ChildProcess, ProcessOutput, this_program, trim_history};
use stentor_support::{Failure, remedy_of};

use super::Patience;
use super::process::{READY, WorkerSpec};
use super::scene::Scene;
use crate::args::BenchFailover;

/// Longest time that a process may take to end after it was asked to.
const STOPPING: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(2);

/// All processes that may be killed. Dropping this value kills them.
pub(super) struct Fleet<'a> {
    scene: &'a Scene,
    args: &'a BenchFailover,
    /// Members, by process id.
    members: Vec<ChildProcess>,
    client: ChildProcess,
    /// The highest epoch of each group that a member has logged, and the leader of that epoch.
    epochs: Vec<(u64, String)>,
    /// Name of the directory of the members' control sockets, inside the directory of sockets.
    meeting: String,
}

fn spawn(scene: &Scene, name: &str, life: u32, command: Command) -> Result<ChildProcess, Failure> {
    ChildProcess::start((name, life), command, ProcessOutput::Files(scene), |error| unstarted(name, error))
}

fn member(scene: &Scene, args: &BenchFailover, name: &str, life: u32) -> Result<ChildProcess, Failure> {
    let node = scene.node(name, life, &args.wait, &scene.history(name, life));
    let mut command = node.map_err(|error| unstarted("stentor", &error))?;
    if !args.full {
        command.arg("--operations");
    }
    #[cfg(feature = "zookeeper")]
    if !args.zookeeper.is_empty() {
        command.args(["--zookeeper", &args.zookeeper.join(",")]);
    }
    if args.fabric == LoopbackFabric::Roce {
        command.args(scene.captures.arguments(name, life));
    }
    spawn(scene, name, life, command)
}

/// Returns the rate in messages per second; `None` for as many as the window allows.
pub(super) fn pace(args: &BenchFailover) -> Option<u32> {
    (!args.full).then_some(args.rate)
}

fn client(scene: &Scene, args: &BenchFailover, life: u32) -> Result<ChildProcess, Failure> {
    let spec = WorkerSpec {
        config: scene.config(),
        sockets: scene.sockets(),
        histories: scene.path().to_owned(),
        life,
        captures: scene.captures.clone(),
        seed: args.seed.wrapping_add(u64::from(life)),
        rate: pace(args),
        wait: args.wait,
        parent: std::process::id() as i32,
    };
    let mut command = this_program().map_err(|error| unstarted("stentor", &error))?;
    command.args(["bench", "load", &serde_json::to_string(&spec).expect("a specification has string keys")]);
    spawn(scene, "client", life, command)
}

impl<'a> Fleet<'a> {
    /// Starts the members and the client, which joins once they are up.
    pub(super) fn start(plan: &ClusterRuntime, scene: &'a Scene, args: &'a BenchFailover) -> Result<Self, Failure> {
        let names = (0..plan.topology().all_members() as u16).map(|n| plan.name(ProcessId(n)).to_owned());
        let members = names.map(|name| member(scene, args, &name, 1)).collect::<Result<Vec<_>, _>>()?;
        let epochs = vec![(0, String::new()); plan.topology().groups()];
        Ok(Fleet { scene, args, members, client: client(scene, args, 1)?, epochs, meeting: plan.meeting_name() })
    }

    /// Returns whether the client has joined and multicasts.
    pub(super) fn client_is_in(&self) -> bool {
        self.client_name().is_some()
    }

    /// Returns the name of the client id that the client claimed, once it has joined.
    pub(super) fn client_name(&self) -> Option<String> {
        let said = fs::read_to_string(self.scene.file("client", self.client.life, "out")).ok()?;
        said.lines().find_map(|line| Some(line.strip_prefix(READY)?.to_owned()))
    }

    /// Kills a member with SIGKILL, without waiting for its end.
    pub(super) fn kill(&mut self, process: ProcessId) -> Result<(), Failure> {
        let running = &mut self.members[process.index()];
        running.over = true;
        running.signal(Signal::KILL).map_err(|error| unstarted(&running.name, &error))
    }

    /// Waits for the end of a member that was killed. Returns its life.
    pub(super) fn bury(&mut self, process: ProcessId) -> Result<u32, Failure> {
        let running = &mut self.members[process.index()];
        kill(running)?;
        trim_history(&self.scene.history(&running.name, running.life))?;
        Ok(running.life)
    }

    /// Kills the client. Returns its life.
    pub(super) fn kill_client(&mut self) -> Result<u32, Failure> {
        let name = self.client_name();
        kill(&mut self.client)?;
        name.into_iter().try_for_each(|name| trim_history(&self.scene.history(&name, self.client.life)))?;
        Ok(self.client.life)
    }

    /// Restarts a member that was killed.
    pub(super) fn restart(&mut self, process: ProcessId) -> Result<(), Failure> {
        let running = &mut self.members[process.index()];
        *running = member(self.scene, self.args, &running.name, running.life + 1)?;
        Ok(())
    }

    /// Restarts the client.
    pub(super) fn restart_client(&mut self) -> Result<(), Failure> {
        self.client = client(self.scene, self.args, self.client.life + 1)?;
        Ok(())
    }

    /// Returns an error if a process has ended unexpectedly.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let scene = self.scene;
        for running in self.members.iter_mut().chain([&mut self.client]) {
            if let Some(status) = running.gone() {
                return Err(gone(running, scene, status));
            }
        }
        Ok(())
    }

    /// Returns the leader of a group according to the logs of its members.
    pub(super) fn leader(&mut self, plan: &ClusterRuntime, group: usize) -> Option<ProcessId> {
        let members = &plan.config().groups()[group];
        for running in self.members.iter().filter(|r| members.members().iter().any(|member| member.id() == r.name)) {
            let said = running.said(self.scene);
            if let Some((epoch, name)) = said.iter().filter_map(|line| epoch(line)).max()
                && epoch > self.epochs[group].0
            {
                self.epochs[group] = (epoch, name.to_owned());
            }
        }
        plan.process(&self.epochs[group].1).ok()
    }

    /// Asks the client to end and waits for it. Calls `round` meanwhile.
    pub(super) fn stop_client(&mut self, round: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        let scene = self.scene;
        stop(&mut self.client, scene, round)
    }

    /// Asks the members to end and waits for them.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        self.check_members()?;
        for running in &mut self.members {
            running.close_input();
        }
        let scene = self.scene;
        let pause = || {
            std::thread::sleep(LOOK);
            Ok(())
        };
        self.members.iter_mut().try_for_each(|running| stop(running, scene, pause))
    }

    pub(super) fn check_members(&mut self) -> Result<(), Failure> {
        self.client.over = true;
        self.check()
    }

    /// Returns the last log line of each process and the state of each member, for the error of a run that makes no
    /// progress.
    pub(super) fn last_words(&self) -> String {
        let all = self.members.iter().chain([&self.client]);
        let last = |running: &ChildProcess| running.said(self.scene).pop();
        let stand = (0..self.members.len() as u16).map(|process| self.standing(ProcessId(process)));
        all.filter_map(last).chain(stand).collect::<Vec<_>>().join("; ")
    }

    /// Returns whether every member has restored its group's state.
    pub(super) fn all_are_in(&self) -> bool {
        let mut members = (0..self.members.len() as u16).map(ProcessId);
        members.all(|member| matches!(self.show(member), Ok(Some(Answer::Standing(standing))) if !standing.joining))
    }

    /// Returns whether the members of each group have all delivered the same number of messages.
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

    /// Asks a member for its state.
    fn show(&self, process: ProcessId) -> std::io::Result<Option<Answer>> {
        let paths = stentor_host::all_beside(&self.scene.sockets(), &self.meeting, process).unwrap_or_default();
        ask(&paths, &Question::Show)
    }

    /// Returns the state of a member as JSON.
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
            running.end_by(Instant::now());
        }
    }
}

fn kill(running: &mut ChildProcess) -> Result<(), Failure> {
    running.kill().map_err(|error| unstarted(&running.name, &error))
}

fn stop(
    running: &mut ChildProcess,
    scene: &Scene,
    mut round: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    running.close_input();
    let mut patience = Patience::new();
    loop {
        match running.ended() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(gone(running, scene, status)),
            Ok(None) if patience.look() < STOPPING => round()?,
            Ok(None) => {
                let what = format_args!("`{}` does not stop", running.name);
                return Err(Failure::run(what, "bench failover", "it was killed; report this as a bug"));
            }
            Err(error) => return Err(unstarted(&running.name, &error)),
        }
    }
}

fn gone(running: &ChildProcess, scene: &Scene, status: ExitStatus) -> Failure {
    let said = running.said(scene);
    let remedy = remedy_of(said.iter().map(String::as_str)).unwrap_or("report this as a bug, with that directory");
    let last = said[said.len().saturating_sub(4)..].join("; ");
    let what = format_args!("`{}` ended unexpectedly ({status}): {last}", running.name);
    Failure::run(what, scene.path().display(), remedy)
}

/// Parses the line `NAME: epoch N: LEADER leads`.
fn epoch(line: &str) -> Option<(u64, &str)> {
    let (_, rest) = line.split_once(": epoch ")?;
    let (number, rest) = rest.split_once(": ")?;
    Some((number.parse().ok()?, rest.strip_suffix(" leads")?))
}

fn unstarted(name: &str, error: &io::Error) -> Failure {
    let what = format_args!("cannot start or end `{name}`");
    let remedy = "allow more processes; `stentor doctor` says what this machine can do";
    Failure::system(what, error, "bench failover", remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_parsed_from_logs_of_nodes() {
        assert_eq!(epoch("g1.2: epoch 17: g1.3 leads"), Some((17, "g1.3")));
        for other in ["g1.2: ready, leads its group", "g1.2: epoch x: g1.3 leads", "g1.2: epoch 3: g1.3 follows", ""] {
            assert_eq!(epoch(other), None, "{other}");
        }
    }
}
