//! Election by heartbeats: every process increments a counter in its own memory, the others read it one-sided.
//!
//! # What it keeps
//! - **Claims.** "p leads in epoch e" is a [`Claim`], one word. Every process publishes the largest claim that it knows
//!   and adopts a larger one from whomever it reads it. So all views converge on the largest claim that anybody reads,
//!   also between two processes that cannot read each other.
//! - **Own epochs.** A process leads only under epochs that it has chosen itself, each above every claim it had read by
//!   then. A claim that names it and is not its own (it was nominated, or led in an earlier life) is answered by a larger
//!   one, never taken over. So (epoch, process) is unique, unless nobody who is left remembers: whoever can store
//!   something passes [`HeartbeatConfig::floor`].
//! - **Leaders stay.** A leader is replaced when it is doubted, not when a better candidate comes back. The first in the
//!   order of members that is alive and stands comes forward.
//! - **A doubt needs company.** A process publishes which claim it doubts. Only when more than half of those that it sees
//!   alive, the leader apart, doubt the claim too is the leader replaced; so one broken link moves nobody, and a leader
//!   that a majority, itself included, still sees stays. A claim that is doubted by whom it names is void at once.
//! - **Time is time polled.** Between two polls at most a quarter of the shortest timeout counts. A process that was
//!   stopped for seconds finds nobody silent when it wakes; it takes at least four polls to suspect anybody, wherever the
//!   clock jumps.
//! - **A broken connection is a hint.** It starts an election at once, without the timeout. A hint that was wrong makes
//!   the next one wait for a few intervals of silence, at most 32, and is forgiven after a timeout or a few. Nothing
//!   makes the election deaf to hints, and they do not lengthen the timeout. A death that the system reports
//!   ([`Heartbeat::died`]) is believed always.
//!
//! # How long it takes
//! With polls and reads every interval i and a timeout t of at most the configured maximum, a leader that stops is
//! replaced in the views of all live members within t + 4 i + three reads: the last beat is read, the silence passes, a poll
//! finds it, the others' doubts are read, the new claim is read. The tests assert that bound.

mod beat;
mod config;
mod decide;
mod detector;

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::ProcessId;

pub use beat::{Beat, BeatError, Claim, Kind};
pub use config::{HeartbeatConfig, HeartbeatError};
pub use detector::Life;
use detector::{Bounds, Detector};

use crate::plant::planted;
use crate::{Change, Election, HandOverError};

/// Another member, and what was read of it.
#[derive(Clone, Debug)]
struct Peer {
    process: ProcessId,
    detector: Detector,
    claim: Option<Claim>,
    doubt: u64,
    stands: bool,
}

/// The election of one group at one of its members.
///
/// The owner does four things every interval: reads each peer's [`Beat`] and passes it to
/// [`observe`](Heartbeat::observe), [polls](Election::poll) until nothing comes, and writes [`beat`](Heartbeat::beat) to
/// where the others read.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    config: HeartbeatConfig,
    bounds: Bounds,
    peers: Vec<Peer>,
    /// Time polled, in nanoseconds.
    now: u64,
    polled_at: Option<Duration>,
    counter: u64,
    claim: Option<Claim>,
    /// When the claim was adopted, in time polled.
    adopted: u64,
    /// The last epoch under which this process came forward; 0 for none.
    made: u64,
    /// The largest ballot met elsewhere.
    witnessed: (u64, ProcessId),
    doubt: u64,
    stands: bool,
    /// Since when the claim is doubted by enough, in time polled.
    open_since: Option<u64>,
    told: Option<decide::View>,
    changes: VecDeque<Change>,
}

impl Heartbeat {
    /// At the start of a process's life.
    ///
    /// # Errors
    /// See [`HeartbeatError`].
    pub fn new(config: HeartbeatConfig) -> Result<Self, HeartbeatError> {
        config.check()?;
        let others = config.members.iter().filter(|process| **process != config.me);
        let peer = |&process| Peer { process, detector: Detector::new(), claim: None, doubt: 0, stands: true };
        let (min, max) = (nanoseconds(config.timeout_min), nanoseconds(config.timeout_max));
        Ok(Heartbeat {
            bounds: Bounds { interval: nanoseconds(config.interval), min, max, plant: config.plant },
            peers: others.map(peer).collect(),
            now: 0,
            polled_at: None,
            counter: 0,
            claim: None,
            adopted: 0,
            made: 0,
            witnessed: (0, config.me),
            doubt: 0,
            stands: true,
            open_since: None,
            told: None,
            changes: VecDeque::with_capacity(4),
            config,
        })
    }

