//! Removes a demonstration's directory when the demonstration is killed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::failure::Failure;

/// A line means that there is nothing to do. The end of input without one means that whoever held the other end is gone;
/// the members end by that too, and until they have they may still make a file.
const SCRIPT: &str = r#"trap "" HUP INT TERM; read -r x && exit; for n in 1 2 3 4 5; do rm -rf "$1"; sleep 0.2; done"#;

/// A tiny process that outlives this one, in a process group of its own.
pub(in crate::commands) struct Janitor(Child);

impl Janitor {
    pub(in crate::commands) fn start(path: &Path) -> Result<Self, Failure> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg("stentor-demo-janitor").arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
        command.spawn().map(Janitor).map_err(|error| {
            let what = format_args!("cannot start /bin/sh to clean up after a demonstration that is killed: {error}");
            Failure::run(what, "stentor demo", "allow more processes; or name a directory with --keep")
        })
    }

    /// There is nothing to clean up.
    pub(in crate::commands) fn dismiss(mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            // If it is gone there is nobody to dismiss.
            let _ = input.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}
