//! Packet sequence numbers.

use core::fmt;

/// A packet sequence number: 24 bits, compared as serial numbers (InfiniBand specification 9.7.1; `psn_compare` of
/// Linux).
///
/// There is no `Ord`, because a < b < c < a is possible. Use [`distance`](Psn::distance) instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Number of bits of a PSN.
    pub const BITS: u32 = 24;
    const MASK: u32 = (1 << Psn::BITS) - 1;

    /// Creates a PSN from the low 24 bits of a number.
    #[inline]
    #[must_use]
    pub const fn new(number: u32) -> Psn {
        Psn(number & Psn::MASK)
    }

    /// Returns the number, from 0 to 2^24 - 1.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the encoding of the PSN.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 3] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [a, b, c]
    }

    /// Decodes a PSN.
    #[inline]
    #[must_use]
    pub const fn from_bytes([a, b, c]: [u8; 3]) -> Psn {
        Psn(u32::from_be_bytes([0, a, b, c]))
    }

    /// Returns the PSN `packets` later.
    #[inline]
    #[must_use]
    pub const fn plus(self, packets: u32) -> Psn {
        Psn::new(self.0.wrapping_add(packets))
    }

    /// Returns the PSN `packets` earlier.
    #[inline]
    #[must_use]
    pub const fn minus(self, packets: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(packets))
    }

    /// Returns the next PSN.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Psn {
        self.plus(1)
    }

    /// Returns the number of packets by which this PSN follows `other`: from -2^23 to 2^23 - 1, negative if it precedes
    /// `other`.
    #[inline]
    #[must_use]
    pub const fn distance(self, other: Psn) -> i32 {
        (self.0.wrapping_sub(other.0) << 8) as i32 >> 8
    }

    /// Returns whether this PSN precedes `other`.
    #[inline]
    #[must_use]
    pub const fn is_before(self, other: Psn) -> bool {
        self.distance(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_arithmetic_wraps_at_24_bits() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(Psn::new(0).minus(1), last);
        assert_eq!(Psn::new(0x0100_0001).get(), 1, "the high bits are cut off");
        assert_eq!((Psn::new(2).distance(last), last.distance(Psn::new(2))), (3, -3));
        assert!(last.is_before(Psn::new(0)) && !Psn::new(0).is_before(last) && !last.is_before(last));
        assert_eq!(Psn::from_bytes(Psn::new(0x12_3456).to_bytes()), Psn::new(0x12_3456));
    }

    #[test]
    fn half_the_numbers_are_before_and_half_after() {
        let middle = Psn::new(0x12_3456);
        assert_eq!(middle.plus((1 << 23) - 1).distance(middle), (1 << 23) - 1);
        assert_eq!(middle.plus(1 << 23).distance(middle), -(1 << 23), "2^23 away counts as before, as in Linux");
    }
}