    /// What to write to where the others read; changes with every poll.
    #[must_use]
    pub fn beat(&self) -> Beat {
        Beat {
            incarnation: self.config.incarnation,
            counter: self.counter,
            claim: self.claim.map_or(0, Claim::to_word),
            doubt: self.doubt,
            stands: u64::from(self.stands),
        }
    }

    /// What was read of another member since the last poll. Readings of one member come in the order in which they were
    /// made; what is in its memory from an earlier life is ignored.
    ///
    /// # Errors
    /// If it is of no peer, or claims what cannot be; see [`BeatError`].
    pub fn observe(&mut self, process: ProcessId, beat: &Beat) -> Result<(), BeatError> {
        let peer = self.peers.iter_mut().find(|peer| peer.process == process);
        let peer = peer.ok_or(BeatError::NotAPeer { process })?;
        if peer.detector.observe(beat, self.now, &self.bounds) {
            return Ok(());
        }
        (peer.doubt, peer.stands) = (beat.doubt, beat.stands == 1);
        if beat.claim == 0 {
            peer.claim = None;
            return Ok(());
        }
        let claim = Claim::from_word(beat.claim).filter(|claim| self.config.members.contains(&claim.process));
        peer.claim = claim;
        claim.map(|_| ()).ok_or(BeatError::Claim { process, word: beat.claim })
    }

    /// The connection with a member broke. This saves the timeout and proves nothing. It is believed at once, unless the
    /// member went on beating after such a report not long ago: then a silence of a few intervals must confirm it.
    pub fn unreachable(&mut self, process: ProcessId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.process == process) {
            peer.detector.unreachable(self.now, &self.bounds);
        }
    }

    /// The system reports that the process of a member is gone: the kernel closed what only its end closes. Always
    /// believed, whatever was wrong before.
    pub fn died(&mut self, process: ProcessId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.process == process) {
            peer.detector.died();
        }
    }

    /// Whether this process would lead: not while it catches up, not before it is stopped. A leader that no longer stands
    /// is replaced like one that is doubted, if there is anybody else. True at the start.
    pub fn stand(&mut self, stands: bool) {
        self.stands = stands;
    }

    /// The largest claim known.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        self.claim
    }

    /// What is thought of another member; nothing if it is none.
    #[must_use]
    pub fn life(&self, process: ProcessId) -> Option<Life> {
        self.peers.iter().find(|peer| peer.process == process).map(|peer| peer.detector.life)
    }

    /// Whether another member said when it was read last that it would lead; false if it is none or was never read.
    #[must_use]
    pub fn stands(&self, process: ProcessId) -> bool {
        self.peers.iter().any(|peer| peer.process == process && peer.stands && peer.detector.life != Life::Unheard)
    }

    /// After which silence another member is suspected at present; nothing if it is none.
    #[must_use]
    pub fn timeout(&self, process: ProcessId) -> Option<Duration> {
        let peer = self.peers.iter().find(|peer| peer.process == process)?;
        Some(Duration::from_nanos(peer.detector.timeout(&self.bounds)))
    }

    /// Lets time pass: what was not polled does not count, nor does a clock that goes back.
    fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.polled_at.unwrap_or(now));
        self.polled_at = Some(now);
        let most = if planted!(self.config.plant, StallSuspects) { u64::MAX } else { self.bounds.min / 4 };
        self.now = self.now.saturating_add(nanoseconds(passed).min(most));
    }
}

impl Election for Heartbeat {
    fn poll(&mut self, now: Duration) -> Option<Change> {
        self.pass(now);
        self.counter += 1;
        for peer in &mut self.peers {
            peer.detector.judge(self.now, &self.bounds);
        }
        self.decide();
        self.changes.pop_front()
    }

    /// The leader nominates the other, which comes forward as soon as it reads that. If it never does, it is doubted or
    /// passed over as any candidate.
    fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError> {
        if !self.leads() {
            return Err(HandOverError::NotLeader);
        }
        if to == self.config.me {
            return Ok(());
        }
        let peer = self.peers.iter().find(|peer| peer.process == to);
        let peer = peer.ok_or(HandOverError::NotAMember { process: to })?;
        let epoch = self.next_epoch().filter(|_| peer.stands && peer.detector.life == Life::Alive);
        let epoch = epoch.ok_or(HandOverError::NotReady { process: to })?;
        self.adopt(Claim { epoch, kind: Kind::Nominated, process: to });
        Ok(())
    }

    fn witness(&mut self, epoch: u64, process: ProcessId) {
        self.witnessed = self.witnessed.max((epoch, process));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
