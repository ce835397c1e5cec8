//! The receiving half of a queue pair: requests of the peer, their effects on memory, and the responses.
//!
//! Invariants of a reliable connection: every request before `expected` was executed exactly once; new responses are
//! sent in the order of their PSNs; the last `max_dest_rd_atomic` responses to READs and atomics are kept, because they
//! may be requested again.

use std::collections::VecDeque;

use stentor_fabric::memory::Ordering;
use stentor_fabric::{Completion, Opcode, QpConfig, QpId, Span, Status};
use stentor_wire::{AtomicEth, Headers, Message, NakCode, Position, Psn, Reth, Syndrome};

use super::attributes::Path;
use super::completions::CompletionQueue;
use super::counters::Counters;
use super::memory::{Memory, ProtectionDomain, Right};

/// A posted receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) span: Span,
}

/// The message that is being received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Current {
    Nothing,
    Send {
        receive: Receive,
        filled: u32,
    },
    Write {
        va: u64,
        rkey: u32,
        left: u32,
        whole: u32,
    },
    /// The rest of the message is dropped, because a packet of it was lost or refused on an unreliable connection.
    Torn,
}

/// A response to send. Responses are sent in the order of `answers`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Reply {
    Acknowledge { psn: Psn, syndrome: Syndrome, msn: u32 },
    Atomic(AtomicResult),
    Read(Reading),
}

impl Reply {
    /// Returns `Some` for the response to a READ or atomic, with `true` if it repeats an earlier response. Returns
    /// `None` for an acknowledgement.
    fn repeats(&self) -> Option<bool> {
        match self {
            Reply::Acknowledge { .. } => None,
            Reply::Atomic(result) => Some(result.again),
            Reply::Read(reading) => Some(reading.again),
        }
    }
}

/// The result of an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct AtomicResult {
    pub(crate) psn: Psn,
    pub(crate) value: u64,
    pub(crate) msn: u32,
    /// `true` if the response was requested again.
    pub(crate) again: bool,
}

/// A READ that is being answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reading {
    pub(crate) first: Psn,
    pub(crate) va: u64,
    pub(crate) rkey: u32,
    pub(crate) bytes: u32,
    pub(crate) msn: u32,
    /// Index of the next packet to make.
    pub(crate) packet: u32,
    /// Number of packets of the response.
    pub(crate) packets: u32,
    /// `true` if the response was requested again.
    pub(crate) again: bool,
}

/// A response that may be requested again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kept {
    Read(Reading),
    Atomic(AtomicResult),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Responder {
    pub(crate) qp: QpId,
    pub(crate) receives: VecDeque<Receive>,
    pub(crate) recv_depth: u32,
    /// Number of posted receives whose completions were not polled yet.
    pub(crate) held: u32,
    pub(crate) expected: Psn,
    pub(crate) answers: VecDeque<Reply>,
    current: Current,
    /// Number of messages executed, 24 bits.
    msn: u32,
    /// `true` after a negative acknowledgement for `expected` was sent. No further one is sent until that packet
    /// arrives.
    complained: bool,
    kept: VecDeque<Kept>,
}

/// A parsed request.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) psn: Psn,
    pub(crate) headers: Headers,
    pub(crate) payload: &'a [u8],
    pub(crate) ack_req: bool,
    pub(crate) solicited: bool,
}

/// The context in which a request is executed.
pub(crate) struct Serving<'a> {
    pub(crate) domain: ProtectionDomain,
    pub(crate) path: &'a Path,
    pub(crate) memory: &'a Memory,
    pub(crate) counters: &'a mut Counters,
    pub(crate) completions: &'a mut CompletionQueue,
}

/// The reason why a request is not executed. The classes are those of the InfiniBand specification's table "responder
/// error behavior".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// No receive is posted (class B). The requester of a reliable connection waits and retries.
    NotReady,
    /// The request itself is invalid (class C).
    Invalid,
    /// The key is invalid, or the request violates the bounds or rights of the key (class C).
    Access,
    /// The request is valid, but this side cannot execute it, because the memory of the posted receive is no longer
    /// registered (class A).
    Operational,
}

type Served<R = ()> = Result<R, Refusal>;

