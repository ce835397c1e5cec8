//! The owner's handle of an election, which implements [`Election`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use stentor_election::{Change, Election, HandOverError};
use stentor_fabric::ProcessId;
use tokio::sync::mpsc::UnboundedSender;

use crate::shared::Shared;
use crate::teller::Teller;
use crate::worker::{Command, Worker};
use crate::{ConfigError, Status, ZookeeperConfig};

/// The election of one group at one of its members, by ZooKeeper.
///
/// Polling never blocks. The owner must keep polling: an election that is not polled for a session timeout leaves the
/// line. Dropping the handle closes the session, so that the next candidate in line leads at once.
#[derive(Debug)]
pub struct ZookeeperElection {
    me: ProcessId,
    members: Vec<ProcessId>,
    changes: Receiver<Change>,
    commands: UnboundedSender<Command>,
    shared: Arc<Shared>,
    leading: bool,
    thread: Option<JoinHandle<()>>,
}

impl ZookeeperElection {
    /// Starts the election's thread. The thread retries until servers are available; [`status`](Self::status) reports
    /// its progress.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn start(config: ZookeeperConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let (sender, changes) = channel();
        let (commands, receiver) = tokio::sync::mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let (me, members) = (config.me, config.members.clone());
        let worker = Worker::new(config, Teller::new(me, sender), receiver, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name(format!("election-{me}")).spawn(move || worker.run());
        let thread = thread.map_err(|error| ConfigError::Thread { why: error.to_string() })?;
        Ok(ZookeeperElection { me, members, changes, commands, shared, leading: false, thread: Some(thread) })
    }

    /// Returns the present status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status(|status| status.clone())
    }

    /// Sets whether this process is willing to lead. Initially it is willing. A process that is not willing is not in
    /// the line. Callers make a process unwilling while it catches up, and before it is stopped.
    pub fn stand(&self, stands: bool) {
        self.command(Command::Stand(stands));
    }

    /// Sends a command to the thread. The thread ends only after `Command::Stop`, so it receives every command before
    /// that.
    fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

impl Election for ZookeeperElection {
    /// `now` is ignored, because the ensemble has clocks of its own.
    fn poll(&mut self, _now: Duration) -> Option<Change> {
        self.shared.polls.fetch_add(1, Ordering::Relaxed);
        let change = self.changes.try_recv().ok()?;
        self.leading = matches!(change, Change::Leader { process, .. } if process == self.me);
        Some(change)
    }

    /// Makes the leader leave the line and name `to` as the preferred successor. `to` must have been in the line when
    /// the line was last read. If `to` has left meanwhile, the next process in line leads.
    fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError> {
        if !self.leading {
            return Err(HandOverError::NotLeader);
        }
        if !self.members.contains(&to) {
            return Err(HandOverError::NotAMember { process: to });
        }
        if to == self.me {
            return Ok(());
        }
        if !self.shared.status(|status| status.line.contains(&to)) {
            return Err(HandOverError::NotReady { process: to });
        }
        self.command(Command::HandOver(to));
        Ok(())
    }

    fn witness(&mut self, epoch: u64, process: ProcessId) {
        self.command(Command::Witness(epoch, process));
    }
}

impl Drop for ZookeeperElection {
    fn drop(&mut self) {
        self.command(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // The thread catches the client's panics. If it panics itself, no work is left to clean up.
            let _ = thread.join();
        }
    }
}
