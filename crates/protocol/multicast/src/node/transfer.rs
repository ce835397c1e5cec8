//! Transfers of a group's state to a member that restarted without memory, that fell behind, or that campaigns and
//! lacks messages that another member has delivered.
//!
//! A transfer brings the *receiver's application* as far as the *donor's*. Open messages (assigned and not delivered)
//! are not part of it. They travel in the leader's state (`Install`, or a donor's `Transfer`), which is sent last and
//! is small then.
//!
//! # Course of a transfer
//! 1. The state machine wants to send a state together with the application's to a member. The node asks that member
//!    for its application's position (`Query`, answered by `Standing`). If the application has made all deliveries that
//!    the state counts, the state is sent at once, alone.
//! 2. Otherwise the donor *freezes* its application, and keeps all deliveries after the freeze in a *backlog*. The
//!    donor stops the receiver's stream if a majority receives the stream without the receiver, so that no process
//!    waits for a member that is behind.
//! 3. The frozen state is sent in *pieces* of [`PIECE_BYTES`], each a peer message. At most [`WINDOW`] pieces are
//!    unacknowledged. Pieces use the control ring and take at most half of it. The receiver collects them. After the
//!    last one its application restores the whole state in one call.
//! 4. The backlog is sent in the same way. The receiver's application makes each delivery as it arrives.
//! 5. When the backlog is empty, the donor requests the current state from its state machine again, and sends it after
//!    the last piece. The stream starts there. The transfer is complete when the receiver has installed the state or,
//!    if the receiver is a candidate, when the donor has sent it.
//!
//! # States
//! - Donor: *none* → *snapshot* → *backlog* → *final* (the state is sent) → *none*; from *final* back to *backlog* if
//!   the receiver asks again, or the connection broke. A transfer ends early, *given up*, for a [reason](GivenUp).
//! - Receiver: *none* → *snapshot* → *backlog* → *none* (the state arrived, another transfer began, one end gave the
//!   transfer up, or no piece arrived for too long).
//!
//! # Invariants
//! - **The application has a position of its own**: `applied`, the number of deliveries that the application has made,
//!   by itself or through a restored state. It never decreases within one life of a group. It may be ahead of the state
//!   machine: deliveries of the state machine with a number up to `applied` are not passed to the application again.
//!   All members of a group deliver the same messages under the same numbers (M5). So the application misses nothing
//!   and gets nothing twice, even if the donor dies between the snapshot and the state, and another donor continues.
//! - **A state that counts more deliveries than the application has made is not passed to the state machine.** It marks
//!   messages as delivered, so the application would miss them.
//! - **A transfer has a name**: the donor (the sender), its life, the donor's number for the freeze, and the
//!   incarnation of the donor's history. A piece counts only if it carries the name of the transfer that the receiver
//!   takes part in, and is the next one. The first piece of a transfer with another name ends the previous one, unless
//!   that comes from another donor and still makes progress.
//! - **A donor freezes once for a receiver.** Repeated requests find the transfer and begin no other one. A donor
//!   serves one receiver at a time; others wait for their turn.
//! - **A stopped stream restarts**, whether it was stopped for the transfer or with a connection. It restarts with the
//!   leader's state at the end of the transfer. If no stream runs when the transfer ends, the donor sends the state
//!   once more: a receiver that has installed an older state may not know that its stream is stopped, and would not ask
//!   for another one.
//! - **A broken connection loses no freeze.** The donor keeps unacknowledged pieces, the freeze and the backlog. It
//!   asks for the receiver's position again, and continues after the last piece that the receiver has. A receiver that
//!   lost its memory names no transfer, and gets a new freeze.
//! - **Memory is bounded and reported**: at the donor a backlog of `backlog_bytes` and a window of pieces; at the
//!   receiver `snapshot_bytes` and a window of pieces. A larger state is refused by the end that notices first, and
//!   both ends report the size and the limit.
//! - **A group begins its life with an application that has made no delivery.** An application with a state of a
//!   history that has ended is reset first.
//!
//! # Pace
//! The donor withholds credits of clients in two cases: as the backlog fills beyond one half, and while a backlog that
//! is not short is sent, so that the receiver consumes more than is delivered ([`throttle`]). Clients keep
//! `slowed_percent` of the previous rate. If the backlog is full at that share, the transfer is given up. A stalled
//! receiver slows no client down: the donor withholds credits only while acknowledgements arrive. It credits at least
//! one delivery in each tick, and clients take turns, so that clients hardly expel it ([`pace`](super::pace)).
//!
//! # Stalled receivers
//! A receiver whose application restores a large state in one call frees nothing meanwhile, and may be expelled like
//! any stalled member. The transfer survives that like any broken connection.

