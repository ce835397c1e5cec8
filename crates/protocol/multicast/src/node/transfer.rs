//! Transfers of a group's state: to a member that came back without memory, that fell behind, or that campaigns and misses
//! what another member has delivered.
//!
//! A transfer brings the *receiver's application* as far as the *donor's*. What is open (assigned and not delivered) is
//! not part of it: that travels in the leader's state (`Install`, or a donor's `Transfer`), which goes out last, and is
//! small then.
//!
//! # A transfer's way
//! 1. The state machine wants to send a state with the application's to a member. The node asks that member where its
//!    application stands (`Query`, answered by `Standing`). If it has made all deliveries that the state counts, the state
//!    goes out at once, alone.
//! 2. Otherwise the donor *freezes* its application, and from then on keeps what it delivers in a *backlog*. The receiver's
//!    stream stops, if a majority has it without the receiver: nobody waits for a member that is away.
//! 3. The frozen state goes out in *pieces* of [`PIECE_BYTES`], each a peer message, of which at most [`WINDOW`] are not
//!    acknowledged. Pieces go through the control ring and take at most half of it. The receiver collects them. After the
//!    last one its application takes the state over, at once.
//! 4. The backlog goes out in the same way. The receiver's application takes each delivery as it comes.
//! 5. When nothing is left of the backlog, the donor asks its state machine for the state again, which is of this moment, and
//!    sends it behind the last piece. The stream starts there. The transfer is complete when the receiver has installed it.
//!
//! # States
//! - Donor: *none* → *snapshot* → *backlog* → *final* (the state is sent) → *none*; from *final* back to *backlog* if the
//!   receiver asks again, or the connection broke. It ends early, *given up*, for a [reason](GivenUp).
//! - Receiver: *none* → *snapshot* → *backlog* → *none* (the state came, or another transfer, or silence).
//!
//! # Invariants
//! - **The application's position is a number of its own**: `applied`, the number of deliveries that the application has
//!   made, itself or with a state. It never falls in a life of a group. It may be ahead of the state machine's: what the
//!   state machine delivers with a number up to `applied` is not handed to the application again. All members of a group
//!   deliver the same messages under the same numbers (M5), so the application misses nothing and gets nothing twice, also
//!   if the donor dies between the snapshot and the state, and another one goes on.
//! - **A state that counts more deliveries than the application has made is not handed to the state machine.** It marks
//!   messages as delivered, so the application would miss them.
//! - **A transfer has a name**: the donor (who sends), its life, and the donor's number for the freeze. A piece counts only
//!   if it carries the name of the transfer that the receiver takes part in, and is the next one. The first piece of a
//!   transfer of another name ends the one before.
//! - **A donor freezes once for a receiver.** Repeated requests find the transfer and change nothing. One donor serves one
//!   receiver at a time; others wait for their turn.
//! - **A stream that was stopped begins again**, whether it was stopped for the transfer or with a connection. It begins with the
//!   leader's state at the end of the transfer. If no stream runs when the transfer ends, the donor sends the state once more:
//!   the receiver may have installed an older one, know nothing of the stream, and ask for nothing.
//! - **A broken connection loses no freeze.** The donor keeps unacknowledged pieces, the freeze and the backlog, asks again
//!   where the receiver stands, and goes on behind the last piece that the receiver has. A receiver that lost its memory names
//!   no transfer, and gets a new freeze.
//! - **Memory is bounded and printed**: at the donor a backlog of `backlog_bytes` and a window of pieces; at the receiver
//!   `snapshot_bytes`. A state that is larger is refused by whoever notices first, and both ends name both numbers.
//! - **A group begins its life with an application that has made no delivery.** If one was given a state of a history that is
//!   over, it is reset first.
//!
//! # Pace
//! The donor holds back credits of clients: as the backlog fills beyond one half, and while it goes out, so that the receiver
//! takes more than is delivered ([`throttle`]). Clients keep `slowed_percent` of the rate before. If the backlog is full at that
//! share, the transfer is given up. A receiver that stands still slows nobody down: the donor holds back credits only while
//! acknowledgements come. A donor that holds back credits gives each client some in each tick, so that none expels it
//! ([`pace`](super::pace)).
//!
//! # Standing still
//! A receiver whose application takes over a large state at once frees nothing meanwhile, and may be expelled like anybody who
//! stands still. The transfer outlasts that as it outlasts any broken connection.

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
/// Bytes of a piece of a frozen state; pieces of the backlog have about as many.
pub(super) const PIECE_BYTES: usize = 16 << 10;
/// Pieces that may be under way without being acknowledged.
pub(super) const WINDOW: usize = 16;
/// The receiver acknowledges pieces whose number is a multiple of this.
const ACKNOWLEDGED_EVERY: u64 = 4;
/// Ticks for which a donor waits for a sign of progress, 30 s by default. While the receiver's application restores a large
/// state there is none.
pub(super) const DONOR_PATIENCE: u64 = 15_000;
/// The same while the connection is broken, 10 s by default, unless the application may be restoring the state.
pub(super) const RESUME_PATIENCE: u64 = 5000;
/// Ticks for which a receiver keeps what it has of a transfer that does not go on.
pub(super) const RECEIVER_PATIENCE: u64 = 15_000;
/// After as many ticks without progress nobody waits for a transfer any more: another receiver takes its turn if it asks. A
/// receiver that may be restoring the state has its time: two that take turns there would never end.
pub(super) const STALLED: u64 = 250;
/// A receiver takes no other donor's state if a piece came in as many ticks: two donors would keep it from both.
pub(super) const BUSY: u64 = 25;
/// Clients are slowed down only if the receiver made progress in as many ticks.
const HEEDS: u64 = 50;
/// A receiver asks clients not to wait for it when a transfer takes longer than this, ticks: they write to it anew then.
pub(super) const ASIDE_AFTER: u64 = 2;
/// Ticks between two questions where a receiver stands that says nothing, and where one stands whose connection broke.
pub(super) const ASK_EVERY: u64 = 64;
pub(super) const ASK_PAUSED_EVERY: u64 = 8;
/// Ticks until the next attempt after a transfer was given up for lack of room.
pub(super) const PAUSE: u64 = 1000;
/// Ticks until the next attempt when a receiver took another donor's state.
pub(super) const YIELD: u64 = 25;
/// Reports that are kept until somebody takes them.
const REPORTS: usize = 16;

