//! One's own broadcasts: `broadcast` of the pseudocode, and their delivery here.

use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Fabric, ProcessId, RemoteSpan, SlotReader, Span};

use super::endpoint::store;
use super::link::Done;
use super::records::Records;
use super::{BroadcastError, Node, Notice};
use crate::layout::{BROADCAST, broadcast_seal, credit_seal};
use crate::value::{self, Value};
use crate::{Broadcast, Config, Layout};

/// The own stream, and the records of its last window.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) stream: Broadcast,
    seal: Seal,
    records: Records,
    /// By peer: the next index to write there.
    posted: Vec<u64>,
    /// Everything below was posted to everybody, whoever that is.
    posted_everywhere: u64,
    /// By peer.
    credits: Vec<SlotReader>,
    /// By peer: the newest credit, believed or not.
    pub(super) claimed: Vec<u64>,
}

impl Own {
    pub(super) fn new(config: &Config, salt: u64, me: ProcessId, layout: &Layout, inline_bytes: u32) -> Self {
        Own {
            stream: Broadcast::new(config, me),
            seal: broadcast_seal(config, me, salt),
            records: Records::new(layout, config.window, inline_bytes),
            posted: vec![0; config.processes],
            posted_everywhere: 0,
            claimed: vec![0; config.processes],
            credits: config.everybody().iter().map(|peer| SlotReader::new(credit_seal(peer, salt))).collect(),
        }
    }

    pub(super) fn rewind(&mut self, peer: ProcessId) {
        self.posted[peer.index()] = self.stream.written_at(peer);
        self.posted_everywhere = 0;
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
        self.end.links.iter().flatten().any(|link| {
            let (posted, written) = (self.own.posted[link.peer.index()], self.own.stream.written_at(link.peer));
            link.peer != self.end.me && link.ready && posted > old && written <= old
        })
    }

    /// Writes own broadcasts to everybody who has not got them.
    pub(super) fn post_broadcasts(&mut self) -> bool {
        let Node { end, own, counts, .. } = self;
        let next = own.stream.next();
        if own.posted_everywhere == next {
            return false;
        }
        let (mut worked, mut everywhere) = (false, next);
        let ordered = end.fabric.capabilities().ordered_writes;
        for link in end.links.iter_mut().flatten().filter(|link| link.peer != end.me) {
            let posted = &mut own.posted[link.peer.index()];
            if *posted == next {
                continue;
            }
            everywhere = 0;
            if !link.ready {
                continue;
            }
            // What is more than a window old lies in no slot any more. Where writes are not ordered, what is on its way comes
            // first: it could land on a later one of its slot.
            let window = u64::from(end.config.window);
            if *posted + window < next {
                if !ordered && *posted != own.stream.written_at(link.peer) {
                    continue;
                }
                *posted = next - window;
                own.stream.written(link.peer, *posted);
            }
            let Some(region) = link.resolve(&mut end.fabric, BROADCAST) else { continue };
            // One write of a slot at a time: where writes are not ordered, the older one could land last.
            let until = next.min(own.stream.written_at(link.peer) + window);
            while *posted < until && link.has_room(1) {
                let slot = end.layout.slot(*posted);
                let offset = end.layout.ring_offset(*posted);
                let count = own.records.run(slot, until - *posted);
                let source = own.records.source(slot, count, Span { region: end.staging, offset, bytes: 0 });
                let upto = *posted + count;
                let done = (!ordered || upto == until || !link.has_room(2)).then_some(Done::Broadcast { upto });
                if !link.write(&mut end.fabric, source, RemoteSpan { region, offset }, done) {
                    break;
                }
                counts.broadcast_writes += 1;
                *posted = upto;
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
