//! Where inline data lies until the WRITE that carries it is done.
//!
//! A device that merges WRITEs copies their inline data into memory of its own, one behind the other, so that the data of WRITEs
//! that adjoin adjoin, too. This type counts places in that memory; the device owns the memory.
//!
//! # Invariants
//! - `freed` ≤ `next` ≤ `freed` + `bytes`: no place is handed out twice before it is freed.
//! - Positions count from the beginning of time. A position modulo `bytes` is the offset in the memory.
//! - What was taken at once, with all that extended it, lies in one piece: it never wraps.

/// The most bytes of WRITEs that become one. The wire is busy with so many for longer than a device takes to begin the next
/// WRITE, so longer ones would gain nothing, and only wait.
pub const MOST_MERGED: u32 = 32 << 10;

/// Counts the places of inline data in a memory of fixed size.
#[derive(Clone, Debug)]
pub struct InlineRing {
    bytes: u64,
    next: u64,
    freed: u64,
}

impl InlineRing {
    /// All of a memory of so many bytes is free.
    #[must_use]
    pub fn new(bytes: u64) -> InlineRing {
        InlineRing { bytes, next: 0, freed: 0 }
    }

    /// The size of a memory in which `count` sources of at most `longest` bytes each always find places, whatever their lengths
    /// are: in front of the end of the memory, and again in front of the next end, there may be less room than the next one needs.
    #[must_use]
    pub fn bytes_for(count: u64, longest: u64) -> u64 {
        (count + 2) * longest
    }

    /// Takes `bytes` in one piece. Returns their offset, or `None` if too much is in use.
    #[inline]
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let left = self.bytes - self.next % self.bytes.max(1);
        let begin = if bytes <= left { self.next } else { self.next + left };
        if bytes > self.bytes || begin + bytes - self.freed > self.bytes {
            return None;
        }
        self.next = begin + bytes;
        Some(begin % self.bytes.max(1))
    }

    /// Takes `bytes` right behind what was taken last, which is in use. Returns their offset, or `None` if that is not free.
    #[inline]
    pub fn extend(&mut self, bytes: u64) -> Option<u64> {
        let offset = self.next % self.bytes.max(1);
        let fits = offset > 0 && offset + bytes <= self.bytes && self.next + bytes - self.freed <= self.bytes;
        if fits {
            self.next += bytes;
        }
        fits.then_some(offset)
    }

    /// The position behind everything that was taken so far: see [`free_up_to`](InlineRing::free_up_to).
    #[inline]
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.next
    }

    /// Whatever was taken before this position is not used any more.
    #[inline]
    pub fn free_up_to(&mut self, position: u64) {
        self.freed = self.freed.max(position);
    }

    /// Nothing is used any more.
    pub fn clear(&mut self) {
        (self.next, self.freed) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_behind_each_other_and_never_wrap() {
        let mut ring = InlineRing::new(100);
        assert_eq!((ring.take(40), ring.extend(16), ring.take(24)), (Some(0), Some(40), Some(56)));
        assert_eq!(ring.take(24), None, "20 are left, and nothing is free behind the end");
        ring.free_up_to(40);
        assert_eq!(ring.take(24), Some(0));
        assert_eq!((ring.extend(17), ring.extend(16)), (None, Some(24)), "the 16 from 40 on are in use");
        ring.free_up_to(ring.taken());
        assert_eq!(ring.take(60), Some(40));
        assert_eq!(ring.extend(8), None, "it would wrap");
        let mut ring = InlineRing::new(100);
        assert_eq!((ring.take(40), ring.take(50)), (Some(0), Some(40)));
        ring.free_up_to(40);
        assert_eq!((ring.extend(16), ring.extend(8)), (None, Some(90)), "in one piece, whatever is free in front");
        assert_eq!((ring.take(101), InlineRing::new(0).take(8)), (None, None));
    }

    #[test]
    fn what_is_freed_stays_free() {
        let mut ring = InlineRing::new(64);
        assert_eq!(ring.take(64), Some(0));
        let all = ring.taken();
        ring.free_up_to(all);
        ring.free_up_to(8);
        assert_eq!(ring.take(64), Some(0));
        ring.clear();
        assert_eq!((ring.take(64), ring.take(8)), (Some(0), None));
    }

    /// Whatever the lengths are, a queue that is not full has a place for the next source.
    #[test]
    fn a_queue_of_sources_always_finds_places() {
        let (count, longest) = (4, 64);
        let mut ring = InlineRing::new(InlineRing::bytes_for(count, longest));
        let mut queue = std::collections::VecDeque::new();
        let mut number = 7_u64;
        for _ in 0..10_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if queue.len() as u64 == count {
                ring.free_up_to(queue.pop_front().unwrap());
            }
            assert!(ring.take((number >> 33) % (longest / 8 + 1) * 8).is_some());
            queue.push_back(ring.taken());
        }
    }
}
