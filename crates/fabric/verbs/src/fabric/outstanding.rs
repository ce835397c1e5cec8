//! The outstanding requests of one queue of a queue pair, with the caller's ids.

use stentor_fabric::{Opcode, QpId};

/// Maximum number of queue pairs that a [`Name`] can distinguish.
pub(super) const MAX_PAIRS: usize = 1 << 15;

/// Name under which a work request is posted to the device: its queue pair, life and sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) receive: bool,
    pub(super) qp: QpId,
    pub(super) life: u16,
    pub(super) sequence: u32,
}

impl Name {
    #[inline]
    pub(super) fn encode(self) -> u64 {
        let Name { receive, qp, life, sequence } = self;
        u64::from(receive) << 63 | u64::from(qp.0) << 48 | u64::from(life) << 32 | u64::from(sequence)
    }

    #[inline]
    pub(super) fn decode(id: u64) -> Name {
        let qp = QpId((id >> 48) as u32 & (MAX_PAIRS as u32 - 1));
        Name { receive: id >> 63 == 1, qp, life: (id >> 32) as u16, sequence: id as u32 }
    }
}

/// A request with the id that the caller gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) opcode: Opcode,
    pub(super) signalled: bool,
    /// `true` if the next request was merged with this one into one request of the device.
    joined: bool,
    /// Position in the inline ring up to which data can be freed once the request is complete.
    pub(super) taken: u64,
}

impl Posted {
    #[inline]
    pub(super) fn new(id: u64, opcode: Opcode, signalled: bool, taken: u64) -> Posted {
        Posted { id, opcode, signalled, joined: false, taken }
    }
}

/// The requests of one queue that are not complete. An unsignalled request keeps its slot until a later request
/// completes. Merged requests have one entry each. The device's request for them has the sequence number of the last
/// one.
#[derive(Debug)]
pub(super) struct Outstanding {
    entries: Box<[Posted]>,
    depth: u32,
    posted: u32,
    done: u32,
}

impl Outstanding {
    pub(super) fn new(depth: u32) -> Outstanding {
        let entry = Posted::new(0, Opcode::Write, false, 0);
        let entries = vec![entry; depth.next_power_of_two() as usize].into_boxed_slice();
        Outstanding { entries, depth, posted: 0, done: 0 }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.posted.wrapping_sub(self.done) >= self.depth
    }

    /// Returns the sequence number of the next request.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.posted
    }

    /// Adds a request that was posted.
    #[inline]
    pub(super) fn push(&mut self, entry: Posted) {
        let place = self.posted as usize & (self.entries.len() - 1);
        self.entries[place] = entry;
        self.posted = self.posted.wrapping_add(1);
    }

    /// Marks the request that was posted last as merged with the next request.
    #[inline]
    pub(super) fn join_last(&mut self) {
        let place = self.posted.wrapping_sub(1) as usize & (self.entries.len() - 1);
        self.entries[place].joined = true;
    }

    /// Returns the request with this sequence number. It must be outstanding, or completed by the last call of
    /// [`complete`](Outstanding::complete).
    #[inline]
    pub(super) fn at(&self, sequence: u32) -> Posted {
        self.entries[sequence as usize & (self.entries.len() - 1)]
    }

    /// Completes the device's request with this sequence number, and all requests posted before it. Returns the number
    /// of the caller's requests in it (1 if none were merged), or `None` if it is not outstanding.
    #[inline]
    pub(super) fn complete(&mut self, sequence: u32) -> Option<u32> {
        if sequence.wrapping_sub(self.done) >= self.posted.wrapping_sub(self.done) {
            return None;
        }
        let mut before = 0;
        // The loop ends at the latest at a completed request, because the last request of each merge is not marked as
        // joined.
        while self.at(sequence.wrapping_sub(before + 1)).joined {
            before += 1;
        }
        self.done = sequence.wrapping_add(1);
        Some(before + 1)
    }

    /// Removes and returns all requests that are not complete.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Posted> + '_ {
        std::iter::from_fn(move || {
            let next = self.done;
            (next != self.posted).then(|| {
                self.done = next.wrapping_add(1);
                self.at(next)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64) -> Posted {
        Posted::new(id, Opcode::Write, true, 0)
    }

    #[test]
    fn names_round_trip() {
        for receive in [false, true] {
            let name = Name { receive, qp: QpId(MAX_PAIRS as u32 - 1), life: 0xfffe, sequence: u32::MAX - 2 };
            assert_eq!(Name::decode(name.encode()), name);
        }
    }

    #[test]
    fn completion_frees_earlier_requests_across_wraparound() {
        let mut queue = Outstanding::new(3);
        (queue.posted, queue.done) = (u32::MAX, u32::MAX);
        for id in 0..3 {
            assert!(!queue.is_full());
            queue.push(entry(id));
        }
        assert!(queue.is_full());
        assert_eq!((queue.complete(0), queue.at(0)), (Some(1), entry(1)));
        assert_eq!(queue.complete(u32::MAX), None, "done already");
        assert_eq!(queue.complete(2), None, "never posted");
        queue.push(entry(3));
        assert_eq!(queue.drain().map(|entry| entry.id).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((queue.drain().count(), queue.is_full()), (0, false));
    }

    #[test]
    fn merged_requests_occupy_slots_and_complete_together() {
        let mut queue = Outstanding::new(4);
        (queue.posted, queue.done) = (u32::MAX - 1, u32::MAX - 1);
        queue.push(entry(0));
        for id in 1..4 {
            queue.push(entry(id));
            if id < 3 {
                queue.join_last();
            }
        }
        assert!(queue.is_full(), "each part occupies a slot");
        assert_eq!(queue.complete(1), Some(3), "the first request was not merged with the other three");
        assert_eq!([u32::MAX, 0, 1].map(|number| queue.at(number).id), [1, 2, 3]);
        assert!(!queue.is_full() && queue.drain().next().is_none());
        queue.push(entry(4));
        assert_eq!(queue.complete(2), Some(1), "earlier requests in these slots are forgotten");
    }
}
