//! Execution of messages by the responder's NIC.

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, Completion, Opcode, ProcessId, QpId, RemoteSpan, Span, Status};

use crate::event::{End, Event};
use crate::memory::{Delivery, LandingPlace};
use crate::qp::{PostedRecv, Queued, RequestKind, Unexpected};
use crate::rng::scatter;
use crate::state::State;

/// The place of a span to which a key gives access: its region, and the index of its first word.
pub(crate) struct Opened {
    pub(crate) region: u32,
    pub(crate) first: usize,
}

impl State {
    /// Executes a message that has arrived.
    pub(crate) fn execute(&mut self, id: u32) {
        self.read_source(id);
        let message = self.messages.get(id);
        let bytes = message.bytes;
        match message.kind {
            RequestKind::Write { target } => match self.open(id, target, bytes, Access::Write) {
                Some(place) => self.execute_write(id, &place),
                None => self.refuse(id),
            },
            RequestKind::WriteImm { target, imm } => self.execute_write_imm(id, target, imm),
            RequestKind::Read { remote, .. } => match self.open(id, remote, bytes, Access::Read) {
                Some(place) => self.execute_read(id, &place),
                None => self.refuse(id),
            },
            RequestKind::CompareSwap { remote, expected, new, .. } => {
                self.execute_atomic(id, remote, |old| if old == expected { new } else { old });
            }
            RequestKind::FetchAdd { remote, add, .. } => self.execute_atomic(id, remote, |old| old.wrapping_add(add)),
            RequestKind::Send { imm } => self.execute_send(id, imm),
            RequestKind::Tagged { tag } => self.execute_tagged(id, tag),
        }
    }

    /// Checks a remote access (rule 6 of the contract): the key, its owner and peer, the bounds, the right.
    pub(crate) fn open(&self, id: u32, span: RemoteSpan, bytes: u32, needed: Access) -> Option<Opened> {
        let message = self.messages.get(id);
        let key = self.keys.get(usize::try_from(span.region.key).ok()?)?;
        let region = self.processes[message.to.index()].regions.get(key.region as usize)?;
        let end = span.offset.checked_add(u64::from(bytes))?;
        let allowed = match needed {
            Access::Read => true,
            Access::Write => key.access != Access::Read,
            Access::Atomic => key.access == Access::Atomic,
        };
        let mine = key.valid && key.owner == message.to && key.peer == message.from;
        (mine && allowed && end <= region.spec.bytes)
            .then_some(Opened { region: key.region, first: span.offset as usize / WORD })
    }

    /// Marks a message as executed, and counts it if it was overtaken.
    pub(crate) fn executed(&mut self, id: u32) {
        let message = self.messages.get_mut(id);
        message.executed = true;
        let (from, to, to_qp, seq, pair_seq) =
            (message.from, message.to, message.to_qp, message.order, message.pair_seq);
        let (alone, connection, from_qp) = (message.copy.is_some(), message.connection, message.from_qp);
        let qp = self.qp_mut(to, to_qp);
        let late_here = seq < qp.executed;
        qp.executed = qp.executed.max(seq);
        if alone {
            let own = End { process: from.0, qp: from_qp, connection };
            self.set_counts.late_copies += u64::from(!self.is_current(own));
            self.counts.reordered_on_one_queue_pair += u64::from(late_here);
            return;
        }
        let link = self.link(from, to);
        let late = pair_seq < link.executed;
        link.executed = link.executed.max(pair_seq);
        self.counts.reordered_on_one_queue_pair += u64::from(late_here);
        self.counts.reordered_across_queue_pairs += u64::from(late && !late_here);
    }

    /// Answers with a NAK. Both ends of a reliable queue pair break, the initiator's when the NAK arrives.
    fn refuse(&mut self, id: u32) {
        self.executed(id);
        self.seal(id);
        let message = self.messages.get(id);
        let reliable = message.reliable;
        let end = End { process: message.to.0, qp: message.to_qp, connection: message.connection };
        self.counts.remote_access_errors += 1;
        let to_itself = message.from == message.to;
        self.answer(id, Status::RemoteAccess);
        if reliable {
            self.break_responder(end, to_itself);
        }
    }

