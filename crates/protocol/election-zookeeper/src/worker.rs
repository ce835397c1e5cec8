//! The election's thread: runs one session after the other with a bounded back-off, whatever the client or the servers
//! do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_fabric::ProcessId;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Client, SessionState};

use crate::diagnose::diagnose;
use crate::session::Session;
use crate::shared::Shared;
use crate::teller::Teller;
use crate::{Status, ZookeeperConfig};

/// Pause after the first failure. Each further pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for a session to close before the next one is opened or the thread ends.
const GOODBYE: Duration = Duration::from_millis(500);

/// A command of the owner.
#[derive(Debug)]
pub(crate) enum Command {
    HandOver(ProcessId),
    Witness(u64, ProcessId),
    Stand(bool),
    Stop,
}

/// Pauses that double up to a bound.
#[derive(Debug)]
pub(crate) struct Pause(Duration);

impl Pause {
    pub(crate) fn new() -> Self {
        Pause(FIRST_PAUSE)
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

/// State that outlives a session.
pub(crate) struct Worker {
    pub config: ZookeeperConfig,
    pub teller: Teller,
    pub commands: UnboundedReceiver<Command>,
    pub shared: Arc<Shared>,
    pub stands: bool,
    pub stopped: bool,
    polls: u64,
    polled_at: Option<Instant>,
}

impl Worker {
    pub(crate) fn new(
        config: ZookeeperConfig,
        mut teller: Teller,
        commands: UnboundedReceiver<Command>,
        shared: Arc<Shared>,
    ) -> Self {
        teller.pending();
        Worker { config, teller, commands, shared, stands: true, stopped: false, polls: 0, polled_at: None }
    }

    /// Runs until `Command::Stop`. If the client library panics on a server's data, the session ends as after any other
    /// failure.
    pub(crate) fn run(mut self) {
        while !self.stopped {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    self.report(format!("no runtime for the ZooKeeper client: {error}"));
                    std::thread::sleep(LONGEST_PAUSE);
                    continue;
                }
            };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| runtime.block_on(self.serve()))) {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned();
                self.shared.status(|status| status.panics += 1);
                self.report(format!(
                    "the ZooKeeper client panicked on data from {} ({text}): is it a ZooKeeper server?",
                    self.config.servers.join(" or ")
                ));
                self.teller.pending();
                std::thread::sleep(LONGEST_PAUSE);
            }
        }
        self.teller.pending();
    }

    async fn serve(&mut self) {
        let mut pause = Pause::new();
        while !self.stopped {
            let begun = Instant::now();
            match self.connect().await {
                Ok(client) => {
                    let end = Session::new(&client, self).serve().await;
                    self.teller.pending();
                    if let Some(error) = end {
                        self.report(error);
                    }
                    goodbye(client).await;
                }
                Err(error) => self.report(error),
            }
            if begun.elapsed() > self.config.session_timeout {
                pause = Pause::new();
            }
            let until = Instant::now() + pause.next();
            while !self.stopped && Instant::now() < until {
                tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    command = self.commands.recv() => self.note(command.as_ref()),
                }
            }
        }
    }

    /// Establishes a session, or returns why that failed.
    async fn connect(&mut self) -> Result<Client, String> {
        let servers = self.config.servers.join(",");
        let session = self.config.session_timeout;
        // The client must fail eagerly, because this thread decides the pauses between attempts.
        let connector = Client::connector().with_session_timeout(session).with_fail_eagerly();
        let attempt = timeout(session + LONGEST_PAUSE, connector.connect(&servers));
        tokio::pin!(attempt);
        let result = loop {
            tokio::select! {
                result = &mut attempt => break result,
                command = self.commands.recv() => {
                    self.note(command.as_ref());
                    if self.stopped {
                        return Err("stopped".into());
                    }
                }
            }
        };
        match result {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(diagnose(&self.config.servers, &error.to_string()).await),
            Err(_) => Err(diagnose(&self.config.servers, "no session in time").await),
        }
    }

    /// Handles a command as far as that needs no session. Ignores a hand-over, because without a session this process
    /// does not lead.
    pub(crate) fn note(&mut self, command: Option<&Command>) {
        match command {
            Some(Command::HandOver(_)) => {}
            Some(&Command::Witness(epoch, process)) => self.teller.witness(epoch, process),
            Some(&Command::Stand(stands)) => self.stands = stands,
            Some(Command::Stop) | None => self.stopped = true,
        }
    }

    pub(crate) fn report(&self, error: String) {
        self.shared.status(|status| {
            status.connected = false;
            status.error = Some(error);
        });
    }

    pub(crate) fn status(&self, change: impl FnOnce(&mut Status)) {
        self.shared.status(change);
    }

    /// Returns whether the owner still polls. Before its first poll it has unlimited time.
    pub(crate) fn owner_polls(&mut self, session: Duration) -> bool {
        let polls = self.shared.polls.load(Ordering::Relaxed);
        if polls != self.polls || self.polled_at.is_none() {
            self.polls = polls;
            self.polled_at = Some(Instant::now());
        }
        self.polls == 0 || self.polled_at.is_some_and(|at| at.elapsed() < session)
    }
}

/// Closes a session and waits until the server has confirmed it, so that the node is removed. A terminated session
/// confirms nothing.
async fn goodbye(client: Client) {
    if client.state().is_terminated() {
        return;
    }
    let mut state = client.state_watcher();
    drop(client);
    let closed = async { while !matches!(state.changed().await, SessionState::Closed | SessionState::Expired) {} };
    let _ = timeout(GOODBYE, closed).await;
    // Yield once, so that the client can send what it has written.
    sleep(Duration::ZERO).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut pause = Pause::new();
        let pauses: Vec<_> = std::iter::repeat_with(|| pause.next().as_millis()).take(9).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
    }
}
