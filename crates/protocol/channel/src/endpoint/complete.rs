//! Dispatch of the fabric's completions to connections.

use stentor_fabric::{Completion, Fabric, Opcode, Status};

use super::post::{of_imm, of_number};
use super::{Endpoint, due};
use crate::layout::load_words;
use crate::{CONTROL_BYTES, Kind, Op, Outcome, Scheme, Tag, Way, mutant};

impl<F: Fabric> Endpoint<F> {
    /// Polls the fabric once. Returns the number of completions.
    pub(super) fn poll(&mut self) -> usize {
        let mut completions = std::mem::take(&mut self.completions);
        let count = self.fabric.poll(&mut completions);
        for completion in &completions[..count] {
            self.take(completion);
        }
        self.completions = completions;
        count
    }

    fn take(&mut self, completion: &Completion) {
        let Some((place, Some(number))) = self.links.find(completion) else { return };
        let sent = matches!(completion.opcode, Opcode::TaggedSend | Opcode::Write | Opcode::Send);
        // The mutant `SilentUncounted` posts requests without counting them.
        let uncounted = mutant!(self.config.channel.mutant, SilentUncounted) && self.links[place].sends == 0;
        if sent && !uncounted {
            self.links[place].sends -= 1;
            self.sends -= 1;
        }
        if !sent && self.config.channel.scheme == Scheme::Counted {
            self.take_written(place, completion);
            return;
        }
        let (index, op) = of_number(number);
        let Some(entry) = self.entries.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let kind = Tag::of(completion.tag).kind;
        if completion.status == Status::Success
            && entry.connection.takes_next(op, kind, completion.tag as u32, completion.bytes)
        {
            return due(entry, index, &mut self.due);
        }
        let area = u32::from(entry.area);
        let outcome = match completion.status {
            Status::Success if op.way == Way::Send => Outcome::Sent,
            Status::Success => self.received(place, area, op, kind, completion.tag as u32, completion.bytes),
            Status::Cancelled => Outcome::GivenBack,
            status => Outcome::Failed(status),
        };
        self.complete(index, op, &outcome);
    }

    /// Handles the completion of a receive by a WRITE_WITH_IMM. The immediate identifies the slot that was written.
    fn take_written(&mut self, place: usize, completion: &Completion) {
        let link = &mut self.links[place];
        link.recvs = link.recvs.saturating_sub(1);
        if completion.status != Status::Success {
            return;
        }
        let Some((number, kind, slot)) = completion.imm.map(of_imm) else { return };
        let op = Op { way: Way::Recv, kind, place: slot };
        let index = link.numbers.get(&number).copied();
        let entry = index.and_then(|index| self.entries[index as usize].as_mut());
        if kind == Kind::Greeting {
            let listens = entry.is_some_and(|entry| entry.connection.has_posted(op));
            self.take_greeting(place, number, index.filter(|_| listens), completion.bytes);
            return;
        }
        // A connection that has failed is removed once it has drained, and more messages for it may arrive afterwards.
        let (Some(index), Some(entry)) = (index, entry) else { return };
        if !entry.connection.has_posted(op) {
            entry.connection.surprised(op);
            self.drive(index);
            return;
        }
        link.recvs_needed -= 1;
        let sequence = entry.connection.sequence_at(kind, slot);
        let area = u32::from(entry.area);
        let outcome = self.received(place, area, op, kind, sequence, completion.bytes);
        self.complete(index, op, &outcome);
    }

    /// Handles a hello that arrived by WRITE_WITH_IMM. The hello belongs to the present life of the connection number,
    /// or to the next life if this end has not opened that one yet.
    fn take_greeting(&mut self, place: usize, number: u32, index: Option<u32>, bytes: u32) {
        self.top_up(place);
        let op = Op { way: Way::Recv, kind: Kind::Greeting, place: 0 };
        if number >= u32::from(self.config.connections) {
            return;
        }
        // With `Scheme::Counted`, the area of a connection has the connection's number.
        let Outcome::Received { words, .. } = self.received(place, number, op, op.kind, 0, bytes) else { return };
        match index {
            Some(index) => self.greeted(index, words),
            None => {
                self.links[place].early.insert(number, words);
            }
        }
    }

    /// Reports the peer's hello to a connection.
    pub(super) fn greeted(&mut self, index: u32, words: [u64; 8]) {
        let op = Op { way: Way::Recv, kind: Kind::Greeting, place: 0 };
        self.complete(index, op, &Outcome::Received { kind: op.kind, sequence: 0, bytes: CONTROL_BYTES, words });
    }

    fn received(&self, link: usize, area: u32, op: Op, kind: Kind, sequence: u32, bytes: u32) -> Outcome {
        let mut words = [0; 8];
        let memory = self.fabric.memory(self.links[link].inbox);
        let offset = self.layout.offset(area, op.kind, op.place);
        match kind {
            Kind::Length if bytes >= 8 => load_words(memory, offset, &mut words[..1]),
            Kind::Control | Kind::Greeting if bytes >= 64 => load_words(memory, offset, &mut words),
            _ => {}
        }
        Outcome::Received { kind, sequence, bytes, words }
    }

    fn complete(&mut self, index: u32, op: Op, outcome: &Outcome) {
        if let Some(entry) = &mut self.entries[index as usize] {
            entry.connection.completed(op, outcome);
            if entry.connection.is_open() {
                due(entry, index, &mut self.due);
            } else {
                // Draining is not deferred: the receives must be cancelled before the queue pair breaks.
                self.drive(index);
            }
        }
    }
}
