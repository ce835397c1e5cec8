//! Posts the operations that connections ask for.

use stentor_fabric::{Fabric, PostError, RemoteRegion, RemoteSpan, Source, Span, Verb, WorkRequest};

use super::body::Body;
use super::peer::Peer;
use super::{Endpoint, Handle};
use crate::layout::store_words;
use crate::{CONTROL_BYTES, Kind, LENGTH_BYTES, Notice, Op, Outcome, Recv, Scheme, Tag, What, mutant};

/// Longest data that is posted inline, in bytes, provided that the fabric's own limit is not lower.
const INLINE_BYTES: usize = 256;

/// Number of bits of a request number that are reserved for the operation.
const OP_BITS: u32 = 20;

/// Returns the number of a request: 32 bits for the connection's index, and 20 bits for the operation.
fn number_of(index: u32, op: Op) -> u64 {
    u64::from(index) << OP_BITS | u64::from(op.bits())
}

/// Returns the connection's index and the operation that a request number encodes.
#[inline]
pub(super) fn of_number(number: u64) -> (u32, Op) {
    ((number >> OP_BITS) as u32, Op::of(number as u32 & ((1 << OP_BITS) - 1)))
}

/// Returns the immediate that identifies the written slot to the receiver: 16 bits connection, 2 kind, 14 slot.
pub(super) fn imm_of(number: u32, op: Op) -> u32 {
    number << 16 | (op.kind as u32) << 14 | u32::from(op.place)
}

/// Returns the connection, kind and slot of an immediate.
pub(super) fn of_imm(imm: u32) -> (u32, Kind, u16) {
    (imm >> 16, Kind::ALL[(imm >> 14 & 3) as usize], (imm & 0x3fff) as u16)
}

impl<F: Fabric> Endpoint<F> {
    /// Posts a connection's receives, control messages and detached message, cancels its receives if it drains, and
    /// collects its notices.
    pub(super) fn drive(&mut self, index: u32) {
        while let Some(entry) = &mut self.entries[index as usize] {
            let recv = entry.connection.next_recv();
            match recv {
                Some(recv) => self.post_recv(index, &recv),
                None => break,
            }
        }
        while self.may_send(index) {
            let Some(entry) = &mut self.entries[index as usize] else { return };
            let Some(send) = entry.connection.next_control() else { break };
            let What::Control(words) = &send.what else { break };
            self.post_send(index, send.op, send.tag, words, Body::NONE);
        }
        self.send_rest(index);
        if !self.may_send(index)
            && let Some(entry) = &mut self.entries[index as usize]
            && !std::mem::replace(&mut entry.is_starved, true)
        {
            self.starved.push_back(index);
        }
        while let Some(entry) = &mut self.entries[index as usize] {
            let Some(op) = entry.connection.next_cancel() else { break };
            self.cancel(index, op);
        }
        self.tell(index);
    }

    fn tell(&mut self, index: u32) {
        while let Some(entry) = &mut self.entries[index as usize] {
            let Some(notice) = entry.connection.next_notice() else { return };
            self.notices.push_back((Handle { index, generation: entry.generation }, notice));
            if notice == Notice::Closed {
                self.forget(index);
            }
        }
    }

    /// Removes a connection that is over. Frees its area and its number, unless messages to them may still be in
    /// flight.
    fn forget(&mut self, index: u32) {
        let Some(entry) = self.entries[index as usize].take() else { return };
        let link = &mut self.links[entry.link as usize];
        let number = entry.connection.number();
        link.numbers.remove(&number);
        let failed = entry.connection.error().is_some();
        let written = failed && self.config.channel.scheme == Scheme::Counted;
        let areas = if written { &mut link.withheld } else { &mut link.free };
        areas.push(entry.area);
        if failed {
            link.spent.insert(number);
        }
    }

    fn may_send(&self, index: u32) -> bool {
        let Some(entry) = &self.entries[index as usize] else { return false };
        let link = &self.links[entry.link as usize];
        link.is_ready() && link.sends < self.config.send_depth && self.sends < self.most_sends
    }

