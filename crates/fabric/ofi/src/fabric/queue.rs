//! A queue pair over all its lives: the send queue, the receives, and what happens to them.
//!
//! Work is posted to the provider in order, and reported in order, whatever the order of the provider's completions. A request
//! that needs a receive of the peer's waits until the peer has told of one, and everything behind it with it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use stentor_fabric::{Completion, Opcode, ProcessId, QpConfig, QpId, Span, Status};

use super::ends::Shared;
use super::frame::{FrameKind, PIECE};
use super::life::{Came, Life, Owner, store};
use crate::cq::{Batch, Success};
use crate::endpoint::{Completes, Local, Remote};
use crate::errno::Errno;

/// How long a connection whose peer was told that it is over waits for the peer to say so.
const DOOM: Duration = Duration::from_millis(100);

/// How many times longer a request waits for a receive while nothing at all has come from the peer.
const UNHEARD: u32 = 20;

/// A place of a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct There {
    pub(super) key: u64,
    pub(super) address: u64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Write {
        local: Local,
        to: There,
        imm: Option<u32>,
    },
    Read {
        local: Local,
        from: There,
    },
    Send {
        local: Local,
        imm: Option<u32>,
        sent: u32,
    },
    Tagged {
        local: Local,
        tag: u64,
    },
    FetchAdd {
        old: Local,
        to: There,
    },
    CompareSwap {
        old: Local,
        to: There,
    },
    /// What the peer would refuse.
    Refused,
}

// SAFETY: the pointers are names of memory that is used by posting only, which says why it may.
unsafe impl Send for Work {}

impl Work {
    fn key(&self) -> Option<u64> {
        match self {
            Work::Write { to, .. } | Work::FetchAdd { to, .. } | Work::CompareSwap { to, .. } => Some(to.key),
            Work::Read { from, .. } => Some(from.key),
            Work::Send { .. } | Work::Tagged { .. } | Work::Refused => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Queued,
    /// The provider has it.
    Posted,
    Done,
    /// It fails when all before it are done.
    Failing(Status),
    /// The peer was told that the connection is over.
    Doomed(Status, Instant),
}

/// One entry of the send queue.
#[derive(Debug)]
struct Request {
    id: u64,
    opcode: Opcode,
    signalled: bool,
    state: State,
    work: Work,
}

/// A receive that is posted.
#[derive(Clone, Copy, Debug)]
struct Receive {
    id: u64,
    span: Span,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) id: QpId,
    pub(super) peer: ProcessId,
    pub(super) config: QpConfig,
    /// Whether it is not broken.
    pub(super) alive: bool,
    /// None while it is broken, and for connections of a process to itself.
    pub(super) life: Option<Life>,
    /// Counts lives.
    pub(super) lives: u32,
    /// Whether the peer must be told that something was written, to see it.
    pub(super) bells: bool,
    sends: VecDeque<Request>,
    /// The number of the first of `sends`; of the next that is posted to the provider, from there.
    first: u64,
    next: usize,
    /// Requests up to this number have left their places.
    freed: u64,
    /// Lengths of the peer's receives that nothing was sent to.
    credits: VecDeque<u32>,
    starving: Option<Instant>,
    receives: VecDeque<Receive>,
    tagged: Vec<Option<u64>>,
    free_tagged: Vec<usize>,
    fences: Vec<u64>,
    wrote: bool,
    /// Whether a frame has come in this life.
    heard: bool,
}

impl Qp {
    pub(super) fn new(id: QpId, peer: ProcessId, config: QpConfig, bells: bool) -> Qp {
        Qp {
            id,
            peer,
            config,
            alive: false,
            life: None,
            lives: 0,
            bells,
            sends: VecDeque::with_capacity(config.send_depth as usize),
            first: 0,
            next: 0,
            freed: 0,
            credits: VecDeque::new(),
            starving: None,
            receives: VecDeque::with_capacity(config.recv_depth as usize),
            tagged: Vec::new(),
            free_tagged: Vec::new(),
            fences: Vec::new(),
            wrote: false,
            heard: false,
        }
    }

