//! The members of a demonstration: processes of this same program.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use stentor::runtime::ClusterRuntime;
use stentor_fabric::ProcessId;
use stentor_support::Failure;
use stentor_support::live::{ChildProcess, Interrupt, ProcessOutput};

use super::stage::Stage;
use crate::args::Wait;
use crate::commands::node::Served;

/// Longest time that a node may take to stop.
const STOPPING: Duration = Duration::from_secs(10);
/// Longest time that a node may take before it is killed, after the demonstration has failed.
const GIVEN_UP: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);

/// The processes of all members, indexed by process id. Dropping this value ends them.
pub(super) struct Nodes<'a> {
    pub(super) plan: &'a ClusterRuntime,
    pub(super) stage: &'a Stage,
    wait: Wait,
    all: RefCell<Vec<ChildProcess>>,
}

impl<'a> Nodes<'a> {
    pub(super) fn start(plan: &'a ClusterRuntime, stage: &'a Stage, wait: Wait) -> Result<Self, Failure> {
        let nodes = Nodes { plan, stage, wait, all: RefCell::new(Vec::new()) };
        for process in (0..plan.topology().all_members() as u16).map(ProcessId) {
            let node = nodes.spawn(process, 1)?;
            nodes.all.borrow_mut().push(node);
        }
        Ok(nodes)
    }

    fn spawn(&self, process: ProcessId, life: u32) -> Result<ChildProcess, Failure> {
        let Nodes { plan, stage, wait, .. } = self;
        let name = plan.name(process);
        let node = stage.node(name, life, wait, &stage.history(plan, process, life));
        let mut command = node.map_err(|error| unstarted("stentor", &error))?;
        command.args(["--quiet", "--operations"]).args(stage.arguments(name, life));
        ChildProcess::start((name, life), command, ProcessOutput::Pipes, |error| unstarted(name, error))
    }

    /// Kills a process with SIGKILL. Returns once it has exited.
    pub(super) fn kill(&self, process: ProcessId) -> Result<(), Failure> {
        let mut nodes = self.all.borrow_mut();
        let node = &mut nodes[process.index()];
        node.kill().map_err(|error| unstarted(&node.name, &error))
    }

    /// Restarts a process that was killed, in its second life.
    pub(super) fn restart(&self, process: ProcessId) -> Result<(), Failure> {
        let node = self.spawn(process, 2)?;
        self.all.borrow_mut()[process.index()] = node;
        Ok(())
    }

    /// Returns an error if a process has ended unexpectedly.
    pub(super) fn check(&self) -> Result<(), Failure> {
        for node in self.all.borrow_mut().iter_mut() {
            if let Some(status) = node.gone() {
                return Err(gone(node, status));
            }
        }
        Ok(())
    }

    /// Stops the members and returns their reports.
    pub(super) fn stop(&mut self, interrupt: &Interrupt) -> Result<Vec<Served>, Failure> {
        self.check()?;
        let nodes = self.all.get_mut();
        for node in nodes.iter_mut() {
            node.close_input();
        }
        let until = Instant::now() + STOPPING;
        nodes.iter_mut().map(|node| stopped(node, until, interrupt)).collect()
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        let nodes = self.all.get_mut();
        for node in nodes.iter_mut() {
            node.close_input();
        }
        let until = Instant::now() + GIVEN_UP;
        nodes.iter_mut().for_each(|node| {
            node.end_by(until);
        });
    }
}

fn stopped(node: &mut ChildProcess, until: Instant, interrupt: &Interrupt) -> Result<Served, Failure> {
    loop {
        match node.ended() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => return Err(gone(node, status)),
            Ok(None) if Instant::now() < until => interrupt.check()?,
            Ok(None) => {
                let what = format_args!("`{}` does not stop", node.name);
                return Err(Failure::run(what, "stentor demo", "it was killed; report this as a bug"));
            }
            Err(error) => return Err(unstarted(&node.name, &error)),
        }
        std::thread::sleep(LOOK);
    }
    serde_json::from_str(&node.take_output()).map_err(|error| {
        let what = format_args!("the report of `{}` is invalid: {error}", node.name);
        Failure::run(what, "stentor demo", "report this as a bug")
    })
}

fn gone(node: &mut ChildProcess, status: ExitStatus) -> Failure {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("with exit code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "somehow".to_owned(),
    };
    let said = node.take_errors();
    let said = said.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    let what = format_args!("`{}` ended unexpectedly, {how}{said}", node.name);
    Failure::run(what, "stentor demo", "no property was checked; start the demonstration again")
}

fn unstarted(name: &str, error: &std::io::Error) -> Failure {
    let what = format_args!("cannot start `{name}`");
    let otherwise = "allow more processes and memory; `stentor doctor` says what this machine can do";
    Failure::system(what, error, "stentor demo", otherwise)
}