    /// Sends the next part of a message, if it may be sent. Returns whether a part was sent.
    pub(super) fn send_part(&mut self, index: u32, message: Body<'_>) -> bool {
        if !self.may_send(index) {
            return false;
        }
        let Some(entry) = &mut self.entries[index as usize] else { return false };
        let Some(send) = entry.connection.next_part() else { return false };
        let (op, tag) = (send.op, send.tag);
        let length;
        let (words, data) = match send.what {
            What::Length { bytes, inline } => {
                length = [bytes];
                let head: &[u64] = if self.config.channel.is_whole(bytes) { &[] } else { &length };
                (head, message.part(0, inline))
            }
            What::Payload { offset, bytes } => (&[][..], message.part(offset, bytes)),
            What::Control(_) => return false,
        };
        self.post_send(index, op, tag, words, data);
        true
    }

    /// Sends as much as possible of a message that its writer has detached.
    fn send_rest(&mut self, index: u32) {
        let Some(rest) = self.entries[index as usize].as_mut().and_then(|entry| entry.rest.take()) else { return };
        while self.send_part(index, Body::Rest(rest.from, &rest.bytes)) {}
        // A connection that is not open sends nothing more.
        if let Some(entry) = &mut self.entries[index as usize]
            && entry.connection.is_open()
            && entry.connection.left().is_some()
        {
            entry.rest = Some(rest);
        }
    }

    /// Posts a message that consists of words and data.
    fn post_send(&mut self, index: u32, op: Op, tag: Tag, words: &[u64], data: Body<'_>) {
        // The buffer is cleared only in the branch that uses it, because clearing takes longer than the rest of the
        // work for a short message.
        let mut short;
        let head = words.len() * 8;
        let whole = head + data.bytes();
        let padded = whole.next_multiple_of(8);
        let counted = self.config.channel.scheme == Scheme::Counted;
        let bytes = if counted { padded } else { whole };
        let fits = padded <= self.fabric.capabilities().inline_bytes as usize;
        let inline = padded <= INLINE_BYTES && (fits || mutant!(self.config.channel.mutant, InlineAnyway));
        let Some(entry) = &self.entries[index as usize] else { return };
        let link = &self.links[entry.link as usize];
        let (outbox, area) = (link.outbox, u32::from(entry.area));
        let place = if mutant!(self.config.channel.mutant, SendPlaceReused) { 0 } else { op.place };
        let source = match data {
            // The data is already in registered memory, so no copy is necessary.
            Body::Registered(region, offset, _) if head == 0 && !inline => {
                Source::Region(Span { region, offset, bytes: bytes as u32 })
            }
            Body::Bytes(message) if head == 0 && inline && bytes == whole => Source::Inline(message),
            _ if inline => {
                short = [0; INLINE_BYTES];
                for (to, word) in short.chunks_exact_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
                data.copy_to_bytes(&self.fabric, &mut short[head..whole]);
                Source::Inline(&short[..bytes])
            }
            _ => {
                let offset = self.layout.offset(area, op.kind, place);
                let memory = self.fabric.memory(outbox);
                store_words(memory, offset, words);
                data.copy_to_words(&self.fabric, memory, offset + head as u64);
                Source::Region(Span { region: outbox, offset, bytes: bytes as u32 })
            }
        };
        let signalled = op.kind != Kind::Control || !mutant!(self.config.channel.mutant, SilentUncounted);
        let posted = self.hand_to_fabric(index, op, tag, source, signalled);
        match &mut self.entries[index as usize] {
            Some(entry) if !signalled && posted.is_ok() => entry.connection.completed(op, &Outcome::Sent),
            _ => self.posted(index, op, posted),
        }
    }