    /// A life begins, with empty queues.
    pub(super) fn begin(&mut self, life: Option<Life>) {
        let places = self.config.recv_depth as usize;
        (self.life, self.alive, self.wrote, self.heard) = (life, true, false, false);
        self.lives = self.lives.wrapping_add(1);
        (self.first, self.next, self.freed, self.starving) = (0, 0, 0, None);
        self.sends.clear();
        self.credits.clear();
        self.receives.clear();
        self.fences.clear();
        self.tagged = vec![None; places];
        self.free_tagged = (0..places).rev().collect();
    }

    fn posted(&self) -> u64 {
        self.first + self.sends.len() as u64
    }

    /// Whether something of it moves only while somebody looks.
    pub(super) fn is_busy(&self) -> bool {
        self.starving.is_some() || self.next < self.sends.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.posted() - self.freed >= u64::from(self.config.send_depth)
    }

    /// Where the next request's inline data goes.
    pub(super) fn slot(&self) -> usize {
        self.slot_of(self.posted())
    }

    #[inline]
    fn slot_of(&self, number: u64) -> usize {
        (number & (self.slots() - 1)) as usize
    }

    /// As many as the send queue is deep, or more: a power of two, so that nothing is divided.
    #[inline]
    pub(super) fn slots(&self) -> u64 {
        u64::from(self.config.send_depth.max(1)).next_power_of_two()
    }

    /// A completion was polled: what was posted up to it has left.
    pub(super) fn free_up_to(&mut self, number: u64) {
        self.freed = self.freed.max(number);
    }

    pub(super) fn push(&mut self, id: u64, opcode: Opcode, signalled: bool, work: Work) {
        let state = if matches!(work, Work::Refused) { State::Failing(Status::RemoteAccess) } else { State::Queued };
        self.sends.push_back(Request { id, opcode, signalled, state, work });
    }

    /// A short tagged message goes to the provider at once, which copies it, if nothing is in front of it. Whether it did: then it
    /// is done.
    #[inline]
    pub(super) fn inject_tagged(&mut self, data: &[u8], tag: u64, (id, signalled): (u64, bool)) -> bool {
        let is_next = self.next == self.sends.len();
        let injected = is_next && self.life.as_ref().is_some_and(|life| life.inject_tagged(data, tag).is_ok());
        if injected {
            self.push_done(id, Opcode::TaggedSend, signalled);
        }
        injected
    }

    /// Something was done already.
    pub(super) fn push_done(&mut self, id: u64, opcode: Opcode, signalled: bool) {
        self.sends.push_back(Request { id, opcode, signalled, state: State::Done, work: Work::Refused });
        self.next = self.sends.len();
    }

    pub(super) fn receives_full(&self) -> bool {
        self.receives.len() >= self.config.recv_depth as usize
    }

    pub(super) fn push_receive(&mut self, id: u64, span: Span) {
        self.receives.push_back(Receive { id, span });
        if let Some(life) = &mut self.life {
            life.tell_receive(span.bytes);
        }
    }

    /// Posts a tagged receive; `false` if there is no place.
    pub(super) fn push_tagged(&mut self, id: u64, local: Local, tag: u64, ignore: u64) -> bool {
        let (Some(life), Some(n)) = (&mut self.life, self.free_tagged.pop()) else { return false };
        if life.receive_tagged(n, local, tag, ignore).is_err() {
            self.free_tagged.push(n);
            return false;
        }
        self.tagged[n] = Some(id);
        true
    }

    pub(super) fn cancel_tagged(&mut self, id: u64) {
        if let Some(life) = &mut self.life
            && let Some(n) = self.tagged.iter().position(|posted| *posted == Some(id))
        {
            life.cancel_tagged(n);
        }
    }

