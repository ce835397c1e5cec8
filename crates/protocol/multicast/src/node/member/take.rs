//! Reads input: bodies, the leader's stream, timestamps, acknowledgements, peer messages.

use stentor_fabric::seal::HEADER_WORDS;
use stentor_fabric::{Fabric, ProcessId, Record};

use super::{Member, RECORDS_PER_STEP};
use crate::item::CHUNK;
use crate::mutant::mutant;
use crate::node::app::Application;
use crate::node::effects::Out;
use crate::node::hello::Hello;
use crate::node::open::{Peer, Refused};
use crate::node::store::Mirrored;
use crate::node::streams::HeldRecord;
use crate::{ClientId, Header, Item, Rejected, ids};

impl<F: Fabric> Member<F> {
    pub(super) fn take_bodies<A: Application>(&mut self, app: &mut A) -> bool {
        let mut worked = false;
        if !self.outputs.dropped.is_empty() {
            self.drop_void();
        }
        for at in 0..self.bodies.len() {
            let client = ClientId(at as u16);
            let process = self.topology.client_process(client);
            if self.gate.looks_at(process) {
                worked |= self.take_records(client, RECORDS_PER_STEP, app);
                if !self.bodies[at].drained {
                    self.gate.leave(process);
                }
            }
            if self.bodies[at].greeted.is_some() {
                worked = true;
                self.restart_body(client, app);
            }
        }
        worked
    }

    fn take_records<A: Application>(&mut self, client: ClientId, most: usize, app: &mut A) -> bool {
        let at = usize::from(client.0);
        let mut worked = false;
        self.bodies[at].drained = false;
        for _ in 0..most {
            let freed = self.bodies[at].freed_position;
            let ring = &mut self.bodies[at].ring;
            let memory = self.fabric.memory(ring.region);
            let Some(record) = ring.reader.peek_mirrored(memory, &mut self.stores[at].mirror, freed) else {
                self.bodies[at].drained = true;
                break;
            };
            ring.reader.advance(&record);
            // This check precedes the processing of the body, so that the next record's cache line is fetched
            // meanwhile.
            let more = ring.reader.looks_ready(memory);
            worked = true;
            if self.take_body(client, record, app).is_none() {
                self.outputs.counts.rejected += 1;
                // No delivery of a refused record will trigger the credit for its space.
                self.outputs.touch(client);
            }
            if !more {
                self.bodies[at].drained = true;
                break;
            }
        }
        worked
    }

    /// Restarts the ring of a client whose hello arrived, from a new process or from one that resumes its ring. First
    /// reads what the ring still contains. Then moves the messages that are held to the side store, because the
    /// restarted ring overwrites them.
    fn restart_body<A: Application>(&mut self, client: ClientId, app: &mut A) {
        self.take_records(client, usize::MAX, app);
        let at = usize::from(client.0);
        let Some(greeting) = self.bodies[at].greeted.take() else { return };
        let Hello { life, start, begun, generation, above, .. } = greeting;
        let body = &mut self.bodies[at];
        (body.generation, body.above, body.begun) = (generation, above, begun);
        // The records read just now may have freed slots, so slots beyond the earlier window move aside, too.
        let freed = self.free_delivered(client);
        self.stores[at].move_aside(freed);
        debug_assert!(self.stores[at].is_mirror_empty(), "the ring starts anew");
        let body = &mut self.bodies[at];
        let process = self.topology.client_process(client);
        body.go_back_to_refused();
        body.ring.restart(life, start, self.seals.of(process, life));
        body.freed_position = body.ring.reader.position();
        // The status of the client id is reported to any new process, whichever process used the id before.
        (body.settling, body.ticks) = (true, 0);
        self.ask_to_open(client, app);
        self.outputs.notify[at] = true;
        self.outputs.touch(client);
        self.count_rare_bytes();
    }

