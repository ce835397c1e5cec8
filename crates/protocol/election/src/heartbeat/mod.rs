//! Election by heartbeats: every process increments a counter in its memory, and the others read it one-sided.
//!
//! # Principles
//! - **Claims.** "p leads in epoch e" is a [`Claim`], one word. Every process publishes the largest claim that it
//!   knows, and adopts any larger claim that it reads. All views therefore converge to the largest claim that any
//!   member reads, also between two processes that cannot read each other.
//! - **Own epochs.** A process leads only under epochs that it has chosen itself, each larger than every claim that it
//!   had read before. A claim that names the process may be of another origin: another process nominated it, or it led in
//!   an earlier life. The process never leads under such a claim: it claims leadership in a larger epoch, or doubts
//!   the claim. The pair (epoch, process) is therefore unique, unless no remaining member remembers it. A process with
//!   stable storage passes [`HeartbeatConfig::floor`] to exclude that.
//! - **Stable leaders.** A leader is replaced when it is doubted, not when a better candidate returns. The first member
//!   in order that is alive and willing claims leadership.
//! - **A majority or a death deposes.** A process publishes the claim that it doubts. Unless it hands over, a leader is
//!   replaced only in three cases: a majority of the group doubts its claim, it doubts that claim itself, or the
//!   operating system reports to a member that the leader has died ([`Heartbeat::died`]). With a
//!   [quorum](HeartbeatConfig::quorum) below a majority, the doubts of more than half of the members that a member sees
//!   alive suffice. A claim that is doubted by the process that it names is invalid at once.
//! - **A leader without a majority resigns.** See below.
//! - **Polled time.** Between two polls at most a quarter of the shortest timeout counts. A process that was stopped
//!   for seconds therefore suspects no member when it resumes. It needs more than four polls to suspect one for its
//!   silence, however the clock jumps.
//! - **A broken connection is a hint.** It starts an election at once, without the timeout. After a wrong hint, the
//!   next one must be confirmed by a few intervals of silence, at most 32. Each longest timeout forgives one wrong
//!   hint. Hints are never ignored, and they do not lengthen the timeout.
//!
//! # Partial connectivity
//! A READ needs a request and a response, so packet loss in one direction disables both, and then neither process reads
//! the other. The argument below also holds for directed graphs. Process p *sees* q if q's counter moves and p's links
//! with q work ([`Heartbeat::link`]); p publishes the members that it sees. p *reaches* q if p sees q and q publishes
//! that it sees p. A process is *connected to a majority* if it reaches one, itself included.
//!
//! A beat contains the life of the process, a counter, the largest known claim, the doubted claim, whether the process
//! is willing to lead, and the members that it sees.
//!
//! ## States
//! - *Follower*: the largest claim names another process. The follower doubts the claim if it suspects that process, if
//!   that process doubts the claim itself, if that process is not willing to lead and another member could lead, or if
//!   that process was nominated and is overdue.
//! - *Candidate*: the claim is invalid (a majority of the group doubts it, the process that it names doubts it, or that
//!   process has died), and this process is willing to lead and connected to a majority. It claims leadership if it is
//!   the first such process that it sees, and in its turn if those before it do not.
//! - *Leader*: the largest claim is its own.
//! - *Resigned*: a leader that has been connected to no majority for the shortest timeout doubts its own claim, and is
//!   a candidate like the others. Its ballot in the protocol stays unchanged. If it reaches a majority again before
//!   another process has claimed leadership, it has precedence: members that see it wait for it for one shortest
//!   timeout. Nothing then has to be recovered. After the third consecutive reign in which it never reached a majority
//!   for a whole longest timeout, it pauses for one longest timeout, then two, four and eight. While it pauses it is
//!   not willing to lead, so no member waits for it.
//!
//! ## Invariants
//! 1. A process that does not lead claims leadership only while it is connected to a majority.
//! 2. A process that a leader counts as reached does not doubt that leader for its silence, up to the time of one
//!    reading. It publishes that it sees the leader only while it does not suspect the leader.
//! 3. The members that doubt a leader which is connected to a majority are therefore a minority. So invariant 1 and the
//!    count of doubts never depose such a leader, whichever members cannot read it, and however often their links break
//!    and recover. A false report of the leader's death deposes it once, if the member that receives the report has
//!    read the leader's beats until then.
//!
//! ## Why exactly one leader remains
//! Assume that the graph stays unchanged and that some process is connected to a majority. After a few readings, all
//! processes that can claim leadership know the largest claim, because two majorities intersect and a claim spreads
//! with every reading. If the process that it names is connected to a majority, it stays leader by invariant 3.
//! Otherwise it resigns, or it has crashed. Members that see it read that it doubts its claim, and doubt it too;
//! members that do not see it suspect it. A process that is connected to a majority therefore reads that this majority
//! doubts the claim, and is a candidate. Candidates that do not claim leadership are skipped, each after a longest
//! timeout. If two claim leadership at once, the larger claim is valid; the process that made it is connected to a
//! majority and stays leader. The tests check all graphs of three and of five members, with every first leader.
//!
//! A link that breaks and recovers repeatedly moves leadership only if it takes the leader's majority away, and only if
//! another process is connected to a majority or the leader has failed three times in a row. If one of three members
//! has crashed and the link between the others flaps, the leader continues after each break.
//!
//! # Time to a new leader
//! Let polls and reads happen every interval i, and let the timeout t be at most the configured maximum. A leader that
//! stops is replaced in the views of all live members within t + 4 i + three reads: the last beat is read, the silence
//! passes, a poll detects it, the others' doubts are read, the new claim is read. The tests assert that bound. After a
//! cut that takes a leader's majority away and leaves other members connected to one, add the shortest timeout twice,
//! and a longest timeout for each candidate that is skipped.

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