    /// One round: takes in what came, posts what can be posted, says what is to be said. Tagged messages come to `out` while there
    /// is room and nothing waits to be polled before them; how many.
    #[inline]
    pub(super) fn drive(&mut self, shared: &mut Shared, out: &mut [Completion]) -> usize {
        let mut count = 0;
        for _ in 0..4 {
            if self.look(shared, out, &mut count) {
                break;
            }
        }
        self.flush(shared);
        count
    }

    /// Takes in what one look finds. Whether that is all.
    #[inline]
    fn look(&mut self, shared: &mut Shared, out: &mut [Completion], count: &mut usize) -> bool {
        let Some(life) = &mut self.life else { return true };
        let mut batch = Batch::new();
        let (failed, is_all) = life.poll(&mut batch);
        // Reading a counter lets a provider work once more: only who is about to sleep asks.
        shared.rung |= shared.armed && life.has_landed();
        for entry in batch.entries() {
            shared.rung = true;
            // What is left of a life that has ended was given back with it.
            let Some(life) = &mut self.life else { return true };
            let came = life.came(entry);
            if let Came::Done(Owner::Tagged(n), entry) = came
                && shared.ready.is_empty()
                && let Some(place) = out.get_mut(*count)
                && let Some(id) = self.tagged[n].take()
            {
                self.free_tagged.push(n);
                let (bytes, tag) = (entry.bytes as u32, entry.tag);
                *place = Completion { bytes, tag, ..self.completion(id, Opcode::TaggedRecv, Status::Success) };
                *count += 1;
                continue;
            }
            self.take(came, shared);
        }
        if let Some(failed) = failed {
            shared.rung = true;
            self.take(failed, shared);
        }
        is_all
    }

    /// Posts what can be posted, and reports what is done.
    #[inline]
    pub(super) fn advance(&mut self, shared: &mut Shared) {
        if self.next < self.sends.len() {
            self.pump(shared);
        }
        if self.has_news() {
            self.report(shared);
        }
        if let Some(life) = &mut self.life {
            life.talk();
        }
    }

    /// Whether there may be something to report.
    #[inline]
    fn has_news(&self) -> bool {
        let waits = |entry: &Request| matches!(entry.state, State::Queued | State::Posted);
        !(self.fences.is_empty() && self.sends.front().is_none_or(waits))
    }

    #[inline]
    pub(super) fn flush(&mut self, shared: &mut Shared) {
        self.advance(shared);
        if self.wrote
            && let Some(life) = &mut self.life
        {
            self.wrote = false;
            life.say(FrameKind::Bell);
            life.talk();
        }
    }

    fn pump(&mut self, shared: &mut Shared) {
        while self.life.as_ref().is_some_and(|life| life.under_way < shared.depth) {
            let Some(entry) = self.sends.get(self.next) else { return };
            if entry.state != State::Queued {
                return;
            }
            if entry.work.key().is_some_and(|key| shared.fenced.contains(&key)) {
                self.sends[self.next].state = State::Failing(Status::RemoteAccess);
                return;
            }
            let needs = matches!(entry.work, Work::Send { sent: 0, .. } | Work::Write { imm: Some(_), .. });
            if needs && self.credits.is_empty() {
                let since = *self.starving.get_or_insert_with(Instant::now);
                // A provider may take its time to connect; that is not the peer's.
                let patience = if self.heard { 1 } else { UNHEARD };
                if since.elapsed() > shared.rnr_timeout * patience {
                    self.sends[self.next].state = State::Failing(Status::RnrRetryExceeded);
                }
                return;
            }
            self.starving = None;
            match self.post_next(shared, needs) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.sends[self.next].state = State::Failing(Status::RetryExceeded),
            }
        }
    }

