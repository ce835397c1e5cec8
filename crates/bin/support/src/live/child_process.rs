//! Processes of this same program that a command starts: members of its cluster, and others that end with their standard input.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::RunDirectory;
use crate::Failure;

/// The pause between two looks at a process that is to end.
const LOOK: Duration = Duration::from_millis(2);

/// Where the output of a process goes.
#[derive(Clone, Copy)]
pub enum ProcessOutput<'a> {
    /// Into pipes, for whoever started it.
    Pipes,
    /// Into files of this directory: `NAME.LIFE.out` and `NAME.LIFE.err`.
    Files(&'a RunDirectory),
}

/// A process, in one of its lives. Its standard input is held open: it ends when that ends, by whatever cause.
pub struct ChildProcess {
    /// Its name.
    pub name: String,
    /// Which of its lives it is in.
    pub life: u32,
    child: Child,
    /// It was killed, or has ended as intended.
    pub over: bool,
}

/// This program.
///
/// # Errors
/// When its path is not known.
pub fn this_program() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

impl ChildProcess {
    /// Starts a process. A signal from the terminal does not reach it: who started it ends it in order.
    ///
    /// # Errors
    /// When the system refuses, which `unstarted` puts into words, or a file cannot be made.
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
        let child = command.process_group(0).spawn().map_err(|error| unstarted(&error))?;
        Ok(ChildProcess { name: name.to_owned(), life, child, over: false })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as `kill -9` does. Returns once it is gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.over = true;
        self.child.kill().and_then(|()| self.child.wait()).map(drop)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // A child that was not waited for keeps its number.
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Ends its standard input, which asks it to end.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// How it ended, if nobody wanted that.
    pub fn gone(&mut self) -> Option<ExitStatus> {
        if self.over { None } else { self.child.try_wait().ok().flatten() }
    }

    /// Waits until it ends, kills it at that time, and returns whether that was necessary.
    pub fn end_by(&mut self, until: Instant) -> bool {
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let killed = matches!(self.child.try_wait(), Ok(None));
        // Nothing happens if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.over = true;
        killed
    }

    /// What it wrote to its standard output, as far as that went into a pipe; once.
    pub fn take_output(&mut self) -> String {
        read(self.child.stdout.take())
    }

    /// The same of standard error.
    pub fn take_errors(&mut self) -> String {
        read(self.child.stderr.take())
    }

    /// The lines of its standard error, as far as that went into a file of this directory.
    pub fn said(&self, directory: &RunDirectory) -> Vec<String> {
        let path: PathBuf = directory.file(&self.name, self.life, "err");
        let said = std::fs::read_to_string(path).unwrap_or_default();
        said.lines().map(|line| line.trim().to_owned()).collect()
    }
}

/// What a process that ended left in a pipe.
fn read(pipe: Option<impl io::Read>) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is not there.
    let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
