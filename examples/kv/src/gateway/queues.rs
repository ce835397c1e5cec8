//! The queues in which items of many clients wait for a group, and the batches in which they are sent.
//!
//! # Invariants
//! - Items of one client to one group take effect in their order. The items of a burst are adjacent in a queue, and
//!   [`Connection`](super::connection) begins no other burst meanwhile. A batch has whole bursts. If a burst does not fit
//!   into a batch, the queue is *held*: its next batch is sent only when the part of the burst is answered. Otherwise
//!   items that a reply has no room for would be carried out after later items of the same burst.
//! - Items leave a queue in its order. Items that the group has not applied return to the front of the queue: those of
//!   a refused batch, and those that a reply had no room for.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use stentor::Refused;

use super::backend::{Backend, How, Name};
use crate::wire::{Items, Value};

/// Maximum number of items in a batch.
const MOST_ITEMS: usize = 512;
/// Maximum number of bytes in a batch, unless it is a single longer item.
const MOST_BYTES: usize = 32 << 10;
/// Maximum number of batches of one queue that are in flight. While they are in flight, the next batch grows.
const UNDER_WAY: usize = 4;
/// Maximum number of batches of [`push_alone`](Queues::push_alone) that are in flight.
const SPREAD_UNDER_WAY: usize = 32;
/// Time for which a refused batch is retried, from the time of its first request.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub(super) connection: u32,
    /// Generation of the connection. It distinguishes connections, because the number of a closed connection is reused.
    pub(super) generation: u32,
    pub(super) slot: u32,
    /// Time of the request.
    pub(super) since: Instant,
}

/// The items that wait to be sent to one group.
#[derive(Default)]
struct Queue {
    /// The requests whose items wait, each with the length of its item in bytes.
    waiters: VecDeque<(Waiter, u32)>,
    bytes: Vec<u8>,
    /// Offset of the first item in `bytes` that has not been sent.
    from: usize,
    /// Number of batches in flight.
    under_way: usize,
    /// `true` while a batch is in flight that ends within a burst.
    held: bool,
}

impl Queue {
    /// Returns whether a batch can be sent now.
    fn may_send(&self) -> bool {
        !self.waiters.is_empty() && !self.held && self.under_way < UNDER_WAY
    }

    fn push(&mut self, waiter: Waiter, item: &[u8]) {
        self.waiters.push_back((waiter, item.len() as u32));
        self.bytes.extend_from_slice(item);
    }

    /// Moves whole bursts from the queue to the next batch, or a part of a burst that does not fit.
    fn take(&mut self, batch: &mut Batch) {
        // The numbers of items and bytes that fit, and how many of them are whole bursts.
        let (mut count, mut bytes, mut whole) = (0, 0, (0, 0));
        let mut last = None;
        batch.is_part = false;
        for (waiter, length) in &self.waiters {
            let burst = (waiter.connection, waiter.generation);
            if last.replace(burst) != Some(burst) {
                whole = (count, bytes);
            }
            if count == MOST_ITEMS || (count > 0 && bytes + *length as usize > MOST_BYTES) {
                batch.is_part = whole.0 == 0;
                if whole.0 > 0 {
                    (count, bytes) = whole;
                }
                break;
            }
            count += 1;
            bytes += *length as usize;
        }
        batch.waiters.extend(self.waiters.drain(..count).map(|(waiter, _)| waiter));
        batch.payload.extend((batch.waiters.len() as u16).to_le_bytes());
        batch.payload.extend_from_slice(&self.bytes[self.from..self.from + bytes]);
        self.from += bytes;
        if self.waiters.is_empty() {
            self.bytes.clear();
            self.from = 0;
        } else if self.from > 1 << 20 {
            self.bytes.drain(..self.from);
            self.from = 0;
        }
    }

    /// Puts items of a batch back to the front of the queue.
    fn put_back(&mut self, items: &[(Waiter, &[u8])]) {
        let mut bytes = Vec::new();
        items.iter().for_each(|(_, item)| bytes.extend_from_slice(item));
        bytes.extend_from_slice(&self.bytes[self.from..]);
        (self.bytes, self.from) = (bytes, 0);
        items.iter().rev().for_each(|(waiter, item)| self.waiters.push_front((*waiter, item.len() as u32)));
    }
}

/// Items that are sent together.
pub(super) struct Batch {
    pub(super) to: Vec<u16>,
    how: How,
    pub(super) waiters: Vec<Waiter>,
    payload: Vec<u8>,
    /// `true` if the batch was made by [`push_alone`](Queues::push_alone).
    alone: bool,
    /// `true` if the burst of the last item continues in the queue.
    is_part: bool,
}

