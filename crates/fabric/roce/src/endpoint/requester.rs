//! The sending half of a queue pair: its work requests, its packets, and the progress that the peer has acknowledged.
//!
//! The PSNs of a work request are assigned when it is posted, as `first` and `packets`. A cursor points to the next
//! packet to make; a retransmission moves the cursor back. `una` is the oldest PSN that was not acknowledged (for a
//! READ or atomic: not answered). `sent` is the PSN after the newest one that was ever sent.
//!
//! A WRITE that adjoins the previous one may be merged with it if no packet of the previous one has been sent (see
//! [`Requester::extend`]). Small adjacent WRITEs, such as records of a ring, therefore fill packets.
//!
//! Invariants: una ≤ sent ≤ next_psn; una ≤ cursor; the request at the front of the queue is not complete; the PSNs of
//! the queue have no gaps.

use std::collections::VecDeque;

use stentor_fabric::{Opcode, QpConfig, QpId, QpKind, Span, Status};
use stentor_wire::Psn;

use super::attributes::Sending;
use super::completions::CompletionQueue;
use super::window::{RoundTrip, Window};
use super::work::{Data, Remote, Request, Work};

/// Maximum number of packets of one READ request. Longer READs are requested piece by piece, so that responses do not
/// flood a socket.
pub(crate) const READ_PIECE: u32 = 32;

/// Maximum number of bytes of merged WRITEs, which is about the length of the longest run of packets.
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
    /// The data is in the requester's inline buffer, at this position. Positions count all inline bytes that were ever
    /// posted.
    Inline(u64),
    /// The data is in a region. For READs and atomics, this is the destination of the response.
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
    /// Number of earlier requests that were merged into this one. Their ids are in [`Requester::folded`].
    pub(crate) folded: u32,
    /// Number of response packets received.
    pub(crate) answered: u32,
}

impl Wqe {
    /// Returns whether the request completes when its response arrives (READs and atomics), and not when it is
    /// acknowledged.
    pub(crate) fn wants_answer(&self) -> bool {
        !matches!(self.kind, RequestKind::Send | RequestKind::Write)
    }

    /// Returns whether a following WRITE may be merged into this request: it is a WRITE without an immediate, it is not
    /// signalled, none of its packets was sent, and it is neither empty nor of the maximum length. `sent` is
    /// [`Requester::sent`].
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

/// The next packet to make: the number of its work request, counted from 1, and its index in the request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cursor {
    pub(crate) number: u64,
    pub(crate) packet: u32,
}

/// The longest requests that the peer has answered on a connection, in bytes. They are separate by the direction of the
/// data, because each direction has a path of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Longest {
    /// The longest request whose data went to the peer.
    to_peer: u32,
    /// The longest READ.
    from_peer: u32,
}

impl Longest {
    /// Returns the value for requests with data in the same direction.
    fn like(&mut self, wqe: &Wqe) -> &mut u32 {
        if wqe.kind == RequestKind::Read { &mut self.from_peer } else { &mut self.to_peer }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Requester {
    pub(crate) qp: QpId,
    pub(crate) config: QpConfig,
    pub(crate) sending: Sending,
    pub(crate) queue: VecDeque<Wqe>,
    /// Ids of requests that were merged into later ones, in the order of the queue.
    pub(crate) folded: VecDeque<u64>,
    /// Number of the request at the front of the queue, from 1.
    pub(crate) head: u64,
    /// Number of the last request whose slot is free again.
    pub(crate) freed: u64,
    pub(crate) inline: VecDeque<u8>,
    /// Number of inline bytes that were removed.
    pub(crate) inline_gone: u64,
    pub(crate) next_psn: Psn,
    pub(crate) una: Psn,
    pub(crate) sent: Psn,
    pub(crate) cursor: Cursor,
    /// Number of READ requests (one for each piece) and atomics that were sent since the cursor last moved back, but
    /// not answered yet.
    pub(crate) asked: u32,
    /// Number of packets sent since the last one that requested an acknowledgement.
    pub(crate) unasked: u32,
    /// `true` from the start of a retransmission until the peer acknowledges progress or is not ready to receive.
    pub(crate) recovering: bool,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) window: Window,
    /// The longest requests that the peer has answered on this connection.
    pub(crate) longest: Longest,
    /// Length of the request that counts as unanswered since the queue pair broke, and of the longest answered request
    /// with data in the same direction, in bytes.
    pub(crate) unanswered: Option<(u32, u32)>,
    pub(crate) timers: Timers,
}

/// The kind of probe that is due.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Probing {
    #[default]
    Nothing,
    /// Send the last packet again. Its acknowledgement covers all packets before it.
    Last,
    /// Send the oldest packet and then the last one again. While an earlier packet is missing, a responder answers the
    /// last packet only once, and that answer may be lost. A responder always answers the oldest packet.
    Both,
}

