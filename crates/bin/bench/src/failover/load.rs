//! The load: a client that multicasts at a steady rate, to one group or to several, and records what it does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stentor::runtime::{
    Client, ClusterRuntime, FabricDiagnostics, GroupId, Housekeeper, MessageId, Recorder, SubmitError, WaitMode, now_ns,
};
use stentor_fabric::Backoff;
use stentor_fabric_sim::SimRng;
use stentor_support::Failure;
use stentor_support::live::{HistoryFile, Joined};

/// Bytes of a message.
pub(super) const PAYLOAD_BYTES: usize = 64;
/// Who is later than this does not make up for it.
const LATE: Duration = Duration::from_millis(20);
/// Longest sleep when nothing is to be sent.
const SLEEP: Duration = Duration::from_millis(5);
/// Messages in one round at most, if they follow each other.
const AT_ONCE: u32 = 64;

/// A client with its history.
pub(super) struct Load<F: FabricDiagnostics> {
    client: Client<F>,
    recorder: Recorder<HistoryFile>,
    path: PathBuf,
    backoff: Backoff,
    housekeeper: Housekeeper,
    rng: SimRng,
    groups: u64,
    /// Between two messages; `None`: they follow each other as long as there is room.
    interval: Option<Duration>,
    due: Instant,
    /// The message that is to be sent next, and whether it is in the history already.
    next: Option<(Vec<GroupId>, Vec<u8>, bool)>,
    /// The last one that was sent.
    sequence: Option<u64>,
    /// It may be killed at any time: what it multicasts must be in its history before.
    ahead: bool,
}

/// How a load goes.
pub(super) struct Pace {
    pub(super) seed: u64,
    /// Messages per second; `None`: as many as there is room for, to all groups, and nothing is recorded of what is written
    /// on their behalf.
    pub(super) rate: Option<u32>,
    pub(super) wait: WaitMode,
    pub(super) ahead: bool,
    pub(super) life: u32,
}

impl<F: FabricDiagnostics> Load<F> {
    pub(super) fn new(plan: &ClusterRuntime, joined: Joined<F>, path: &Path, pace: &Pace) -> Result<Self, Failure> {
        let me = plan.topology().client_process(joined.id);
        let recorder = HistoryFile::record(plan, me, path)?;
        let mut client = joined.client;
        if pace.rate.is_some() {
            client.record_operations();
        }
        Ok(Load {
            client,
            recorder: recorder.in_life(pace.life.into()),
            path: path.to_owned(),
            backoff: Backoff::new(pace.wait),
            housekeeper: Housekeeper::default(),
            rng: SimRng::new(pace.seed, u64::from(me.0)),
            groups: plan.topology().groups() as u64,
            interval: pace.rate.map(|rate| Duration::from_secs(1) / rate),
            due: Instant::now(),
            next: None,
            sequence: None,
            ahead: pace.ahead,
        })
    }

    pub(super) fn client(&self) -> &Client<F> {
        &self.client
    }

    /// Whether a message is in the history that is not sent.
    pub(super) fn owes(&self) -> bool {
        self.next.as_ref().is_some_and(|(.., recorded)| *recorded)
    }

    /// The last message that was sent.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence.unwrap_or(0)
    }

    pub(super) fn recorder(&mut self) -> &mut Recorder<HistoryFile> {
        &mut self.recorder
    }

    /// One round of the loop; with a message, if it is time and it is to `send`.
    pub(super) fn round(&mut self, send: bool) -> Result<(), Failure> {
        let now = Instant::now();
        let mut worked = self.client.step();
        if send {
            worked |= self.send_due(now)?;
        } else if self.owes() {
            worked |= self.send()?;
        }
        if self.housekeeper.is_due(worked) {
            worked |= self.client.housekeep();
        }
        let longest = if send { self.due.saturating_duration_since(now).min(SLEEP) } else { SLEEP };
        let slept = self.backoff.pause(self.client.fabric_mut(), worked, longest.max(Duration::from_micros(50)));
        self.housekeeper.note_sleep(slept.map_err(|error| {
            Failure::run(error, "bench failover", "`stentor doctor` says what this machine can do")
        })?);
        Ok(())
    }

    /// Sends what is to be sent by now.
    fn send_due(&mut self, now: Instant) -> Result<bool, Failure> {
        let Some(interval) = self.interval else {
            self.due = now + SLEEP;
            for sent in 0..AT_ONCE {
                if !self.send()? {
                    return Ok(sent > 0);
                }
            }
            return Ok(true);
        };
        if now < self.due || !self.send()? {
            return Ok(false);
        }
        self.due = (self.due + interval).max(now - LATE);
        Ok(true)
    }

    /// Sends a message, unless there is no room.
    fn send(&mut self) -> Result<bool, Failure> {
        let (to, payload, mut recorded) = match self.next.take() {
            Some(next) => next,
            None => self.draw(),
        };
        let t = now_ns();
        if let Some(last) = self.sequence.filter(|_| self.ahead && !recorded) {
            // The first message's number is not known before it is sent; afterwards each has the next one.
            let id = MessageId { client: self.client.id(), sequence: last + 1 };
            self.record(t, id, &to, &payload)?;
            recorded = true;
        }
        match self.client.submit(&to, &payload, true) {
            Ok(submitted) => {
                let id = submitted.id;
                assert!(!recorded || self.sequence.is_some_and(|last| last + 1 == id.sequence), "{id} is not the next");
                if !recorded {
                    self.record(t, id, &to, &payload)?;
                }
                self.sequence = Some(id.sequence);
                let operations = self.client.take_operations();
                let written = self.recorder.operations(now_ns(), &operations);
                written.map_err(|error| Failure::cannot_write(&self.path, &error))?;
                Ok(true)
            }
            Err(SubmitError::Busy { .. } | SubmitError::NotConnected { .. }) => {
                self.next = Some((to, payload, recorded));
                Ok(false)
            }
            Err(error) => Err(Failure::run(error, "bench failover", "report this as a bug")),
        }
    }

    fn record(&mut self, t: u64, id: MessageId, to: &[GroupId], payload: &[u8]) -> Result<(), Failure> {
        let written = self.recorder.multicast(t, id, to, payload);
        let flushed = if self.ahead { self.recorder.flush() } else { Ok(()) };
        written.and(flushed).map_err(|error| Failure::cannot_write(&self.path, &error))
    }

    /// Half of the messages go to one group.
    fn draw(&mut self) -> (Vec<GroupId>, Vec<u8>, bool) {
        let first = self.rng.below(self.groups);
        let mut to = vec![GroupId(first as u16)];
        if self.interval.is_none() {
            to = (0..self.groups as u16).map(GroupId).collect();
        } else if self.rng.below(2) == 1 && self.groups > 1 {
            to.push(GroupId(((first + 1 + self.rng.below(self.groups - 1)) % self.groups) as u16));
            to.sort_unstable();
        }
        let payload = (0..PAYLOAD_BYTES / 8).flat_map(|_| self.rng.word().to_le_bytes()).collect();
        (to, payload, false)
    }

    /// Writes what is left of the history.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.recorder.flush().map_err(|error| Failure::cannot_write(&self.path, &error))
    }
}
