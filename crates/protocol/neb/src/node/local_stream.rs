//! Broadcasts of the local process, and their delivery here.
//!
//! Cursors determine what is posted to each peer, by a queue pair or by the set. `fanout.rs` documents the states and
//! invariants.

use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Fabric, ProcessId, RemoteSpan, SetTarget, SlotReader, Source, Span};
use stentor_link::purpose::NEB_BROADCAST;

use super::endpoint::{Endpoint, store};
use super::fanout::FanoutSender;
use super::peer::Done;
use super::records::Records;
use super::send_cursor::SendCursor;
use super::{BroadcastError, Counts, Node, Notice};
use crate::layout::{broadcast_seal, credit_seal};
use crate::value::{self, Value};
use crate::{Broadcast, Config, Layout};

/// The local stream, and the records of its last window.
#[derive(Debug)]
pub(super) struct LocalStream {
    pub(super) stream: Broadcast,
    seal: Seal,
    records: Records,
    /// Send cursor of each peer.
    cursors: Vec<SendCursor>,
    /// The fan-out set, if the network makes copies.
    pub(super) fanout: Option<FanoutSender>,
    /// Everything below this index was posted to every peer.
    posted_everywhere: u64,
    /// Credit slot of each peer.
    credits: Vec<SlotReader>,
    /// Newest credit of each peer, valid or not.
    pub(super) claimed: Vec<u64>,
}

impl LocalStream {
    pub(super) fn new(
        config: &Config,
        salt: u64,
        me: ProcessId,
        layout: &Layout,
        inline_bytes: u32,
        fanout: Option<FanoutSender>,
    ) -> Self {
        LocalStream {
            stream: Broadcast::new(config, me),
            seal: broadcast_seal(config, me, salt),
            records: Records::new(layout, config.window, inline_bytes),
            cursors: vec![SendCursor::default(); config.processes],
            fanout,
            posted_everywhere: 0,
            claimed: vec![0; config.processes],
            credits: config.everybody().iter().map(|peer| SlotReader::new(credit_seal(peer, salt))).collect(),
        }
    }

    /// Restarts sending to this peer from the first index that is not known to be written there. Its queue pair must
    /// have no write in flight.
    pub(super) fn rewind(&mut self, peer: ProcessId) {
        let cursor = &mut self.cursors[peer.index()];
        if let Some(fanout) = &mut self.fanout {
            fanout.went_back(peer, cursor.posted);
        }
        *cursor = SendCursor::from(self.stream.written_at(peer));
        self.posted_everywhere = 0;
    }

    /// Records that a queue pair has written all records below an index that were posted on it.
    pub(super) fn linked(&mut self, peer: ProcessId, upto: u64) {
        let cursor = &mut self.cursors[peer.index()];
        cursor.linked_done = cursor.linked_done.max(upto);
        self.settle(peer);
    }

    /// Updates the index up to which a peer was written by both paths.
    fn settle(&mut self, peer: ProcessId) {
        let cursor = &self.cursors[peer.index()];
        let linked = if cursor.is_quiet() { cursor.posted } else { cursor.linked_done };
        let upto = match &self.fanout {
            // The set no longer knows which indices it alone carried, so the cursor must go back first.
            Some(fanout) if fanout.goes_back(peer) => return,
            Some(fanout) => fanout.alone_from(peer).map_or(linked, |first| first.min(linked)),
            None => linked,
        };
        self.stream.written(peer, upto);
    }

    /// Records that writes of the set are done.
    pub(super) fn fanned(&mut self) {
        for peer in (0..self.cursors.len() as u16).map(ProcessId) {
            if let Some(fanout) = &mut self.fanout {
                fanout.forget_done(peer);
            }
            self.settle(peer);
        }
    }

    /// Records that a peer has freed indices. A freed index that the set carried has arrived at this peer, whether the
    /// other peers have it or not.
    fn freed(&mut self, peer: ProcessId, window: u64) {
        let (freed, next) = (self.stream.freed_by(peer), self.stream.next());
        if self.fanout.as_mut().is_some_and(|fanout| fanout.freed(peer, freed, next, window)) {
            self.settle(peer);
        }
    }

    /// Counts a round. Returns whether indices have to be posted again.
    #[inline]
    pub(super) fn tend(&mut self) -> bool {
        let slow = self.fanout.as_mut().is_some_and(FanoutSender::tend);
        if slow {
            self.posted_everywhere = 0;
        }
        slow
    }

    /// Joins a broken set again, and posts again the indices that may not have arrived. All completions of the set must
    /// have been processed before.
    pub(super) fn mend<F: Fabric>(&mut self, fabric: &mut F) {
        if let Some(fanout) = &mut self.fanout {
            fanout.mend(fabric);
            self.posted_everywhere = 0;
        }
    }