    /// Breaks the responder's end at once. If a process is its own peer, its end breaks when the answer arrives, and
    /// until then nothing more executes.
    fn break_responder(&mut self, end: End, to_itself: bool) {
        if self.is_current(end) && self.qp(ProcessId(end.process), end.qp).set.is_some() {
            // The sender's end breaks when the answer arrives, and then the set breaks.
            return;
        }
        if to_itself && self.is_current(end) {
            self.qp_mut(ProcessId(end.process), end.qp).gave_up = true;
        } else {
            self.break_end(end, Status::Flushed, false);
        }
    }

    pub(crate) fn write(&mut self, id: u32, place: &Opened) -> u64 {
        self.executed(id);
        self.let_go_of_what_was_there(id, place);
        let ordered = self.model.ordered_writes;
        let message = self.messages.get_mut(id);
        let data = std::mem::take(&mut message.data);
        let (to, to_qp, reliable) = (message.to, message.to_qp, message.reliable);
        let (bytes, flow) = (message.bytes, message.flow);
        let in_order = ordered && reliable;
        let not_before = if in_order { self.qp(to, to_qp).visible_at } else { 0 };
        let (region, first) = (place.region, place.first);
        let target = LandingPlace { process: to, region, first, bytes, not_before, flow, result_of: None };
        let visible_at = self.land(target, data);
        if in_order {
            self.qp_mut(to, to_qp).visible_at = visible_at;
        }
        self.messages.get_mut(id).visible_at = visible_at;
        visible_at
    }

    fn execute_write(&mut self, id: u32, place: &Opened) {
        self.write(id, place);
        self.answer(id, Status::Success);
    }

    fn execute_write_imm(&mut self, id: u32, target: RemoteSpan, imm: u32) {
        let message = self.messages.get(id);
        let (bytes, to, to_qp) = (message.bytes, message.to, message.to_qp);
        let Some(place) = self.open(id, target, bytes, Access::Write) else { return self.refuse(id) };
        let Some(recv) = self.qp_mut(to, to_qp).recvs.pop_front() else { return self.not_ready(id) };
        let at = self.write(id, &place);
        let (opcode, status) = (Opcode::RecvWriteImm, Status::Success);
        let completion = Completion { qp: to_qp, id: recv.id, opcode, status, bytes, imm: Some(imm), tag: 0 };
        self.deliver(at, to, None, completion);
        self.answer(id, Status::Success);
    }

    fn execute_send(&mut self, id: u32, imm: Option<u32>) {
        let message = self.messages.get(id);
        let (bytes, to, to_qp) = (message.bytes, message.to, message.to_qp);
        let Some(recv) = self.qp_mut(to, to_qp).recvs.pop_front() else { return self.not_ready(id) };
        if bytes > recv.local.bytes {
            return self.too_long(id, recv, Opcode::Recv, 0);
        }
        self.executed(id);
        let data = std::mem::take(&mut self.messages.get_mut(id).data);
        self.receive(to, to_qp, recv, data, bytes, (Opcode::Recv, imm, 0));
        self.answer(id, Status::Success);
    }

    /// Lands received data in a posted span, then completes the receive.
    fn receive(
        &mut self,
        to: ProcessId,
        qp: QpId,
        recv: PostedRecv,
        data: Vec<u64>,
        bytes: u32,
        (opcode, imm, tag): (Opcode, Option<u32>, u64),
    ) {
        let Span { region, offset, .. } = recv.local;
        let not_before = self.qp(to, qp).visible_at;
        let first = offset as usize / WORD;
        let landing = (bytes > 0).then_some(region.0);
        let target = LandingPlace { process: to, region: region.0, first, bytes, not_before, flow: 0, result_of: None };
        let at = self.land(target, data);
        self.qp_mut(to, qp).visible_at = at;
        let status = Status::Success;
        self.deliver(at, to, landing, Completion { qp, id: recv.id, opcode, status, bytes, imm, tag });
    }

    fn too_long(&mut self, id: u32, recv: PostedRecv, opcode: Opcode, tag: u64) {
        self.executed(id);
        self.seal(id);
        let message = self.messages.get(id);
        let (to, qp, bytes) = (message.to, message.to_qp, message.bytes);
        let end = End { process: to.0, qp, connection: message.connection };
        let to_itself = message.from == to;
        let status = Status::LocalLength;
        let completion = Completion { qp, id: recv.id, opcode, status, bytes, imm: None, tag };
        self.processes[to.index()].completions.push_back(Queued { completion, seq: None });
        self.answer(id, Status::RemoteAccess);
        self.break_responder(end, to_itself);
    }

