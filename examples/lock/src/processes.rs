//! The child processes of a demonstration. The demonstration kills no other processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Maximum time that a process may take to end after its standard input is closed.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);

/// The program and the directory of the processes of one demonstration.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    program: PathBuf,
    directory: PathBuf,
}

impl Starter {
    /// Returns a starter for processes of the cluster that `cluster.toml` in this directory describes.
    pub(crate) fn new(directory: &Path) -> Result<Starter> {
        let program =
            std::env::current_exe().context("cannot find the path of this program, which starts the processes")?;
        Ok(Starter { program, directory: directory.to_owned() })
    }

    /// Starts a process with these arguments. Calls `each` for each line that it prints.
    pub(crate) fn start(&self, words: &[&str], each: impl Fn(&str) + Send + 'static) -> Result<Running> {
        let config = self.directory.join("cluster.toml");
        let mut command = Command::new(&self.program);
        command.args(words).arg("--config").arg(config).arg("--sockets").arg(&self.directory);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot start {}", self.program.display()))?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let output = child.stdout.take().context("the process has no output pipe")?;
        thread::spawn({
            let lines = Arc::clone(&lines);
            move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    each(&line);
                    lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            }
        });
        Ok(Running { child, lines, name: words.join(" ") })
    }
}

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    name: String,
}

impl Running {
    /// Returns the number of printed lines that begin with `begin`.
    pub(crate) fn count(&self, begin: &str) -> usize {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.starts_with(begin)).count()
    }

    /// Returns the numbers at the ends of the printed lines that begin with `begin`, in order.
    pub(crate) fn numbers(&self, begin: &str) -> Vec<u64> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = lines.iter().filter(|line| line.starts_with(begin)).filter_map(|line| line.rsplit(' ').next());
        ends.filter_map(|number| number.parse().ok()).collect()
    }

    /// Stops the process with SIGSTOP, or continues it with SIGCONT.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("the process has no valid id")?;
        kill_process(id, signal).with_context(|| format!("cannot send a signal to `{}`", self.name))
    }

    /// Closes the input of the process, which ends the process, and waits for it.
    pub(crate) fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let since = Instant::now();
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None if since.elapsed() > PATIENCE => bail!("`{}` does not end within {PATIENCE:?}", self.name),
                None => thread::sleep(LOOK),
            }
        };
        if !status.success() {
            bail!("`{}` ended with {status}; its error message is above", self.name);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A kill has no effect on a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