    /// Returns the index up to which a peer can be written. A slot has only one write in flight, because the older one
    /// could land last if writes are not ordered or take another path.
    #[inline]
    fn until<F: Fabric>(&mut self, fabric: &F, peer: ProcessId, window: u64) -> u64 {
        let until = self.stream.next().min(self.stream.written_at(peer) + window);
        let unfinished = self.fanout.as_mut().and_then(|fanout| fanout.unfinished(fabric, peer));
        unfinished.map_or(until, |first| until.min(first + window))
    }
}

impl<F: Fabric> Node<F> {
    /// Broadcasts a payload with a key of the application and returns its index. The call posts the broadcast to all
    /// peers that can be written to now.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn broadcast(&mut self, now_ns: u64, key: u64, payload: &[u8]) -> Result<u64, BroadcastError> {
        let index = self.enqueue(now_ns, key, payload)?;
        self.post_broadcasts();
        self.end.fabric.flush();
        Ok(index)
    }

    /// Enqueues a broadcast, which the next [`step`](Node::step) posts together with earlier ones. A caller with
    /// several payloads uses this instead of [`broadcast`](Node::broadcast). Returns the broadcast's index.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn enqueue(&mut self, now_ns: u64, key: u64, payload: &[u8]) -> Result<u64, BroadcastError> {
        let limit = self.end.config.payload_bytes;
        if payload.len() > limit {
            return Err(BroadcastError::TooLong { bytes: payload.len(), limit });
        }
        if self.removal.has_left() {
            return Err(BroadcastError::Removed);
        }
        if !self.has_room(now_ns) {
            return Err(BroadcastError::Full);
        }
        let layout = self.end.layout;
        let index = self.own.stream.take();
        let slot = layout.slot(index);
        let place = &mut self.own.records.place(slot)[HEADER_WORDS..];
        let bytes = value::encode(index, key, payload, self.authority.as_ref(), place);
        self.own.records.close(&self.own.seal, layout.lap(index), slot, bytes);
        if self.own.records.is_staged(slot) {
            let record = self.own.records.get(slot);
            store(self.end.fabric.memory(self.end.staging), layout.ring_offset(index), record);
        }
        self.counts.broadcasts += 1;
        Ok(index)
    }

    /// Returns whether there is room for a broadcast, so that it would not be refused as [`BroadcastError::Full`].
    ///
    /// A caller that records a broadcast before it is posted needs to know this in advance. The broadcast's index will
    /// be [`Broadcast::next`] of [`own_stream`](Node::own_stream).
    #[must_use]
    pub fn has_room(&mut self, now_ns: u64) -> bool {
        self.own.stream.has_room(now_ns) && !self.is_own_slot_in_use()
    }

    /// Returns whether the NIC may still read the staged copy in the slot of the next index.
    fn is_own_slot_in_use(&self) -> bool {
        let window = u64::from(self.end.config.window);
        let Some(old) = self.own.stream.next().checked_sub(window) else { return false };
        if !self.own.records.is_staged(self.end.layout.slot(old)) {
            return false;
        }
        self.end.peers.iter().any(|peer| {
            let id = peer.peer();
            let (posted, written) = (self.own.cursors[id.index()].posted, self.own.stream.written_at(id));
            id != self.end.me && peer.is_ready() && posted > old && written <= old
        })
    }

    /// Writes broadcasts to every peer that lacks them. Returns whether any write was posted.
    pub(super) fn post_broadcasts(&mut self) -> bool {
        let Node { end, own, counts, .. } = self;
        let next = own.stream.next();
        if own.posted_everywhere == next {
            return false;
        }
        let mut worked = own.fanout.is_some() && fan_out(end, own, counts);
        let mut everywhere = next;
        let ordered = end.fabric.capabilities().ordered_writes;
        let window = u64::from(end.config.window);
        for link in end.peers.links.iter_mut().filter(|link| link.peer() != end.me) {
            let peer = link.peer();
            let goes_back = own.fanout.as_ref().is_some_and(|fanout| fanout.goes_back(peer));
            let cursor = &mut own.cursors[peer.index()];
            if cursor.posted == next && !goes_back {
                continue;
            }
            everywhere = 0;
            if !link.is_ready() || goes_back {
                continue;
            }
            // Indices that are more than a window old are in no slot any more. If writes are not ordered, those in
            // flight must complete first, because they could land on a later index of their slot.
            if cursor.posted + window < next {
                if !ordered && cursor.posted != own.stream.written_at(peer) {
                    continue;
                }
                (cursor.posted, cursor.passed) = (next - window, cursor.linked);
                own.stream.written(peer, next - window);
            }
            let Some(region) = link.resolve(&mut end.fabric, NEB_BROADCAST) else { continue };
            let until = own.until(&end.fabric, peer, window);
            let cursor = &mut own.cursors[peer.index()];
            while cursor.posted < until && link.has_room(1) {
                let slot = end.layout.slot(cursor.posted);
                let offset = end.layout.ring_offset(cursor.posted);
                let count = own.records.run(slot, until - cursor.posted);
                let source = own.records.source(slot, count, Span { region: end.staging, offset, bytes: 0 });
                let upto = cursor.posted + count;
                let done = (!ordered || upto == until || !link.has_room(2)).then_some(Done::Broadcast { upto });
                if !link.write(&mut end.fabric, source, RemoteSpan { region, offset }, done) {
                    break;
                }
                counts.broadcast_writes += 1;
                (cursor.posted, cursor.linked) = (upto, upto);
                worked = true;
            }
        }
        own.posted_everywhere = everywhere;
        worked
    }

    /// Reads the credits of the others.
    pub(super) fn poll_credits(&mut self) -> bool {
        let Node { end, own, .. } = self;
        let mut worked = false;
        // A peer that has freed everything has no newer credit.
        for peer in end.others.iter() {
            if own.stream.freed_by(peer) == own.stream.next() {
                continue;
            }
            if let Some([freed]) = own.credits[peer.index()].read(end.control_words(peer)) {
                own.claimed[peer.index()] = freed;
                own.stream.freed(peer, freed);
                own.freed(peer, u64::from(end.config.window));
                worked = true;
            }
        }
        worked
    }

    pub(super) fn deliver_own<N: FnMut(Notice<'_>)>(&mut self, notify: &mut N) -> bool {
        let mut worked = false;
        while let Some(index) = self.own.stream.due() {
            let words = self.own.records.payload(self.end.layout.slot(index));
            notify(Notice::Deliver(self.end.me, Value::trusted(words, self.end.config.signed)));
            self.own.stream.settled();
            self.counts.deliveries += 1;
            worked = true;
        }
        worked
    }
}

