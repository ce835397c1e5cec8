//! The transport of messages from the initiator's NIC to the responder's NIC, and of the answers in the opposite
//! direction.

use stentor_fabric::{Completion, ProcessId, QpId, Status};

use crate::event::{End, Event};
use crate::memory::LandingPlace;
use crate::qp::{Message, Qp, Queued};
use crate::state::State;

/// Payload of a packet at the smallest path MTU, in bytes. A longer message is sent in several packets.
const MTU: u32 = 256;

impl State {
    /// Rings the doorbell: passes the posted messages to the NIC.
    pub(crate) fn flush(&mut self, me: ProcessId) {
        if self.processes[me.index()].unflushed.is_empty() {
            return;
        }
        let mut posted = std::mem::take(&mut self.processes[me.index()].unflushed);
        for message in posted.drain(..) {
            self.transmit(message);
        }
        self.processes[me.index()].unflushed = posted;
    }

    /// Drops the posts of a queue pair that were never passed to the NIC.
    pub(crate) fn drop_held_posts(&mut self, me: ProcessId, qp: QpId) {
        let held = std::mem::take(&mut self.processes[me.index()].unflushed);
        let (gone, kept) = held.into_iter().partition(|id| self.messages.get(*id).from_qp == qp);
        self.processes[me.index()].unflushed = kept;
        let gone: Vec<u32> = gone;
        for message in gone {
            self.discard(message);
        }
    }

    /// Passes a new post to the NIC, now or with the doorbell.
    pub(crate) fn hand_to_network(&mut self, me: ProcessId, message: Message) {
        self.trace_post(&message);
        let message = self.messages.insert(message);
        if self.model.hold_until_flush {
            self.processes[me.index()].unflushed.push(message);
        } else {
            self.transmit(message);
        }
    }

    pub(crate) fn transmit(&mut self, id: u32) {
        if self.messages.get(id).copy.is_some() {
            return self.transmit_copy(id);
        }
        let message = self.messages.get(id);
        let (from, to, from_qp, reliable) = (message.from, message.to, message.from_qp, message.reliable);
        let carried = if message.kind.local().is_some() { 0 } else { u64::from(message.bytes) };
        let in_order = reliable && (self.model.ordered_writes || !message.kind.is_plain_write());
        let nic = &mut self.processes[from.index()].nic_free_at;
        *nic = self.now.max(*nic) + self.model.nic_ns;
        let out = *nic;
        let (ps_per_byte, one_order) = (self.model.ps_per_byte, !self.model.reorder_across_queue_pairs);
        let departs = {
            let link = self.link(from, to);
            link.free_at = out.max(link.free_at) + carried * ps_per_byte / 1000;
            link.free_at
        };
        let mut arrives = departs + self.model.propagation.sample(&mut self.rng);
        if in_order {
            let qp = self.qp_mut(from, from_qp);
            arrives = arrives.max(qp.last_arrival);
            qp.last_arrival = arrives;
        }
        if one_order && (in_order || !reliable) {
            let link = self.link(from, to);
            arrives = arrives.max(link.last_arrival);
            link.last_arrival = arrives;
            self.qp_mut(from, from_qp).last_arrival = arrives;
        }
        self.messages.get_mut(id).departs = departs;
        if !reliable {
            self.calendar.push(departs, Event::Departed { message: id });
        }
        self.calendar.push(arrives, Event::Arrive { message: id });
    }

    /// Completes an unreliable request when it has left the NIC.
    pub(crate) fn on_departed(&mut self, id: u32) {
        self.read_source(id);
        let message = self.messages.get(id);
        let end = End { process: message.from.0, qp: message.from_qp, connection: message.connection };
        let seq = message.seq;
        if !message.dropped && self.is_current(end) {
            self.answered(end, seq, Status::Success, 0);
        }
    }

    pub(crate) fn on_arrive(&mut self, id: u32) {
        let message = self.messages.get(id);
        if message.dropped {
            self.arrive_in_part(id);
            return;
        }
        if !message.reliable && self.rng.chance(self.model.lost_unreliable) {
            self.counts.lost_unreliable += 1;
            self.discard(id);
            return;
        }
        if self.keep_copy(id) {
            return;
        }
        self.arrive(id);
    }