mod backlog;
mod incoming;
mod letter;
mod outgoing;
mod reader;
mod report;
mod throttle;

use std::collections::VecDeque;

use stentor_fabric::ProcessId;

pub(super) use self::backlog::{Backlog, Entry};
pub(super) use self::incoming::{IncomingTransfer, Taken};
pub(super) use self::letter::{Name, Subject, TransferLetter};
pub(super) use self::outgoing::{OutgoingTransfer, Stage};
pub use self::reader::StateReader;
pub use self::report::{GivenUp, TransferOutcome, TransferReport, TransferRole};
pub(super) use self::throttle::{Load, Throttle};
use crate::Incarnation;
/// Maximum number of bytes in a piece of a frozen state. Pieces of the backlog have about the same size.
pub(super) const PIECE_BYTES: usize = 16 << 10;
/// Maximum number of pieces sent and not acknowledged.
pub(super) const WINDOW: usize = 16;
/// A piece with bytes of the frozen state is acknowledged only if its number is a multiple of this, or if the piece
/// arrives again. A piece without such bytes is always acknowledged.
const ACKNOWLEDGED_EVERY: u64 = 4;
/// Ticks for which a donor waits for progress; 30 s by default. While the receiver's application restores a large
/// state, the donor sees no progress.
pub(super) const DONOR_PATIENCE: u64 = 15_000;
/// Ticks for which a donor waits while the connection is broken; 10 s by default. This limit does not apply while the
/// application may be restoring the state.
pub(super) const RESUME_PATIENCE: u64 = 5000;
/// Ticks for which a receiver keeps a transfer that makes no progress.
pub(super) const RECEIVER_PATIENCE: u64 = 15_000;
/// Ticks without progress after which a transfer no longer blocks others: another receiver that asks gets its turn. A
/// receiver that may be restoring the state is exempt, because two receivers that interrupt each other would never
/// finish.
pub(super) const STALLED: u64 = 250;
/// A receiver refuses another donor's state if a piece arrived within this number of ticks. Otherwise two donors could
/// keep it from completing either state.
pub(super) const BUSY: u64 = 25;
/// Clients are slowed down only if the receiver made progress within this number of ticks.
const HEEDS: u64 = 50;
/// Ticks that a transfer must last before its receiver asks clients not to wait for it. Clients restart their rings to
/// the receiver afterwards, so a shorter transfer does not ask.
pub(super) const ASIDE_AFTER: u64 = 2;
/// Ticks between two queries to a receiver that makes no progress.
pub(super) const ASK_EVERY: u64 = 64;
/// Ticks between two queries to a receiver that has not answered since its connection broke.
pub(super) const ASK_PAUSED_EVERY: u64 = 8;
/// Ticks until the next attempt after a transfer was given up because a limit was exceeded or the state could not be
/// written.
pub(super) const PAUSE: u64 = 1000;
/// Ticks until the next attempt after a transfer was given up for another reason.
pub(super) const YIELD: u64 = 25;
/// Maximum number of reports that wait for the caller.
const REPORTS: usize = 16;

/// The progress of a member's application, as the member reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// Number of deliveries that the member's application has made.
    pub(super) applied: u64,
    /// Name of the receiver's transfer from the donor that asked, and the number of the piece that it waits for; `None`
    /// if there is no such transfer.
    pub(super) under_way: Option<(Name, u64)>,
}

/// A request of the state machine that another member gets the application's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Want {
    /// Number of deliveries that the state counts.
    pub(super) delivered: u64,
}

