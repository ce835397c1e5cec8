//! What is in a queue of the device, and what the caller called it.

use stentor_fabric::{Opcode, QpId};

/// Queue pairs that names have room for.
pub(super) const MAX_PAIRS: usize = 1 << 15;

/// How a work request is named to the device: whose it is, in which life, and the how-manieth.
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

/// One request, as the caller knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) opcode: Opcode,
    pub(super) signalled: bool,
    /// Whether it is part of the device's request that the next one is part of, too.
    joined: bool,
    /// Inline data in front of this position is free when it is done.
    pub(super) taken: u64,
}

impl Posted {
    #[inline]
    pub(super) fn new(id: u64, opcode: Opcode, signalled: bool, taken: u64) -> Posted {
        Posted { id, opcode, signalled, joined: false, taken }
    }
}

/// The requests of one queue that are not done. A request that is not signalled keeps its place until a later one is. Requests
/// that became one are in here one by one; the device knows them by the number of the last.
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

    /// The number of the next request.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.posted
    }

    /// It was posted.
    #[inline]
    pub(super) fn push(&mut self, entry: Posted) {
        let place = self.posted as usize & (self.entries.len() - 1);
        self.entries[place] = entry;
        self.posted = self.posted.wrapping_add(1);
    }

    /// The request that was posted last goes with the next one, as one request of the device.
    #[inline]
    pub(super) fn join_last(&mut self) {
        let place = self.posted.wrapping_sub(1) as usize & (self.entries.len() - 1);
        self.entries[place].joined = true;
    }

    /// The request of a number, which is not done, or was done by the last [`complete`](Outstanding::complete).
    #[inline]
    pub(super) fn at(&self, sequence: u32) -> Posted {
        self.entries[sequence as usize & (self.entries.len() - 1)]
    }

    /// A request of the device is done, and so is all that was posted before it. Returns how many requests it is: the last has
    /// this number. `None` if it was done before.
    #[inline]
    pub(super) fn complete(&mut self, sequence: u32) -> Option<u32> {
        if sequence.wrapping_sub(self.done) >= self.posted.wrapping_sub(self.done) {
            return None;
        }
        let mut before = 0;
        // Whatever is done ended with a request that did not go with the next one.
        while self.at(sequence.wrapping_sub(before + 1)).joined {
            before += 1;
        }
        self.done = sequence.wrapping_add(1);
        Some(before + 1)
    }

    /// All that is not done, which ends.
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
    fn names_survive() {
        for receive in [false, true] {
            let name = Name { receive, qp: QpId(MAX_PAIRS as u32 - 1), life: 0xfffe, sequence: u32::MAX - 2 };
            assert_eq!(Name::decode(name.encode()), name);
        }
    }

    #[test]
    fn a_completion_frees_what_was_posted_before_it_even_where_numbers_wrap() {
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
    fn requests_that_became_one_take_their_places_and_complete_together() {
        let mut queue = Outstanding::new(4);
        (queue.posted, queue.done) = (u32::MAX - 1, u32::MAX - 1);
        queue.push(entry(0));
        for id in 1..4 {
            queue.push(entry(id));
            if id < 3 {
                queue.join_last();
            }
        }
        assert!(queue.is_full(), "each part takes a place");
        assert_eq!(queue.complete(1), Some(3), "the first went by itself");
        assert_eq!([u32::MAX, 0, 1].map(|number| queue.at(number).id), [1, 2, 3]);
        assert!(!queue.is_full() && queue.drain().next().is_none());
        queue.push(entry(4));
        assert_eq!(queue.complete(2), Some(1), "what went before in these places is forgotten");
    }
}
