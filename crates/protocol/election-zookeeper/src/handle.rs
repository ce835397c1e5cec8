//! What the owner holds.

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
/// Polling never blocks. It must go on: an election that is not polled for a session's timeout leaves the line. Dropping
/// it closes the session, so that the next in line leads at once.
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
    /// Starts the thread. Servers that are not there yet are waited for; [`status`](Self::status) says how it goes.
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

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status(|status| status.clone())
    }

    /// Whether this process would lead: not while it catches up, not before it is stopped. Who does not stand is not in
    /// line. True at the start.
    pub fn stand(&self, stands: bool) {
        self.command(Command::Stand(stands));
    }

    /// The thread ends only when it is told to, so there is always somebody to tell.
    fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

impl Election for ZookeeperElection {
    /// The time is not looked at: the ensemble has clocks of its own.
    fn poll(&mut self, _now: Duration) -> Option<Change> {
        self.shared.polls.fetch_add(1, Ordering::Relaxed);
        let change = self.changes.try_recv().ok()?;
        self.leading = matches!(change, Change::Leader { process, .. } if process == self.me);
        Some(change)
    }

    /// The leader leaves its place and prefers the other, who stood in line when it was last read. If that one has left
    /// meanwhile, the next in line leads.
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
            // It catches the client's panics; if it panics itself there is nothing left to end.
            let _ = thread.join();
        }
    }
}
