//! The janitor: a tiny process that outlives this one, by whatever cause it ends, to remove its socket.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, which the system closes when the process that holds it ends.
const SCRIPT: &str = r#"trap "" HUP INT TERM; read -r x; rm -f "$1" "${1%.sock}.ctl"; rmdir "$2" && rmdir "$3""#;

/// A child in a process group of its own, so that a signal to ours does not end it.
#[derive(Debug)]
pub(crate) struct Janitor(Child);

impl Janitor {
    pub(crate) fn start(socket: &Path, cluster: &Path, directory: &Path) -> io::Result<Self> {
        Command::new("/bin/sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg("stentor-janitor")
            .args([socket, cluster, directory])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map(Janitor)
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends at once now. If someone else reaped it there is nothing left to do.
        let _ = self.0.wait();
    }
}
