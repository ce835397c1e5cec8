//! Polls local memory: the broadcast buffers, and registers that others wrote here.

use stentor_fabric::memory::WORD;
use stentor_fabric::seal::HEADER_WORDS;
use stentor_fabric::{Fabric, ProcessId};

use super::endpoint::store;
use super::{Node, Notice};
use crate::replay::Outcome;
use crate::value::Value;
use crate::{Mode, mutant};

impl<F: Fabric> Node<F> {
    /// Takes a snapshot of each sender's next values, in the order of indices. The snapshot is published and delivered;
    /// the buffer is never read again for this index.
    pub(super) fn poll_bcast_bufs<N: FnMut(Notice<'_>)>(&mut self, notify: &mut N) -> bool {
        let mut worked = false;
        for sender in self.end.others.iter() {
            while self.take_broadcast(sender, notify) {
                self.busy.insert(sender);
                worked = true;
            }
        }
        worked
    }

    pub(super) fn take_broadcast<N: FnMut(Notice<'_>)>(&mut self, sender: ProcessId, notify: &mut N) -> bool {
        let Node { end, streams, scratch, authority, .. } = self;
        let Some(stream) = &mut streams[sender.index()] else { return false };
        if !stream.replay.has_room() {
            return false;
        }
        let next = stream.replay.next();
        let lap = end.layout.lap(next);
        let slot = &end.broadcast_words(sender)[end.layout.ring_offset(next) as usize / WORD..];
        let slot = &slot[..end.layout.slot_bytes() as usize / WORD];
        let Some((seen, bytes)) = stream.inbound.open_newer(lap - 1, slot, scratch) else { return false };
        if seen > lap {
            stream.replay.overtaken();
            return true;
        }
        let config = &end.config;
        let value = Value::new(&scratch[HEADER_WORDS..], bytes, config.signed, config.payload_bytes);
        let checked = value.and_then(|value| value.check(sender, next, authority.as_ref()).map(|()| value));
        let value = match checked {
            Ok(value) => value,
            Err(refused) => {
                stream.replay.end();
                notify(Notice::Refused(sender, refused));
                return true;
            }
        };
        if mutant!(config.mutant, KeyIsIndex) && value.key() != next {
            return false;
        }
        if self.is_register_in_use(sender, next) {
            return false;
        }
        self.publish(sender, lap);
        true
    }

    /// Returns whether the NIC may still read the staged copy of the register whose slot this index reuses.
    fn is_register_in_use(&self, sender: ProcessId, next: u64) -> bool {
        let Some(stream) = &self.streams[sender.index()] else { return false };
        let Some(old) = next.checked_sub(u64::from(self.end.config.window)) else { return false };
        if self.end.config.mode == Mode::All || !stream.records.is_staged(self.end.layout.slot(old)) {
            return false;
        }
        self.end.peers.iter().any(|peer| {
            let at = &stream.at[peer.peer().index()];
            peer.is_ready() && at.posted > old && stream.replay.published_at(peer.peer()) <= old
        })
    }

    /// Publishes the value in `scratch` as this process's register for the next index, once and for all.
    fn publish(&mut self, sender: ProcessId, lap: u64) {
        let Node { end, streams, scratch, .. } = self;
        let Some(stream) = &mut streams[sender.index()] else { return };
        let bytes = (scratch[2] >> 32) as usize;
        let words = &scratch[HEADER_WORDS..HEADER_WORDS + bytes / WORD];
        let index = stream.replay.poll_bcast_bufs(&Value::trusted(words, end.config.signed));
        let slot = end.layout.slot(index);
        stream.records.place(slot)[HEADER_WORDS..HEADER_WORDS + words.len()].copy_from_slice(words);
        stream.records.close(&stream.outbound, lap, slot, bytes);
        let record = stream.records.get(slot);
        let offset = end.layout.register_offset(sender, index);
        if end.config.mode == Mode::All {
            store(end.register_words(end.me), offset, record);
        } else if stream.records.is_staged(slot) {
            store(end.fabric.memory(end.staging), end.layout.staged_registers() + offset, record);
        }
    }