/// All transfers at one member.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) outgoing: Option<OutgoingTransfer>,
    pub(super) incoming: Option<IncomingTransfer>,
    /// The incarnation of the history to which the application's deliveries belong, while the application is ahead of
    /// the state machine.
    pub(super) applied_in: Incarnation,
    /// Progress of the application of each process, indexed by process; `None` if the process has not reported it on
    /// this connection.
    standings: Vec<Option<Standing>>,
    /// The pending request for each process, indexed by process.
    wants: Vec<Option<Want>>,
    /// Indexed by process: tick at which the next attempt may begin.
    not_before: Vec<u64>,
    freezes: u64,
    reports: VecDeque<TransferReport>,
    pub(super) throttle: Throttle,
    /// Members that must still get the state with which their streams restart.
    pub(super) cut_off: Vec<ProcessId>,
    /// `true` if the transfers must be processed in this step.
    pub(super) is_due: bool,
}

impl Transfers {
    pub(super) fn new(members: usize) -> Self {
        Transfers {
            standings: vec![None; members],
            wants: vec![None; members],
            not_before: vec![0; members],
            ..Transfers::default()
        }
    }

    pub(super) fn standing(&self, member: ProcessId) -> Option<Standing> {
        self.standings.get(member.index()).copied().flatten()
    }

    pub(super) fn set_standing(&mut self, member: ProcessId, standing: Option<Standing>) {
        if let Some(known) = self.standings.get_mut(member.index()) {
            *known = standing;
            self.is_due = true;
        }
    }

    pub(super) fn set_want(&mut self, member: ProcessId, want: Option<Want>) {
        if let Some(known) = self.wants.get_mut(member.index()) {
            *known = want;
            self.is_due = true;
        }
    }

    /// Returns a member that is to get a state, has reported its progress, and whose next attempt is due.
    pub(super) fn next_want(&self, now: u64) -> Option<(ProcessId, Want, Standing)> {
        (0..).map(ProcessId).zip(&self.wants).find_map(|(member, want)| {
            let (want, standing) = ((*want)?, self.standing(member)?);
            (now >= self.not_before[member.index()]).then_some((member, want, standing))
        })
    }

    /// Delays the next attempt for a member until tick `until`.
    pub(super) fn pause(&mut self, member: ProcessId, until: u64) {
        if let Some(known) = self.not_before.get_mut(member.index()) {
            *known = until;
        }
    }

    /// Returns the number of the next freeze.
    pub(super) fn next_freeze(&mut self) -> u64 {
        self.freezes += 1;
        self.freezes
    }

    /// Updates the throttle in a tick, after `delivered` deliveries of the donor's application.
    pub(super) fn tick_throttle(&mut self, delivered: u64, backlog: Option<&Backlog>, percent: u32, now: u64) {
        let Some(outgoing) = &self.outgoing else { return };
        let load = Load {
            delivered,
            waiting: backlog.map_or(0, |backlog| backlog.waiting(delivered)),
            fill: backlog.map_or(0, Backlog::fill),
            drains: outgoing.is_draining(),
            heeds: now - outgoing.heard < HEEDS,
        };
        self.throttle.tick(load, percent);
    }

    /// Returns whether the application has not consumed all pieces that arrived.
    #[inline]
    pub(super) fn is_held_back(&self) -> bool {
        self.incoming.as_ref().is_some_and(IncomingTransfer::is_held_back)
    }

    /// Returns whether the application is restoring another member's state.
    pub(super) fn is_restoring(&self) -> bool {
        self.incoming.as_ref().is_some_and(IncomingTransfer::is_restoring)
    }

    /// Returns the bytes held for transfers, without the backlog.
    pub(super) fn bytes(&self) -> u64 {
        let out = self.outgoing.as_ref().map_or(0, OutgoingTransfer::bytes);
        out + self.incoming.as_ref().map_or(0, IncomingTransfer::bytes)
    }

    pub(super) fn report(&mut self, report: TransferReport) {
        if self.reports.len() == REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
    }

    pub(super) fn take_report(&mut self) -> Option<TransferReport> {
        self.reports.pop_front()
    }
}