    fn deliver(&mut self, at: u64, to: ProcessId, region: Option<u32>, completion: Completion) {
        let life = self.processes[to.index()].life;
        let qp = completion.qp;
        let delivery = self.deliveries.insert(Delivery { to, life, region, completion: Some(completion) });
        self.qp_mut(to, qp).undelivered.push_back(delivery);
        self.calendar.push(at, Event::Received { delivery });
    }

    pub(crate) fn on_received(&mut self, delivery: u32) {
        let Delivery { to, life, completion, .. } = self.deliveries.remove(delivery);
        let owner = &mut self.processes[to.index()];
        if let Some(completion) = completion.filter(|_| owner.life == life) {
            owner.qps[completion.qp.index()].undelivered.retain(|other| *other != delivery);
            owner.completions.push_back(Queued { completion, seq: None });
            self.notify(to);
        }
    }

    /// Handles a missing receive: the message and all later ones that may not overtake it wait, and are tried again. On
    /// an unreliable queue pair the message is lost.
    fn not_ready(&mut self, id: u32) {
        let message = self.messages.get(id);
        if !message.reliable {
            self.counts.lost_unreliable += 1;
            self.discard(id);
            return;
        }
        let end = End { process: message.to.0, qp: message.to_qp, connection: message.connection };
        let to = message.to;
        self.counts.rnr_retries += 1;
        self.qp_mut(to, end.qp).waiting.push_front(id);
        self.calendar.push(self.now + self.model.rnr_ns, Event::Rnr { end });
    }

    pub(crate) fn on_rnr(&mut self, end: End) {
        if !self.is_current(end) {
            return;
        }
        let to = ProcessId(end.process);
        let limit = self.model.rnr_retries;
        let qp = self.qp_mut(to, end.qp);
        qp.rnr_attempts += 1;
        let ready = !qp.recvs.is_empty();
        let exceeded = !ready && qp.rnr_attempts >= limit;
        let Some(first) = qp.waiting.pop_front() else { return };
        if exceeded {
            qp.gave_up = true;
            self.counts.rnr_exceeded += 1;
            self.messages.get_mut(first).executed = true;
            self.answer(first, Status::RnrRetryExceeded);
            return;
        }
        if ready {
            qp.rnr_attempts = 0;
        }
        self.execute(first);
        if ready {
            self.go_on(end);
        }
    }

    /// Executes the messages that waited for an earlier one, which has executed now.
    fn go_on(&mut self, end: End) {
        let to = ProcessId(end.process);
        while self.is_current(end) {
            let Some(next) = self.qp_mut(to, end.qp).waiting.pop_front() else { return };
            let before = self.qp(to, end.qp).waiting.len();
            self.execute(next);
            if self.is_current(end) && self.qp(to, end.qp).waiting.len() > before {
                return;
            }
        }
    }

    fn execute_read(&mut self, id: u32, place: &Opened) {
        self.executed(id);
        let message = self.messages.get(id);
        let (to, words) = (message.to, message.bytes as usize / WORD);
        let mut data = self.buffer();
        data.clear();
        data.extend((0..words).map(|word| self.nic_word(to, place.region, place.first + word)));
        self.messages.get_mut(id).data = data;
        if words > 1 && self.rng.chance(self.model.torn_reads) {
            self.counts.torn_reads += 1;
            let at = self.now + 1 + self.model.tear_gap.sample(&mut self.rng);
            self.calendar.push(at, Event::Sample { message: id });
        } else {
            self.answer(id, Status::Success);
        }
    }

    /// Reads some words of a READ again, later than the others.
    pub(crate) fn on_sample(&mut self, id: u32) {
        let message = self.messages.get_mut(id);
        let (to, seed) = (message.to, message.flow);
        let RequestKind::Read { remote, .. } = message.kind else { return };
        let end = End { process: to.0, qp: message.to_qp, connection: message.connection };
        let bytes = message.bytes;
        let mut data = std::mem::take(&mut message.data);
        if !self.is_current(end) {
            return self.unanswered(id);
        }
        if let Some(place) = self.open(id, remote, bytes, Access::Read) {
            for (word, value) in data.iter_mut().enumerate() {
                if scatter(seed, word as u64) & 1 == 1 {
                    *value = self.nic_word(to, place.region, place.first + word);
                }
            }
        }
        self.messages.get_mut(id).data = data;
        self.answer(id, Status::Success);
    }