    fn post_next(&mut self, shared: &Shared, takes: bool) -> Result<(), Errno> {
        let slot = self.slot_of(self.first + self.next as u64);
        let (Some(life), Some(entry)) = (&mut self.life, self.sends.get_mut(self.next)) else { return Ok(()) };
        let mut last = true;
        match entry.work {
            Work::Write { local, to, imm } => {
                if local.bytes == 0 && imm.is_none() {
                    // Nothing is nowhere: not all providers know that.
                    entry.state = State::Done;
                    self.next += 1;
                    return Ok(());
                }
                let sure = local.bytes > 0 && (entry.signalled || imm.is_some() || !shared.ordered);
                let completes = if sure { Completes::Delivered } else { Completes::Sent };
                let imm = imm.map(|imm| shared.immediate(imm, local.bytes));
                life.post(slot, |endpoint, peer, context| {
                    let to = Remote { peer, address: to.address, key: to.key };
                    // SAFETY: the source is memory of a region or of the life's own, which outlive the operation; its owner
                    // does not change it until the completion, as the contract asks.
                    unsafe { endpoint.write(local, to, imm, completes, context) }
                })?;
                self.wrote |= self.bells;
            }
            Work::Read { local, from } => life.post(slot, |endpoint, peer, context| {
                let from = Remote { peer, address: from.address, key: from.key };
                // SAFETY: the target is memory of a region, which outlives the operation and is seen as atomic words only.
                unsafe { endpoint.read(local, from, context) }
            })?,
            Work::FetchAdd { old, to } => {
                let operand = life.inline(slot, 8);
                life.post(slot, |endpoint, peer, context| {
                    let to = Remote { peer, address: to.address, key: to.key };
                    // SAFETY: memory of a region and of the life's own, which outlive the operation.
                    unsafe { endpoint.fetch_add(old, operand, to, context) }
                })?;
            }
            Work::CompareSwap { old, to } => {
                let (new, mut expected) = (life.inline(slot, 8), life.inline(slot, 16));
                // SAFETY: the second of the two words that were stored there.
                (expected.start, expected.bytes) = (unsafe { expected.start.add(8) }, 8);
                life.post(slot, |endpoint, peer, context| {
                    let to = Remote { peer, address: to.address, key: to.key };
                    // SAFETY: memory of a region and of the life's own, which outlive the operation.
                    unsafe { endpoint.compare_swap(old, [new, expected], to, context) }
                })?;
            }
            Work::Tagged { local, tag } => life.post(slot, |endpoint, peer, context| {
                // SAFETY: as with a write.
                unsafe { endpoint.send_tagged(local, peer, tag, context) }
            })?,
            Work::Send { local, imm, ref mut sent } => {
                let room = self.credits.front().copied().filter(|_| takes);
                if room.is_some_and(|room| local.bytes as u32 > room) {
                    life.say(FrameKind::TooLong);
                    entry.state = State::Doomed(Status::RemoteInvalidRequest, Instant::now());
                    return Ok(());
                }
                last = send_piece(life, slot, (local, imm), sent)?;
            }
            Work::Refused => return Ok(()),
        }
        entry.state = State::Posted;
        if takes {
            self.credits.pop_front();
        }
        self.next += usize::from(last);
        Ok(())
    }

