//! Processes of this program that a demonstration starts. It ends no others.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How long a process may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);

/// How processes of one demonstration are started.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    program: PathBuf,
    directory: PathBuf,
}

impl Starter {
    /// Starts processes whose cluster is described in `cluster.toml` of this directory.
    pub(crate) fn new(directory: &Path) -> Result<Starter> {
        let program = std::env::current_exe().context("the path of this program, to start its processes")?;
        Ok(Starter { program, directory: directory.to_owned() })
    }

    /// Starts a process with these words.
    pub(crate) fn start(&self, words: &[&str]) -> Result<Running> {
        let config = self.directory.join("cluster.toml");
        let mut command = Command::new(&self.program);
        command.args(words).arg("--config").arg(config).arg("--sockets").arg(&self.directory);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot start {}", self.program.display()))?;
        let last = Arc::new(Mutex::new(String::new()));
        let output = child.stdout.take().context("the output of a process")?;
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

/// A process that runs. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    last: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    name: String,
}

impl Running {
    /// Returns the last line that it printed.
    pub(crate) fn last_line(&self) -> String {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends its input, which ends a node, and waits for it. Returns its last line.
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
            // Its last line is there when the reader has ended. A reader that panicked has read what there was.
            let _ = reader.join();
        }
        if !status.success() {
            bail!("`{}` ended with {status}; what it says is above", self.name);
        }
        Ok(self.last_line())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is none the worse.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