    fn execute_atomic(&mut self, id: u32, remote: RemoteSpan, update: impl Fn(u64) -> u64) {
        let Some(place) = self.open(id, remote, WORD as u32, Access::Atomic) else { return self.refuse(id) };
        let to = self.messages.get(id).to;
        let old = self.nic_word(to, place.region, place.first);
        let mut data = self.buffer();
        data.clear();
        data.push(update(old));
        self.messages.get_mut(id).data = data;
        self.write(id, &place);
        let mut result = self.buffer();
        result.clear();
        result.push(old);
        self.messages.get_mut(id).data = result;
        self.answer(id, Status::Success);
    }

    fn execute_tagged(&mut self, id: u32, tag: u64) {
        let message = self.messages.get(id);
        let (bytes, to, qp) = (message.bytes, message.to, message.to_qp);
        let matches = |recv: &PostedRecv| recv.tag.is_some_and(|(want, ignore)| (want ^ tag) & !ignore == 0);
        let recvs = &mut self.qp_mut(to, qp).tagged_recvs;
        let recv = recvs.iter().position(matches).and_then(|place| recvs.remove(place));
        if let Some(recv) = recv.filter(|recv| bytes > recv.local.bytes) {
            return self.too_long(id, recv, Opcode::TaggedRecv, tag);
        }
        self.executed(id);
        let data = std::mem::take(&mut self.messages.get_mut(id).data);
        match recv {
            Some(recv) => self.receive(to, qp, recv, data, bytes, (Opcode::TaggedRecv, None, tag)),
            None => self.qp_mut(to, qp).unexpected.push_back(Unexpected { tag, bytes, data }),
        }
        self.answer(id, Status::Success);
    }

    /// Matches a new tagged receive with the oldest unexpected message that has a matching tag, if any.
    pub(crate) fn match_unexpected(&mut self, me: ProcessId, qp: QpId, recv: PostedRecv) {
        let (want, ignore) = recv.tag.unwrap_or((0, 0));
        let entry = self.qp_mut(me, qp);
        let place = entry.unexpected.iter().position(|message| (message.tag ^ want) & !ignore == 0);
        let Some(message) = place.and_then(|place| entry.unexpected.remove(place)) else {
            entry.tagged_recvs.push_back(recv);
            return;
        };
        let end = End { process: me.0, qp, connection: entry.connection };
        if message.bytes > recv.local.bytes {
            let (opcode, status) = (Opcode::TaggedRecv, Status::LocalLength);
            let (bytes, tag) = (message.bytes, message.tag);
            let completion = Completion { qp, id: recv.id, opcode, status, bytes, imm: None, tag };
            self.processes[me.index()].completions.push_back(Queued { completion, seq: None });
            self.break_end(end, Status::Flushed, true);
            return;
        }
        self.receive(me, qp, recv, message.data, message.bytes, (Opcode::TaggedRecv, None, message.tag));
    }

    /// Lands about half of the words of a write, after everything that the NIC executed before it. Returns whether its
    /// key permitted that.
    pub(crate) fn land_half(&mut self, id: u32) -> bool {
        self.read_source(id);
        let message = self.messages.get(id);
        let (from, to, bytes) = (message.from, message.to, message.bytes);
        let (RequestKind::Write { target } | RequestKind::WriteImm { target, .. }) = message.kind else { return false };
        let Some(place) = self.open(id, target, bytes, Access::Write) else { return false };
        let seed = self.rng.word();
        self.land_everything_of(to, from);
        let message = self.messages.get(id);
        let words = &self.processes[to.index()].regions[place.region as usize].words;
        for (word, value) in message.data.iter().enumerate() {
            if scatter(seed, word as u64) & 1 == 1 {
                words[place.first + word].store(*value, Ordering::Release);
            }
        }
        self.notify(to);
        true
    }
}