/// Another member, and the contents of its last beat.
#[derive(Clone, Debug)]
struct Peer {
    process: ProcessId,
    detector: Detector,
    claim: Option<Claim>,
    doubt: u64,
    stands: bool,
    /// `true` once the peer was seen to beat.
    has_beaten: bool,
    /// Mask of the members that the peer sees alive.
    sees: u64,
    /// Bit of the peer in a mask of members.
    bit: u64,
    /// `true` if this process's links with the member work.
    linked: bool,
}

impl Peer {
    /// Returns whether the member is alive, as far as this process can read, over links that work.
    fn is_seen(&self) -> bool {
        self.linked && self.detector.life == Life::Alive
    }
}

/// The election of one group at one of its members.
///
/// In every interval the owner does this: it reads each peer's [`Beat`] and passes it to
/// [`observe`](Heartbeat::observe), [polls](Election::poll) until it gets `None`, and writes [`beat`](Heartbeat::beat)
/// to the memory that the others read.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    config: HeartbeatConfig,
    bounds: Bounds,
    peers: Vec<Peer>,
    /// Polled time, in nanoseconds.
    now: u64,
    polled_at: Option<Duration>,
    counter: u64,
    claim: Option<Claim>,
    /// Time at which the claim was adopted, in polled time.
    adopted: u64,
    /// Last epoch under which this process claimed leadership, or 0.
    made: u64,
    /// Largest ballot that the protocol has seen.
    witnessed: (u64, ProcessId),
    doubt: u64,
    stands: bool,
    /// Bit of this process in a mask of members.
    bit: u64,
    reach: Reach,
    /// `true` if the claim is invalid, so that some process has to claim leadership.
    open: bool,
    /// Polled time since which the claim is invalid and this process reaches a quorum. `None` if one of the two
    /// conditions is not met.
    ready_since: Option<u64>,
    told: Option<decide::View>,
    changes: VecDeque<Change>,
}

impl Heartbeat {
    /// Creates the election at the start of a life of the process.
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
            has_beaten: false,
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

    /// Returns the beat to publish. It changes with every poll.
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