    /// Deals with one thing that came.
    fn take(&mut self, came: Came, shared: &mut Shared) {
        match came {
            Came::Done(Owner::Send(slot), _) => self.completed(slot),
            Came::Done(Owner::Frame(n), entry) => self.hear(n, &entry, shared),
            Came::Done(Owner::Speech(_), _) => {}
            Came::Done(Owner::Tagged(n), entry) => self.matched(n, Status::Success, Some(&entry), shared),
            Came::Failed(Some(Owner::Tagged(n)), Errno::CANCELLED) => {
                self.matched(n, Status::Cancelled, None, shared);
            }
            Came::Failed(Some(Owner::Tagged(n)), Errno::TRUNCATED) => {
                self.matched(n, Status::LocalLength, None, shared);
                self.fail_itself(Status::Flushed, shared);
            }
            Came::Failed(Some(Owner::Send(slot)), errno) => {
                let status = if errno == Errno::ACCESS { Status::RemoteAccess } else { Status::RetryExceeded };
                if let Some(at) = self.place(slot) {
                    self.sends[at].state = State::Failing(status);
                }
                self.report(shared);
                self.fail_itself(Status::Flushed, shared);
            }
            Came::Failed(..) => self.fail_itself(Status::RetryExceeded, shared),
            Came::Immediate(data, bytes) => match self.receives.pop_front() {
                Some(Receive { id, .. }) => {
                    let (imm, bytes) = shared.told(data, bytes);
                    let opcode = Opcode::RecvWriteImm;
                    let completion =
                        Completion { bytes, imm: Some(imm), ..self.completion(id, opcode, Status::Success) };
                    shared.ready.push_back((completion, None));
                }
                // Nobody was promised one.
                None => self.fail_itself(Status::Flushed, shared),
            },
        }
    }

    /// Which entry of the send queue a place belongs to.
    fn place(&self, slot: usize) -> Option<usize> {
        let at = (slot as u64).wrapping_sub(self.first) & (self.slots() - 1);
        (at < self.sends.len() as u64).then_some(at as usize)
    }

    fn completed(&mut self, slot: usize) {
        let Some(at) = self.place(slot) else { return };
        let entry = &mut self.sends[at];
        // Pieces of a SEND go one after the other.
        entry.state = match entry.work {
            Work::Send { local, sent, .. } if (sent as usize) < local.bytes => State::Queued,
            _ => State::Done,
        };
    }

    fn matched(&mut self, n: usize, status: Status, entry: Option<&Success>, shared: &mut Shared) {
        let Some(id) = self.tagged[n].take() else { return };
        self.free_tagged.push(n);
        let (bytes, tag) = entry.map_or((0, 0), |entry| (entry.bytes as u32, entry.tag));
        let completion = Completion { bytes, tag, ..self.completion(id, Opcode::TaggedRecv, status) };
        shared.ready.push_back((completion, None));
    }

    fn hear(&mut self, n: usize, entry: &Success, shared: &mut Shared) {
        let Some(life) = &mut self.life else { return };
        let Some((kind, bytes)) = life.frame(n, entry.bytes) else { return life.done_with(n) };
        let mut data = [0; PIECE];
        let data = &mut data[..bytes];
        if bytes > 0 {
            life.copy_piece(n, data);
        }
        life.done_with(n);
        if !std::mem::replace(&mut self.heard, true) {
            self.starving = None;
        }
        match kind {
            FrameKind::Piece { whole, offset, imm } => self.piece((whole, offset, imm), data, shared),
            FrameKind::TooLong => {
                if let Some(Receive { id, .. }) = self.receives.pop_front() {
                    let completion = self.completion(id, Opcode::Recv, Status::LocalLength);
                    shared.ready.push_back((completion, None));
                }
                self.fail_itself(Status::Flushed, shared);
            }
            FrameKind::Credits => {
                let lengths = data.as_chunks::<4>().0.iter().map(|bytes| u32::from_be_bytes(*bytes));
                self.credits.extend(lengths);
            }
            FrameKind::Fence { key } => {
                shared.fenced.insert(key);
                self.fences.push(key);
                self.answer_fences();
            }
            FrameKind::Fenced { key } => shared.answered.push((self.id, self.lives, key)),
            FrameKind::Bell => {}
        }
    }