/// What a member says about where its application stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// Deliveries that its application has made.
    pub(super) applied: u64,
    /// The transfer from the one that asked which it takes part in, and the number of the piece that it waits for.
    pub(super) under_way: Option<(Name, u64)>,
}

/// What the state machine wants another member to get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Want {
    /// The deliveries that the state counts.
    pub(super) delivered: u64,
}

/// All transfers at one member.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) outgoing: Option<OutgoingTransfer>,
    pub(super) incoming: Option<IncomingTransfer>,
    /// The incarnation of what the application took from a transfer last.
    pub(super) applied_in: Incarnation,
    /// By process: where its application stands; `None`: it has not said so on this connection.
    standings: Vec<Option<Standing>>,
    /// By process: what it is to get.
    wants: Vec<Option<Want>>,
    /// By process: the tick in which another attempt may begin.
    not_before: Vec<u64>,
    freezes: u64,
    reports: VecDeque<TransferReport>,
    pub(super) throttle: Throttle,
    /// Members whose streams begin again with a state that they are to get.
    pub(super) cut_off: Vec<ProcessId>,
    /// Something is to be looked at.
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

    /// Returns a member that is to get a state, says where it stands, and may have its turn now.
    pub(super) fn next_want(&self, now: u64) -> Option<(ProcessId, Want, Standing)> {
        (0..).map(ProcessId).zip(&self.wants).find_map(|(member, want)| {
            let (want, standing) = ((*want)?, self.standing(member)?);
            (now >= self.not_before[member.index()]).then_some((member, want, standing))
        })
    }

    /// Lets a member wait for its next turn.
    pub(super) fn pause(&mut self, member: ProcessId, until: u64) {
        if let Some(known) = self.not_before.get_mut(member.index()) {
            *known = until;
        }
    }

    /// Returns the next number of a freeze.
    pub(super) fn next_freeze(&mut self) -> u64 {
        self.freezes += 1;
        self.freezes
    }

    /// A tick passes at a donor, after so many deliveries of its application.
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

    /// Whether the application has not taken everything that came.
    #[inline]
    pub(super) fn is_held_back(&self) -> bool {
        self.incoming.as_ref().is_some_and(IncomingTransfer::is_held_back)
    }

    /// Whether the application has been handed another member's state, and has not taken it over.
    pub(super) fn is_restoring(&self) -> bool {
        self.incoming.as_ref().is_some_and(IncomingTransfer::is_restoring)
    }

    /// Bytes that wait here, but for the backlog.
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
