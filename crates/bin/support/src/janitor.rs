//! A helper process that removes a temporary directory when the command that made it is killed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Failure;

/// Name of the subcommand that cleans up, as the fabric runs it.
pub const JANITOR: &str = "janitor";

/// This program, run again in its own process group so that it outlives this process.
pub struct Janitor(Child);

impl Janitor {
    /// Starts the helper process. The helper removes `path` when this process ends, unless it is dismissed before.
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

    /// Ends the helper without removing any file.
    pub fn dismiss(mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            // If the helper has already exited, there is nothing to dismiss.
            let _ = input.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}
