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
//! - **A majority deposes, or a death.** A process publishes which claim it doubts. A leader is replaced only when a
//!   majority of the group doubts its claim, when it doubts that claim itself, or when the system tells a member that the leader
//!   has died ([`Heartbeat::died`]). A claim that is doubted by whom it names is void at once.
//! - **A leader without a majority resigns.** See below.
//! - **Time is time polled.** Between two polls at most a quarter of the shortest timeout counts. A process that was
//!   stopped for seconds finds nobody silent when it wakes; it takes at least four polls to suspect anybody, wherever the
//!   clock jumps.
//! - **A broken connection is a hint.** It starts an election at once, without the timeout. A hint that was wrong makes
//!   the next one wait for a few intervals of silence, at most 32, and is forgiven after a timeout or a few. Nothing
//!   makes the election deaf to hints, and they do not lengthen the timeout.
//!
//! # Partial connectivity
//! A READ needs a request and its answer, so a direction in which packets are lost takes away both: then neither process
//! reads the other. What follows holds for directed graphs too. Process p *sees* q if q's counter moves and p's links with q
//! work ([`Heartbeat::link`]); p publishes whom it sees. p *reaches* q if p sees q and q says that it sees p. A process is
//! *connected to a majority* if it reaches one, itself included.
//!
//! A beat says: which life this is, a counter, the largest claim known, the claim that is doubted, whether the process would
//! lead, and whom it sees.
//!
//! ## States
//! - *Follower*: the largest claim names another process. It doubts the claim if it suspects that process, if that process
//!   doubts the claim itself, if it does not want to lead, or if it was nominated and is overdue.
//! - *Candidate*: the claim is void (a majority of the group doubts it, the process that it names does, or that one is dead), and this process
//!   stands and is connected to a majority. It comes forward if it is the first such process that it sees, and in turn if
//!   those before it do not.
//! - *Leader*: the largest claim is its own.
//! - *Resigned*: a leader that has been connected to no majority for the shortest timeout doubts its own claim, and is a
//!   candidate like the others. Its ballot in the protocol stays as it is. When it reaches a majority again before anybody
//!   else has come forward, it comes forward first: the others wait for it for a shortest timeout if they see it. Then
//!   nothing has to be recovered. After the third reign in a row in which it has not reached a majority for a longest
//!   timeout, it pauses: one longest timeout, two, four, then eight. While it pauses it does not stand, so others do not
//!   wait for it.
//!
//! ## Invariants
//! 1. Nobody comes forward without being connected to a majority.
//! 2. A process that a leader counts as reached does not doubt that leader for its silence, up to the time of one reading:
//!    it publishes that it sees the leader exactly as long as it does not suspect it.
//! 3. So those who doubt a leader that is connected to a majority are a minority, and 1 and the count of doubts depose no
//!    such leader, whoever cannot read it, and however often that link breaks and comes back. A death that was told and is none
//!    deposes it once, if the leader beat here until then.
//!
//! ## Why it ends with one leader
//! Let the graph stay as it is, and let some process be connected to a majority. All processes that can come forward know
//! the largest claim after a few readings, because two majorities meet and a claim spreads along every reading. If the
//! process that it names is connected to a majority, it stays, by 3. Otherwise it resigns, or it is gone. Those who see it
//! read that it doubts its claim, and doubt it; those who do not see it suspect it. So a process that is connected to a
//! majority reads that this majority doubts the claim, and is a candidate. Candidates that do not come forward are passed
//! over, each after a longest timeout; of two that come forward at once the larger claim holds, and whoever made it is
//! connected to a majority and stays. The tests go through all graphs of three and of five members, with every first leader.
//!
//! A link that breaks and comes back again and again moves a leader only if it takes its majority away, and then only if
//! somebody else is connected to a majority, or the leader has failed three times in a row. With one of three members dead
//! and the link between the others flapping, the leader goes on after each break.
//!
//! # How long it takes
//! With polls and reads every interval i and a timeout t of at most the configured maximum, a leader that stops is
//! replaced in the views of all live members within t + 4 i + three reads: the last beat is read, the silence passes, a poll
//! finds it, the others' doubts are read, the new claim is read. The tests assert that bound. After a cut that takes a
//! leader's majority away and leaves other members connected to one, the shortest timeout comes on top, twice, and a longest
//! timeout for each candidate that is passed over.

mod beat;
mod config;
mod decide;
mod detector;
mod reach;

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::ProcessId;

