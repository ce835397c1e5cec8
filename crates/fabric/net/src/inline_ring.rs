//! A buffer that holds inline data until the WRITEs that carry it are done.
//!
//! A device that merges WRITEs copies their inline data into its own memory, one after the other, so that the data of
//! adjacent WRITEs is also adjacent. This type allocates ranges of that memory; the device owns the memory.
//!
//! # Invariants
//! - `freed` ≤ `next` ≤ `freed` + `bytes`: no byte is allocated twice before it is freed.
//! - Positions count all bytes that were allocated or skipped. A position modulo `bytes` is the offset in the memory.
//! - An allocation, with everything that extends it, is contiguous: it never wraps.

/// Maximum number of bytes of WRITEs that are merged into one. Transmitting them takes longer than a device needs to
/// start the next WRITE, so a longer one would only add delay.
pub const MOST_MERGED: u32 = 32 << 10;

/// An allocator for inline data in a memory of fixed size.
#[derive(Clone, Debug)]
pub struct InlineRing {
    bytes: u64,
    next: u64,
    freed: u64,
}

impl InlineRing {
    /// Creates the allocator of a memory of `bytes` bytes, all free.
    #[must_use]
    pub fn new(bytes: u64) -> InlineRing {
        InlineRing { bytes, next: 0, freed: 0 }
    }

    /// Returns the size of a memory in which `count` sources of at most `longest` bytes each always fit, whatever their
    /// lengths. Space of up to one source may stay unused at the end of the memory. The size has room for two such
    /// gaps, more than exist at a time.
    #[must_use]
    pub fn bytes_for(count: u64, longest: u64) -> u64 {
        (count + 2) * longest
    }

    /// Allocates `bytes` contiguous bytes. Returns their offset, or `None` if too much is in use.
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

    /// Allocates `bytes` bytes directly after the last allocation, which must still be in use. Returns the offset of
    /// these bytes, or `None` if they are not free.
    #[inline]
    pub fn extend(&mut self, bytes: u64) -> Option<u64> {
        let offset = self.next % self.bytes.max(1);
        let fits = offset > 0 && offset + bytes <= self.bytes && self.next + bytes - self.freed <= self.bytes;
        if fits {
            self.next += bytes;
        }
        fits.then_some(offset)
    }

    /// Returns the position of the end of the last allocation: see [`free_up_to`](InlineRing::free_up_to).
    #[inline]
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.next
    }

    /// Frees all allocations before `position`.
    #[inline]
    pub fn free_up_to(&mut self, position: u64) {
        self.freed = self.freed.max(position);
    }

    /// Frees all allocations.
    pub fn clear(&mut self) {
        (self.next, self.freed) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_consecutive_and_never_wrap() {
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
        assert_eq!((ring.extend(16), ring.extend(8)), (None, Some(90)), "contiguous, though the front is free");
        assert_eq!((ring.take(101), InlineRing::new(0).take(8)), (None, None));
    }

    #[test]
    fn freeing_an_earlier_position_has_no_effect() {
        let mut ring = InlineRing::new(64);
        assert_eq!(ring.take(64), Some(0));
        let all = ring.taken();
        ring.free_up_to(all);
        ring.free_up_to(8);
        assert_eq!(ring.take(64), Some(0));
        ring.clear();
        assert_eq!((ring.take(64), ring.take(8)), (Some(0), None));
    }

    /// A queue that is not full has room for the next source, whatever the lengths are.
    #[test]
    fn a_queue_of_sources_always_has_room() {
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
