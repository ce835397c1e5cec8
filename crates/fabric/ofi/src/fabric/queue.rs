//! A queue pair throughout all its lives: the send queue, the receives, and their completions.
//!
//! Requests are posted to the provider in order and reported in order, whatever the order of the provider's
//! completions. A request that needs a receive of the peer waits until the peer has reported one, and all later
//! requests wait, too.
//!
//! If the owner allows merging, a write waits for further writes that adjoin it. The wait ends when the process
//! flushes, polls or posts another verb, or when enough bytes are queued. Adjoining writes become one operation of the
//! provider in the slot of the first request. Its `joined` counts the other requests, which are posted, completed and
//! reported together with it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use stentor_fabric::{Completion, Opcode, ProcessId, QpConfig, QpId, Span, Status};

use super::ends::Shared;
use super::frame::{FrameKind, PIECE};
use super::life::{Came, Life, Owner, store};
use super::work::{There, Work};
use crate::cq::{Batch, Success};
use crate::endpoint::{Completes, Local, Remote};
use crate::errno::Errno;

/// Time for which the sender of a `TooLong` frame waits for the peer to break the connection.
const DOOM: Duration = Duration::from_millis(100);

/// Factor by which the time limit for a receive is longer while no frame has arrived from the peer.
const UNHEARD: u32 = 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Queued,
    /// The request is posted to the provider.
    Posted,
    Done,
    /// The request fails with this status once all earlier requests are complete.
    Failing(Status),
    /// A `TooLong` frame was sent to the peer at this time. The request fails with this status.
    Doomed(Status, Instant),
}

/// An entry of the send queue.
#[derive(Debug)]
struct Request {
    id: u64,
    opcode: Opcode,
    signalled: bool,
    state: State,
    work: Work,
    /// Number of following requests that were merged into this one.
    joined: usize,
    /// Position in the inline ring up to which the data can be freed once the request is finished.
    taken: u64,
}