    /// Processes the record of a message. Returns `None` if it was refused.
    fn take_body<A: Application>(&mut self, client: ClientId, record: Record, app: &mut A) -> Option<()> {
        let at = usize::from(client.0);
        let (first, last) = (record.word + HEADER_WORDS, record.word + HEADER_WORDS + record.bytes.div_ceil(8));
        let header = Header::decode(&self.stores[at].mirror[first..last], record.bytes, &self.topology).ok()?;
        if ids::generation(header.sequence) < self.replica.over_below(client) && !mutant!(self.mutant, ClosingForgotten)
        {
            // The client's process has ended: messages that are not held by now are refused.
            return None;
        }
        // The message is checked before it replaces another one in the store.
        let sync = header.sync;
        let slot = match self.replica.admit(client, &header) {
            Ok(Some(slot)) => slot,
            // The message is already held or delivered.
            Ok(None) => {
                self.note_held(client, sync);
                self.outputs.counts.held_already += 1;
                // The record's space is free as soon as the records before it are freed. No delivery follows that would
                // trigger the credit.
                if !mutant!(self.mutant, HeldBodiesUncredited) {
                    self.outputs.touch(client);
                }
                return Some(());
            }
            Err(Rejected::BeyondWindow { slot, .. }) => {
                self.note_beyond(client, Refused { slot, position: record.start });
                return None;
            }
            Err(_) => return None,
        };
        let (groups, bytes, notify) = (header.groups(), header.payload_bytes, header.notify);
        let message = Mirrored { groups, bytes, notify, word: first, start: record.start, end: record.end };
        self.stores[at].put_mirrored(slot, &message);
        // The header is decoded again, because its first borrow of the stores had to end before the message was stored.
        let header = Header::decode(&self.stores[at].mirror[first..last], record.bytes, &self.topology).ok()?;
        let mut out = Out { outputs: &mut self.outputs, stores: &self.stores, app };
        let done = self.replica.on_message(client, &header, &mut out);
        self.note_states();
        done.ok()?;
        self.note_held(client, sync);
        Some(())
    }

    /// Notes that a message lies beyond the window of this member, which lags, for example because it was disconnected.
    #[cold]
    fn note_beyond(&mut self, client: ClientId, refused: Refused) {
        let at = usize::from(client.0);
        let body = &mut self.bodies[at];
        if body.refused.is_none() && !mutant!(self.mutant, BeyondWindowFreed) {
            body.refused = Some(refused);
            self.outputs.notify[at] = true;
        }
    }

    /// Reads a ring again, beginning with the refused record, if that record is no longer beyond the window.
    pub(super) fn look_at_refused(&mut self, client: ClientId) {
        let at = usize::from(client.0);
        let body = &mut self.bodies[at];
        if body.refused.is_some_and(|refused| !self.replica.is_beyond(client, refused.slot)) {
            body.go_back_to_refused();
            body.drained = false;
            self.outputs.notify[at] = true;
            self.gate.disturb();
        }
    }

    /// Forgets the bodies of messages that the state machine has dropped.
    pub(super) fn drop_void(&mut self) {
        for (client, slot, sequence) in std::mem::take(&mut self.outputs.dropped) {
            let at = usize::from(client.0);
            if self.stores[at].drop_message(slot, sequence) {
                let body = &mut self.bodies[at];
                body.held_slots = body.held_slots.min(slot);
                self.outputs.touch(client);
            }
        }
    }

    pub(super) fn note_held(&mut self, client: ClientId, sync: bool) {
        let at = usize::from(client.0);
        let (body, store) = (&mut self.bodies[at], &self.stores[at]);
        body.held_slots = body.held_slots.max(self.replica.first_held(client));
        while store.has(body.held_slots) {
            body.held_slots += 1;
        }
        if sync {
            self.outputs.notify[at] = true;
            self.outputs.touch(client);
        }
    }

