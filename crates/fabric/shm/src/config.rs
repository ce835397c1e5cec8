//! What a process must know to start.

use std::path::PathBuf;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_host::{SeatConfig, Source, StartError, default_directory};

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
    /// forget. Each start is another life.
    pub one_life: bool,
    /// Keep a small process that removes this process's socket when it is killed: this program, if it
    /// [says so](stentor_host::become_janitor_by), or `/bin/sh`. Without it, or where neither is there, the next process of the
    /// cluster with the same id does.
    pub janitor: bool,
    /// From what this process was started. With it no second process of its name starts from the same file, whatever its
    /// directory, and [`Running`](stentor_host::Running) finds it.
    pub source: Option<Source>,
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
            source: None,
        }
    }

    /// The seat that the process takes.
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