/// A posted receive.
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
    /// `true` from the beginning of a life until it ends.
    pub(super) alive: bool,
    /// The current life. `None` if the queue pair is broken, and for connections of a process to itself.
    pub(super) life: Option<Life>,
    /// Number of lives so far.
    pub(super) lives: u32,
    /// `true` if the peer cannot detect a write and needs a `Bell` frame after it.
    pub(super) bells: bool,
    sends: VecDeque<Request>,
    /// Number of the first request in `sends`.
    first: u64,
    /// Index in `sends` of the next request to post to the provider.
    next: usize,
    /// Number below which all requests have released their slots.
    freed: u64,
    /// Lengths of the peer's reported receives that no request has used yet.
    credits: VecDeque<u32>,
    starving: Option<Instant>,
    receives: VecDeque<Receive>,
    tagged: Vec<Option<u64>>,
    free_tagged: Vec<usize>,
    fences: Vec<u64>,
    wrote: bool,
    /// Total length of the writes that wait to be merged, in bytes.
    waiting: usize,
    /// `true` if a frame has arrived in this life.
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
            waiting: 0,
            heard: false,
        }
    }

    /// Starts a life with empty queues.
    pub(super) fn begin(&mut self, life: Option<Life>) {
        let places = self.config.recv_depth as usize;
        (self.life, self.alive, self.wrote, self.heard) = (life, true, false, false);
        self.lives = self.lives.wrapping_add(1);
        (self.first, self.next, self.freed, self.starving, self.waiting) = (0, 0, 0, None, 0);
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

    /// Returns whether a request makes progress only while the process polls.
    pub(super) fn is_busy(&self) -> bool {
        self.starving.is_some() || self.next < self.sends.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.posted() - self.freed >= u64::from(self.config.send_depth)
    }

    #[inline]
    fn slot_of(&self, number: u64) -> usize {
        (number & (self.slots() - 1)) as usize
    }

    /// Returns the number of slots: the depth of the send queue, rounded up to a power of two so that no division is
    /// needed.
    #[inline]
    pub(super) fn slots(&self) -> u64 {
        u64::from(self.config.send_depth.max(1)).next_power_of_two()
    }

    /// Releases the slots of all requests before `number`. The caller does this when a completion is polled.
    pub(super) fn free_up_to(&mut self, number: u64) {
        self.freed = self.freed.max(number);
    }

    pub(super) fn push(&mut self, id: u64, opcode: Opcode, signalled: bool, work: Work) {
        let state = if matches!(work, Work::Refused) { State::Failing(Status::RemoteAccess) } else { State::Queued };
        let taken = self.life.as_ref().map_or(0, Life::inline_taken);
        self.sends.push_back(Request { id, opcode, signalled, state, work, joined: 0, taken });
    }

    /// Returns whether the request that was pushed last is a write that may wait to be merged. It may not wait once
    /// `most` bytes are waiting.
    #[inline]
    pub(super) fn may_wait(&mut self, most: usize) -> bool {
        let last = self.sends.back().filter(|entry| self.config.merges && entry.state == State::Queued);
        let Some(bytes) = last.and_then(|entry| entry.work.plain_write()) else { return false };
        self.waiting += bytes;
        self.waiting < most
    }

    /// Injects a short tagged message if no request is queued before it. Returns `true` if the provider accepted it;
    /// the request is then complete.
    #[inline]
    pub(super) fn inject_tagged(&mut self, data: &[u8], tag: u64, (id, signalled): (u64, bool)) -> bool {
        let is_next = self.next == self.sends.len();
        let injected = is_next && self.life.as_ref().is_some_and(|life| life.inject_tagged(data, tag).is_ok());
        if injected {
            self.push_done(id, Opcode::TaggedSend, signalled);
        }
        injected
    }

    /// Adds a request that is already complete.
    pub(super) fn push_done(&mut self, id: u64, opcode: Opcode, signalled: bool) {
        let (state, work) = (State::Done, Work::Refused);
        let taken = self.life.as_ref().map_or(0, Life::inline_taken);
        self.sends.push_back(Request { id, opcode, signalled, state, work, joined: 0, taken });
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

    /// Posts a tagged receive. Returns `false` if no slot is free or the provider has no room.
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

    /// Runs one round: handles completions, posts requests and sends control frames. Completions of successful tagged
    /// receives are written to `out` while there is room and no earlier completion waits in `ready`. Returns their
    /// number.
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

    /// Polls the provider once and handles the result. Returns `true` if its queue is empty.
    #[inline]
    fn look(&mut self, shared: &mut Shared, out: &mut [Completion], count: &mut usize) -> bool {
        let Some(life) = &mut self.life else { return true };
        let mut batch = Batch::new();
        let (failed, is_all) = life.poll(&mut batch);
        // Reading the counter drives the provider once more, which costs time. It is therefore read only before the
        // process sleeps.
        shared.rung |= shared.armed && life.has_landed();
        for entry in batch.entries() {
            shared.rung = true;
            // If the life has ended, the rest of the batch was flushed with it.
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

    /// Posts all requests that can be posted, and reports finished requests.
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

    /// Returns whether a completion may have to be reported.
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
        self.waiting = 0;
        while self.life.as_ref().is_some_and(|life| life.under_way < shared.depth) {
            let Some(entry) = self.sends.get(self.next) else { return };
            if entry.state != State::Queued {
                return;
            }
            if entry.work.key().is_some_and(|key| shared.fenced.contains(self.peer, key)) {
                self.sends[self.next].state = State::Failing(Status::RemoteAccess);
                return;
            }
            let needs = matches!(entry.work, Work::Send { sent: 0, .. } | Work::Write { imm: Some(_), .. });
            if needs && self.credits.is_empty() {
                let since = *self.starving.get_or_insert_with(Instant::now);
                // Until the first frame has arrived, the provider may still be connecting. The time limit for the
                // peer's receives is therefore longer.
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

    /// Returns the number of writes that can be merged into the next one. Also returns the total length of the next one
    /// and these writes, in bytes, and whether one of them all is signalled.
    fn adjoining(&self, most: usize) -> (usize, usize, bool) {
        let mut rest = self.sends.range(self.next..);
        let Some(first) = rest.next() else { return (0, 0, false) };
        let mut bytes = first.work.plain_write().unwrap_or(0);
        let (mut joined, mut signalled) = (0, first.signalled);
        if bytes > 0 && self.config.merges {
            for entry in rest.take_while(|entry| entry.state == State::Queued) {
                let more = first.work.adjoining(bytes, &entry.work);
                let Some(more) = more.filter(|more| bytes + more <= most) else { break };
                (joined, bytes, signalled) = (joined + 1, bytes + more, signalled | entry.signalled);
            }
        }
        (joined, bytes, signalled)
    }

    /// Posts the next request, which is a write, together with the writes that adjoin it.
    fn post_write(&mut self, shared: &Shared, (local, to, imm): (Local, There, Option<u32>)) -> Result<(), Errno> {
        let (joined, bytes, signalled) = self.adjoining(shared.most_merged);
        let slot = self.slot_of(self.first + self.next as u64);
        let Some(life) = &mut self.life else { return Ok(()) };
        let sure = local.bytes > 0 && (signalled || imm.is_some() || !shared.ordered);
        let completes = if sure { Completes::Delivered } else { Completes::Sent };
        let local = Local { bytes: local.bytes.max(bytes), ..local };
        let imm = imm.map(|imm| shared.immediate(imm, local.bytes));
        life.post(slot, |endpoint, peer, context| {
            let to = Remote { peer, address: to.address, key: to.key };
            // SAFETY: the source is memory of a region or of this life, both of which outlive the operation. Its owner
            // does not change it until the completion, as the contract requires. Adjoining sources are parts of the
            // same memory.
            unsafe { endpoint.write(local, to, imm, completes, context) }
        })?;
        self.wrote |= self.bells;
        self.note_posted(joined);
        Ok(())
    }

    /// Marks the next request and the `joined` requests after it as posted.
    fn note_posted(&mut self, joined: usize) {
        self.sends[self.next].joined = joined;
        self.sends.range_mut(self.next..=self.next + joined).for_each(|entry| entry.state = State::Posted);
        self.next += joined;
    }

    fn post_next(&mut self, shared: &Shared, takes: bool) -> Result<(), Errno> {
        let slot = self.slot_of(self.first + self.next as u64);
        let (Some(life), Some(entry)) = (&mut self.life, self.sends.get_mut(self.next)) else { return Ok(()) };
        let mut last = true;
        match entry.work {
            Work::Write { local, imm: None, .. } if local.bytes == 0 => {
                // Not all providers accept a write of 0 bytes.
                entry.state = State::Done;
                self.next += 1;
                return Ok(());
            }
            Work::Write { local, to, imm, .. } => {
                self.post_write(shared, (local, to, imm))?;
                if takes {
                    self.credits.pop_front();
                }
                self.next += 1;
                return Ok(());
            }
            Work::Read { local, from } => life.post(slot, |endpoint, peer, context| {
                let from = Remote { peer, address: from.address, key: from.key };
                // SAFETY: the target is memory of a region, which outlives the operation and is accessed only as atomic
                // words.
                unsafe { endpoint.read(local, from, context) }
            })?,
            Work::FetchAdd { old, operand, to } => {
                life.post(slot, |endpoint, peer, context| {
                    let to = Remote { peer, address: to.address, key: to.key };
                    // SAFETY: the memory belongs to a region and to this life, which outlive the operation.
                    unsafe { endpoint.fetch_add(old, operand, to, context) }
                })?;
            }
            Work::CompareSwap { old, operands, to } => {
                let new = Local { bytes: 8, ..operands };
                // SAFETY: `work_of` has stored two words at `operands.start`; this is the second one.
                let expected = Local { start: unsafe { operands.start.add(8) }, ..new };
                life.post(slot, |endpoint, peer, context| {
                    let to = Remote { peer, address: to.address, key: to.key };
                    // SAFETY: the memory belongs to a region and to this life, which outlive the operation.
                    unsafe { endpoint.compare_swap(old, [new, expected], to, context) }
                })?;
            }
            Work::Tagged { local, tag } => life.post(slot, |endpoint, peer, context| {
                // SAFETY: the argument for a write holds here too.
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

    /// Handles one event.
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
                // The peer violated the contract: it had no credit for this write.
                None => self.fail_itself(Status::Flushed, shared),
            },
        }
    }

    /// Returns the index in `sends` of the request that has slot `slot`.
    fn place(&self, slot: usize) -> Option<usize> {
        let at = (slot as u64).wrapping_sub(self.first) & (self.slots() - 1);
        (at < self.sends.len() as u64).then_some(at as usize)
    }

    fn completed(&mut self, slot: usize) {
        let Some(at) = self.place(slot) else { return };
        let entry = &mut self.sends[at];
        // The pieces of a SEND are sent one after another.
        entry.state = match entry.work {
            Work::Send { local, sent, .. } if (sent as usize) < local.bytes => State::Queued,
            _ => State::Done,
        };
        let joined = entry.joined;
        self.sends.range_mut(at + 1..=at + joined).for_each(|entry| entry.state = State::Done);
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
                shared.fenced.add(self.id, self.peer, key);
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

    /// Fails requests that were queued with a key before the peer revoked it. They must not use a new grant with the
    /// same key, which may be that of another region.
    pub(super) fn refuse(&mut self, key: u64) {
        let queued = |entry: &&mut Request| entry.state == State::Queued && entry.work.key() == Some(key);
        self.sends.iter_mut().filter(queued).for_each(|entry| entry.state = State::Failing(Status::RemoteAccess));
    }

    /// Confirms the fences of regions on which no operation is outstanding any more.
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

    /// Reports finished requests in order.
    fn report(&mut self, shared: &mut Shared) {
        while let Some(entry) = self.sends.front() {
            match entry.state {
                State::Done => {
                    let Request { id, opcode, signalled, taken, .. } = *entry;
                    self.sends.pop_front();
                    if let Some(life) = &mut self.life {
                        life.free_inline(taken);
                    }
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

    /// Ends the life and completes all outstanding requests with an error. A request that had already failed reports
    /// its own status.
    pub(super) fn fail(&mut self, status: Status, shared: &mut Shared) {
        self.alive = false;
        // Dropping the life closes its endpoint. Afterwards the provider does not access memory for operations of this
        // life.
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

/// Sends the next piece of a SEND. Returns whether it is the last one.
fn send_piece(life: &mut Life, slot: usize, (local, imm): (Local, Option<u32>), sent: &mut u32) -> Result<bool, Errno> {
    let (whole, offset) = (local.bytes as u32, *sent);
    let bytes = (whole - offset).min(PIECE as u32) as usize;
    // SAFETY: the offset is inside the source, whose length is `whole`.
    let start = unsafe { local.start.add(offset as usize) };
    life.send_piece(slot, FrameKind::Piece { whole, offset, imm }, Local { start, bytes, ..local })?;
    *sent += bytes as u32;
    Ok(*sent == whole)
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use rustix::event::epoll;

    use super::super::fenced::Fenced;
    use super::*;

    const MOST: usize = 1024;

    fn shared() -> Shared {
        Shared {
            ready: VecDeque::new(),
            broken: VecDeque::new(),
            fenced: Fenced::default(),
            answered: Vec::new(),
            memories: Vec::new(),
            rung: false,
            armed: false,
            ordered: true,
            waits: false,
            depth: 16,
            most_merged: MOST,
            rnr_timeout: DOOM,
            wide: true,
            epoll: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()),
        }
    }

    /// Returns a queue pair with adjoining writes of 64 bytes, one for each element of `signalled`.
    fn queue(config: QpConfig, signalled: &[bool]) -> Qp {
        let mut qp = Qp::new(QpId(0), ProcessId(1), config, false);
        qp.begin(None);
        for (n, signalled) in signalled.iter().enumerate() {
            let start = NonNull::without_provenance((4096 + 64 * n).try_into().unwrap());
            let local = Local { start, bytes: 64, descriptor: std::ptr::null_mut() };
            let to = There { key: 1, address: 64 * n as u64 };
            qp.push(n as u64, Opcode::Write, *signalled, Work::Write { local, region: None, to, imm: None });
        }
        qp
    }

    /// Changes the queue as if the next request had been posted.
    fn posted(qp: &mut Qp) {
        let (joined, ..) = qp.adjoining(MOST);
        qp.note_posted(joined);
        qp.next += 1;
    }

    fn told(shared: &mut Shared) -> Vec<(u64, Status)> {
        shared.ready.drain(..).map(|(done, _)| (done.id, done.status)).collect()
    }

    #[test]
    fn adjoining_writes_merge_up_to_the_limit_if_the_owner_allows_it() {
        let config = QpConfig::reliable(16, 0);
        let qp = queue(config.merging(), &[false, true, false]);
        assert_eq!(qp.adjoining(MOST), (2, 192, true));
        assert_eq!((qp.adjoining(191), qp.adjoining(64)), ((1, 128, true), (0, 64, false)));
        assert_eq!(queue(config, &[false, true]).adjoining(MOST), (0, 64, false));
        let mut qp = queue(config.merging(), &[false; 3]);
        qp.push(9, Opcode::Read, true, Work::Refused);
        assert_eq!(qp.adjoining(MOST), (2, 192, false), "the refused request is not merged");
    }

    #[test]
    fn write_waits_to_be_merged_until_enough_bytes_are_queued() {
        let mut qp = queue(QpConfig::reliable(16, 0).merging(), &[false]);
        assert!(qp.may_wait(129) && qp.may_wait(129) && !qp.may_wait(129));
        qp.pump(&mut shared());
        assert!(qp.may_wait(129), "the other writes were posted");
        qp.push(1, Opcode::Write, true, Work::Refused);
        assert!(!qp.may_wait(129), "only a write may wait");
        assert!(!queue(QpConfig::reliable(16, 0), &[false]).may_wait(129));
    }

    #[test]
    fn merged_writes_complete_together_and_signalled_ones_are_reported() {
        let (mut qp, mut shared) = (queue(QpConfig::reliable(16, 0).merging(), &[true, false, true]), shared());
        posted(&mut qp);
        assert_eq!((qp.next, qp.is_busy()), (3, false));
        qp.completed(0);
        qp.report(&mut shared);
        assert_eq!(told(&mut shared), [(0, Status::Success), (2, Status::Success)]);
        assert_eq!((qp.sends.len(), qp.first, qp.next), (0, 3, 0));
    }

    /// The failing part of a merged write is unknown, so its first request reports the cause.
    #[test]
    fn first_request_of_a_failed_merge_reports_the_cause() {
        let (mut qp, mut shared) = (queue(QpConfig::reliable(16, 0).merging(), &[false, true, false]), shared());
        posted(&mut qp);
        qp.take(Came::Failed(Some(Owner::Send(0)), Errno::ACCESS), &mut shared);
        let flushed = |id| (id, Status::Flushed);
        assert_eq!(told(&mut shared), [(0, Status::RemoteAccess), flushed(1), flushed(2)]);
        assert_eq!((qp.alive, shared.broken.len()), (false, 1));
        qp.begin(None);
        assert_eq!((qp.adjoining(MOST), qp.is_full()), ((0, 0, false), false), "a new life has empty queues");
    }

    #[test]
    fn request_with_a_revoked_key_fails_and_does_not_use_a_new_grant() {
        let (mut qp, mut shared) = (queue(QpConfig::reliable(16, 0), &[true]), shared());
        qp.refuse(2);
        qp.report(&mut shared);
        assert_eq!(told(&mut shared), [], "another key");
        qp.refuse(1);
        qp.report(&mut shared);
        assert_eq!(told(&mut shared), [(0, Status::RemoteAccess)]);
    }

    #[test]
    fn each_merged_write_occupies_a_slot() {
        let mut qp = queue(QpConfig::reliable(4, 0).merging(), &[false; 4]);
        posted(&mut qp);
        assert!(qp.is_full());
    }
}