    /// Processes a beat that was read from another member since the last poll. Beats of one member must be passed in
    /// the order in which they were read. Memory contents of an earlier life are ignored.
    ///
    /// # Errors
    /// See [`BeatError`].
    pub fn observe(&mut self, process: ProcessId, beat: &Beat) -> Result<(), BeatError> {
        let peer = self.peers.iter_mut().find(|peer| peer.process == process);
        let peer = peer.ok_or(BeatError::NotAPeer { process })?;
        let is_ignored = peer.detector.observe(beat, self.now, &self.bounds);
        peer.has_beaten |= peer.detector.life == Life::Alive;
        if is_ignored {
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

    /// Reports that the connection with a member broke. This can save the timeout, but it proves nothing. The member is
    /// suspected at once, unless its beats followed such a report not long ago. In that case a few intervals of silence
    /// must confirm the report.
    pub fn unreachable(&mut self, process: ProcessId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.process == process) {
            peer.detector.unreachable(self.now, &self.bounds);
        }
    }

    /// Reports that the operating system has announced the death of a member's process. On one host the kernel
    /// announces it; between hosts it is inferred from a control connection that is closed or reset. The report is
    /// believed at once, even after earlier wrong ones. If the member led and its beats were read here within the
    /// longest timeout, it is replaced without a majority of doubts. After a longer silence a majority is needed: a
    /// connection that was cut off for so long is reset when the cut ends, and the member may be alive for others.
    /// Between hosts a middlebox can reset a connection, too; a few beats then restore trust.
    pub fn died(&mut self, process: ProcessId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.process == process) {
            peer.detector.died(self.now, &self.bounds);
        }
    }

    /// Reports whether the links with a member work. These are the links on which a leader writes to the member. At the
    /// start they count as working. A member whose links are broken does not count as reached, whatever its beats
    /// contain.
    pub fn link(&mut self, process: ProcessId, works: bool) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.process == process) {
            peer.linked = works;
        }
    }

    /// Returns whether this process led, has resigned because it reached no majority, and has not been replaced since.
    #[must_use]
    pub fn has_resigned(&self) -> bool {
        self.reach.resigned
    }

    /// Returns whether, for at least the longest timeout, this process has been cut off from the leader that others
    /// follow and could not claim leadership itself. Nothing is delivered here in that state, so callers should not
    /// wait for deliveries.
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

    /// Sets whether this process is willing to lead. A process is not willing to lead while it catches up, and before
    /// it is stopped. A leader that is no longer willing is replaced like one that is doubted, if there is another
    /// candidate. Initially `true`.
    pub fn stand(&mut self, stands: bool) {
        self.stands = stands;
    }

    /// Returns the largest claim that is known.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        self.claim
    }

    /// Returns the detector's verdict on another member, or `None` if the process is not one.
    #[must_use]
    pub fn life(&self, process: ProcessId) -> Option<Life> {
        self.peers.iter().find(|peer| peer.process == process).map(|peer| peer.detector.life)
    }

    /// Returns whether another member was willing to lead when its beat was last read. Returns `false` if the process
    /// is not a member or was never seen to beat.
    #[must_use]
    pub fn stands(&self, process: ProcessId) -> bool {
        self.peers.iter().any(|peer| peer.process == process && peer.stands && peer.has_beaten)
    }

    /// Returns the silence after which another member is suspected at present, or `None` if the process is not one.
    #[must_use]
    pub fn timeout(&self, process: ProcessId) -> Option<Duration> {
        let peer = self.peers.iter().find(|peer| peer.process == process)?;
        Some(Duration::from_nanos(peer.detector.timeout(&self.bounds)))
    }

    /// Advances polled time. Time in which this process did not poll counts only in part, and a clock that is set back
    /// does not count.
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

    /// Nominates the other member, which claims leadership as soon as it reads the nomination. If it never claims
    /// leadership, it is doubted or skipped like any candidate.
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