    pub(super) fn take_stream<A: Application>(&mut self, app: &mut A) -> bool {
        let Member { fabric, replica, streams, outputs, stores, gate, .. } = self;
        let Some((leader, stream)) = streams.read_mut() else { return false };
        if stream.held.is_none() && !gate.looks_at(leader) {
            return false;
        }
        let mut worked = false;
        for _ in 0..RECORDS_PER_STEP {
            let mut more = true;
            if stream.held.is_none() {
                let memory = fabric.memory(stream.ring.region);
                let Some(record) = stream.ring.reader.peek(memory, &mut stream.record) else { return worked };
                more = stream.ring.reader.looks_ready_behind(&record, memory);
                stream.held = Some(HeldRecord::new(record));
            }
            let Some(HeldRecord { record, end, at }) = &mut stream.held else { break };
            while at < end {
                let (item, next) = match Item::decode(&stream.record[..*end], *at) {
                    Ok((Item::Stream(item), next)) => (item, next),
                    Ok((Item::Begin(ballot), next)) => {
                        outputs.counts.rejected += u64::from(replica.on_begin(leader, ballot).is_err());
                        *at = next;
                        continue;
                    }
                    _ => {
                        outputs.counts.rejected += 1;
                        break;
                    }
                };
                if replica.stream_waits(leader, &item) {
                    return worked;
                }
                worked = true;
                *at = next;
                let mut out = Out { outputs, stores, app };
                if replica.on_stream(leader, &item, &mut out).is_err() {
                    outputs.counts.rejected += 1;
                }
            }
            stream.ring.reader.advance(record);
            stream.held = None;
            if !more {
                return worked;
            }
        }
        gate.leave(leader);
        worked
    }

    pub(super) fn take_control<A: Application>(&mut self, app: &mut A) -> bool {
        // All rings are checked before the first is read, so that their cache lines, which other processors own, arrive
        // in parallel.
        self.due.clear();
        for process in self.gate.looked_at(self.peers.len()) {
            if let Some(Peer { inbound, .. }) = &self.peers[process.index()]
                && inbound.reader.looks_ready(self.fabric.memory(inbound.region))
            {
                self.due.push(process);
            }
        }
        let mut worked = false;
        for at in 0..self.due.len() {
            worked |= self.take_control_of(self.due[at], app);
        }
        worked
    }

    fn take_control_of<A: Application>(&mut self, from: ProcessId, app: &mut A) -> bool {
        for taken in 0..RECORDS_PER_STEP {
            let Some(peer) = &mut self.peers[from.index()] else { return false };
            // Between two connections nothing is read: the rest is lost with the old connection.
            if !self.links[peer.main].is_met() {
                return taken > 0;
            }
            let memory = self.fabric.memory(peer.inbound.region);
            let Some(record) = peer.inbound.reader.peek(memory, &mut self.inbox) else { return taken > 0 };
            peer.inbound.reader.advance(&record);
            let more = peer.inbound.reader.looks_ready(memory);
            let end = HEADER_WORDS + record.bytes / 8;
            if self.inbox[HEADER_WORDS] & 0xf == CHUNK && record.bytes >= 8 {
                self.take_piece(from, end);
            } else {
                self.take_items(from, end, app);
            }
            if !more {
                return true;
            }
        }
        self.gate.leave(from);
        true
    }

    /// Processes the items of the record in `inbox`.
    fn take_items<A: Application>(&mut self, from: ProcessId, end: usize, app: &mut A) {
        let Member { replica, outputs, stores, inbox, time, .. } = self;
        let mut at = HEADER_WORDS;
        while at < end {
            let Ok((item, next)) = Item::decode(&inbox[..end], at) else {
                outputs.counts.rejected += 1;
                return;
            };
            at = next;
            let mut out = Out { outputs, stores, app };
            let taken = match item {
                Item::Timestamp(item) => match replica.on_timestamp(from, &item, &mut out) {
                    Ok(()) => true,
                    Err(rejected) => {
                        time.note_refused(&rejected);
                        false
                    }
                },
                Item::Ack(ack) => replica.on_ack(from, &ack, &mut out).is_ok(),
                Item::Stream(_) | Item::Begin(_) => false,
            };
            outputs.counts.rejected += u64::from(!taken);
        }
    }

    /// Processes the piece of a peer message in `inbox`.
    fn take_piece(&mut self, from: ProcessId, end: usize) {
        let piece = &self.inbox[HEADER_WORDS..end];
        match self.assemblers[from.index()].take(from, piece, self.letter_bytes) {
            Ok(letter) => self.recovery.received.extend(letter),
            Err(()) => self.outputs.counts.rejected += 1,
        }
        self.count_rare_bytes();
    }
}