impl Batch {
    fn is_old(&self) -> bool {
        self.waiters.first().is_some_and(|waiter| waiter.since.elapsed() > PATIENCE)
    }

    /// Returns the items with the requests that wait for them.
    fn items(&self) -> Vec<(Waiter, &[u8])> {
        let (mut items, mut rest) = (Items::of_batch(&self.payload), &self.payload[2..]);
        let mut all = Vec::with_capacity(self.waiters.len());
        for waiter in &self.waiters {
            let Some(items) = &mut items else { break };
            if items.next_item().is_none() {
                break;
            }
            let (item, after) = rest.split_at(rest.len() - items.unread());
            all.push((*waiter, item));
            rest = after;
        }
        all
    }
}

/// All waiting items, and all batches in flight.
pub(super) struct Queues {
    /// For each group, the queue of items that need a position in the order, and the queue of items that the leader
    /// answers.
    groups: Vec<[Queue; 2]>,
    spread: VecDeque<Batch>,
    spread_under_way: usize,
    under_way: HashMap<Name, Batch, foldhash::fast::RandomState>,
    spare: Vec<Batch>,
}

impl Queues {
    pub(super) fn new(groups: u16) -> Self {
        Queues {
            groups: (0..groups).map(|_| <[Queue; 2]>::default()).collect(),
            spread: VecDeque::new(),
            spread_under_way: 0,
            under_way: HashMap::default(),
            spare: Vec::new(),
        }
    }

    /// Adds an item for one group. `ordered` is `true` if the item needs a position in the order.
    pub(super) fn push(&mut self, group: u16, ordered: bool, waiter: Waiter, item: &[u8]) {
        self.groups[usize::from(group)][usize::from(!ordered)].push(waiter, item);
    }

    /// Adds an item that is sent in a separate batch, to one group or several.
    pub(super) fn push_alone(&mut self, to: Vec<u16>, changes: bool, waiter: Waiter, item: &[u8]) {
        let payload = [&1u16.to_le_bytes()[..], item].concat();
        let how = if changes { How::Ordered } else { How::Query };
        self.spread.push_back(Batch { to, how, waiters: vec![waiter], payload, alone: true, is_part: false });
    }

    fn batch(&mut self, group: u16, how: How) -> Batch {
        let mut batch = self.spare.pop().unwrap_or_else(|| Batch {
            to: Vec::new(),
            how,
            waiters: Vec::new(),
            payload: Vec::new(),
            alone: false,
            is_part: false,
        });
        batch.to.push(group);
        batch.how = how;
        batch
    }

    fn recycle(&mut self, mut batch: Batch) {
        if self.spare.len() < 16 && !batch.alone {
            batch.to.clear();
            batch.waiters.clear();
            batch.payload.clear();
            self.spare.push(batch);
        }
    }

    /// Sends batches as far as the limits permit. Calls `refused` for refused batches that are not retried. Returns
    /// whether a batch was sent.
    pub(super) fn send(&mut self, backend: &mut Backend, mut refused: impl FnMut(&[Waiter], Refused)) -> bool {
        let mut any = false;
        for group in 0..self.groups.len() as u16 {
            for (kind, how) in [(0, How::Ordered), (1, How::Leader)] {
                loop {
                    if !self.groups[usize::from(group)][kind].may_send() {
                        break;
                    }
                    let mut batch = self.batch(group, how);
                    self.groups[usize::from(group)][kind].take(&mut batch);
                    match backend.send(&batch.to, &batch.payload, how) {
                        Ok(name) => {
                            let queue = &mut self.groups[usize::from(group)][kind];
                            queue.under_way += 1;
                            queue.held = batch.is_part;
                            self.under_way.insert(name, batch);
                            any = true;
                        }
                        Err(why) if why.is_retryable() && !batch.is_old() => {
                            self.put_back(&batch);
                            self.recycle(batch);
                            break;
                        }
                        Err(why) => {
                            refused(&batch.waiters, why);
                            self.recycle(batch);
                        }
                    }
                }
            }
        }
        while self.spread_under_way < SPREAD_UNDER_WAY
            && let Some(batch) = self.spread.pop_front()
        {
            match backend.send(&batch.to, &batch.payload, batch.how) {
                Ok(name) => {
                    self.spread_under_way += 1;
                    self.under_way.insert(name, batch);
                    any = true;
                }
                Err(why) if why.is_retryable() && !batch.is_old() => {
                    self.spread.push_front(batch);
                    break;
                }
                Err(why) => refused(&batch.waiters, why),
            }
        }
        any
    }