/// The error that breaks the queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

impl Responder {
    pub(crate) fn new(qp: QpId, config: QpConfig) -> Responder {
        Responder {
            qp,
            receives: VecDeque::with_capacity((config.recv_depth as usize).min(1024)),
            recv_depth: config.recv_depth,
            held: 0,
            expected: Psn::new(0),
            answers: VecDeque::new(),
            current: Current::Nothing,
            msn: 0,
            complained: false,
            kept: VecDeque::new(),
        }
    }

    /// Initializes the responder when the queue pair becomes ready to receive.
    pub(crate) fn start(&mut self, path: &Path) {
        self.expected = path.expected_psn;
        (self.current, self.msn, self.complained) = (Current::Nothing, 0, false);
        self.kept.clear();
        self.answers.clear();
    }

    /// Breaks the responder: flushes all receives. Responses that were due are still sent.
    pub(crate) fn fail(&mut self, completions: &mut CompletionQueue) {
        let current = match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::Send { receive, .. } => Some(receive),
            _ => None,
        };
        let qp = self.qp;
        for receive in current.into_iter().chain(self.receives.drain(..)) {
            completions.receive(received(qp, receive.id, Opcode::Recv, Status::Flushed, (0, None)), false);
        }
    }

    /// Handles a request on a reliable connection.
    pub(crate) fn serve(&mut self, request: &Request<'_>, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let ahead = request.psn.distance(self.expected);
        if ahead > 0 {
            serving.counters.out_of_order += 1;
            if !std::mem::replace(&mut self.complained, true) {
                serving.counters.sequence_naks_sent += 1;
                self.refuse(Syndrome::Nak(NakCode::PsnSequence));
            }
            return Ok(());
        }
        if ahead < 0 {
            self.repeat(request, serving);
            return Ok(());
        }
        match self.carry_out(request, serving) {
            Ok(packets) => {
                self.complained = false;
                self.expected = self.expected.plus(packets);
                let answered =
                    matches!(request.headers, Headers::ReadRequest(_) | Headers::CompareSwap(_) | Headers::FetchAdd(_));
                if request.ack_req && !answered {
                    self.acknowledge();
                }
                Ok(())
            }
            Err(Refusal::NotReady) => {
                serving.counters.rnr_sent += 1;
                self.complained = true;
                self.refuse(Syndrome::RnrNak(serving.path.min_rnr_timer));
                Ok(())
            }
            Err(Refusal::Invalid) => {
                serving.counters.invalid_requests += 1;
                self.refuse(Syndrome::Nak(NakCode::InvalidRequest));
                Err(Broken)
            }
            Err(Refusal::Access) => {
                serving.counters.access_errors += 1;
                self.refuse(Syndrome::Nak(NakCode::RemoteAccess));
                Err(Broken)
            }
            Err(Refusal::Operational) => {
                serving.counters.operational_errors += 1;
                self.refuse(Syndrome::Nak(NakCode::RemoteOperational));
                Err(Broken)
            }
        }
    }

    /// Acknowledges all requests before `expected`. If the last response in the queue is a positive acknowledgement,
    /// too, the new one replaces it.
    fn acknowledge(&mut self) {
        let answer = Reply::Acknowledge { psn: self.expected.minus(1), syndrome: Syndrome::ACK, msn: self.msn };
        match self.answers.back_mut() {
            Some(last @ Reply::Acknowledge { syndrome: Syndrome::Ack(_), .. }) => *last = answer,
            _ => self.answers.push_back(answer),
        }
    }

    fn refuse(&mut self, syndrome: Syndrome) {
        self.answers.push_back(Reply::Acknowledge { psn: self.expected, syndrome, msn: self.msn });
    }

    /// Executes the next request. Returns the number of PSNs that it occupies.
    fn carry_out(&mut self, request: &Request<'_>, serving: &mut Serving<'_>) -> Served<u32> {
        let busy = !matches!(self.current, Current::Nothing);
        match request.headers {
            Headers::Rc(message) => self.message(message, request, serving).map(|()| 1),
            // Another message begins before the current one is complete.
            _ if busy => Err(Refusal::Invalid),
            Headers::ReadRequest(reth) => self.read(reth, serving),
            Headers::CompareSwap(atomic) => self.atomic(atomic, true, serving).map(|()| 1),
            Headers::FetchAdd(atomic) => self.atomic(atomic, false, serving).map(|()| 1),
            // "SEND with invalidate" is refused, because peers may not invalidate keys of this endpoint.
            _ => Err(Refusal::Invalid),
        }
    }

    /// Handles a packet of a SEND or WRITE.
    fn message(&mut self, message: Message, request: &Request<'_>, serving: &mut Serving<'_>) -> Served {
        let (position, imm) = shape(message);
        let (bytes, mtu) = (request.payload.len(), usize::from(serving.path.mtu));
        let sound = match position {
            Position::First | Position::Middle => bytes == mtu,
            Position::Last => (1..=mtu).contains(&bytes),
            Position::Only => bytes <= mtu,
        };
        let is_idle = matches!(self.current, Current::Nothing);
        if !sound || position.begins() != is_idle {
            return Err(Refusal::Invalid);
        }
        match message {
            Message::WriteFirst(reth) | Message::WriteOnly(reth) | Message::WriteOnlyImm(reth, _) => {
                self.write(Some(reth), (position, imm), request, serving)
            }
            Message::WriteMiddle | Message::WriteLast | Message::WriteLastImm(_) => {
                self.write(None, (position, imm), request, serving)
            }
            _ => self.send((position, imm), request, serving),
        }
    }

    fn send(
        &mut self,
        (position, imm): (Position, Option<u32>),
        request: &Request<'_>,
        serving: &mut Serving<'_>,
    ) -> Served {
        let (receive, filled) = match self.current {
            Current::Send { receive, filled } => (receive, filled),
            Current::Nothing => (self.receives.pop_front().ok_or(Refusal::NotReady)?, 0),
            _ => return Err(Refusal::Invalid),
        };
        let bytes = request.payload.len() as u32;
        let unusable = if bytes > receive.span.bytes - filled {
            Some((Status::LocalLength, Refusal::Invalid))
        } else if bytes > 0 && !serving.memory.contains(receive.span) {
            Some((Status::LocalProtection, Refusal::Operational))
        } else {
            None
        };
        if let Some((status, refusal)) = unusable {
            self.current = Current::Nothing;
            let completion = received(self.qp, receive.id, Opcode::Recv, status, (0, None));
            serving.completions.receive(completion, true);
            return Err(refusal);
        }
        if bytes > 0 {
            serving.memory.store(receive.span.region, receive.span.offset + u64::from(filled), request.payload);
        }
        let filled = filled + bytes;
        if position.ends() {
            self.current = Current::Nothing;
            self.msn = (self.msn + 1) & 0xff_ffff;
            let completion = received(self.qp, receive.id, Opcode::Recv, Status::Success, (filled, imm));
            serving.completions.receive(completion, request.solicited);
        } else {
            self.current = Current::Send { receive, filled };
        }
        Ok(())
    }

    fn write(
        &mut self,
        begins: Option<Reth>,
        (position, imm): (Position, Option<u32>),
        request: &Request<'_>,
        serving: &mut Serving<'_>,
    ) -> Served {
        let (va, rkey, left, whole) = match (begins, self.current) {
            (Some(reth), _) => (reth.va, reth.rkey, reth.bytes, reth.bytes),
            (None, Current::Write { va, rkey, left, whole }) => (va, rkey, left, whole),
            _ => return Err(Refusal::Invalid),
        };
        let bytes = request.payload.len() as u32;
        // The data must have exactly the announced length (InfiniBand specification 9.7.4.1.6).
        let fits = if position.ends() { bytes == left } else { bytes < left };
        if !fits || whole > stentor_wire::MAX_MESSAGE_BYTES {
            return Err(Refusal::Invalid);
        }
        // Check all remaining bytes, so that a WRITE that ends outside the region does not begin.
        let span = match left {
            0 => None,
            _ => {
                let span = serving.memory.resolve(serving.domain, (va, rkey), left, Right::Write);
                Some(span.ok_or(Refusal::Access)?)
            }
        };
        let receive = match imm {
            Some(imm) => Some((self.receives.pop_front().ok_or(Refusal::NotReady)?, imm)),
            None => None,
        };
        if let Some(span) = span {
            serving.memory.store(span.region, span.offset, request.payload);
        }
        if !position.ends() {
            self.current = Current::Write { va: va + u64::from(bytes), rkey, left: left - bytes, whole };
            return Ok(());
        }
        self.current = Current::Nothing;
        self.msn = (self.msn + 1) & 0xff_ffff;
        if let Some((receive, imm)) = receive {
            let about = (whole, Some(imm));
            let completion = received(self.qp, receive.id, Opcode::RecvWriteImm, Status::Success, about);
            serving.completions.receive(completion, request.solicited);
        }
        Ok(())
    }

    /// Returns whether `max_dest_rd_atomic` READs and atomics are waiting for their responses. If the requester
    /// respects this limit, fewer are waiting when it sends a new request.
    fn is_busy(&self, serving: &Serving<'_>) -> bool {
        let new = self.answers.iter().filter(|answer| answer.repeats() == Some(false));
        new.count() >= usize::from(serving.path.max_dest_rd_atomic)
    }

    /// Returns whether so many READs and atomics are waiting that further repetitions are dropped. There is no
    /// negotiated limit for repetitions.
    fn is_overloaded(&self, serving: &Serving<'_>) -> bool {
        let waiting = self.answers.iter().filter(|answer| answer.repeats().is_some()).count();
        waiting > 2 * usize::from(serving.path.max_dest_rd_atomic)
    }

    fn read(&mut self, reth: Reth, serving: &mut Serving<'_>) -> Served<u32> {
        if reth.bytes > stentor_wire::MAX_MESSAGE_BYTES {
            return Err(Refusal::Invalid);
        }
        let source = (reth.va, reth.rkey);
        if reth.bytes > 0 && serving.memory.resolve(serving.domain, source, reth.bytes, Right::Read).is_none() {
            return Err(Refusal::Access);
        }
        if self.is_busy(serving) {
            return Err(Refusal::Invalid);
        }
        self.msn = (self.msn + 1) & 0xff_ffff;
        let packets = reth.bytes.div_ceil(serving.path.mtu.into()).max(1);
        let Reth { va, rkey, bytes } = reth;
        let reading =
            Reading { first: self.expected, va, rkey, bytes, msn: self.msn, packet: 0, packets, again: false };
        self.keep(Kept::Read(reading), serving);
        self.answers.push_back(Reply::Read(reading));
        Ok(packets)
    }

    fn atomic(&mut self, atomic: AtomicEth, compares: bool, serving: &mut Serving<'_>) -> Served {
        if !atomic.va.is_multiple_of(8) {
            return Err(Refusal::Invalid);
        }
        let span = serving.memory.resolve(serving.domain, (atomic.va, atomic.rkey), 8, Right::Atomic);
        let word = serving.memory.word(span.ok_or(Refusal::Access)?);
        if self.is_busy(serving) {
            return Err(Refusal::Invalid);
        }
        let value = if compares {
            let swapped = word.compare_exchange(atomic.compare, atomic.swap_add, Ordering::Relaxed, Ordering::Relaxed);
            swapped.unwrap_or_else(|value| value)
        } else {
            word.fetch_add(atomic.swap_add, Ordering::Relaxed)
        };
        self.msn = (self.msn + 1) & 0xff_ffff;
        let result = AtomicResult { psn: self.expected, value, msn: self.msn, again: false };
        self.keep(Kept::Atomic(result), serving);
        self.answers.push_back(Reply::Atomic(result));
        Ok(())
    }

    fn keep(&mut self, kept: Kept, serving: &Serving<'_>) {
        if self.kept.len() >= usize::from(serving.path.max_dest_rd_atomic) {
            self.kept.pop_front();
        }
        self.kept.push_back(kept);
    }

    /// Handles a duplicate request (InfiniBand specification 9.7.1.1). A READ is answered with the present contents of
    /// memory. No other request is executed again.
    fn repeat(&mut self, request: &Request<'_>, serving: &mut Serving<'_>) {
        let psn = request.psn;
        let again = match request.headers {
            Headers::Rc(_) => {
                serving.counters.duplicates += 1;
                self.acknowledge();
                return;
            }
            Headers::ReadRequest(reth) => self.kept.iter().find_map(|kept| part(kept, psn, reth, serving.path.mtu)),
            Headers::CompareSwap(_) | Headers::FetchAdd(_) => self.kept.iter().find_map(|kept| match *kept {
                Kept::Atomic(result) if result.psn == psn => {
                    Some(Reply::Atomic(AtomicResult { again: true, ..result }))
                }
                _ => None,
            }),
            _ => None,
        };
        let Some(again) = again else {
            serving.counters.unrepeatable += 1;
            return;
        };
        if self.is_overloaded(serving) {
            serving.counters.overload += 1;
            return;
        }
        serving.counters.duplicates += 1;
        self.answers.push_back(again);
    }

    /// Handles a packet on an unreliable connection. Sends no answers, and drops duplicates and invalid packets. After
    /// a gap, it drops packets up to the next beginning of a message. As on a reliable connection, a local error breaks
    /// the queue pair, except that a receive that is too short completes with an error.
    pub(crate) fn serve_unreliable(&mut self, request: &Request<'_>, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let Headers::Uc(message) = request.headers else { return Ok(()) };
        let ahead = request.psn.distance(self.expected);
        if ahead < 0 {
            serving.counters.duplicates += 1;
            return Ok(());
        }
        if ahead > 0 {
            self.tear();
        }
        self.expected = request.psn.next();
        let (position, _) = shape(message);
        if position.begins() {
            self.tear();
            self.current = Current::Nothing;
        } else if matches!(self.current, Current::Torn) {
            serving.counters.out_of_order += 1;
            return Ok(());
        }
        let Err(refusal) = self.message(message, request, serving) else { return Ok(()) };
        self.tear();
        match refusal {
            Refusal::Access => serving.counters.access_errors += 1,
            Refusal::NotReady => serving.counters.no_receive += 1,
            Refusal::Invalid => serving.counters.invalid_requests += 1,
            Refusal::Operational => {
                serving.counters.operational_errors += 1;
                return Err(Broken);
            }
        }
        Ok(())
    }

    /// Abandons the message that is being received. The next message uses its receive.
    fn tear(&mut self) {
        if let Current::Send { receive, .. } = self.current {
            self.receives.push_front(receive);
        }
        self.current = Current::Torn;
    }
}

