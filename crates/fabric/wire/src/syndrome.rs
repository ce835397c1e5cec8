//! What an acknowledgement says: the syndrome of the AETH, with its RNR-timer and credit codes.

use core::fmt;
use core::time::Duration;

/// Credits by code (InfiniBand specification table 45; Linux `rdmavt/rc.c`). Code 31 is "unlimited".
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768,
];

/// Waiting times in units of 10 µs by code (InfiniBand specification table 46). Code 0 is the longest.
const RNR_10_US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// A credit code: how many more requests the responder has receives for. 5 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Credits(u8);

impl Credits {
    /// The responder does not count.
    pub const UNLIMITED: Credits = Credits(31);

    /// The low 5 bits of a code.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Credits {
        Credits(code & 31)
    }

    /// The code, below 32.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The number of credits; `None` for unlimited.
    #[must_use]
    pub fn count(self) -> Option<u16> {
        CREDITS.get(usize::from(self.0)).copied()
    }

    /// The largest code that promises no more than `receives`.
    #[must_use]
    pub fn at_most(receives: u32) -> Credits {
        Credits(CREDITS.partition_point(|count| u32::from(*count) <= receives) as u8 - 1)
    }
}

/// A code for how long a requester waits after "receiver not ready". 5 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The low 5 bits of a code.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> RnrTimer {
        RnrTimer(code & 31)
    }

    /// The code, below 32.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time to wait at least.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_micros(u64::from(RNR_10_US[usize::from(self.0 & 31)]) * 10)
    }

    /// The shortest timer that is not shorter than `time`; the longest there is, 655.36 ms, if none is.
    #[must_use]
    pub fn at_least(time: Duration) -> RnrTimer {
        let long_enough = |code: &u8| RnrTimer(*code).duration() >= time;
        RnrTimer((1..32).find(long_enough).unwrap_or(0))
    }
}

/// Why a responder refuses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A packet is missing: send again from the PSN that the NAK carries.
    PsnSequence,
    /// The request itself is wrong: opcode order, length.
    InvalidRequest,
    /// Key, bounds or rights.
    RemoteAccess,
    /// The responder cannot, for reasons of its own.
    RemoteOperational,
    /// Reliable datagrams only.
    InvalidRd,
    /// Not assigned; 5 to 31.
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

/// What an AETH says. One byte on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Done up to this PSN.
    Ack(Credits),
    /// No receive is posted: wait, then send again.
    RnrNak(RnrTimer),
    /// Refused.
    Nak(NakCode),
    /// Type 2, or the reserved bit 7 is set: the byte as it came.
    Reserved(u8),
}

impl Syndrome {
    /// An acknowledgement without a count of credits.
    pub const ACK: Syndrome = Syndrome::Ack(Credits::UNLIMITED);

    /// From the wire.
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

    /// As the wire has it.
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
    fn every_byte_survives() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
        }
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCode::RemoteAccess), "as rxe_nak.pcap has it");
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
    fn credits_promise_no_more_than_there_is() {
        assert_eq!(Credits::UNLIMITED.count(), None);
        for (receives, count) in [(0, 0), (5, 4), (6, 6), (1000, 768), (u32::MAX, 32768)] {
            assert_eq!(Credits::at_most(receives).count(), Some(count));
        }
    }
}
