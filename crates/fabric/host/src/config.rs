//! The configuration of a seat (a process's socket, directories and locks), and the reasons why a process cannot take a
//! seat.

use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use rustix::process::getuid;
use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::about::{About, Source};
use crate::credentials::Named;

/// Maximum length of the name of a cluster or a process, in bytes.
pub const MAX_NAME: usize = 64;

/// The identity of a process and the location of its seat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeatConfig {
    /// Directory of the cluster directories. It is created with mode 0700 if it is missing, and removed with the last
    /// process.
    pub directory: PathBuf,
    /// Name of the cluster: ASCII letters, digits, `.`, `-`, `_`, not beginning with `.`; at most 64 bytes.
    pub cluster: String,
    /// Id of this process.
    pub me: ProcessId,
    /// Name of this process in messages and file names, under the same rules as `cluster`.
    pub name: String,
    /// `true` to keep a janitor: a small process that removes this process's socket when this process is killed. The
    /// janitor is this program, if it [supports that](crate::become_janitor_by), or `/bin/sh`. Without a janitor, the
    /// next process of the cluster with the same id removes the socket.
    pub janitor: bool,
    /// The configuration from which this process was started. With it, no second process with this name starts from the
    /// same file, even with another `directory`, and [`Running`](crate::Running) finds this process.
    pub source: Option<Source>,
}

impl SeatConfig {
    /// Checks that both names are valid in file names.
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

/// Returns `$XDG_RUNTIME_DIR/stentor`, or `/tmp/stentor-` and the user id if there is no runtime directory.
#[must_use]
pub fn default_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() && runtime.is_dir() => runtime.join("stentor"),
        _ => common_directory(),
    }
}

/// Returns the directory in `/tmp` that every process of this user searches unless it was given a directory.
pub(crate) fn common_directory() -> PathBuf {
    PathBuf::from(format!("/tmp/stentor-{}", getuid().as_raw()))
}

/// Returns the directories in which a process with this directory searches for other processes. They are this directory
/// and, if it is a default one, all default ones, so that processes with and without `XDG_RUNTIME_DIR` find each other.
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

/// Returns whether a process may use this directory by default.
pub(crate) fn is_usual(directory: &Path) -> bool {
    directory == default_directory() || directory == common_directory()
}

/// Returns an absolute path for `path`. If the path contains `..`, the part of it that exists is resolved, so that it
/// has neither `..` nor symbolic links. A path that kept the `..` would contain the working directory, too, and socket
/// paths have a limited length.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if !absolute.components().any(|part| part == Component::ParentDir) {
        return absolute;
    }
    // Only the part of the path that does not exist yet keeps its `..`.
    let there = absolute.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let short = there.and_then(|(part, real)| Some(real.join(absolute.strip_prefix(part).ok()?)));
    short.unwrap_or(absolute)
}

/// The reason why a process could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The name is not valid in file names.
    #[error("{what} name {name:?}: use 1 to 64 letters, digits, '.', '-' or '_', not beginning with '.'")]
    Name {
        /// The kind of name: `cluster` or `process`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The id is not in the cluster.
    #[error("{me} is not in a cluster of {processes} processes")]
    UnknownProcess {
        /// Id of the process.
        me: ProcessId,
        /// Number of processes in the cluster.
        processes: u16,
    },
    /// The limits of the process's fabric are out of range.
    #[error(
        "messages of {message_bytes} bytes, {max_regions} regions: both numbers must be above 0, and regions at most 1048576"
    )]
    Limits {
        /// Configured size of a message, in bytes.
        message_bytes: u32,
        /// Configured maximum number of regions.
        max_regions: u32,
    },
    /// Other users may enter the directory, or it cannot be created.
    #[error("{path}: {reason}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The problem, and the remedy.
        reason: String,
    },
    /// The path of the socket exceeds the maximum of 107 bytes.
    #[error("{path} is {bytes} bytes long; socket paths have at most 107: choose a shorter directory or name")]
    PathTooLong {
        /// Path of the socket.
        path: PathBuf,
        /// Length of the path, in bytes.
        bytes: usize,
    },
    /// A process with this id is running.
    #[error("{name} ({me}) of cluster {cluster} is running already, {}; stop it or use another id", as_pid(*pid))]
    AlreadyRunning {
        /// Name of the process.
        name: String,
        /// Id of the process.
        me: ProcessId,
        /// Name of the cluster.
        cluster: String,
        /// Pid of the other process; 0 if it is in a PID namespace that this process cannot see, or too busy to answer.
        pid: i32,
        /// Start parameters of that process, if it has published them.
        about: Option<Box<About>>,
    },
    /// Other processes of the cluster are starting, one after the other, and hold the lock of the directory.
    #[error("other processes of the cluster are starting, and have held {path} for {seconds} s; try again")]
    Starting {
        /// The locked directory.
        path: PathBuf,
        /// Time that this process has waited, in seconds.
        seconds: u64,
    },
    /// A process of another user holds this process's lock.
    #[error(
        "the lock of {name} (the abstract socket @{lock}) is held by {}, of user {uid}; stop that process, or run this one in \
         a network namespace of its own", Named(*pid)
    )]
    ForeignLock {
        /// Name of the process.
        name: String,
        /// Name of the abstract socket, as `ss -xl` shows it.
        lock: String,
        /// Pid of the holder; 0 if it is in a PID namespace that this process cannot see.
        pid: i32,
        /// User id of the holder.
        uid: u32,
    },
    /// The janitor could not be started.
    #[error("cannot start a process that cleans up after this one: {0}")]
    Janitor(#[source] std::io::Error),
    /// The operating system refused another operation.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// Returns a function that turns an error number into a [`StartError`] of the operation `what`.
pub fn system(what: impl Into<String>) -> impl FnOnce(Errno) -> StartError {
    let what = what.into();
    |error| StartError::System { what, source: error.into() }
}

fn as_pid(pid: i32) -> String {
    match pid {
        0 => "in another PID namespace or too busy to answer".to_owned(),
        pid => format!("as pid {pid}"),
    }
}
