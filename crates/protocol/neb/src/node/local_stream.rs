//! One's own broadcasts: `broadcast` of the pseudocode, and their delivery here.
//!
//! What is posted to whom, by a queue pair or by the set, follows from cursors; states and invariants stand in `fanout.rs`.

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

/// The own stream, and the records of its last window.
#[derive(Debug)]
pub(super) struct LocalStream {
    pub(super) stream: Broadcast,
    seal: Seal,
    records: Records,
    /// By peer.
    cursors: Vec<SendCursor>,
    /// The set, where the network makes copies.
    pub(super) fanout: Option<FanoutSender>,
    /// Everything below was posted to everybody, whoever that is.
    posted_everywhere: u64,
    /// By peer.
    credits: Vec<SlotReader>,
    /// By peer: the newest credit, believed or not.
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

    /// Everything to this peer starts over from what is known to be there. Nothing of its queue pair is on its way.
    pub(super) fn rewind(&mut self, peer: ProcessId) {
        let cursor = &mut self.cursors[peer.index()];
        if let Some(fanout) = &mut self.fanout {
            fanout.went_back(peer, cursor.posted);
        }
        *cursor = SendCursor::from(self.stream.written_at(peer));
        self.posted_everywhere = 0;
    }

    /// A queue pair has written what it was given below an index.
    pub(super) fn linked(&mut self, peer: ProcessId, upto: u64) {
        let cursor = &mut self.cursors[peer.index()];
        cursor.linked_done = cursor.linked_done.max(upto);
        self.settle(peer);
    }

    /// Says what is written to a peer by both ways.
    fn settle(&mut self, peer: ProcessId) {
        let cursor = &self.cursors[peer.index()];
        let linked = if cursor.is_quiet() { cursor.posted } else { cursor.linked_done };
        let upto = match &self.fanout {
            // What the set alone carried is forgotten there: only going back tells.
            Some(fanout) if fanout.goes_back(peer) => return,
            Some(fanout) => fanout.alone_from(peer).map_or(linked, |first| first.min(linked)),
            None => linked,
        };
        self.stream.written(peer, upto);
    }

    /// Writes of the set are done.
    pub(super) fn fanned(&mut self) {
        for peer in (0..self.cursors.len() as u16).map(ProcessId) {
            if let Some(fanout) = &mut self.fanout {
                fanout.forget_done(peer);
            }
            self.settle(peer);
        }
    }

    /// A peer frees: what it got by the set is there, whether the others have it or not.
    fn freed(&mut self, peer: ProcessId, window: u64) {
        let (freed, next) = (self.stream.freed_by(peer), self.stream.next());
        if self.fanout.as_mut().is_some_and(|fanout| fanout.freed(peer, freed, next, window)) {
            self.settle(peer);
        }
    }

    /// A round has passed. Whether there is something to post again.
    #[inline]
    pub(super) fn tend(&mut self) -> bool {
        let slow = self.fanout.as_mut().is_some_and(FanoutSender::tend);
        if slow {
            self.posted_everywhere = 0;
        }
        slow
    }

    /// Joins a broken set again, and posts again what may not have arrived. Its completions were taken.
    pub(super) fn mend<F: Fabric>(&mut self, fabric: &mut F) {
        if let Some(fanout) = &mut self.fanout {
            fanout.mend(fabric);
            self.posted_everywhere = 0;
        }
    }

    /// Up to where a peer can be written to: one write of a slot at a time, because the older one could land last where
    /// writes are not ordered, or go by another way.
    #[inline]
    fn until<F: Fabric>(&mut self, fabric: &F, peer: ProcessId, window: u64) -> u64 {
        let until = self.stream.next().min(self.stream.written_at(peer) + window);
        let unfinished = self.fanout.as_mut().and_then(|fanout| fanout.unfinished(fabric, peer));
        unfinished.map_or(until, |first| until.min(first + window))
    }
}

impl<F: Fabric> Node<F> {
    /// Broadcasts a payload under a key of the application's and returns its index. It goes out at once.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn broadcast(&mut self, now_ns: u64, key: u64, payload: &[u8]) -> Result<u64, BroadcastError> {
        let index = self.enqueue(now_ns, key, payload)?;
        self.post_broadcasts();
        self.end.fabric.flush();
        Ok(index)
    }

    /// Like [`broadcast`](Node::broadcast), but it goes out with the next [`step`](Node::step), together with what was
    /// enqueued before it: for who has several to broadcast.
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

    /// Whether a broadcast at this time is not refused as [`BroadcastError::Full`]. For who wants to record it before it
    /// goes out; its index will be [`Broadcast::next`] of [`own_stream`](Node::own_stream).
    #[must_use]
    pub fn has_room(&mut self, now_ns: u64) -> bool {
        self.own.stream.has_room(now_ns) && !self.is_own_slot_in_use()
    }

    /// Whether the NIC may still read the copy in the slot of the next index.
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

    /// Writes own broadcasts to everybody who has not got them.
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
            // What is more than a window old lies in no slot any more. Where writes are not ordered, what is on its way comes
            // first: it could land on a later one of its slot.
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

    /// What others have freed of the own stream.
    pub(super) fn poll_credits(&mut self) -> bool {
        let Node { end, own, .. } = self;
        let mut worked = false;
        // Of a peer that has freed everything there is no news.
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

/// Writes by the set what several peers are to get next. Whether there was anything.
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

/// Takes those for a write of the set that are farthest, of those that can be written to: from which index, and up to where all
/// can. `None` if it is one at most.
fn gather<F: Fabric>(end: &mut Endpoint<F>, own: &mut LocalStream) -> Option<(u64, u64)> {
    let (next, window) = (own.stream.next(), u64::from(end.config.window));
    let (mut first, mut until, mut count) = (0, next, 0);
    for link in end.peers.links.iter_mut().filter(|link| link.peer() != end.me && link.is_ready()) {
        let peer = link.peer();
        let cursor = own.cursors[peer.index()];
        // What was passed over by the queue pair could land on what the set brings, without its order.
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