    /// Processes the registers that other processes wrote to the local replica (fast path).
    pub(super) fn poll_pushed<N: FnMut(Notice<'_>)>(&mut self, notify: &mut N) -> bool {
        if !self.end.config.fast_path || self.end.config.mode == Mode::All {
            return false;
        }
        let mut worked = false;
        for sender in self.busy.iter() {
            let Some(stream) = &self.streams[sender.index()] else { continue };
            if !stream.replay.hosts().contains(self.end.me) {
                continue;
            }
            for replayer in self.end.others.without(sender).iter() {
                while self.take_pushed(sender, replayer, notify) {
                    worked = true;
                }
            }
        }
        worked
    }

    fn take_pushed<N: FnMut(Notice<'_>)>(&mut self, sender: ProcessId, replayer: ProcessId, notify: &mut N) -> bool {
        let Node { end, streams, scratch, authority, .. } = self;
        let Some(stream) = &mut streams[sender.index()] else { return false };
        let at = &mut stream.at[replayer.index()];
        at.pushed = at.pushed.max(stream.replay.head());
        let index = at.pushed;
        if index >= stream.replay.next() {
            return false;
        }
        let lap = end.layout.lap(index);
        let slot = &end.register_words(replayer)[end.layout.register_offset(sender, index) as usize / WORD..];
        let slot = &slot[..end.layout.slot_bytes() as usize / WORD];
        let Some((seen, bytes)) = stream.seals[replayer.index()].open_newer(lap - 1, slot, scratch) else {
            return false;
        };
        at.pushed += 1;
        let value = Value::new(&scratch[HEADER_WORDS..], bytes, end.config.signed, end.config.payload_bytes);
        let value = value.ok().filter(|value| seen == lap && value.index() == index);
        let evidence = value.and_then(|value| stream.replay.pushed(replayer, index, &value, authority.as_ref()));
        if let Some(evidence) = evidence {
            notify(Notice::Equivocation(&evidence));
        }
        true
    }

    /// Reports every outcome that is due. Returns whether there was any.
    pub(super) fn deliver<N: FnMut(Notice<'_>)>(&mut self, notify: &mut N) -> bool {
        if self.removal.has_left() {
            return false;
        }
        let mut worked = self.deliver_own(notify);
        for sender in self.busy.iter() {
            while self.deliver_next(sender, notify) {
                worked = true;
            }
        }
        worked
    }

    fn deliver_next<N: FnMut(Notice<'_>)>(&mut self, sender: ProcessId, notify: &mut N) -> bool {
        let Node { end, streams, scratch, counts, .. } = self;
        let Some(stream) = &mut streams[sender.index()] else { return false };
        match stream.replay.next_outcome() {
            Some(Outcome::Deliver(value)) if mutant!(end.config.mutant, DeliverFromBuffer) => {
                let slot = &end.broadcast_words(sender)[end.layout.ring_offset(value.index()) as usize / WORD..];
                let seen = stream.inbound.open_newer(0, slot, scratch);
                let again = seen.and_then(|(_, bytes)| {
                    Value::new(&scratch[HEADER_WORDS..], bytes, end.config.signed, end.config.payload_bytes).ok()
                });
                notify(Notice::Deliver(sender, again.filter(|now| now.index() == value.index()).unwrap_or(value)));
                counts.deliveries += 1;
            }
            Some(Outcome::Deliver(value)) => {
                counts.deliveries += 1;
                counts.fast += u64::from(!stream.replay.was_read());
                notify(Notice::Deliver(sender, value));
            }
            Some(Outcome::Skip(index)) => {
                counts.skipped += 1;
                notify(Notice::Skip(sender, index));
            }
            None => return false,
        }
        let read = stream.replay.was_read();
        stream.replay.settled();
        stream.patience.settled(read);
        true
    }
}
