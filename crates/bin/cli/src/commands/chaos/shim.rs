//! Wrong clocks: members are started with libfaketime, which reads the error of the process's wall clock from a file.
//! The monotonic clock is not changed.
//!
//! A member reads its wall clock at most once every 2 ms, and libfaketime reads the file each time, which takes 2 µs.
//! The offset is in the member's file, so a wrong clock stays wrong in the member's next process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stentor_support::Failure;

use super::PLACE;
use super::schedule::Skew;

/// The library, in its variant for programs with threads.
const LIBRARY: &str = "libfaketimeMT.so.1";
/// Directories in which distributions install the library, besides the directory of the architecture.
const FOLDERS: [&str; 3] = ["/usr/lib64/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime"];
/// Files that libfaketime shares between the processes of one session, and that remain when one is killed.
const LEFT_BEHIND: [&str; 2] = ["/dev/shm/faketime_shm_", "/dev/shm/sem.faketime_sem_"];

/// The clocks of all members.
#[derive(Debug)]
pub(super) struct Shim {
    library: PathBuf,
    directory: PathBuf,
}

impl Shim {
    /// Finds the library.
    ///
    /// # Errors
    /// Returns an error if it is not installed.
    pub(super) fn find(directory: &Path) -> Result<Self, Failure> {
        let triplet = format!("/usr/lib/{}-linux-gnu/faketime", std::env::consts::ARCH);
        let mut found = [triplet.as_str()].into_iter().chain(FOLDERS).map(|folder| Path::new(folder).join(LIBRARY));
        let library = found.find(|path| path.is_file()).ok_or_else(|| missing(&triplet))?;
        Ok(Shim { library, directory: directory.to_owned() })
    }

    /// Makes a command run with the clock of a member.
    ///
    /// # Errors
    /// Returns an error if the file of the clock cannot be created.
    pub(super) fn preload(&self, name: &str, command: &mut Command) -> Result<(), Failure> {
        let file = self.file(name);
        if !file.exists() {
            self.write(name, "+0")?;
        }
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Ok(())
    }

    /// Sets a member's clock; `None` sets it to the right time.
    ///
    /// # Errors
    /// Returns an error if the file of the clock cannot be written.
    pub(super) fn set(&self, name: &str, skew: Option<Skew>) -> Result<(), Failure> {
        self.write(name, &text(skew.unwrap_or(Skew { ahead_ms: 0, rate_ppm: 0 })))
    }

    /// Replaces the file atomically, because it may be read at any time.
    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let (file, new) = (self.file(name), self.directory.join(format!("{name}.clock.new")));
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &file));
        written.map_err(|error| Failure::cannot_write(&file, &error))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.clock"))
    }
}

/// Removes the files that the library has left behind for a process that has ended.
pub(super) fn clean_up(pid: u32) {
    for left in LEFT_BEHIND {
        // A process that ended in order has left nothing.
        let _ = fs::remove_file(format!("{left}{pid}"));
    }
}

/// Returns a skew in the format of libfaketime. The text always names a rate, because the library otherwise keeps the
/// last one.
fn text(Skew { ahead_ms, rate_ppm }: Skew) -> String {
    format!("{:+.3} x{:.6}", ahead_ms as f64 / 1000.0, 1.0 + rate_ppm as f64 / 1e6)
}

fn missing(folder: &str) -> Failure {
    let what = format_args!("no `{LIBRARY}` in {folder} or {}: the fault `clock` needs it", FOLDERS.join(", "));
    let remedy =
        "install the Debian package `libfaketime` (apt-get install libfaketime), or leave `clock` out of --faults";
    Failure::usage(what, PLACE, remedy)
}

#[cfg(test)]
mod tests {
    use stentor_testutil::TempDir;

    use super::*;

    #[test]
    fn skews_are_written_as_the_library_reads_them() {
        assert_eq!(text(Skew { ahead_ms: 3_600_000, rate_ppm: 0 }), "+3600.000 x1.000000");
        assert_eq!(text(Skew { ahead_ms: -62, rate_ppm: 0 }), "-0.062 x1.000000");
        assert_eq!(text(Skew { ahead_ms: 0, rate_ppm: -500 }), "+0.000 x0.999500");
    }

    #[test]
    fn a_corrected_clock_has_the_right_rate_again() {
        let directory = TempDir::new();
        let shim = Shim { library: PathBuf::new(), directory: directory.to_path_buf() };
        shim.set("g1.1", Some(Skew { ahead_ms: 0, rate_ppm: 2000 })).expect("the clock's file is written");
        shim.set("g1.1", None).expect("the clock's file is written");
        let text = fs::read_to_string(shim.file("g1.1"));
        assert_eq!(
            text.expect("the clock's file is readable"),
            "+0.000 x1.000000",
            "the library keeps a rate that no text replaces"
        );
    }

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        let failure = missing("/usr/lib/none/faketime");
        assert!(failure.what.contains("libfaketimeMT.so.1") && failure.what.contains("/usr/lib/none/faketime"));
    }
}
