//! The sending half of a queue pair: work requests, packets, what has been heard of them.
//!
//! Every work request has its PSNs from the moment it is posted: `first` and `packets`. A cursor says which packet is
//! made next; going back is moving the cursor. `una` is the oldest PSN that has not been acknowledged (or, of a READ or
//! atomic, answered), `sent` the one behind the newest that was ever sent.
//!
//! A WRITE that adjoins the one before it becomes part of that while no packet of it is sent, so that records of a ring fill
//! packets.
//!
//! Invariants: una ≤ sent ≤ next_psn; una ≤ cursor; the queue's front is not done; PSNs of the queue are without gaps.

use std::collections::VecDeque;

use stentor_fabric::{Opcode, QpConfig, QpId, QpKind, Span, Status};
use stentor_wire::Psn;

use super::attributes::Sending;
use super::completions::CompletionQueue;
use super::window::{RoundTrip, Window};
use super::work::{Data, Remote, Request, Work};

/// Packets of one READ request: longer READs are asked for piece by piece, so that answers do not flood a socket.
pub(crate) const READ_PIECE: u32 = 32;

/// Bytes of WRITEs that become one: as many as a run of the longest packets has.
const MOST_MERGED: u32 = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RequestKind {
    Send,
    Write,
    Read,
    CompareSwap { expected: u64, new: u64 },
    FetchAdd { add: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum DataPlace {
    /// In the requester's inline bytes, counted from the beginning of time.
    Inline(u64),
    /// In a region. For READs and atomics that is where the answer goes.
    Local(Span),
}

/// A work request in the send queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Wqe {
    pub(crate) id: u64,
    pub(crate) kind: RequestKind,
    pub(crate) signalled: bool,
    pub(crate) solicited: bool,
    pub(crate) bytes: u32,
    pub(crate) place: DataPlace,
    pub(crate) remote: Remote,
    pub(crate) imm: Option<u32>,
    pub(crate) first: Psn,
    pub(crate) packets: u32,
    /// Requests that became part of this one: their ids are in [`Requester::folded`].
    pub(crate) folded: u32,
    /// Packets of the answer that came.
    pub(crate) answered: u32,
}

impl Wqe {
    /// READs and atomics are done when their answer came, everything else when it was acknowledged.
    pub(crate) fn wants_answer(&self) -> bool {
        !matches!(self.kind, RequestKind::Send | RequestKind::Write)
    }

    /// Whether a WRITE that follows may become part of this one: nobody waits for its completion, and no packet of it was sent.
    /// `sent`: see [`Requester::sent`].
    fn may_grow(&self, sent: Psn) -> bool {
        let plain = self.kind == RequestKind::Write && self.imm.is_none() && !self.signalled;
        plain && (1..MOST_MERGED).contains(&self.bytes) && !self.first.is_before(sent)
    }

    fn opcode(&self) -> Opcode {
        match self.kind {
            RequestKind::Send => Opcode::Send,
            RequestKind::Write => Opcode::Write,
            RequestKind::Read => Opcode::Read,
            RequestKind::CompareSwap { .. } | RequestKind::FetchAdd { .. } => Opcode::Atomic,
        }
    }
}

/// Which packet is made next: of which work request (counted from the beginning of time), and which of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cursor {
    pub(crate) number: u64,
    pub(crate) packet: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Requester {
    pub(crate) qp: QpId,
    pub(crate) config: QpConfig,
    pub(crate) sending: Sending,
    pub(crate) queue: VecDeque<Wqe>,
    /// Ids of requests that became part of the one behind them, in the queue's order.
    pub(crate) folded: VecDeque<u64>,
    /// Number of the queue's front, from 1.
    pub(crate) head: u64,
    /// Number up to which places are free again.
    pub(crate) freed: u64,
    pub(crate) inline: VecDeque<u8>,
    /// Inline bytes that are gone.
    pub(crate) inline_gone: u64,
    pub(crate) next_psn: Psn,
    pub(crate) una: Psn,
    pub(crate) sent: Psn,
    pub(crate) cursor: Cursor,
    /// READs and atomics that were asked for and not answered.
    pub(crate) asked: u32,
    /// Packets since an acknowledgement was asked for.
    pub(crate) unasked: u32,
    /// Went back and has heard of no progress since.
    pub(crate) recovering: bool,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) window: Window,
    /// Bytes of the longest request that was answered since the start.
    pub(crate) longest: u32,
    /// Bytes of the request that was not answered for long when the queue pair ended.
    pub(crate) unanswered: Option<u32>,
    pub(crate) timers: Timers,
}

/// A probe that is due.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Probing {
    #[default]
    Nothing,
    /// The last packet again: the answer tells of everything before it.
    Last,
    /// The oldest packet and then the last one. A responder answers the last one only once while a packet before it is
    /// missing, and that answer may be lost. It always answers the oldest one.
    Both,
}