    fn piece(&mut self, (whole, offset, imm): (u32, u32, Option<u32>), data: &[u8], shared: &mut Shared) {
        let end = u64::from(offset) + data.len() as u64;
        let Some(Receive { id, span }) = self.receives.front().copied().filter(|receive| {
            end <= u64::from(whole) && whole <= receive.span.bytes && offset.is_multiple_of(PIECE as u32)
        }) else {
            return self.fail_itself(Status::Flushed, shared);
        };
        if let Some(memory) = shared.memories.get(span.region.index()) {
            store(memory.words(), (span.offset + u64::from(offset)) as usize, data);
        }
        if end == u64::from(whole) {
            self.receives.pop_front();
            let completion = Completion { bytes: whole, imm, ..self.completion(id, Opcode::Recv, Status::Success) };
            shared.ready.push_back((completion, None));
        }
    }

    /// Says of which fenced regions nothing is under way any more.
    fn answer_fences(&mut self) {
        let Some(life) = &mut self.life else { return };
        let sends = &self.sends;
        self.fences.retain(|key| {
            let open = sends.iter().any(|entry| entry.state == State::Posted && entry.work.key() == Some(*key));
            if !open {
                life.say(FrameKind::Fenced { key: *key });
            }
            open
        });
    }

    fn completion(&self, id: u64, opcode: Opcode, status: Status) -> Completion {
        Completion { qp: self.id, id, opcode, status, bytes: 0, imm: None, tag: 0 }
    }

    /// Reports what is done, in order.
    fn report(&mut self, shared: &mut Shared) {
        while let Some(entry) = self.sends.front() {
            match entry.state {
                State::Done => {
                    let (id, opcode, signalled) = (entry.id, entry.opcode, entry.signalled);
                    self.sends.pop_front();
                    self.first += 1;
                    self.next = self.next.saturating_sub(1);
                    if signalled {
                        let completion = self.completion(id, opcode, Status::Success);
                        shared.ready.push_back((completion, Some((self.lives, self.first))));
                    }
                }
                State::Failing(_) => return self.fail_itself(Status::Flushed, shared),
                State::Doomed(_, since) if since.elapsed() > DOOM => return self.fail_itself(Status::Flushed, shared),
                _ => break,
            }
        }
        if !self.fences.is_empty() {
            self.answer_fences();
        }
    }

    fn fail_itself(&mut self, status: Status, shared: &mut Shared) {
        if self.alive {
            self.fail(status, shared);
            shared.broken.push_back(self.id);
        }
    }

    /// The life ends: what is outstanding can be polled. What fails for a reason of its own says so.
    pub(super) fn fail(&mut self, status: Status, shared: &mut Shared) {
        self.alive = false;
        // From here on the provider touches nothing of it.
        if let Some(life) = self.life.take() {
            shared.forget(life.endpoint());
        }
        let mut next = status;
        for n in 0..self.sends.len() {
            let entry = &self.sends[n];
            let status = match entry.state {
                State::Failing(status) | State::Doomed(status, _) => status,
                _ => next,
            };
            next = Status::Flushed;
            let completion = self.completion(entry.id, entry.opcode, status);
            shared.ready.push_back((completion, None));
        }
        self.sends.clear();
        while let Some(Receive { id, .. }) = self.receives.pop_front() {
            shared.ready.push_back((self.completion(id, Opcode::Recv, Status::Flushed), None));
        }
        for n in 0..self.tagged.len() {
            if let Some(id) = self.tagged[n].take() {
                shared.ready.push_back((self.completion(id, Opcode::TaggedRecv, Status::Flushed), None));
            }
        }
    }
}

/// Sends the next piece of a SEND; whether it is the last.
fn send_piece(life: &mut Life, slot: usize, (local, imm): (Local, Option<u32>), sent: &mut u32) -> Result<bool, Errno> {
    let (whole, offset) = (local.bytes as u32, *sent);
    let bytes = (whole - offset).min(PIECE as u32) as usize;
    // SAFETY: inside the source, whose length is `whole`.
    let start = unsafe { local.start.add(offset as usize) };
    life.send_piece(slot, FrameKind::Piece { whole, offset, imm }, Local { start, bytes, ..local })?;
    *sent += bytes as u32;
    Ok(*sent == whole)
}
