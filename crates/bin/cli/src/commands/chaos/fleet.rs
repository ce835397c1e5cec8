//! The members' processes, which run this same program, one life after the other.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use stentor::config::FabricKind;
use stentor_support::{Failure, remedy_of};

use super::PLACE;
use super::scene::{Scene, cut};
use crate::args;

/// The time after which a node that was asked to end is killed.
const GIVEN_UP: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);
/// The number of last lines of standard error that are shown when a process ends.
const LAST_LINES: usize = 4;

/// One running process. Its standard input is held open: it ends when that ends; and if this process is killed, so is
/// it.
struct Running {
    name: String,
    life: u32,
    child: Child,
    /// The process has ended as intended.
    over: bool,
}

/// All processes, indexed by member. None outlives this.
pub(super) struct Fleet<'a> {
    scene: &'a Scene,
    args: &'a args::Chaos,
    members: Vec<Running>,
}

impl<'a> Fleet<'a> {
    /// Starts every member.
    pub(super) fn start(scene: &'a Scene, args: &'a args::Chaos, names: &[String]) -> Result<Self, Failure> {
        let mut fleet = Fleet { scene, args, members: Vec::new() };
        for name in names {
            // Those that were started end when this does.
            let running = fleet.spawn(name, 1, true)?;
            fleet.members.push(running);
        }
        Ok(fleet)
    }

    fn spawn(&self, name: &str, life: u32, operations: bool) -> Result<Running, Failure> {
        let Fleet { scene, args, .. } = self;
        let program = std::env::current_exe().map_err(|error| unstarted(name, &error))?;
        let mut command = Command::new(program);
        command.args(["node", "--json", "--until-eof", "--follow", &std::process::id().to_string(), "--id", name]);
        command.args(["--wait", args.wait.to_possible_value().expect("none is skipped").get_name()]);
        command.arg("--config").arg(scene.config()).arg("--directory").arg(scene.sockets());
        command.arg("--history").arg(scene.history(name, life)).arg("--life").arg(life.to_string());
        if operations {
            command.arg("--operations");
        }
        if scene.plan().config().fabric() == FabricKind::Roce {
            command.args(["--faults", "--seed", &life.to_string()]);
        }
        let file = |what: &str| {
            let path = scene.says(name, life, what);
            File::create(&path).map_err(|error| Failure::cannot_write(&path, &error))
        };
        command.stdin(Stdio::piped()).stdout(file("out")?).stderr(file("err")?);
        // A signal from the terminal is for us: we end them in order.
        let child = command.process_group(0).spawn().map_err(|error| unstarted(name, &error))?;
        Ok(Running { name: name.to_owned(), life, child, over: false })
    }

    pub(super) fn pid(&self, member: usize) -> u32 {
        self.members[member].child.id()
    }

    pub(super) fn life(&self, member: usize) -> u32 {
        self.members[member].life
    }

    /// Starts a member that has no process.
    pub(super) fn restart(&mut self, member: usize, operations: bool) -> Result<(), Failure> {
        let Running { name, life, .. } = &self.members[member];
        let running = self.spawn(&name.clone(), life + 1, operations)?;
        self.members[member] = running;
        Ok(())
    }

    /// Kills a member with SIGKILL. Returns once it is gone.
    pub(super) fn kill(&mut self, member: usize) -> Result<(), Failure> {
        let running = &mut self.members[member];
        running.over = true;
        let killed = running.child.kill().and_then(|()| running.child.wait());
        killed.map_err(|error| unstarted(&running.name, &error))?;
        cut(&self.scene.history(&running.name, running.life))
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
        let Running { name, child, .. } = &self.members[member];
        // A child that was not waited for keeps its number.
        kill_process(Pid::from_child(child), signal).map_err(|error| unstarted(name, &error.into()))
    }

    /// Returns whether a member that was asked to end has ended.
    ///
    /// # Errors
    /// With another exit code than 0.
    pub(super) fn has_ended(&mut self, member: usize) -> Result<bool, Failure> {
        let scene = self.scene;
        let running = &mut self.members[member];
        match running.child.try_wait() {
            Ok(None) => Ok(false),
            Ok(Some(status)) if status.success() => {
                running.over = true;
                Ok(true)
            }
            Ok(Some(status)) => Err(running.gone(scene, status, "did not end as it should")),
            Err(error) => Err(unstarted(&running.name, &error)),
        }
    }

    /// Returns a member whose process ended unexpectedly, and how it ended. Each is found once.
    ///
    /// # Errors
    /// When its history cannot be made whole.
    pub(super) fn find_gone(&mut self, ending: impl Fn(usize) -> bool) -> Result<Option<(usize, Failure)>, Failure> {
        let scene = self.scene;
        for (member, running) in self.members.iter_mut().enumerate() {
            if !running.over
                && !ending(member)
                && let Ok(Some(status)) = running.child.try_wait()
            {
                running.over = true;
                cut(&scene.history(&running.name, running.life))?;
                return Ok(Some((member, running.gone(scene, status, "ended before it was told to"))));
            }
        }
        Ok(None)
    }

    /// Returns the last lines of a member's standard error.
    pub(super) fn last_words(&self, member: usize) -> Vec<String> {
        self.members[member].last_words(self.scene)
    }

    /// Sends SIGTERM to all members and kills those that do not end in time. Returns the names of those that were
    /// killed.
    pub(super) fn end_all(&mut self, patience: Duration) -> Vec<String> {
        for member in 0..self.members.len() {
            if !self.members[member].over {
                // Whoever has ended meanwhile needs no signal.
                let _ = self.end(member);
                let _ = self.resume(member);
            }
        }
        let until = Instant::now() + patience;
        let scene = self.scene;
        let mut killed = Vec::new();
        for running in self.members.iter_mut().filter(|running| !running.over) {
            while matches!(running.child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(LOOK);
            }
            if matches!(running.child.try_wait(), Ok(None)) {
                killed.push(running.name.clone());
                let _ = running.child.kill();
                let _ = running.child.wait();
                let _ = cut(&scene.history(&running.name, running.life));
            }
            running.over = true;
        }
        killed
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        self.end_all(GIVEN_UP);
    }
}

impl Running {
    fn last_words(&self, scene: &Scene) -> Vec<String> {
        let said = fs::read_to_string(scene.says(&self.name, self.life, "err")).unwrap_or_default();
        let said: Vec<_> = said.lines().map(|line| line.trim().to_owned()).collect();
        said[said.len().saturating_sub(LAST_LINES)..].to_vec()
    }

    fn gone(&self, scene: &Scene, status: ExitStatus, how: &str) -> Failure {
        let said = self.last_words(scene);
        let remedy = remedy_of(said.iter().map(String::as_str)).unwrap_or("report this as a bug, with that directory");
        let what = format_args!("`{}` {how} ({status}), in its life {}: {}", self.name, self.life, said.join("; "));
        Failure::run(what, scene.path().display(), remedy)
    }
}

fn unstarted(name: &str, error: &io::Error) -> Failure {
    let what = format_args!("cannot start, signal or end `{name}`");
    Failure::system(
        what,
        error,
        PLACE,
        "allow more processes and memory; `stentor doctor` says what this machine can do",
    )
}