/// Deadlines, nanoseconds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Timers {
    /// The transport timeout.
    pub(crate) retry: Option<u64>,
    /// When to ask how far the peer is.
    pub(crate) probe: Option<u64>,
    /// The end of a wait after "receiver not ready".
    pub(crate) rnr: Option<u64>,
    /// How long a probe waits; doubles with each.
    pub(crate) patience: u64,
    pub(crate) round_trip: RoundTrip,
    /// A packet whose acknowledgement is timed.
    pub(crate) timed: Option<(Psn, u64)>,
    pub(crate) probing: Probing,
    /// A probe was sent and nothing new was acknowledged since.
    pub(crate) probed: bool,
}

/// A request that is probed for this time, nanoseconds, without an answer counts as unanswered.
const LONG: u64 = 30_000_000;
/// Probes wait at least this long, nanoseconds.
const MIN_PATIENCE: u64 = 500_000;
/// And so long while no round trip was measured.
const FIRST_PATIENCE: u64 = 4_000_000;

impl Timers {
    /// All deadlines come so much earlier.
    pub(crate) fn rewind(&mut self, by: u64) {
        let timed = self.timed.as_mut().map(|(_, since)| since);
        let all = [self.retry.as_mut(), self.probe.as_mut(), self.rnr.as_mut(), timed];
        all.into_iter().flatten().for_each(|at| *at = at.saturating_sub(by));
    }

    /// Takes the time from a packet to its acknowledgement.
    pub(crate) fn measured(&mut self, took: u64) {
        let before = self.round_trip.smooth;
        // The answer to a probe comes late. If it counted in full, the next probe would wait longer still.
        self.round_trip.measured(if self.probed && before > 0 { took.min(2 * before) } else { took });
        self.timed = None;
    }

    pub(crate) fn rested(&self) -> u64 {
        if self.round_trip.smooth == 0 { FIRST_PATIENCE } else { (4 * self.round_trip.smooth).max(MIN_PATIENCE) }
    }
}

impl Requester {
    pub(crate) fn new(qp: QpId, config: QpConfig) -> Requester {
        Requester {
            qp,
            config,
            sending: Sending::new(Psn::new(0)),
            queue: VecDeque::with_capacity((config.send_depth as usize).min(1024)),
            folded: VecDeque::new(),
            head: 1,
            freed: 0,
            inline: VecDeque::new(),
            inline_gone: 0,
            next_psn: Psn::new(0),
            una: Psn::new(0),
            sent: Psn::new(0),
            cursor: Cursor { number: 1, packet: 0 },
            asked: 0,
            unasked: 0,
            recovering: false,
            retries: 0,
            rnr_retries: 0,
            window: Window::new(1),
            longest: 0,
            unanswered: None,
            timers: Timers::default(),
        }
    }

    /// The queue pair became ready to send.
    pub(crate) fn start(&mut self, sending: Sending) {
        let psn = sending.first_psn;
        (self.next_psn, self.una, self.sent) = (psn, psn, psn);
        (self.retries, self.rnr_retries) = (sending.retries, sending.rnr_retries);
        self.window = Window::new(sending.window);
        (self.sending, self.longest, self.unanswered) = (sending, 0, None);
        self.timers = Timers { patience: FIRST_PATIENCE, ..Timers::default() };
    }

    /// Number of the work request that is posted next.
    pub(crate) fn next_number(&self) -> u64 {
        self.head + self.queue.len() as u64
    }

