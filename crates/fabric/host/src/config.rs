//! What a process must know to take its seat, and why it cannot.

use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use rustix::process::getuid;
use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::about::{About, Source};
use crate::credentials::Named;

/// The longest name of a cluster or a process, bytes.
pub const MAX_NAME: usize = 64;

/// Which seat a process takes, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeatConfig {
    /// Where the directories of clusters are. Made if it is missing, with mode 0700, and removed with the last process.
    pub directory: PathBuf,
    /// The cluster's name: letters, digits, `.`, `-`, `_`; at most 64 bytes.
    pub cluster: String,
    /// This process.
    pub me: ProcessId,
    /// Its name, for people: same letters as the cluster's.
    pub name: String,
    /// Keep a small process that removes this process's socket when it is killed: this program, if it
    /// [says so](crate::become_janitor_by), or `/bin/sh`. Without it, or where neither is there, the next process of the
    /// cluster with the same id does.
    pub janitor: bool,
    /// From what this process was started. With it no second process of its name starts from the same file, whatever its
    /// directory, and [`Running`](crate::Running) finds it.
    pub source: Option<Source>,
}

impl SeatConfig {
    /// Refuses names that file names should not have.
    ///
    /// # Errors
    /// [`StartError::Name`].
    pub fn check(&self) -> Result<(), StartError> {
        for (what, name) in [("cluster", &self.cluster), ("process", &self.name)] {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.chars().all(plain) {
                return Err(StartError::Name { what, name: name.clone() });
            }
        }
        Ok(())
    }
}

/// `$XDG_RUNTIME_DIR/stentor`, or `/tmp/stentor-` and the user id where there is no runtime directory.
#[must_use]
pub fn default_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() && runtime.is_dir() => runtime.join("stentor"),
        _ => common_directory(),
    }
}

/// The directory in `/tmp` in which every process of this user looks that was given no directory of its own.
pub(crate) fn common_directory() -> PathBuf {
    PathBuf::from(format!("/tmp/stentor-{}", getuid().as_raw()))
}

/// Where a process that was given this directory looks for others: there, and if it is a usual one in all usual ones, so that
/// processes with and without `XDG_RUNTIME_DIR` meet.
#[must_use]
pub fn meeting_directories(directory: &Path) -> Vec<PathBuf> {
    let mut all = vec![directory.to_owned()];
    if is_usual(directory) {
        for usual in [default_directory(), common_directory()] {
            if !all.contains(&usual) {
                all.push(usual);
            }
        }
    }
    all
}

/// Whether a directory is one that processes take by themselves.
pub(crate) fn is_usual(directory: &Path) -> bool {
    directory == default_directory() || directory == common_directory()
}

/// Returns a path that means the same from every working directory. What is there already is written without `..` and links: how long
/// the path of a socket may be does not depend on where its process runs.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if !absolute.components().any(|part| part == Component::ParentDir) {
        return absolute;
    }
    // Only what is not there yet is kept as it is.
    let there = absolute.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let short = there.and_then(|(part, real)| Some(real.join(absolute.strip_prefix(part).ok()?)));
    short.unwrap_or(absolute)
}

/// Why a process could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A name with letters that file names should not have.
    #[error("{what} name {name:?}: use 1 to 64 letters, digits, '.', '-' or '_', not beginning with '.'")]
    Name {
        /// Whose name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The id is not in the cluster.
    #[error("{me} is not in a cluster of {processes} processes")]
    UnknownProcess {
        /// The id.
        me: ProcessId,
        /// Processes of the cluster.
        processes: u16,
    },
    /// Limits of the process's fabric out of range.
    #[error("messages of {message_bytes} bytes, {max_regions} regions: both are above 0, regions up to 1048576")]
    Limits {
        /// What was configured.
        message_bytes: u32,
        /// What was configured.
        max_regions: u32,
    },
    /// A directory that others could get into, or that cannot be made.
    #[error("{path}: {reason}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// Socket addresses are short.
    #[error("{path} is {bytes} bytes long; socket paths have at most 107: choose a shorter directory or name")]
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// There is a process with this id.
    #[error("{name} ({me}) of cluster {cluster} is running already, {}; stop it or use another id", as_pid(*pid))]
    AlreadyRunning {
        /// The name.
        name: String,
        /// The id.
        me: ProcessId,
        /// The cluster.
        cluster: String,
        /// The other process; 0 if it is in a PID namespace that this process cannot see, or too busy to be asked.
        pid: i32,
        /// What that process was told, if it says so.
        about: Option<Box<About>>,
    },
    /// Other processes of the cluster are starting, one after the other.
    #[error("other processes of the cluster are starting, and have held {path} for {seconds} s; try again")]
    Starting {
        /// The directory that is locked.
        path: PathBuf,
        /// How long this process has waited.
        seconds: u64,
    },
    /// Another user holds the name of this process's lock.
    #[error(
        "the lock of {name} (the abstract socket @{lock}) is held by {}, of user {uid}; stop that process, or run this one in \
         a network namespace of its own", Named(*pid)
    )]
    ForeignLock {
        /// The process's name.
        name: String,
        /// The abstract socket, as `ss -xl` shows it.
        lock: String,
        /// Who holds it; 0 if it is in a PID namespace that this process cannot see.
        pid: i32,
        /// The user.
        uid: u32,
    },
    /// The janitor could not be started.
    #[error("cannot start a process that cleans up after this one: {0}")]
    Janitor(#[source] std::io::Error),
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Makes an error of what the system says.
pub fn system(what: impl Into<String>) -> impl FnOnce(Errno) -> StartError {
    let what = what.into();
    |error| StartError::System { what, source: error.into() }
}

fn as_pid(pid: i32) -> String {
    match pid {
        0 => "in another PID namespace or too busy to be asked".to_owned(),
        pid => format!("as pid {pid}"),
    }
}