/// Returns the response for a READ that requests a part of an earlier READ again, or `None` if it is not a part of
/// `kept`.
fn part(kept: &Kept, psn: Psn, reth: Reth, mtu: u16) -> Option<Reply> {
    let Kept::Read(read) = *kept else { return None };
    let index = psn.distance(read.first);
    if index < 0 || index >= read.packets as i32 {
        return None;
    }
    let offset = index as u32 * u32::from(mtu);
    let inside = reth.va == read.va.wrapping_add(offset.into())
        && reth.rkey == read.rkey
        && reth.bytes <= read.bytes - offset.min(read.bytes);
    let packets = reth.bytes.div_ceil(mtu.into()).max(1);
    let (va, bytes) = (reth.va, reth.bytes);
    inside.then_some(Reply::Read(Reading { first: psn, va, bytes, packet: 0, packets, again: true, ..read }))
}

fn shape(message: Message) -> (Position, Option<u32>) {
    match message {
        Message::SendFirst | Message::WriteFirst(_) => (Position::First, None),
        Message::SendMiddle | Message::WriteMiddle => (Position::Middle, None),
        Message::SendLast | Message::WriteLast => (Position::Last, None),
        Message::SendLastImm(imm) | Message::WriteLastImm(imm) => (Position::Last, Some(imm)),
        Message::SendOnly | Message::WriteOnly(_) => (Position::Only, None),
        Message::SendOnlyImm(imm) | Message::WriteOnlyImm(_, imm) => (Position::Only, Some(imm)),
    }
}

fn received(qp: QpId, id: u64, opcode: Opcode, status: Status, (bytes, imm): (u32, Option<u32>)) -> Completion {
    Completion { qp, id, opcode, status, bytes, imm, tag: 0 }
}
