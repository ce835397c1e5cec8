//! The load: a client that multicasts at a steady rate or as fast as there is room, and records its messages.

use std::path::Path;
use std::time::{Duration, Instant};

use stentor::runtime::{Client, ClusterRuntime, FabricDiagnostics, GroupId, MessageId, Recorder, WaitMode, now_ns};
use stentor_fabric_sim::SimRng;
use stentor_support::Failure;
use stentor_support::live::{HistoryFile, Joined, RecordedClient};

/// Payload of a message, in bytes.
pub(super) const PAYLOAD_BYTES: usize = 64;
/// Longest delay that a sender makes up for. The sender skips messages that were due even earlier.
const LATE: Duration = Duration::from_millis(20);
/// Longest sleep when no message is due.
const SLEEP: Duration = Duration::from_millis(5);
/// Largest number of messages in one round of a load without a fixed rate.
const AT_ONCE: u32 = 64;

/// A client with its history.
pub(super) struct Load<F: FabricDiagnostics> {
    own: RecordedClient<F>,
    rng: SimRng,
    groups: u64,
    /// Time between two messages; `None` if each message follows the previous one as soon as there is room.
    interval: Option<Duration>,
    due: Instant,
    /// The next message, and whether it is in the history already.
    next: Option<(Vec<GroupId>, Vec<u8>, bool)>,
    /// Sequence of the last message that was sent.
    sequence: Option<u64>,
    /// `true` if the client may be killed at any time. Each message except the first must then be in the history before
    /// it is sent.
    ahead: bool,
}

/// The pace of a load.
pub(super) struct Pace {
    pub(super) seed: u64,
    /// Messages per second. With `None`, the client sends as many messages as there is room for, each to all groups,
    /// and remote writes are not recorded.
    pub(super) rate: Option<u32>,
    pub(super) wait: WaitMode,
    pub(super) ahead: bool,
    pub(super) life: u32,
}

impl<F: FabricDiagnostics> Load<F> {
    pub(super) fn new(plan: &ClusterRuntime, joined: Joined<F>, path: &Path, pace: &Pace) -> Result<Self, Failure> {
        let me = plan.topology().client_process(joined.id);
        let mut own = RecordedClient::new(plan, joined, path, pace.wait, "bench failover")?;
        own.recorder = own.recorder.in_life(pace.life.into());
        if pace.rate.is_some() {
            own.client.record_operations();
        }
        Ok(Load {
            own,
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
        &self.own.client
    }

    /// Returns whether the history records a message that was not sent yet.
    pub(super) fn owes(&self) -> bool {
        self.next.as_ref().is_some_and(|(.., recorded)| *recorded)
    }

    /// Returns the sequence of the last message that was sent, or 0.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence.unwrap_or(0)
    }

    pub(super) fn recorder(&mut self) -> &mut Recorder<HistoryFile> {
        &mut self.own.recorder
    }

    /// Runs one round of the loop. If `send` is set, the round sends new messages as they are due. Otherwise it sends
    /// only a message that the history already records.
    pub(super) fn round(&mut self, send: bool) -> Result<(), Failure> {
        let now = Instant::now();
        let mut worked = self.own.client.step();
        if send {
            worked |= self.send_due(now)?;
        } else if self.owes() {
            worked |= self.send()?;
        }
        let longest = if send { self.due.saturating_duration_since(now).min(SLEEP) } else { SLEEP };
        self.own.rest(worked, longest.max(Duration::from_micros(50)))
    }

    /// Sends a message if one is due or, without a fixed rate, up to [`AT_ONCE`] messages. Returns whether one was
    /// sent.
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

    /// Sends a message, unless there is no room. Returns whether it was sent.
    fn send(&mut self) -> Result<bool, Failure> {
        let (to, payload, mut recorded) = match self.next.take() {
            Some(next) => next,
            None => self.draw(),
        };
        if let Some(last) = self.sequence.filter(|_| self.ahead && !recorded) {
            // The sequence of the first message is known only after it was sent. Each later message has the next one.
            let id = MessageId { client: self.own.client.id(), sequence: last + 1 };
            let written = self.own.recorder.multicast(now_ns(), id, &to, &payload);
            written.map_err(|error| self.own.unwritten(&error))?;
            self.own.flush()?;
            recorded = true;
        }
        let Some(id) = self.own.submit(&to, &payload, true, recorded)? else {
            self.next = Some((to, payload, recorded));
            return Ok(false);
        };
        assert!(!recorded || self.sequence.is_some_and(|last| last + 1 == id.sequence), "{id} is not the next");
        self.sequence = Some(id.sequence);
        if self.ahead && !recorded {
            self.own.flush()?;
        }
        Ok(true)
    }

    /// Draws the next message. At a fixed rate, half of the messages go to one group and the others to two, if there
    /// are several groups. Without a fixed rate, each message goes to all groups.
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

    /// Writes all buffered events of the history.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.own.flush()
    }
}
