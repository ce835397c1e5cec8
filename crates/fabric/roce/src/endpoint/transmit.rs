//! Construction of a requester's packets.

use stentor_fabric::Status;
use stentor_wire::{AtomicEth, Bth, Headers, Message, Position, Psn, Repr, Reth};

use super::attributes::Path;
use super::completions::CompletionQueue;
use super::counters::Counters;
use super::memory::Memory;
use super::outbox::Outbox;
use super::requester::{Cursor, DataPlace, Probing, READ_PIECE, RequestKind, Requester, Wqe};

/// The context in which a packet is made.
pub(crate) struct Making<'a> {
    pub(crate) now: u64,
    pub(crate) reliable: bool,
    pub(crate) path: &'a Path,
    pub(crate) memory: &'a Memory,
    pub(crate) out: &'a mut Outbox,
    pub(crate) counters: &'a mut Counters,
    pub(crate) completions: &'a mut CompletionQueue,
}

impl Requester {
    /// Makes the next packet, if there is one and it may be sent. Returns whether it made one. `making.out` must have
    /// room. An error breaks the queue pair.
    pub(crate) fn transmit(&mut self, making: &mut Making<'_>) -> Result<bool, Status> {
        if self.timers.rnr.is_some() {
            return Ok(false);
        }
        if self.timers.probing != Probing::Nothing && self.probe(making) {
            return Ok(true);
        }
        let Some(wqe) = self.at(self.cursor.number).copied() else { return Ok(false) };
        if !is_there(&wqe, making.memory) {
            // The queue pair breaks only once this request is at the front, because earlier requests may still succeed.
            return if self.cursor.number == self.head { Err(Status::LocalProtection) } else { Ok(false) };
        }
        let packet = self.cursor.packet;
        let psn = wqe.first.plus(packet);
        if !making.reliable {
            self.make(making, &wqe, packet, false);
            self.step(making, &wqe, 1);
            return Ok(true);
        }
        let ahead = psn.distance(self.una) as u32;
        let window = self.window.packets();
        if ahead >= window || wqe.wants_answer() && self.asked >= self.sending.max_rd_atomic.into() {
            return Ok(false);
        }
        let packets = if wqe.kind == RequestKind::Read { piece(&wqe, packet) } else { 1 };
        let ends = packet + packets >= wqe.packets;
        // Request an acknowledgement if a completion waits for it, and often enough to keep the window open.
        let ask = ends && wqe.signalled || self.unasked + 1 >= (window / 4).max(1) || ahead + 1 >= window;
        self.make(making, &wqe, packet, ask);
        self.asked += u32::from(wqe.wants_answer());
        if psn.is_before(self.sent) {
            making.counters.retransmitted += 1;
            making.out.again();
        } else if ask && self.timers.timed.is_none() {
            self.timers.timed = Some((psn, making.now));
        }
        self.step(making, &wqe, packets);
        if self.timers.retry.is_none() {
            self.timers.retry = self.sending.timeout_ns().map(|timeout| making.now + timeout);
        }
        self.timers.probe = Some(making.now + self.timers.patience);
        Ok(true)
    }

    /// Advances the cursor by some packets of a work request.
    fn step(&mut self, making: &mut Making<'_>, wqe: &Wqe, packets: u32) {
        self.cursor.packet += packets;
        let psn = wqe.first.plus(self.cursor.packet);
        if self.sent.is_before(psn) {
            self.sent = psn;
        }
        if self.cursor.packet >= wqe.packets {
            self.cursor = Cursor { number: self.cursor.number + 1, packet: 0 };
            if !making.reliable {
                self.una = psn;
                self.finish(making.completions);
            }
        }
    }

    /// Makes the next packet of the probe that is due. This packet repeats an earlier one, or requests a missing
    /// response again, so that the peer reports its progress. Returns whether a packet was made.
    #[cold]
    fn probe(&mut self, making: &mut Making<'_>) -> bool {
        let last = self.last();
        if std::mem::take(&mut self.timers.probing) == Probing::Both {
            self.timers.probing = Probing::Last;
            let packet = self.queue.front().map_or(0, |front| self.una.distance(front.first) as u32);
            let oldest = Cursor { number: self.head, packet };
            if last != Some(oldest) && self.make_again(making, oldest) {
                return true;
            }
            self.timers.probing = Probing::Nothing;
        }
        last.is_some_and(|last| self.make_again(making, last))
    }

    /// Returns the packet before the cursor.
    fn last(&self) -> Option<Cursor> {
        let Cursor { number, packet } = self.cursor;
        if packet > 0 {
            return Some(Cursor { number, packet: packet - 1 });
        }
        let number = number.checked_sub(1)?;
        Some(Cursor { number, packet: self.at(number)?.packets - 1 })
    }

    fn make_again(&mut self, making: &mut Making<'_>, at: Cursor) -> bool {
        let Some(wqe) = self.at(at.number).copied().filter(|wqe| is_there(wqe, making.memory)) else {
            return false;
        };
        let packet = if wqe.wants_answer() { wqe.answered } else { at.packet };
        self.make(making, &wqe, packet, true);
        making.out.again();
        making.counters.probes += 1;
        true
    }

