//! The janitor: a tiny process that outlives this one, by whatever cause it ends, to remove its socket.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Waits for the end of its input, which the system closes when the process that holds it ends.
const SCRIPT: &str = r#"trap "" HUP INT TERM; read -r x; rm -f "$1" "${1%.sock}.ctl"; rmdir "$2" && rmdir "$3""#;
/// What stands beside a socket and goes with it.
pub(crate) const BESIDE: &str = "ctl";
/// This program, also after its file was replaced.
const SELF: &str = "/proc/self/exe";

/// The argument by which this program becomes a janitor.
static ARGUMENT: OnceLock<&str> = OnceLock::new();

/// Makes this program its own janitor: processes that start from here on run it again, with `argument` and three paths,
/// and it must call [`clean_up`] with those. Otherwise the janitor is `/bin/sh`, which small images do not have. The first
/// call counts.
pub fn become_janitor_by(argument: &'static str) {
    let _ = ARGUMENT.set(argument);
}

/// Waits until standard input ends, then removes a socket, what stands beside it, and its directories if they are empty.
/// Whoever calls it must have seen to it that SIGHUP, SIGINT and SIGTERM do not end this process.
pub fn clean_up(socket: &Path, cluster: &Path, directory: &Path) {
    let mut ignored = [0; 64];
    let mut input = io::stdin().lock();
    // What cannot be read has ended, too.
    while input.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
    // What is gone already, or still used by others, stays as it is.
    let _ = fs::remove_file(socket);
    let _ = fs::remove_file(socket.with_extension(BESIDE));
    if fs::remove_dir(cluster).is_ok() {
        let _ = fs::remove_dir(directory);
    }
}

/// A child in a process group of its own, so that a signal to ours does not end it.
#[derive(Debug)]
pub(crate) struct Janitor(Child);

impl Janitor {
    /// `None` where there is no program that could be one: then the next process with the same id cleans up.
    ///
    /// # Errors
    /// When the system refuses another process.
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
        // It ends at once now. If someone else reaped it there is nothing left to do.
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_program_does_without_a_janitor() {
        let path = Path::new("/nonexistent/x");
        let none = ["/nonexistent/sh", "/dev/null"].map(|program| (program, Vec::new()));
        assert!(Janitor::first_that_starts(none.into_iter(), [path; 3]).unwrap().is_none());
        let later = [("/nonexistent/sh", Vec::new()), ("/proc/self/exe", vec![OsStr::new("--list")])];
        assert!(Janitor::first_that_starts(later.into_iter(), [path; 3]).unwrap().is_some());
    }
}
