//! The members' processes, which run this same program, one life after the other.

use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stentor::config::FabricKind;
use stentor_support::args::name_of;
use stentor_support::live::{ChildProcess, ProcessOutput, trim_history};
use stentor_support::{Failure, remedy_of};

use super::scene::Scene;
use super::schedule::Skew;
use super::service::{NodeSpec, ProcessSpec, Role};
use super::shim::{Shim, clean_up};
use super::{PLACE, Script};
use crate::args::{self, Fault};

/// The time after which a member that was asked to end is killed, if the fleet is dropped.
const GIVEN_UP: Duration = Duration::from_secs(2);
/// The number of last lines of standard error that are shown when a process ends.
const LAST_LINES: usize = 4;

/// The processes of all members, indexed by member. Dropping the fleet ends them.
pub(super) struct Fleet<'a> {
    scene: &'a Scene,
    args: &'a args::Chaos,
    /// The library that makes clocks wrong, if the run has the fault `clock`.
    shim: Option<Shim>,
    members: Vec<ChildProcess>,
}

impl<'a> Fleet<'a> {
    /// Starts every member.
    pub(super) fn start(scene: &'a Scene, script: &Script<'a>, names: &[String]) -> Result<Self, Failure> {
        let shim = script.faults.contains(&Fault::Clock).then(|| Shim::find(scene.path())).transpose()?;
        let mut fleet = Fleet { scene, args: script.args, shim, members: Vec::new() };
        for name in names {
            // Members that were started before a failure end when the fleet is dropped.
            let running = fleet.spawn(name, 1, true)?;
            fleet.members.push(running);
        }
        Ok(fleet)
    }

    fn spawn(&self, name: &str, life: u32, operations: bool) -> Result<ChildProcess, Failure> {
        let mut command = if self.args.service { self.service(name, life) } else { self.node(name, life, operations) }
            .map_err(|error| unstarted(name, &error))?;
        if let Some(shim) = &self.shim {
            shim.preload(name, &mut command)?;
        }
        let output = ProcessOutput::Files(self.scene);
        ChildProcess::start((name, life), command, output, |error| unstarted(name, error))
    }

    /// Returns the command of a member of the multicast.
    fn node(&self, name: &str, life: u32, operations: bool) -> io::Result<Command> {
        let Fleet { scene, args, .. } = self;
        let mut command = scene.node(name, life, &args.wait, &scene.history(name, life))?;
        // If this process is killed, the member is killed, too.
        command.args(["--follow", &std::process::id().to_string()]);
        if operations {
            command.arg("--operations");
        }
        if scene.plan.config().fabric() == FabricKind::Roce {
            command.args(["--faults", "--seed", &life.to_string()]);
        }
        Ok(command)
    }

    /// Returns the command of a member with a state machine.
    fn service(&self, name: &str, life: u32) -> io::Result<Command> {
        let Fleet { scene, args, .. } = self;
        let node = NodeSpec {
            name: name.to_owned(),
            log: scene.history(name, life),
            wait: name_of(&args.wait),
            faults: scene.plan.config().fabric() == FabricKind::Roce,
            seed: life.into(),
        };
        ProcessSpec::of(scene, Role::Node(node)).command()
    }

    pub(super) fn pid(&self, member: usize) -> u32 {
        self.members[member].pid()
    }

    pub(super) fn life(&self, member: usize) -> u32 {
        self.members[member].life
    }

    /// Returns the age of a member's process, in milliseconds.
    pub(super) fn age_ms(&self, member: usize) -> u64 {
        self.members[member].age().as_millis() as u64
    }

    /// Starts a member that has no process.
    pub(super) fn restart(&mut self, member: usize, operations: bool) -> Result<(), Failure> {
        let ChildProcess { name, life, .. } = &self.members[member];
        let running = self.spawn(name, life + 1, operations)?;
        self.members[member] = running;
        Ok(())
    }

    /// Kills a member with SIGKILL. Returns once it has exited.
    pub(super) fn kill(&mut self, member: usize) -> Result<(), Failure> {
        let running = &mut self.members[member];
        running.kill().map_err(|error| unstarted(&running.name, &error))?;
        if self.shim.is_some() {
            clean_up(running.pid());
        }
        trim_history(&self.scene.history(&running.name, running.life))
    }

