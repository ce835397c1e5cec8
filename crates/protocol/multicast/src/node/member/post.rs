//! Sends queued output: the outboxes, the stream, and the pieces of peer messages.

use stentor_fabric::seal::{HEADER_WORDS, record_cells};
use stentor_fabric::{Fabric, ProcessId};

use super::{Member, Rare};
use crate::node::counts::Step;
use crate::node::effects::Outputs;
use crate::node::message_assembler::PIECE_WORDS;
use crate::node::outbound::Way;
use crate::node::outbox::BoxSender;
use crate::node::peer_links::IMMEDIATES;
use crate::node::sealed::Sealed;
use crate::node::transfer::Backlog;

/// Maximum number of peer-message pieces written to one peer in one step.
const PIECES_PER_STEP: usize = 4;

impl<F: Fabric> Member<F> {
    /// Writes as much of the stream, the outboxes and the peer messages as there is room for. Returns whether anything
    /// is left.
    pub(super) fn send_outboxes(&mut self) -> bool {
        let idle = self.outputs.dirty.is_empty() && self.outputs.stream.is_empty() && !self.streams.outbound.is_late();
        if idle && self.rare.letters == 0 {
            self.outputs.held_up = false;
            return false;
        }
        let Member { fabric, links, peers, outputs, unsent, scratch, batch, streams, memory, rare, .. } = self;
        let Outputs { stream, boxes, dirty, counts, held_up, .. } = outputs;
        let stream_out = &mut streams.outbound;
        let waiting: usize = dirty.iter().map(|process| boxes[process.index()].len()).sum();
        let queued = ((waiting + stream.len()) * 8) as u64;
        if stream_out.is_late() {
            counts.write(Step::PeerMessage, stream_out.catch_up(fabric, links, scratch));
        }
        let mut sender = BoxSender { fabric, links, scratch, counts, sealed: Sealed::default(), batch: *batch };
        if !stream.is_empty() {
            sender.send(stream_out, stream);
        }
        unsent.clear();
        for process in dirty.drain(..) {
            if let Some(peer) = &mut peers[process.index()]
                && !sender.send(&mut peer.outbound, &mut boxes[process.index()])
            {
                unsent.push(process);
            }
        }
        std::mem::swap(dirty, unsent);
        *held_up = !stream.is_empty();
        let left_over = !(dirty.is_empty() && stream.is_empty()) || stream_out.is_late();
        memory.most_queued = memory.most_queued.max(queued + rare.aside + rare.letters + rare.transfers);
        left_over | self.send_letters()
    }

    /// Updates the byte counts of side stores, peer messages and transfers; called when one of them changed.
    pub(super) fn count_rare_bytes(&mut self) {
        let aside = self.stores.iter().map(|store| store.aside_bytes()).sum();
        let letters = self.assemblers.iter().map(|assembler| assembler.bytes()).sum();
        let transfers = self.transfers.bytes() + self.outputs.backlog.as_ref().map_or(0, Backlog::bytes);
        self.rare = Rare { aside, letters, transfers };
        self.memory.most_queued = self.memory.most_queued.max(aside + letters + transfers);
    }

    /// Writes pieces of peer messages, after all other items. Returns whether any are left.
    fn send_letters(&mut self) -> bool {
        let mut left = false;
        if self.rare.letters == 0 {
            return false;
        }
        for process in 0..self.assemblers.len() {
            if !self.assemblers[process].is_empty() {
                self.send_pieces(ProcessId(process as u16));
                left |= !self.assemblers[process].is_empty();
            }
        }
        left
    }

    fn send_pieces(&mut self, to: ProcessId) {
        let Member { fabric, links, peers, assemblers, outputs, scratch, .. } = self;
        let (Some(Some(peer)), assembler) = (peers.get_mut(to.index()), &mut assemblers[to.index()]) else { return };
        let ring = &mut peer.outbound;
        if !links[peer.main].is_met() {
            return;
        }
        let quarter = ring.lap_cells() as usize / 4 * 8;
        let limit = (ring.writer.max_payload() / 8).min(quarter.saturating_sub(HEADER_WORDS)).max(PIECE_WORDS + 1);
        for _ in 0..PIECES_PER_STEP {
            let words = assembler.next_piece(limit, &mut scratch[HEADER_WORDS..]);
            ring.read_credits(fabric);
            let half = ring.in_use() + record_cells(words * 8) as u64 <= ring.lap_cells() / 2;
            if words == 0 || !half || !ring.ready(fabric, links, words * 8) {
                return;
            }
            let consumed = ring.targets[0].report.map_or(0, |told| told.freed);
            let wakes = assembler.immediates < consumed + IMMEDIATES;
            let way = Way { wakes, fanout: None };
            outputs.counts.write(Step::PeerMessage, ring.send(fabric, links, words * 8, scratch, way));
            assembler.immediates += u64::from(wakes);
            assembler.advance(words);
        }
    }

    /// Queues a peer message to another member. Returns false, and drops the message, if too many are queued, it is too
    /// long, or the member is not connected.
    pub(super) fn send_letter(&mut self, to: ProcessId, words: &[u64], tail: &[u8]) -> bool {
        self.gate.disturb();
        let connected = self.is_connected_to(to);
        let posted = connected && self.assemblers[to.index()].post(words, tail, self.letter_bytes);
        self.count_rare_bytes();
        posted
    }
}