pub use beat::{Beat, BeatError, Claim, Kind};
pub use config::{HeartbeatConfig, HeartbeatError};
pub use detector::Life;
use detector::{Bounds, Detector};
use reach::Reach;

use crate::mutant::mutant;
use crate::{Change, Election, HandOverError};

/// Another member, and what was read of it.
#[derive(Clone, Debug)]
struct Peer {
    process: ProcessId,
    detector: Detector,
    claim: Option<Claim>,
    doubt: u64,
    stands: bool,
    /// The mask of members that it sees alive.
    sees: u64,
    /// Its bit in such a mask.
    bit: u64,
    /// Whether the owner's links with it work.
    linked: bool,
}

impl Peer {
    /// Returns whether it is alive as far as this process can read, over links that work.
    fn is_seen(&self) -> bool {
        self.linked && self.detector.life == Life::Alive
    }
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
    /// This process's bit in a mask of members.
    bit: u64,
    reach: Reach,
    /// Whether enough members doubt the claim.
    open: bool,
    /// The time, in time polled, since which that is so and this process reaches a majority.
    ready_since: Option<u64>,
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
        let bit = |process: ProcessId| 1 << config.members.iter().position(|member| *member == process).unwrap_or(0);
        let others = config.members.iter().filter(|process| **process != config.me);
        let peer = |&process| Peer {
            process,
            detector: Detector::new(),
            claim: None,
            doubt: 0,
            stands: true,
            sees: 0,
            bit: bit(process),
            linked: true,
        };
        let (min, max) = (nanoseconds(config.timeout_min), nanoseconds(config.timeout_max));
        Ok(Heartbeat {
            bounds: Bounds { interval: nanoseconds(config.interval), min, max, mutant: config.mutant },
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
            bit: bit(config.me),
            reach: Reach::default(),
            open: false,
            ready_since: None,
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
            stands: u64::from(self.would_lead()),
            sees: self.sees(),
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
        (peer.doubt, peer.stands, peer.sees) = (beat.doubt, beat.stands == 1, beat.sees);
        if beat.claim == 0 {
            peer.claim = None;
            return Ok(());
        }
        let claim = Claim::from_word(beat.claim).filter(|claim| self.config.members.contains(&claim.process));
        peer.claim = claim;
        claim.map(|_| ()).ok_or(BeatError::Claim { process, word: beat.claim })
    }

    /// Reports that the connection with a member broke. This saves the timeout and proves nothing. It is believed at
    /// once, unless the member went on beating after such a report not long ago: then a silence of a few intervals must
    /// confirm it.
    pub fn unreachable(&mut self, process: ProcessId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.process == process) {
            peer.detector.unreachable(self.now, &self.bounds);
        }
    }

    /// Reports that a member's process has died, as the system says: on one host its kernel, between hosts the one that closed or reset
    /// its control connection. Believed at once, whatever was wrong before: if the member led and has beaten here within the longest timeout,
    /// it is replaced without a majority of doubts. After a longer silence a majority is needed: a connection that was cut off for so long is
    /// reset when the cut ends, and the member may live where others see it. Between hosts something on the way can reset a connection, too;
    /// some beats then restore trust.
    pub fn died(&mut self, process: ProcessId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.process == process) {
            peer.detector.died(self.now, &self.bounds);
        }
    }

    /// Reports whether the links with a member work on which a leader writes to it; they count as working at the start.
    /// A member whose links are broken does not count as reached, whatever its beats say.
    pub fn link(&mut self, process: ProcessId, works: bool) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.process == process) {
            peer.linked = works;
        }
    }

    /// Returns whether this process led and has resigned because it reached no majority, and nobody has come forward
    /// since.
    #[must_use]
    pub fn has_resigned(&self) -> bool {
        self.reach.resigned
    }

    /// Returns whether this process has been cut off from the leader that others follow for a longest timeout, and
    /// cannot come forward itself. Nothing is delivered here then; nobody should wait for that.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.is_left_out()
    }

    /// Returns the number of members that this process reaches, itself included: it sees them alive, its links with
    /// them work, and they see it.
    #[must_use]
    pub fn reached(&self) -> usize {
        self.reached_mask().count_ones() as usize
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

    /// Returns whether another member said when it was read last that it would lead; false if it is none or was never
    /// read.
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
        let most = if mutant!(self.config.mutant, StallSuspects) { u64::MAX } else { self.bounds.min / 4 };
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
        let epoch = self.next_epoch().filter(|_| self.fit(peer.process));
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
