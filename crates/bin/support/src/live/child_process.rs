//! Child processes that run this same program: members of a command's cluster, and helpers that end with their standard
//! input.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::RunDirectory;
use crate::Failure;

/// Pause between two checks of whether a process has ended.
const LOOK: Duration = Duration::from_millis(2);

/// Destination of a child process's output.
#[derive(Clone, Copy)]
pub enum ProcessOutput<'a> {
    /// Pipes, which the parent reads.
    Pipes,
    /// Files of this directory: `NAME.LIFE.out` and `NAME.LIFE.err`.
    Files(&'a RunDirectory),
}

/// A child process in one of its lives. This process holds the child's standard input open. The input therefore ends,
/// and with it the child, when this process ends for whatever reason.
pub struct ChildProcess {
    /// Name of the process in the configuration.
    pub name: String,
    /// Number of the life, from 1.
    pub life: u32,
    started: Instant,
    child: Child,
    /// `true` once the process was killed or has ended as intended.
    pub over: bool,
}

/// Returns a command that runs this same program.
///
/// # Errors
/// Returns an error if the path of this program is unknown.
pub fn this_program() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

impl ChildProcess {
    /// Starts a process in its own process group. Signals from the terminal do not reach it, so that its parent can end
    /// it in order.
    ///
    /// # Errors
    /// Returns an error if an output file cannot be created, or if the system cannot start the process. `unstarted`
    /// converts the error of the system into a failure.
    pub fn start(
        (name, life): (&str, u32),
        mut command: Command,
        output: ProcessOutput<'_>,
        unstarted: impl FnOnce(&io::Error) -> Failure,
    ) -> Result<Self, Failure> {
        let stream = |extension: &str| match output {
            ProcessOutput::Pipes => Ok(Stdio::piped()),
            ProcessOutput::Files(directory) => {
                let path = directory.file(name, life, extension);
                File::create(&path).map(Stdio::from).map_err(|error| Failure::cannot_write(&path, &error))
            }
        };
        command.stdin(Stdio::piped()).stdout(stream("out")?).stderr(stream("err")?);
        let started = Instant::now();
        let child = command.process_group(0).spawn().map_err(|error| unstarted(&error))?;
        Ok(ChildProcess { name: name.to_owned(), life, started, child, over: false })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the time since the process was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Kills the process with SIGKILL and waits until it has exited.
    ///
    /// # Errors
    /// Returns an error if the signal cannot be sent, or the wait fails.
    pub fn kill(&mut self) -> io::Result<()> {
        self.over = true;
        self.child.kill().and_then(|()| self.child.wait()).map(drop)
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// Returns an error if the signal cannot be sent.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // The pid cannot be reused before the parent has waited for its child.
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Closes the standard input of the process, which asks it to end.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Returns the exit status, or `None` if the process still runs.
    ///
    /// # Errors
    /// Returns an error if the system cannot report the status.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns the exit status if the process ended unexpectedly.
    pub fn gone(&mut self) -> Option<ExitStatus> {
        if self.over { None } else { self.child.try_wait().ok().flatten() }
    }

    /// Waits until the process ends, and kills it at `until`. Returns whether it had to be killed.
    pub fn end_by(&mut self, until: Instant) -> bool {
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let killed = matches!(self.child.try_wait(), Ok(None));
        // Has no effect on a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.over = true;
        killed
    }

    /// Returns what the process wrote to standard output, if that is a pipe. The output is returned only once.
    pub fn take_output(&mut self) -> String {
        read(self.child.stdout.take())
    }

    /// Returns what the process wrote to standard error, if that is a pipe. The output is returned only once.
    pub fn take_errors(&mut self) -> String {
        read(self.child.stderr.take())
    }

    /// Returns the lines of the process's standard error, if that was written to a file of this directory.
    pub fn said(&self, directory: &RunDirectory) -> Vec<String> {
        let path: PathBuf = directory.file(&self.name, self.life, "err");
        let said = std::fs::read_to_string(path).unwrap_or_default();
        said.lines().map(|line| line.trim().to_owned()).collect()
    }
}

/// Reads the remaining output of an ended process from a pipe.
fn read(pipe: Option<impl io::Read>) -> String {
    let mut bytes = Vec::new();
    // A pipe that cannot be read counts as empty.
    let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