    /// Sets a member's clock; `None` sets it to the right time.
    pub(super) fn set_clock(&self, member: usize, skew: Option<Skew>) -> Result<(), Failure> {
        self.shim.as_ref().map_or(Ok(()), |shim| shim.set(&self.members[member].name, skew))
    }

    pub(super) fn stop(&mut self, member: usize) -> Result<(), Failure> {
        self.signal(member, Signal::STOP)
    }

    pub(super) fn resume(&mut self, member: usize) -> Result<(), Failure> {
        self.signal(member, Signal::CONT)
    }

    /// Sends SIGTERM to a member.
    pub(super) fn end(&mut self, member: usize) -> Result<(), Failure> {
        self.signal(member, Signal::TERM)
    }

    fn signal(&self, member: usize, signal: Signal) -> Result<(), Failure> {
        let running = &self.members[member];
        running.signal(signal).map_err(|error| unstarted(&running.name, &error))
    }

    /// Returns whether a member that was asked to end has ended.
    ///
    /// # Errors
    /// Returns an error if its exit code is not 0.
    pub(super) fn has_ended(&mut self, member: usize) -> Result<bool, Failure> {
        let scene = self.scene;
        let running = &mut self.members[member];
        match running.ended() {
            Ok(None) => Ok(false),
            Ok(Some(status)) if status.success() => {
                running.over = true;
                Ok(true)
            }
            Ok(Some(status)) => Err(gone(running, scene, status, "ended with an error after SIGTERM")),
            Err(error) => Err(unstarted(&running.name, &error)),
        }
    }

    /// Returns a member whose process ended unexpectedly, and the failure. Each such process is returned once.
    ///
    /// # Errors
    /// Returns an error if its history cannot be trimmed to whole lines.
    pub(super) fn find_gone(&mut self, ending: impl Fn(usize) -> bool) -> Result<Option<(usize, Failure)>, Failure> {
        let scene = self.scene;
        for (member, running) in self.members.iter_mut().enumerate() {
            if !ending(member)
                && let Some(status) = running.gone()
            {
                running.over = true;
                trim_history(&scene.history(&running.name, running.life))?;
                return Ok(Some((member, gone(running, scene, status, "ended unexpectedly"))));
            }
        }
        Ok(None)
    }

    /// Returns all lines of a member's standard error.
    pub(super) fn said(&self, member: usize) -> Vec<String> {
        self.members[member].said(self.scene)
    }

    /// Returns the last lines of a member's standard error.
    pub(super) fn last_words(&self, member: usize) -> Vec<String> {
        last_words(&self.members[member], self.scene)
    }

    /// Sends SIGTERM to all members and kills those that do not end in time. Returns the names of those that were
    /// killed.
    pub(super) fn end_all(&mut self, patience: Duration) -> Vec<String> {
        for member in 0..self.members.len() {
            if !self.members[member].over {
                // A process that has ended meanwhile needs no signal.
                let _ = self.end(member);
                let _ = self.resume(member);
            }
        }
        let until = Instant::now() + patience;
        let scene = self.scene;
        let mut killed = Vec::new();
        for running in self.members.iter_mut().filter(|running| !running.over) {
            if running.end_by(until) {
                if self.shim.is_some() {
                    clean_up(running.pid());
                }
                killed.push(running.name.clone());
                let _ = trim_history(&scene.history(&running.name, running.life));
            }
        }
        killed
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        self.end_all(GIVEN_UP);
    }
}

fn last_words(running: &ChildProcess, scene: &Scene) -> Vec<String> {
    let mut said = running.said(scene);
    said.split_off(said.len().saturating_sub(LAST_LINES))
}

fn gone(running: &ChildProcess, scene: &Scene, status: ExitStatus, how: &str) -> Failure {
    let (said, ChildProcess { name, life, .. }) = (last_words(running, scene), running);
    let remedy = remedy_of(said.iter().map(String::as_str)).unwrap_or("report this as a bug, with that directory");
    let what = format_args!("`{name}` {how} ({status}), in its life {life}: {}", said.join("; "));
    Failure::run(what, scene.path().display(), remedy)
}

fn unstarted(name: &str, error: &io::Error) -> Failure {
    let what = format_args!("cannot start, signal or end `{name}`");
    let remedy = "allow more processes and memory; `stentor doctor` says what this machine can do";
    Failure::system(what, error, PLACE, remedy)
}
