//! One session: repeats rounds until the session ends.

mod lead;
mod place;
mod request;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use stentor_fabric::ProcessId;
use tokio::time::{Instant, sleep_until};
use zookeeper_client::{Client, EventType, SessionState, StateWatcher, WatchedEvent};

use crate::line::{Place, line};
use crate::worker::{Command, Pause, Worker};

/// Maximum number of consecutive rounds that are repeated without a pause because of `Fault::Again`.
const HASTE: u32 = 20;
/// First pause before the line of candidates is read again if its first candidate has not claimed leadership yet.
const GLANCE: Duration = Duration::from_millis(5);

/// Reason why a round was not completed.
#[derive(Debug)]
enum Fault {
    /// The round must be repeated. Another process changed a node during the round, or the round itself changed the
    /// line of candidates or began to watch the register.
    Again,
    /// A request failed. The next one may succeed.
    Failed(String),
    /// The session has ended.
    Ended(String),
}

/// The node of this process in this session.
#[derive(Debug)]
struct Mine {
    name: String,
    czxid: i64,
}

/// The one node that is watched.
struct Watch {
    path: String,
    changed: Pin<Box<dyn Future<Output = WatchedEvent> + Send>>,
}

pub(crate) struct Session<'a> {
    client: &'a Client,
    worker: &'a mut Worker,
    state: StateWatcher,
    /// Path of the group's node.
    path: String,
    /// Session timeout that the servers granted.
    timeout: Duration,
    mine: Option<Mine>,
    /// `true` if the node was verified to be this session's since the last reconnection.
    verified: bool,
    /// Epoch under which this process has claimed leadership.
    claimed: Option<u64>,
    hand_over: Option<ProcessId>,
    watch: Option<Watch>,
    glance: Duration,
    /// Start of the last round that was answered completely.
    heard_at: Instant,
}

impl<'a> Session<'a> {
    pub(crate) fn new(client: &'a Client, worker: &'a mut Worker) -> Self {
        let timeout = client.session_timeout();
        worker.status(|status| {
            status.session = client.session_id().0;
            status.session_timeout = timeout;
            status.sessions += 1;
        });
        Session {
            path: worker.config.path(),
            state: client.state_watcher(),
            client,
            worker,
            timeout,
            mine: None,
            verified: false,
            claimed: None,
            hand_over: None,
            watch: None,
            glance: GLANCE,
            heard_at: Instant::now(),
        }
    }

    /// Runs until the session ends. Returns the reason, unless the owner ended it.
    pub(crate) async fn serve(mut self) -> Option<String> {
        let (mut pause, mut hurried) = (Pause::new(), 0);
        while !self.worker.stopped {
            if self.heard_at.elapsed() > self.timeout {
                self.step_down();
            }
            if self.heard_at.elapsed() > self.timeout * 4 {
                return Some(format!("no answer for {:?}: opens a new session", self.heard_at.elapsed()));
            }
            let begun = Instant::now();
            let wait = match self.round().await {
                Ok(wait) => {
                    (self.heard_at, pause, hurried) = (begun, Pause::new(), 0);
                    self.worker.status(|status| status.connected = true);
                    wait
                }
                Err(Fault::Again) if hurried < HASTE => {
                    hurried += 1;
                    continue;
                }
                Err(Fault::Again) => pause.next(),
                Err(Fault::Failed(what)) => {
                    self.worker.report(format!("{what} (ZooKeeper {})", self.worker.config.servers.join(" or ")));
                    pause.next()
                }
                Err(Fault::Ended(what)) => return Some(what),
            };
            if let Err(end) = self.wait(wait).await {
                return Some(end);
            }
        }
        None
    }

    /// Reads the line and acts on it. Returns the time until the next round if nothing happens before.
    async fn round(&mut self) -> Result<Duration, Fault> {
        let children = self.list().await?;
        let (line, foreign) = line(children, &self.worker.config.members);
        let own = self.find_own(&line).await?;
        self.worker.status(|status| {
            status.rounds += 1;
            status.line = line.iter().map(|place| place.process).collect();
            status.error = foreign.first().map(|name| {
                format!("{}/{name} belongs to no member of this group: give each cluster a root of its own", self.path)
            });
        });
        match own {
            Some(0) => self.lead(&line).await,
            own => self.follow(&line, own).await,
        }
    }

    /// Watches the candidate directly before this one, and reports the first candidate in the line as the leader if it
    /// has claimed leadership.
    async fn follow(&mut self, line: &[Place], own: Option<usize>) -> Result<Duration, Fault> {
        if self.claimed.is_some() {
            self.step_down();
        }
        let Some(first) = line.first() else {
            self.worker.teller.pending();
            return Ok(self.refresh());
        };
        if let Some(own) = own {
            let before = format!("{}/{}", self.path, line[own - 1].name);
            self.watch(before).await?;
        }
        let path = format!("{}/{}", self.path, first.name);
        let epoch = self.claim_in(&path).await?;
        if epoch != 0 && self.worker.teller.acceptable(epoch, first.process) {
            self.worker.teller.leader(epoch, first.process);
            self.glance = GLANCE;
            return Ok(self.refresh());
        }
        self.worker.teller.pending();
        if epoch != 0 {
            self.raise(epoch).await?;
        }
        let glance = self.glance.min(self.refresh());
        self.glance = glance * 2;
        Ok(glance)
    }

    /// Returns the interval at which the line is read although no change is known.
    fn refresh(&self) -> Duration {
        self.timeout / 3
    }

    /// Ends this process's leadership from its own point of view.
    fn step_down(&mut self) {
        self.claimed = None;
        self.hand_over = None;
        self.worker.teller.pending();
    }

    /// Waits for a change, an event of the session or a command, for at most `at_most`. Returns an error if the session
    /// has ended.
    async fn wait(&mut self, at_most: Duration) -> Result<(), String> {
        let until = Instant::now() + at_most;
        loop {
            let changed = async {
                match &mut self.watch {
                    Some(watch) => watch.changed.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = changed => {
                    self.watch = None;
                    let node = event.event_type != EventType::Session;
                    self.worker.status(|status| status.wakes += u64::from(node));
                    return Ok(());
                }
                state = self.state.changed() => match state {
                    SessionState::SyncConnected => {
                        self.verified = false;
                        return Ok(());
                    }
                    SessionState::Disconnected | SessionState::ConnectedReadOnly => {
                        self.worker.report(format!("no connection to {}", self.worker.config.servers.join(" or ")));
                    }
                    ended => return Err(format!("the session has ended ({ended}): opens a new one")),
                },
                command = self.worker.commands.recv() => {
                    match command {
                        Some(Command::HandOver(to)) => self.hand_over = self.claimed.map(|_| to),
                        other => self.worker.note(other.as_ref()),
                    }
                    return Ok(());
                }
                () = sleep_until(until) => return Ok(()),
            }
        }
    }
}
