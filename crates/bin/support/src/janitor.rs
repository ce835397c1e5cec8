//! Removes a demonstration's directory when the demonstration is killed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Failure;

/// The command that cleans up, as the fabric calls it.
pub const JANITOR: &str = "janitor";

/// This program, run again, in a process group of its own: it outlives this process.
pub struct Janitor(Child);

impl Janitor {
    /// Starts the process that removes `path` unless it is dismissed.
    pub fn start(path: &Path) -> Result<Self, Failure> {
        let started = std::env::current_exe().and_then(|program| {
            let mut command = Command::new(program);
            command.arg0("stentor").args([JANITOR, "--tree"]).arg(path).current_dir("/").process_group(0);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        });
        started.map(Janitor).map_err(|error| {
            let what = "cannot start a process that cleans up after one that is killed";
            Failure::system(what, &error, "this host", "allow more processes (ulimit -u)")
        })
    }

    /// There is nothing to clean up.
    pub fn dismiss(mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            // If it is gone there is nobody to dismiss.
            let _ = input.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}
