//! The child processes of a demonstration. The demonstration kills no other processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

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

    /// Starts a process with these arguments.
    pub(crate) fn start(&self, words: &[&str]) -> Result<Running> {
        let config = self.directory.join("cluster.toml");
        let mut command = Command::new(&self.program);
        command.args(words).arg("--config").arg(config).arg("--sockets").arg(&self.directory);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot start {}", self.program.display()))?;
        let last = Arc::new(Mutex::new(String::new()));
        let output = child.stdout.take().context("the process has no output pipe")?;
        let reader = thread::spawn({
            let last = Arc::clone(&last);
            move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
                }
            }
        });
        Ok(Running { child, last, reader: Some(reader), name: words.join(" ") })
    }
}

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    last: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    name: String,
}

impl Running {
    /// Returns the last line that the process has printed.
    pub(crate) fn last_line(&self) -> String {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Closes the standard input of the process and waits until the process ends. A node ends when its input is closed.
    /// Returns the last line that the process printed.
    pub(crate) fn end(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let since = Instant::now();
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None if since.elapsed() > PATIENCE => bail!("`{}` does not end within {PATIENCE:?}", self.name),
                None => thread::sleep(LOOK),
            }
        };
        if let Some(reader) = self.reader.take() {
            // The last line is stored when the reader thread has ended. A thread that panicked has stored the lines
            // until then.
            let _ = reader.join();
        }
        if !status.success() {
            bail!("`{}` ended with {status}; its error message is above", self.name);
        }
        Ok(self.last_line())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A kill has no effect on a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
