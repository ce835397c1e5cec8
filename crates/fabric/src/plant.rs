//! Planted bugs: proof that the tests can see. Compiled in only with the feature `plants`.

/// A bug of this crate that can be switched on in a test build. Without the feature `plants` there is only
/// [`Plant::None`], and every question about it is answered at compile time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Plant {
    /// No bug.
    #[default]
    None,
    /// A record is accepted when its lap is right, whatever its checksum says: torn writes are read.
    #[cfg(feature = "plants")]
    Unvalidated,
    /// The lap is neither compared nor part of the checksum: last lap's record validates again.
    #[cfg(feature = "plants")]
    SealWithoutLap,
    /// Credits are deltas that the writer of the ring reads and then zeroes.
    #[cfg(feature = "plants")]
    DeltaCredits,
}

impl Plant {
    /// Whether torn records are accepted.
    #[inline]
    pub(crate) fn unvalidated(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Plant::Unvalidated;
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Whether seals leave out the lap.
    #[inline]
    pub(crate) fn seal_without_lap(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Plant::SealWithoutLap;
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Whether credits are deltas.
    #[inline]
    pub fn delta_credits(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Plant::DeltaCredits;
        #[cfg(not(feature = "plants"))]
        false
    }
}