    /// Whether the send queue has no place. Places are free when the completion of the request, or of a later one, was
    /// polled.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.next_number() - 1 - self.freed >= u64::from(self.config.send_depth)
    }

    /// Takes a request that was checked.
    #[inline]
    pub(crate) fn post(&mut self, work: &Work<'_>, mtu: u16) {
        if self.extend(work, mtu) {
            return;
        }
        let nowhere = Remote::default();
        let (kind, place, bytes, remote, imm) = match work.request {
            Request::Send { data, imm } => (RequestKind::Send, self.place(data), data.bytes() as usize, nowhere, imm),
            Request::Write { data, remote, imm } => {
                (RequestKind::Write, self.place(data), data.bytes() as usize, remote, imm)
            }
            Request::Read { local, remote } => {
                (RequestKind::Read, DataPlace::Local(local), local.bytes as usize, remote, None)
            }
            Request::CompareSwap { local, remote, expected, new } => {
                (RequestKind::CompareSwap { expected, new }, DataPlace::Local(local), 8, remote, None)
            }
            Request::FetchAdd { local, remote, add } => {
                (RequestKind::FetchAdd { add }, DataPlace::Local(local), 8, remote, None)
            }
        };
        // Even an empty message is a packet.
        let packets = (bytes as u32).div_ceil(mtu.into()).max(1);
        self.queue.push_back(Wqe {
            id: work.id,
            kind,
            signalled: work.signalled,
            solicited: work.solicited,
            bytes: bytes as u32,
            place,
            remote,
            imm,
            first: self.next_psn,
            packets,
            folded: 0,
            answered: 0,
        });
        self.next_psn = self.next_psn.plus(packets);
    }

    /// Makes a WRITE part of the one before it, if that is not signalled, no packet of it was sent, and both their data and
    /// their places adjoin. Returns whether it did. Bytes land in order, so nobody can tell them apart, unless one of them is
    /// refused: then so are those of its packet.
    fn extend(&mut self, work: &Work<'_>, mtu: u16) -> bool {
        let Request::Write { data, remote, imm: None } = work.request else { return false };
        let (sent, merges) = (self.sent, self.sending.merges && self.config.kind == QpKind::Reliable);
        let Some(last) = self.queue.back_mut().filter(|last| merges && last.may_grow(sent)) else { return false };
        let bytes = data.bytes() as u32;
        let adjoins = last.remote.rkey == remote.rkey && last.remote.va.wrapping_add(last.bytes.into()) == remote.va;
        if !adjoins || last.solicited != work.solicited || bytes > MOST_MERGED - last.bytes {
            return false;
        }
        match (&mut last.place, data) {
            (DataPlace::Inline(_), Data::Inline(bytes)) => self.inline.extend(bytes),
            (DataPlace::Local(before), Data::Region(span))
                if before.region == span.region && before.offset + u64::from(before.bytes) == span.offset =>
            {
                before.bytes += span.bytes;
            }
            _ => return false,
        }
        self.folded.push_back(last.id);
        (last.id, last.signalled, last.folded) = (work.id, work.signalled, last.folded + 1);
        last.bytes += bytes;
        let packets = last.bytes.div_ceil(mtu.into());
        last.packets = packets;
        self.next_psn = last.first.plus(packets);
        true
    }

    fn place(&mut self, data: Data<'_>) -> DataPlace {
        match data {
            Data::Inline(bytes) => {
                let at = self.inline_gone + self.inline.len() as u64;
                self.inline.extend(bytes);
                DataPlace::Inline(at)
            }
            Data::Region(span) => DataPlace::Local(span),
        }
    }

    pub(crate) fn at(&self, number: u64) -> Option<&Wqe> {
        self.queue.get(number.checked_sub(self.head)? as usize)
    }

    /// The PSN of the packet that the cursor is at.
    pub(crate) fn cursor_psn(&self) -> Psn {
        self.at(self.cursor.number).map_or(self.next_psn, |wqe| wqe.first.plus(self.cursor.packet))
    }

    /// Moves the cursor to a PSN of the queue, or behind its end.
    pub(crate) fn seek(&mut self, psn: Psn) {
        let mut number = self.head;
        for wqe in &self.queue {
            let packet = psn.distance(wqe.first);
            if packet < wqe.packets as i32 {
                self.cursor = Cursor { number, packet: packet.max(0) as u32 };
                return;
            }
            number += 1;
        }
        self.cursor = Cursor { number, packet: 0 };
    }

    /// Takes the front off the queue, done.
    pub(crate) fn finish(&mut self, completions: &mut CompletionQueue) {
        let Some(wqe) = self.queue.pop_front() else { return };
        self.longest = self.longest.max(wqe.bytes);
        if wqe.signalled {
            completions.send(self.qp, wqe.id, wqe.opcode(), Status::Success, self.head);
        }
        self.head += 1;
        self.folded.drain(..wqe.folded as usize);
        if let DataPlace::Inline(_) = wqe.place {
            self.inline.drain(..wqe.bytes as usize);
            self.inline_gone += u64::from(wqe.bytes);
        }
    }

    /// Breaks: the front gets a status, everything behind it is flushed.
    pub(crate) fn fail(&mut self, first: Status, completions: &mut CompletionQueue) {
        let mut status = first;
        let long = first == Status::RetryExceeded || self.is_waiting() && self.timers.patience >= LONG;
        let front = self.queue.front().filter(|_| long);
        self.unanswered = self.unanswered.or(front.map(|front| front.bytes));
        for wqe in self.queue.drain(..) {
            for id in self.folded.drain(..wqe.folded as usize).chain([wqe.id]) {
                completions.send(self.qp, id, wqe.opcode(), status, self.head);
                status = Status::Flushed;
            }
            self.head += 1;
        }
        self.inline_gone += self.inline.len() as u64;
        self.inline.clear();
        self.cursor = Cursor { number: self.head, packet: 0 };
        (self.timers.retry, self.timers.probe, self.timers.rnr) = (None, None, None);
        self.timers.probing = Probing::Nothing;
        (self.una, self.sent, self.asked) = (self.next_psn, self.next_psn, 0);
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<u64> {
        [self.timers.retry, self.timers.probe, self.timers.rnr].into_iter().flatten().min()
    }

    /// Whether something was sent and has not been acknowledged.
    pub(crate) fn is_waiting(&self) -> bool {
        self.una != self.sent
    }
}
