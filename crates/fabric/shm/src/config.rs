//! Configuration of a process.

use std::path::PathBuf;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_host::{SeatConfig, Source, StartError, default_directory};

/// Configuration of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShmConfig {
    /// Directory of the control sockets. It is created with mode 0700 if it is missing, and removed with the last
    /// process. It must contain nothing else.
    pub directory: PathBuf,
    /// Name of the cluster: ASCII letters, digits, `.`, `-`, `_`, not beginning with `.`; at most 64 bytes.
    pub cluster: String,
    /// Fingerprint of the cluster's configuration; equal at every process.
    pub fingerprint: u64,
    /// Version of the protocols on top of the fabric; equal at every process.
    pub version: u16,
    /// Id of this process.
    pub me: ProcessId,
    /// Name of this process in messages and file names, under the same rules as `cluster`.
    pub name: String,
    /// Number of processes of the cluster, clients included.
    pub processes: u16,
    /// Limit of all memory that this process registers, queues included, in bytes.
    pub max_bytes: u64,
    /// Limit of the number of regions that this process registers.
    pub max_regions: u32,
    /// Limit of one message or write, in bytes. The queue of a queue pair with receives occupies about twice as many.
    pub message_bytes: u32,
    /// Time that a SEND or WRITE_WITH_IMM waits for the peer to post a receive.
    pub rnr_timeout: Duration,
    /// `true` if registering touches all memory, so that no page fault occurs later.
    pub populate: bool,
    /// `true` if this process refuses a peer that has restarted since it first connected, for protocols in which no
    /// process may lose its memory.
    pub one_life: bool,
    /// `true` if a small helper process removes this process's socket when this process is killed. The helper is this
    /// program, if it [supports that](stentor_host::become_janitor_by), or `/bin/sh`. Otherwise the next process of the
    /// cluster with the same id removes the socket.
    pub janitor: bool,
    /// The file from which this process was started, if known. With it, no second process of this name starts from the
    /// same file, whatever its directory, and [`Running`](stentor_host::Running) finds this process.
    pub source: Option<Source>,
}

impl ShmConfig {
    /// Returns a configuration with the default directory and limits: 4 GiB, 4096 regions, messages of 256 KiB.
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
            source: None,
        }
    }

    /// Returns the seat that the process takes.
    pub(crate) fn seat(&self) -> SeatConfig {
        SeatConfig {
            directory: self.directory.clone(),
            cluster: self.cluster.clone(),
            me: self.me,
            name: self.name.clone(),
            janitor: self.janitor,
            source: self.source.clone(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        self.seat().check()?;
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