    /// Handles the arrival of a message that the network does not hold back as a late copy. If the path is cut, holds
    /// the message until the cut ends.
    pub(crate) fn arrive(&mut self, id: u32) {
        let message = self.messages.get(id);
        let (from, to, seq) = (message.from, message.to, message.seq);
        if self.is_cut(from, to) {
            let end = End { process: from.0, qp: message.from_qp, connection: message.connection };
            self.counts.held_by_partition += 1;
            self.link(from, to).held.push(Event::Arrive { message: id });
            self.plan_timeout(end, seq);
            return;
        }
        let end = End { process: to.0, qp: message.to_qp, connection: message.connection };
        let gap = |qp: &Qp| message.copy.is_some() && qp.executed + 1 != message.order && self.model.ordered_writes;
        let may_pass = !self.model.ordered_writes && message.kind.is_plain_write() || !message.reliable;
        if !self.is_current(end) {
            self.arrive_late(id);
        } else if self.qp(to, end.qp).gave_up || gap(self.qp(to, end.qp)) {
            self.unanswered(id);
        } else if !may_pass && !self.qp(to, end.qp).waiting.is_empty() {
            self.qp_mut(to, end.qp).waiting.push_back(id);
        } else {
            self.execute(id);
        }
    }

    /// Lands the part of a message that left the NIC, if the message was never sent completely.
    fn arrive_in_part(&mut self, id: u32) {
        let message = self.messages.get(id);
        let end = End { process: message.to.0, qp: message.to_qp, connection: message.connection };
        let there = message.partial && self.is_current(end) && !self.is_cut(message.from, message.to);
        if there && self.qp(message.to, end.qp).executed + 1 == message.order && self.land_half(id) {
            self.counts.partial_writes_at_crash += 1;
        }
        self.discard(id);
    }

    /// Drops a message without an answer. The initiator's queue pair, if it is reliable, breaks after its retries.
    pub(crate) fn unanswered(&mut self, id: u32) {
        let message = self.messages.get(id);
        let end = End { process: message.from.0, qp: message.from_qp, connection: message.connection };
        if message.reliable {
            let seq = message.seq;
            self.plan_timeout(end, seq);
        }
        self.discard(id);
    }

    fn plan_timeout(&mut self, end: End, seq: u64) {
        if self.is_current(end) && self.qp(ProcessId(end.process), end.qp).reliable() {
            self.calendar.push(self.now + self.model.retry_ns, Event::Timeout { end, seq });
        }
    }

    pub(crate) fn discard(&mut self, id: u32) {
        let message = self.messages.remove(id);
        self.recycle(message.data);
    }

    /// Reads the source now, if it was not read while posting.
    pub(crate) fn read_source(&mut self, id: u32) {
        let message = self.messages.get_mut(id);
        if let Some(span) = message.unread.take() {
            let from = message.from;
            let mut data = std::mem::take(&mut message.data);
            self.nic_read(from, span, &mut data);
            self.messages.get_mut(id).data = data;
            self.counts.late_source_reads += 1;
        }
    }

    /// Fixes the contents of messages before their sources may be reused or vanish. Messages that left the NIC keep
    /// their data; all other messages are dropped.
    pub(crate) fn freeze(&mut self, process: ProcessId, qp: Option<QpId>) {
        for id in self.messages.in_use() {
            let now = self.now;
            let message = self.messages.get_mut(id);
            if message.from != process || qp.is_some_and(|qp| message.from_qp != qp) || message.executed {
                continue;
            }
            if message.departs > now {
                message.dropped = true;
                let long = message.reliable && message.bytes > MTU && message.kind.is_plain_write();
                if qp.is_none() && long && self.rng.chance(self.model.partial_at_crash) {
                    message.partial = true;
                    self.read_source(id);
                } else {
                    message.unread = None;
                }
            } else {
                self.read_source(id);
            }
        }
    }