    /// Returns whether an item is waiting that could be sent now.
    pub(super) fn is_waiting(&self) -> bool {
        self.groups.iter().flatten().any(Queue::may_send)
            || (!self.spread.is_empty() && self.spread_under_way < SPREAD_UNDER_WAY)
    }

    /// Removes a batch that is no longer in flight, and returns it.
    pub(super) fn take(&mut self, name: Name) -> Option<Batch> {
        let batch = self.under_way.remove(&name)?;
        match batch.to[..] {
            [group] if !batch.alone => {
                let queue = &mut self.groups[usize::from(group)][usize::from(batch.how == How::Leader)];
                queue.under_way -= 1;
                queue.held &= !batch.is_part;
            }
            _ => self.spread_under_way -= 1,
        }
        Some(batch)
    }

    /// Handles the answer to a batch: calls `each` with the value of each item. If the reply had no room for the
    /// answers to the last items, queues these items again.
    pub(super) fn answered(
        &mut self,
        batch: Batch,
        replies: &[(u16, &[u8])],
        mut each: impl FnMut(Waiter, &[(u16, &[u8])]),
    ) {
        let ([(group, bytes)], false) = (replies, batch.alone) else {
            batch.waiters.iter().for_each(|waiter| each(*waiter, replies));
            return;
        };
        let mut rest = *bytes;
        for (at, waiter) in batch.waiters.iter().enumerate() {
            let after = Value::skip(rest).unwrap_or_default();
            let value = &rest[..rest.len() - after.len()];
            if let Some((Value::Again, _)) = Value::read(value) {
                let items = batch.items();
                let queue = &mut self.groups[usize::from(*group)][usize::from(batch.how == How::Leader)];
                queue.put_back(&items[at.min(items.len())..]);
                break;
            }
            each(*waiter, &[(*group, value)]);
            rest = after;
        }
        self.recycle(batch);
    }

    /// Handles a batch that no group has applied. Queues the batch again if the reason is temporary and [`PATIENCE`]
    /// has not passed since its first request. Otherwise returns the batch.
    pub(super) fn refused(&mut self, batch: Batch, why: Refused) -> Option<Batch> {
        if !why.is_retryable() || batch.is_old() {
            return Some(batch);
        }
        if batch.alone {
            self.spread.push_front(batch);
        } else {
            self.put_back(&batch);
            self.recycle(batch);
        }
        None
    }

    fn put_back(&mut self, batch: &Batch) {
        let [group] = batch.to[..] else { return };
        let items = batch.items();
        self.groups[usize::from(group)][usize::from(batch.how == How::Leader)].put_back(&items);
    }

    /// Removes and returns all batches in flight, whose outcomes are unknown.
    pub(super) fn lose(&mut self) -> Vec<Batch> {
        let names: Vec<Name> = self.under_way.keys().copied().collect();
        names.into_iter().filter_map(|name| self.take(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(bursts: &[(u32, usize, usize)]) -> Queue {
        let mut queue = Queue::default();
        for (connection, items, bytes) in bursts {
            for slot in 0..*items as u32 {
                let waiter = Waiter { connection: *connection, generation: 0, slot, since: Instant::now() };
                queue.push(waiter, &vec![0; *bytes]);
            }
        }
        queue
    }

    /// Returns the number of items of each batch, and whether its last burst continues.
    fn batches(mut queue: Queue) -> Vec<(usize, bool)> {
        let mut all = Vec::new();
        while !queue.waiters.is_empty() {
            let mut batch = Queues::new(1).batch(0, How::Ordered);
            queue.take(&mut batch);
            all.push((batch.waiters.len(), batch.is_part));
        }
        all
    }

    #[test]
    fn batches_have_whole_bursts_or_a_part_of_one() {
        assert_eq!(batches(queue(&[(1, 500, 8), (2, 12, 8)])), [(512, false)]);
        assert_eq!(batches(queue(&[(1, 500, 8), (2, 13, 8), (3, 1, 8)])), [(500, false), (14, false)]);
        assert_eq!(
            batches(queue(&[(1, 1, 8), (2, 1024, 8), (3, 1, 8)])),
            [(1, false), (512, true), (512, false), (1, false)]
        );
        assert_eq!(batches(queue(&[(1, 3, 20 << 10), (2, 1, 8)])), [(1, true), (1, true), (2, false)]);
        assert_eq!(batches(queue(&[(1, 1, 64 << 10), (2, 1, 64 << 10)])), [(1, false), (1, false)]);
    }
}