    fn hand_to_fabric(
        &mut self,
        index: u32,
        op: Op,
        tag: Tag,
        source: Source<'_>,
        signalled: bool,
    ) -> Result<(), PostError> {
        let Some(entry) = &self.entries[index as usize] else { return Ok(()) };
        let (place, area, number) = (entry.link as usize, u32::from(entry.area), entry.connection.number());
        let verb = if self.config.channel.scheme == Scheme::Counted {
            // Both ends use the same area, which the connection's number determines.
            let region = self.target(place)?;
            let offset = self.layout.offset(area, op.kind, op.place);
            Verb::WriteImm { source, target: RemoteSpan { region, offset }, imm: imm_of(number, op) }
        } else {
            Verb::TaggedSend { source, tag: tag.bits() }
        };
        let link = &self.links[place].link;
        self.fabric.post(link.qp(), WorkRequest { id: link.id(number_of(index, op)), verb, signalled })
    }

    /// Returns the peer's region that this end writes. The peer granted access to the region before the queue pair was
    /// connected.
    fn target(&mut self, place: usize) -> Result<RemoteRegion, PostError> {
        let Peer { link, target, .. } = &mut self.links[place];
        let qp = link.qp();
        target.get(&mut self.fabric, link).ok_or_else(|| PostError::NotReady { qp, state: self.fabric.state(qp) })
    }

    fn posted(&mut self, index: u32, op: Op, posted: Result<(), PostError>) {
        let Some(entry) = &mut self.entries[index as usize] else { return };
        match posted {
            Ok(()) => {
                self.links[entry.link as usize].sends += 1;
                self.sends += 1;
            }
            Err(error) => entry.connection.refused(op, error),
        }
    }

    fn post_recv(&mut self, index: u32, recv: &Recv) {
        let Some(entry) = &mut self.entries[index as usize] else { return };
        let place = entry.link as usize;
        if self.config.channel.scheme == Scheme::Counted {
            // Receives for hellos are always posted, whether a connection is open or not.
            if recv.op.kind != Kind::Greeting {
                self.links[place].recvs_needed += 1;
                self.top_up(place);
            }
            return;
        }
        let Peer { link, inbox, .. } = &self.links[place];
        let posted = {
            let bytes = match recv.op.kind {
                Kind::Length => (LENGTH_BYTES + self.config.channel.eager_bytes).max(CONTROL_BYTES),
                Kind::Payload => self.config.channel.piece_bytes,
                Kind::Control | Kind::Greeting => CONTROL_BYTES,
            };
            let offset = self.layout.offset(u32::from(entry.area), recv.op.kind, recv.op.place);
            let local = Span { region: *inbox, offset, bytes };
            let id = link.id(number_of(index, recv.op));
            self.fabric.post_tagged_recv(link.qp(), local, recv.tag.bits(), recv.ignore, id)
        };
        if let Err(error) = posted {
            entry.connection.refused(recv.op, error);
        }
    }

    /// Posts receives until there are `recvs_needed`, which any WRITE_WITH_IMM may use. If the fabric refuses to post
    /// one, a later write of the peer may find no receive, and the queue pair then breaks with an error.
    pub(super) fn top_up(&mut self, place: usize) {
        let link = &mut self.links[place];
        while link.recvs < link.recvs_needed {
            let nowhere = Span { region: link.inbox, offset: 0, bytes: 0 };
            if self.fabric.post_recv(link.qp(), nowhere, link.id(0)).is_err() {
                return;
            }
            link.recvs += 1;
        }
    }

    fn cancel(&mut self, index: u32, op: Op) {
        let Some(entry) = &mut self.entries[index as usize] else { return };
        let link = &mut self.links[entry.link as usize];
        if self.config.channel.scheme == Scheme::Counted {
            // The receive stays posted, and another connection can use it.
            link.recvs_needed -= u32::from(op.kind != Kind::Greeting);
            entry.connection.completed(op, &Outcome::GivenBack);
            return;
        }
        // The result is ignored: if the queue pair is broken, its receives are flushed without a cancel.
        let _ = self.fabric.cancel_tagged_recv(link.qp(), link.id(number_of(index, op)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Way;

    #[test]
    fn immediates_survive_encoding() {
        for kind in Kind::ALL {
            let op = Op { way: Way::Send, kind, place: 4095 };
            assert_eq!(of_imm(imm_of(65_535, op)), (65_535, kind, 4095));
        }
    }
}