    /// Sends the answer to a message that executed or was refused.
    pub(crate) fn answer(&mut self, id: u32, status: Status) {
        let message = self.messages.get_mut(id);
        message.status = status;
        if !message.reliable {
            self.discard(id);
            return;
        }
        let (to, to_qp, visible_at) = (message.to, message.to_qp, message.visible_at);
        let returned = if message.kind.local().is_some() { u64::from(message.bytes) } else { 0 };
        let mut at = self.now + self.model.propagation.sample(&mut self.rng) + returned * self.model.ps_per_byte / 1000;
        if !self.model.early_completions {
            at = at.max(visible_at);
        }
        // The answers of a queue pair arrive in the order in which they were sent.
        let qp = self.qp_mut(to, to_qp);
        qp.last_answer = qp.last_answer.max(at);
        let at = qp.last_answer;
        self.calendar.push(at, Event::Answer { message: id });
    }

    pub(crate) fn on_answer(&mut self, id: u32) {
        let message = self.messages.get(id);
        let (from, to, seq, status) = (message.from, message.to, message.seq, message.status);
        let end = End { process: from.0, qp: message.from_qp, connection: message.connection };
        if !self.is_current(end) {
            self.discard(id);
            return;
        }
        if self.is_cut(to, from) {
            self.counts.held_by_partition += 1;
            self.link(to, from).held.push(Event::Answer { message: id });
            self.plan_timeout(end, seq);
            return;
        }
        let message = self.messages.get_mut(id);
        let visible_at = message.visible_at;
        match message.kind.local() {
            Some(local) if status == Status::Success => {
                let data = std::mem::take(&mut message.data);
                let target = LandingPlace {
                    process: from,
                    region: local.region.0,
                    first: local.offset as usize / 8,
                    bytes: local.bytes,
                    not_before: 0,
                    flow: 0,
                    result_of: Some(end.qp),
                };
                let at = self.land(target, data);
                self.calendar.push(at, Event::Done { message: id });
            }
            _ => {
                self.discard(id);
                self.answered(end, seq, status, visible_at);
            }
        }
    }

    pub(crate) fn on_done(&mut self, id: u32) {
        let message = self.messages.get(id);
        let end = End { process: message.from.0, qp: message.from_qp, connection: message.connection };
        let seq = message.seq;
        self.discard(id);
        if self.is_current(end) {
            self.answered(end, seq, Status::Success, 0);
        }
    }

    /// Records the outcome of a request. Outcomes take effect in the order of the send queue.
    pub(crate) fn answered(&mut self, end: End, seq: u64, status: Status, visible_at: u64) {
        let me = ProcessId(end.process);
        if let Some(request) = self.qp_mut(me, end.qp).request(seq) {
            request.copies = request.copies.saturating_sub(1);
            request.visible_at = visible_at.max(request.visible_at);
            let failed = request.outcome.is_some_and(|outcome| outcome != Status::Success);
            if status == Status::Success && (request.copies > 0 || failed) {
                request.partly = true;
                return;
            }
            request.outcome = Some(status);
        }
        if status != Status::Success && !self.model.ordered_writes {
            // Requests that were posted before the failed one may never be answered.
            self.break_at(end, (seq, status), true);
            return;
        }
        let mut reported = false;
        loop {
            let now = self.now;
            let owner = &mut self.processes[me.index()];
            let qp = &mut owner.qps[end.qp.index()];
            let next = qp.released + 1;
            let Some(request) = qp.request(next) else { break };
            let Some(status) = request.outcome else { break };
            if status != Status::Success {
                self.break_end(end, status, true);
                return;
            }
            let (id, opcode, signalled) = (request.id, request.opcode, request.signalled);
            let early = request.visible_at > now;
            qp.released = next;
            if signalled {
                let completion = Completion { qp: end.qp, id, opcode, status, bytes: 0, imm: None, tag: 0 };
                owner.completions.push_back(Queued { completion, seq: Some(next) });
                self.counts.early_completions += u64::from(early);
                reported = true;
            }
        }
        if reported {
            self.notify(me);
        }
    }
}
