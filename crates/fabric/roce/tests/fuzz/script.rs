//! An input: the datagrams that an adversary sends to one victim, encoded as bytes.
//!
//! The first byte configures the victim (bit 0: unreliable connection; bit 1: path MTU 1024 instead of 256). Datagrams
//! follow: flags, length of the packets into which it is split (0: a single packet), and length of the datagram (two
//! bytes each, little-endian), then its bytes. A datagram that exceeds the input is shortened, and an incomplete header
//! at the end is ignored, so any bytes are a valid input.

/// Flags of a datagram.
pub(crate) mod flags {
    /// Mask of the kind of ICRC check: 0 and 3 for a complete check, 1 for a check as in a run, 2 for an unknown
    /// identification.
    pub(crate) const CHECK: u8 = 3;
    /// The source address is not the peer's.
    pub(crate) const STRANGE: u8 = 4;
    /// The datagram is marked "congestion experienced".
    pub(crate) const CONGESTED: u8 = 8;
    /// The adversary computes the ICRC of each packet.
    pub(crate) const SEALED: u8 = 16;
    /// Time advances to the next deadline before the datagram arrives.
    pub(crate) const LATE: u8 = 32;
    /// Each packet has the ICRC of the first packet of a run, whatever its position.
    pub(crate) const MOVED: u8 = 64;
    /// The endpoint sends only after all packets of the datagram were received.
    pub(crate) const BURST: u8 = 128;
}

pub(crate) const UNRELIABLE: u8 = 1;
pub(crate) const LARGE_MTU: u8 = 2;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Datagram {
    pub(crate) flags: u8,
    pub(crate) segment: u16,
    pub(crate) bytes: Vec<u8>,
}

impl Datagram {
    /// Returns the packets of the datagram, which is split as in `driver/sys.rs`. The last packet may be shorter, and
    /// an empty datagram is one empty packet.
    pub(crate) fn packets(&self) -> Vec<Vec<u8>> {
        let segment = if self.segment == 0 { self.bytes.len() } else { self.segment.into() };
        let packets = self.bytes.chunks(segment.max(1)).map(<[u8]>::to_vec);
        let nothing = self.bytes.is_empty().then(Vec::new);
        packets.chain(nothing).collect()
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Script {
    pub(crate) victim: u8,
    pub(crate) datagrams: Vec<Datagram>,
}

impl Script {
    pub(crate) fn parse(bytes: &[u8]) -> Script {
        let (victim, mut rest) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
        let mut datagrams = Vec::new();
        while let [flags, s0, s1, l0, l1, body @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*l0, *l1])).min(body.len());
            let (bytes, behind) = body.split_at(length);
            let segment = u16::from_le_bytes([*s0, *s1]);
            datagrams.push(Datagram { flags: *flags, segment, bytes: bytes.to_vec() });
            rest = behind;
        }
        Script { victim, datagrams }
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![self.victim];
        for datagram in &self.datagrams {
            bytes.push(datagram.flags);
            bytes.extend(datagram.segment.to_le_bytes());
            bytes.extend((datagram.bytes.len() as u16).to_le_bytes());
            bytes.extend(&datagram.bytes);
        }
        bytes
    }
}
