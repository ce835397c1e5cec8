//! The janitor: a small process that removes the socket of its parent after the parent has ended for any reason.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Script of a janitor that runs in `/bin/sh`. It waits for the end of its input, which the kernel closes when the
/// parent ends.
const SCRIPT: &str = r#"trap "" HUP INT TERM; read -r x; rm -f "$1" "${1%.sock}.ctl"; rmdir "$2" && rmdir "$3""#;
/// Extension of the caller's file beside a socket. This file has the socket's name, and is removed with the socket.
pub(crate) const BESIDE: &str = "ctl";
/// Path of the program that this process runs. The path stays valid after the program's file was replaced.
const SELF: &str = "/proc/self/exe";

/// The argument that makes this program a janitor.
static ARGUMENT: OnceLock<&str> = OnceLock::new();

/// Makes this program its own janitor. Each later janitor is this program, started with `argument` and three paths; the
/// program must then call [`clean_up`] with the paths. Without this call the janitor is `/bin/sh`, which small
/// container images lack. Only the first call has an effect.
pub fn become_janitor_by(argument: &'static str) {
    let _ = ARGUMENT.set(argument);
}

/// Waits until standard input ends. Then removes `socket` and the file of the same name with the extension `ctl`, and
/// the directories `cluster` and `directory` if they are empty. Before the call, the caller must make this process
/// ignore SIGHUP, SIGINT and SIGTERM.
pub fn clean_up(socket: &Path, cluster: &Path, directory: &Path) {
    let mut ignored = [0; 64];
    let mut input = io::stdin().lock();
    // A read error counts as the end of the input.
    while input.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
    // Errors are ignored: the files may be removed already, and the directories may be in use by other processes.
    let _ = fs::remove_file(socket);
    let _ = fs::remove_file(socket.with_extension(BESIDE));
    if fs::remove_dir(cluster).is_ok() {
        let _ = fs::remove_dir(directory);
    }
}

/// A child process in a separate process group, so that a signal to the parent's group does not end it.
#[derive(Debug)]
pub(crate) struct Janitor(Child);

impl Janitor {
    /// Starts a janitor. Returns `None` if the host has no program for it; the next process with the same id then
    /// cleans up.
    ///
    /// # Errors
    /// Returns the error of the operating system if it refuses another process.
    pub(crate) fn start(socket: &Path, cluster: &Path, directory: &Path) -> io::Result<Option<Self>> {
        let paths = [socket, cluster, directory];
        let own = ARGUMENT.get().map(|argument| (SELF, vec![OsStr::new(*argument)]));
        let shell = ("/bin/sh", ["-c", SCRIPT, "stentor-janitor"].map(OsStr::new).to_vec());
        Self::first_that_starts(own.into_iter().chain([shell]), paths)
    }

    fn first_that_starts<'a>(
        programs: impl Iterator<Item = (&'a str, Vec<&'a OsStr>)>,
        paths: [&Path; 3],
    ) -> io::Result<Option<Self>> {
        for (program, arguments) in programs {
            let mut command = Command::new(program);
            command.args(arguments).args(paths).current_dir("/").process_group(0);
            if program == SELF {
                command.arg0("stentor");
            }
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            match command.spawn() {
                Ok(child) => return Ok(Some(Janitor(child))),
                Err(error) if [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The janitor exits at once, because its input has ended. An error means that another part of the program has
        // reaped it.
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_program_there_is_no_janitor() {
        let path = Path::new("/nonexistent/x");
        let none = ["/nonexistent/sh", "/dev/null"].map(|program| (program, Vec::new()));
        assert!(Janitor::first_that_starts(none.into_iter(), [path; 3]).unwrap().is_none());
        let later = [("/nonexistent/sh", Vec::new()), ("/proc/self/exe", vec![OsStr::new("--list")])];
        assert!(Janitor::first_that_starts(later.into_iter(), [path; 3]).unwrap().is_some());
    }
}