/// Writes through the set the records that several peers need next. Returns whether there were any.
fn fan_out<F: Fabric>(end: &mut Endpoint<F>, own: &mut LocalStream, counts: &mut Counts) -> bool {
    for peer in end.others.iter() {
        let waits = own.fanout.as_ref().is_some_and(|fanout| fanout.goes_back(peer));
        if waits && own.cursors[peer.index()].is_quiet() {
            own.rewind(peer);
        }
    }
    let mut worked = false;
    while own.fanout.as_ref().is_some_and(FanoutSender::is_usable) {
        let Some((first, until)) = gather(end, own) else { break };
        let slot = end.layout.slot(first);
        let count = own.records.run(slot, until - first);
        let Source::Inline(data) = own.records.source(slot, count, Span { region: end.staging, offset: 0, bytes: 0 })
        else {
            break;
        };
        let (Some(fanout), upto) = (&mut own.fanout, first + count) else { break };
        if !fanout.write(&mut end.fabric, data, first..upto) {
            break;
        }
        for target in fanout.set.targets() {
            own.cursors[target.peer.index()].posted = upto;
            counts.copies += 1;
        }
        counts.broadcast_writes += 1;
        worked = true;
    }
    worked
}

/// Selects the targets of a fan-out write: of the peers that can be written to, those that are furthest ahead. Returns
/// their next index, and the index up to which all of them can be written. Returns `None` for less than two targets.
fn gather<F: Fabric>(end: &mut Endpoint<F>, own: &mut LocalStream) -> Option<(u64, u64)> {
    let (next, window) = (own.stream.next(), u64::from(end.config.window));
    let (mut first, mut until, mut count) = (0, next, 0);
    for link in end.peers.links.iter_mut().filter(|link| link.peer() != end.me && link.is_ready()) {
        let peer = link.peer();
        let cursor = own.cursors[peer.index()];
        // No write below `passed` may be in flight on the queue pair. It could land on a newer record of the set in the
        // same slot, because the two paths are not ordered.
        let is_fit = cursor.posted >= first && cursor.posted + window >= next && cursor.linked_done >= cursor.passed;
        if !is_fit || own.fanout.as_ref().is_none_or(|fanout| !fanout.reaches(peer)) {
            continue;
        }
        let most = own.until(&end.fabric, peer, window);
        let (Some(fanout), Some(region)) = (&mut own.fanout, link.resolve(&mut end.fabric, NEB_BROADCAST)) else {
            continue;
        };
        if most <= cursor.posted {
            continue;
        }
        if cursor.posted > first || count == 0 {
            fanout.set.begin();
            (first, until, count) = (cursor.posted, next, 0);
        }
        fanout.set.add(SetTarget { peer, to: RemoteSpan { region, offset: end.layout.ring_offset(first) } });
        (until, count) = (until.min(most), count + 1);
    }
    (count > 1).then_some((first, until))
}
