//! What a process must know to start.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::getuid;
use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::message::MAX_NAME;

/// Configuration of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShmConfig {
    /// Where the control sockets are. Made if it is missing, with mode 0700, and removed with the last process; nothing
    /// else belongs there.
    pub directory: PathBuf,
    /// The cluster's name: letters, digits, `.`, `-`, `_`; at most 64 bytes.
    pub cluster: String,
    /// Of the cluster's configuration; equal at every process.
    pub fingerprint: u64,
    /// Of the protocols above; equal at every process.
    pub version: u16,
    /// This process.
    pub me: ProcessId,
    /// Its name, for people: same letters as the cluster's.
    pub name: String,
    /// Processes of the cluster, clients among them.
    pub processes: u16,
    /// Limit of all memory that this process registers, queues included, bytes.
    pub max_bytes: u64,
    /// Limit of the regions that this process registers.
    pub max_regions: u32,
    /// Limit of one message or write, bytes. A queue pair with receives takes about twice as much.
    pub message_bytes: u32,
    /// How long a SEND or WRITE_WITH_IMM waits for the peer to post a receive.
    pub rnr_timeout: Duration,
    /// Touch all memory while registering it, so that no page is missing later.
    pub populate: bool,
    /// Whether a process that is started again is refused by those who knew its last life: for protocols in which nobody may
    /// forget. Lives are told apart by their process ids.
    pub one_life: bool,
    /// Keep a `/bin/sh` that removes this process's socket when it is killed. Without it the next process of the cluster
    /// with the same id does.
    pub janitor: bool,
}

impl ShmConfig {
    /// A configuration with the default directory and limits: 4 GiB, 4096 regions, messages of 256 KiB.
    #[must_use]
    pub fn new(cluster: &str, me: ProcessId, name: &str, processes: u16) -> Self {
        ShmConfig {
            directory: default_directory(),
            cluster: cluster.to_owned(),
            fingerprint: 0,
            version: 1,
            me,
            name: name.to_owned(),
            processes,
            max_bytes: 4 << 30,
            max_regions: 4096,
            message_bytes: 256 << 10,
            rnr_timeout: Duration::from_secs(1),
            populate: false,
            one_life: false,
            janitor: true,
        }
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        for (what, name) in [("cluster", &self.cluster), ("process", &self.name)] {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.chars().all(plain) {
                return Err(StartError::Name { what, name: name.clone() });
            }
        }
        if self.me.0 >= self.processes {
            return Err(StartError::UnknownProcess { me: self.me, processes: self.processes });
        }
        if self.message_bytes == 0 || self.max_regions == 0 || self.max_regions > 1 << 20 {
            let (message_bytes, max_regions) = (self.message_bytes, self.max_regions);
            return Err(StartError::Limits { message_bytes, max_regions });
        }
        Ok(())
    }
}

/// `$XDG_RUNTIME_DIR/stentor`, or `/tmp/stentor-` and the user id where there is no runtime directory.
#[must_use]
pub fn default_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() && runtime.is_dir() => runtime.join("stentor"),
        _ => PathBuf::from(format!("/tmp/stentor-{}", getuid().as_raw())),
    }
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
    /// Limits out of range.
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
    #[error("{name} ({me}) of cluster {cluster} is running already, as pid {pid}; stop it or use another id")]
    AlreadyRunning {
        /// The name.
        name: String,
        /// The id.
        me: ProcessId,
        /// The cluster.
        cluster: String,
        /// The other process.
        pid: i32,
    },
    /// The janitor could not be started.
    #[error("cannot start /bin/sh to clean up after this process: {0}; switch the janitor off to do without")]
    Janitor(std::io::Error),
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}
