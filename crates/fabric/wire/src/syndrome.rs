//! The syndrome of the AETH: acknowledgements, NAKs, RNR timers and credits.

use core::fmt;
use core::time::Duration;

/// Number of credits by code (InfiniBand specification table 45; Linux `rdmavt/rc.c`). Code 31 is "unlimited".
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768,
];

/// RNR timers by code, in units of 10 µs (InfiniBand specification table 46). Code 0 is the longest.
const RNR_10_US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// A 5-bit code for the number of further requests for which the responder has receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Credits(u8);

impl Credits {
    /// The responder does not count credits.
    pub const UNLIMITED: Credits = Credits(31);

    /// Creates credits from the low 5 bits of a code.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Credits {
        Credits(code & 31)
    }

    /// Returns the code, below 32.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the number of credits, or `None` for unlimited.
    #[must_use]
    pub fn count(self) -> Option<u16> {
        CREDITS.get(usize::from(self.0)).copied()
    }

    /// Returns the largest code that promises no more than `receives`.
    #[must_use]
    pub fn at_most(receives: u32) -> Credits {
        Credits(CREDITS.partition_point(|count| u32::from(*count) <= receives) as u8 - 1)
    }
}

/// A 5-bit code for the time that a requester waits after "receiver not ready".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Creates a timer from the low 5 bits of a code.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> RnrTimer {
        RnrTimer(code & 31)
    }

    /// Returns the code, below 32.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the minimum time to wait.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_micros(u64::from(RNR_10_US[usize::from(self.0 & 31)]) * 10)
    }

    /// Returns the shortest timer that is not shorter than `time`, or the longest one, 655.36 ms, if all are shorter.
    #[must_use]
    pub fn at_least(time: Duration) -> RnrTimer {
        let long_enough = |code: &u8| RnrTimer(*code).duration() >= time;
        RnrTimer((1..32).find(long_enough).unwrap_or(0))
    }
}

/// The reason why a responder refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A packet is missing: the requester retransmits from the PSN of the NAK.
    PsnSequence,
    /// The request itself is invalid: opcode order or length.
    InvalidRequest,
    /// The key is invalid, or the request violates its bounds or rights.
    RemoteAccess,
    /// The responder cannot execute the request because of a local fault.
    RemoteOperational,
    /// An invalid request on a reliable datagram.
    InvalidRd,
    /// A code that is not assigned: 5 to 31.
    Reserved(u8),
}

impl NakCode {
    const fn from_code(code: u8) -> NakCode {
        match code {
            0 => NakCode::PsnSequence,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccess,
            3 => NakCode::RemoteOperational,
            4 => NakCode::InvalidRd,
            other => NakCode::Reserved(other),
        }
    }

    const fn code(self) -> u8 {
        match self {
            NakCode::PsnSequence => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRd => 4,
            NakCode::Reserved(code) => code & 31,
        }
    }
}

/// The syndrome of an AETH. One byte on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// All requests up to the packet's PSN are acknowledged.
    Ack(Credits),
    /// No receive is posted: the requester waits, then retransmits.
    RnrNak(RnrTimer),
    /// The responder refuses the request.
    Nak(NakCode),
    /// A reserved value (type 2, or bit 7 set), as received.
    Reserved(u8),
}

impl Syndrome {
    /// An acknowledgement without a number of credits.
    pub const ACK: Syndrome = Syndrome::Ack(Credits::UNLIMITED);

    /// Decodes a syndrome.
    #[inline]
    #[must_use]
    pub const fn from_byte(byte: u8) -> Syndrome {
        let value = byte & 31;
        match byte >> 5 {
            0 => Syndrome::Ack(Credits(value)),
            1 => Syndrome::RnrNak(RnrTimer(value)),
            3 => Syndrome::Nak(NakCode::from_code(value)),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// Returns the encoding of the syndrome.
    #[inline]
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Syndrome::Ack(credits) => credits.0,
            Syndrome::RnrNak(timer) => 1 << 5 | timer.0,
            Syndrome::Nak(code) => 3 << 5 | code.code(),
            Syndrome::Reserved(byte) => byte,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syndrome::Ack(credits) => match credits.count() {
                Some(count) => write!(f, "ack credits {count}"),
                None => write!(f, "ack"),
            },
            Syndrome::RnrNak(timer) => write!(f, "rnr nak wait {} us", timer.duration().as_micros()),
            Syndrome::Nak(NakCode::PsnSequence) => write!(f, "nak sequence"),
            Syndrome::Nak(NakCode::InvalidRequest) => write!(f, "nak invalid request"),
            Syndrome::Nak(NakCode::RemoteAccess) => write!(f, "nak remote access"),
            Syndrome::Nak(NakCode::RemoteOperational) => write!(f, "nak remote operational"),
            Syndrome::Nak(NakCode::InvalidRd) => write!(f, "nak invalid rd request"),
            Syndrome::Nak(NakCode::Reserved(code)) => write!(f, "nak code {code}"),
            Syndrome::Reserved(byte) => write!(f, "syndrome {byte:#04x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
        }
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCode::RemoteAccess), "the syndrome in rxe_nak.pcap");
        assert_eq!(Syndrome::ACK.to_byte(), 0x1f);
    }

    #[test]
    fn codes_have_five_bits() {
        for code in 0..=255 {
            assert_eq!(Credits::from_code(code).code(), code & 31);
            assert_eq!(RnrTimer::from_code(code).code(), code & 31);
        }
    }

    #[test]
    fn timers_are_those_of_the_specification() {
        let micros = |code| RnrTimer::from_code(code).duration().as_micros();
        assert_eq!([0, 1, 2, 14, 24, 31].map(micros), [655_360, 10, 20, 1280, 40_960, 491_520]);
        assert_eq!(RnrTimer::at_least(Duration::from_micros(25)).code(), 3);
        assert_eq!(RnrTimer::at_least(Duration::from_millis(600)).code(), 0);
        assert_eq!(RnrTimer::at_least(Duration::from_secs(9)).code(), 0);
        assert_eq!(RnrTimer::at_least(Duration::ZERO).code(), 1);
    }

    #[test]
    fn credits_promise_no_more_than_the_posted_receives() {
        assert_eq!(Credits::UNLIMITED.count(), None);
        for (receives, count) in [(0, 0), (5, 4), (6, 6), (1000, 768), (u32::MAX, 32768)] {
            assert_eq!(Credits::at_most(receives).count(), Some(count));
        }
    }
}