/// Deadlines and timing state, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Timers {
    /// Deadline of the transport timeout.
    pub(crate) retry: Option<u64>,
    /// Deadline of the next probe.
    pub(crate) probe: Option<u64>,
    /// End of the wait after "receiver not ready".
    pub(crate) rnr: Option<u64>,
    /// Delay of the next probe. It doubles with each probe, up to the transport timeout.
    pub(crate) patience: u64,
    pub(crate) round_trip: RoundTrip,
    /// PSN and send time of a packet whose acknowledgement is timed.
    pub(crate) timed: Option<(Psn, u64)>,
    pub(crate) probing: Probing,
    /// `true` if a probe was sent and no progress was acknowledged since then.
    pub(crate) probed: bool,
}

/// Delay of probes, in nanoseconds. If packets are unacknowledged and the delay has reached this value when the queue
/// pair breaks, the request at the front counts as unanswered.
const LONG: u64 = 30_000_000;
/// Minimum delay of a probe after a round trip was measured, in nanoseconds.
const MIN_PATIENCE: u64 = 500_000;
/// Delay of a probe before a round trip was measured, in nanoseconds.
const FIRST_PATIENCE: u64 = 4_000_000;

impl Timers {
    /// Moves all deadlines `by` nanoseconds earlier.
    pub(crate) fn rewind(&mut self, by: u64) {
        let timed = self.timed.as_mut().map(|(_, since)| since);
        let all = [self.retry.as_mut(), self.probe.as_mut(), self.rnr.as_mut(), timed];
        all.into_iter().flatten().for_each(|at| *at = at.saturating_sub(by));
    }

    /// Records the time from a packet to its acknowledgement.
    pub(crate) fn measured(&mut self, took: u64) {
        let before = self.round_trip.smooth;
        // The answer to a probe is late. If its full time counted, the next probe would be delayed even longer.
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
            longest: Longest::default(),
            unanswered: None,
            timers: Timers::default(),
        }
    }

    /// Initializes the requester when the queue pair becomes ready to send.
    pub(crate) fn start(&mut self, sending: Sending) {
        let psn = sending.first_psn;
        (self.next_psn, self.una, self.sent) = (psn, psn, psn);
        (self.retries, self.rnr_retries) = (sending.retries, sending.rnr_retries);
        self.window = Window::new(sending.window);
        (self.sending, self.longest, self.unanswered) = (sending, Longest::default(), None);
        self.timers = Timers { patience: FIRST_PATIENCE, ..Timers::default() };
    }

    /// Returns the number of the next work request to post.
    pub(crate) fn next_number(&self) -> u64 {
        self.head + self.queue.len() as u64
    }

    /// Returns whether the send queue is full. A slot is freed when the completion of its request or of a later request
    /// is polled.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.next_number() - 1 - self.freed >= u64::from(self.config.send_depth)
    }

    /// Adds a request, which the caller has checked.
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
        // An empty message also needs one packet.
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

    /// Merges a WRITE without an immediate with the previous one if the connection permits it, the previous one [may
    /// grow](Wqe::may_grow), both the data and the targets adjoin, both are solicited or neither is, and the result is
    /// not too long. Returns whether the WRITE was merged. Bytes land in order, so the merge is not observable, except
    /// that a refusal may affect all merged WRITEs.
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

    /// Returns the PSN of the packet at the cursor.
    pub(crate) fn cursor_psn(&self) -> Psn {
        self.at(self.cursor.number).map_or(self.next_psn, |wqe| wqe.first.plus(self.cursor.packet))
    }

    /// Moves the cursor to a PSN of the queue, or past the end of the queue.
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

    /// Removes the completed front of the queue.
    pub(crate) fn finish(&mut self, completions: &mut CompletionQueue) {
        let Some(wqe) = self.queue.pop_front() else { return };
        let longest = self.longest.like(&wqe);
        *longest = wqe.bytes.max(*longest);
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

    /// Breaks the requester: the request at the front completes with the status `first`, and all later ones are
    /// flushed.
    pub(crate) fn fail(&mut self, first: Status, completions: &mut CompletionQueue) {
        let mut status = first;
        let long = first == Status::RetryExceeded || self.is_waiting() && self.timers.patience >= LONG;
        if let Some(front) = self.queue.front().filter(|_| long && self.unanswered.is_none()) {
            // If a packet of this request was answered, packets of its length do pass.
            let is_begun = front.first.is_before(self.una);
            let longest = if is_begun { front.bytes } else { *self.longest.like(front) };
            self.unanswered = Some((front.bytes, longest));
        }
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

    /// Returns the earliest deadline.
    pub(crate) fn deadline(&self) -> Option<u64> {
        [self.timers.retry, self.timers.probe, self.timers.rnr].into_iter().flatten().min()
    }

    /// Returns whether any sent packet is not acknowledged yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.una != self.sent
    }
}