    /// Makes one packet.
    fn make(&mut self, making: &mut Making<'_>, wqe: &Wqe, packet: u32, ask: bool) {
        let mtu = u32::from(making.path.mtu);
        let position = Position::of(packet, wqe.packets);
        let offset = packet * mtu;
        let (headers, payload) = match wqe.kind {
            RequestKind::Send | RequestKind::Write => {
                let bytes = (wqe.bytes - offset).min(mtu);
                let writes = wqe.kind == RequestKind::Write && wqe.imm.is_none();
                let apart = self.sending.apart && making.reliable && writes;
                let message = if apart { part(wqe, offset, bytes) } else { message(wqe, position) };
                let headers = if making.reliable { Headers::Rc(message) } else { Headers::Uc(message) };
                (headers, bytes)
            }
            RequestKind::Read => (read(wqe, packet, mtu), 0),
            RequestKind::CompareSwap { expected, new } => (Headers::CompareSwap(atomic(wqe, new, expected)), 0),
            RequestKind::FetchAdd { add } => (Headers::FetchAdd(atomic(wqe, add, 0)), 0),
        };
        let mut bth = Bth::new(making.path.dest_qp, wqe.first.plus(packet));
        bth.ack_req = ask || making.reliable && wqe.wants_answer();
        bth.solicited = wqe.solicited && position.ends();
        self.unasked = if bth.ack_req { 0 } else { self.unasked + 1 };
        let repr = Repr { bth, headers, payload_bytes: payload as usize };
        making.counters.sent += 1;
        making.out.push(&making.path.envelope, &repr, |to| match wqe.place {
            // If the payload is empty, its region need not exist.
            _ if payload == 0 => {}
            DataPlace::Local(span) => making.memory.load(span.region, span.offset + u64::from(offset), to),
            DataPlace::Inline(at) => self.copy_inline(at + u64::from(offset), to),
        });
    }

    fn copy_inline(&self, at: u64, to: &mut [u8]) {
        let at = (at - self.inline_gone) as usize;
        let (front, back) = self.inline.as_slices();
        let from_front = front.len().saturating_sub(at).min(to.len());
        let (first, second) = to.split_at_mut(from_front);
        if from_front > 0 {
            first.copy_from_slice(&front[at..at + from_front]);
        }
        if !second.is_empty() {
            let at = at.saturating_sub(front.len());
            second.copy_from_slice(&back[at..at + second.len()]);
        }
    }

    /// Moves the cursor back to a PSN, so that this packet and all later ones are sent again.
    pub(crate) fn go_back(&mut self, psn: Psn) {
        self.seek(psn);
        (self.recovering, self.asked, self.timers.timed) = (true, 0, None);
    }
}

/// Returns whether the local memory of a work request, from which it reads or to which its response is written, is
/// still registered.
fn is_there(wqe: &Wqe, memory: &Memory) -> bool {
    match wqe.place {
        DataPlace::Local(span) => span.bytes == 0 || memory.contains(span),
        DataPlace::Inline(_) => true,
    }
}

/// Returns the number of response packets, beginning at `packet`, that one request packet of a READ asks for.
pub(crate) fn piece(wqe: &Wqe, packet: u32) -> u32 {
    (READ_PIECE - packet % READ_PIECE).min(wqe.packets - packet)
}

fn message(wqe: &Wqe, position: Position) -> Message {
    let reth = Reth { va: wqe.remote.va, rkey: wqe.remote.rkey, bytes: wqe.bytes };
    match (wqe.kind == RequestKind::Write, position, wqe.imm) {
        (false, Position::First, _) => Message::SendFirst,
        (false, Position::Middle, _) => Message::SendMiddle,
        (false, Position::Last, None) => Message::SendLast,
        (false, Position::Last, Some(imm)) => Message::SendLastImm(imm),
        (false, Position::Only, None) => Message::SendOnly,
        (false, Position::Only, Some(imm)) => Message::SendOnlyImm(imm),
        (true, Position::First, _) => Message::WriteFirst(reth),
        (true, Position::Middle, _) => Message::WriteMiddle,
        (true, Position::Last, None) => Message::WriteLast,
        (true, Position::Last, Some(imm)) => Message::WriteLastImm(imm),
        (true, Position::Only, None) => Message::WriteOnly(reth),
        (true, Position::Only, Some(imm)) => Message::WriteOnlyImm(reth, imm),
    }
}

/// Returns the header of a separate WRITE for the `bytes` bytes at `offset` of a long WRITE.
fn part(wqe: &Wqe, offset: u32, bytes: u32) -> Message {
    Message::WriteOnly(Reth { va: wqe.remote.va.wrapping_add(offset.into()), rkey: wqe.remote.rkey, bytes })
}

fn read(wqe: &Wqe, packet: u32, mtu: u32) -> Headers {
    let offset = packet * mtu;
    let bytes = (wqe.bytes - offset).min(piece(wqe, packet) * mtu);
    Headers::ReadRequest(Reth { va: wqe.remote.va.wrapping_add(offset.into()), rkey: wqe.remote.rkey, bytes })
}

fn atomic(wqe: &Wqe, swap_add: u64, compare: u64) -> AtomicEth {
    AtomicEth { va: wqe.remote.va, rkey: wqe.remote.rkey, swap_add, compare }
}
