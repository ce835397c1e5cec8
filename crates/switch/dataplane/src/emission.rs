//! Packets that leave: new headers, and what stays of the packet that came in.

use core::net::Ipv4Addr;
use std::ops::Range;

use stentor_wire::{
    Aeth, BTH_BYTES, Bth, Envelope, Headers, ICRC_BYTES, IpRepr, Ipv4Repr, Psn, Repr, Response, Syndrome, icrc,
};

use crate::parsed::Parsed;

/// IPv4 and UDP.
const OUTER_BYTES: usize = 28;
/// RETH.
const RETH_BYTES: usize = 16;
/// The longest headers that are made anew: those of a congestion notification are as long.
pub const MAX_HEAD_BYTES: usize = OUTER_BYTES + BTH_BYTES + RETH_BYTES;
/// Hops of packets that the switch makes.
const TTL: u8 = 64;

/// A packet that leaves: headers, then a part of the packet that came in, then the ICRC. The payload is never copied here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Emission {
    to: Ipv4Addr,
    head: [u8; MAX_HEAD_BYTES],
    head_bytes: usize,
    body: Range<usize>,
    icrc: u32,
}

impl Emission {
    /// Destination address.
    #[must_use]
    pub fn to(&self) -> Ipv4Addr {
        self.to
    }

    /// IP, UDP and transport headers.
    #[inline]
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    /// Which bytes of the packet that came in follow.
    #[inline]
    #[must_use]
    pub fn body(&self) -> Range<usize> {
        self.body.clone()
    }

    /// The last bytes.
    #[inline]
    #[must_use]
    pub fn icrc(&self) -> [u8; ICRC_BYTES] {
        self.icrc.to_le_bytes()
    }

    /// Length of the packet, bytes.
    #[must_use]
    pub fn packet_bytes(&self) -> usize {
        self.head_bytes + self.body.len() + ICRC_BYTES
    }

    /// Writes the packet, from its IP header on; `input` is the packet that came in. Returns its length, or `None` if `to`
    /// has no room for it.
    pub fn write(&self, input: &[u8], to: &mut [u8]) -> Option<usize> {
        let len = self.packet_bytes();
        let to = to.get_mut(..len)?;
        let (head, rest) = to.split_at_mut(self.head_bytes);
        let (body, tail) = rest.split_at_mut(self.body.len());
        head.copy_from_slice(self.head());
        body.copy_from_slice(input.get(self.body.clone())?);
        tail.copy_from_slice(&self.icrc());
        Some(len)
    }

    /// The packet in a vector of its own.
    #[must_use]
    pub fn to_vec(&self, input: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; self.packet_bytes()];
        match self.write(input, &mut bytes) {
            Some(_) => bytes,
            None => Vec::new(),
        }
    }
}

/// Where a copy is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) address: Ipv4Addr,
    /// `None`: it keeps the port of the packet that it is of.
    pub(crate) port: Option<u16>,
}

/// How a copy differs from the packet that it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Translation {
    pub(crate) to: u32,
    pub(crate) qpn: u32,
    pub(crate) psn: Psn,
    pub(crate) rkey: u32,
    pub(crate) base: u64,
}

/// What a packet made by the switch says, and to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) qpn: u32,
    pub(crate) psn: Psn,
    pub(crate) syndrome: Syndrome,
    pub(crate) msn: u32,
}

/// A copy for one receiver. The ICRC follows from the old one and the change of the headers, whatever the payload is: a
/// packet that was damaged before stays one.
#[inline]
pub(crate) fn copy(parsed: &Parsed<'_>, source: Source, change: &Translation, shifts: &Shifts) -> Emission {
    if parsed.opcode.shape().reth {
        copy_of::<{ MAX_HEAD_BYTES / 4 }>(parsed, source, change, shifts)
    } else {
        copy_of::<{ (OUTER_BYTES + BTH_BYTES) / 4 }>(parsed, source, change, shifts)
    }
}

/// The same, if the headers that are made anew are so many words. They are handled as a pipeline has them, word by word.
#[inline]
fn copy_of<const WORDS: usize>(parsed: &Parsed<'_>, source: Source, change: &Translation, shifts: &Shifts) -> Emission {
    let transport = parsed.packet.as_bytes();
    // It was checked that the packet has the headers of its opcode.
    let old = parsed.words.first_chunk().copied().unwrap_or([[0; 4]; WORDS]).map(u32::from_be_bytes);
    // 0 to 4 are IP, 5 and 6 UDP, 7 to 9 the BTH, 10 to 13 the RETH.
    let mut new = old;
    // One hop less, and no checksum yet.
    new[2] = (old[2] & 0xffff_0000).wrapping_sub(1 << 24);
    (new[3], new[4]) = (source.address.to_bits(), change.to);
    if let Some(port) = source.port {
        new[5] = old[5] & 0xffff | u32::from(port) << 16;
    }
    new[2] |= checksum(&new);
    // No UDP checksum.
    new[6] &= 0xffff_0000;
    new[8] = old[8] & 0xff00_0000 | change.qpn;
    new[9] = old[9] & 0xff00_0000 | change.psn.get();
    if WORDS > 12 {
        let va = (u64::from(old[10]) << 32 | u64::from(old[11])).wrapping_add(change.base);
        (new[10], new[11], new[12]) = ((va >> 32) as u32, va as u32, change.rkey);
    }
    let mut head = [0; MAX_HEAD_BYTES];
    // From the third word on, or what the ICRC sees of it.
    let mut difference = [0; MAX_HEAD_BYTES - 8];
    for (word, (old, new)) in old.iter().zip(&new).enumerate() {
        head[4 * word..4 * word + 4].copy_from_slice(&new.to_be_bytes());
        if word > 2 && word != 6 {
            difference[4 * word - 8..4 * word - 4].copy_from_slice(&(old ^ new).to_be_bytes());
        }
    }
    let (to, head_bytes) = (Ipv4Addr::from_bits(change.to), 4 * WORDS);
    let body = head_bytes..OUTER_BYTES + transport.len() - ICRC_BYTES;
    let icrc = icrc::changed_by(parsed.packet.icrc(), &difference[..head_bytes - 8], shifts.by(body.len()));
    Emission { to, head, head_bytes, body, icrc }
}

/// The Internet checksum of the first five words, an IPv4 header whose own checksum is 0.
#[inline]
fn checksum(words: &[u32]) -> u32 {
    let sum: u64 = words.iter().take(5).map(|word| u64::from(*word)).sum();
    let folded = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let folded = (folded & 0xffff) + (folded >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u32 & 0xffff
}

/// What so much payload behind a change does to the CRC, for every length of a payload with its pad.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shifts(Box<[icrc::Shift]>);

impl Shifts {
    pub(crate) fn new() -> Shifts {
        Shifts((0..=4096 / 4 + 8).map(|words| icrc::Shift::by(4 * words)).collect())
    }

    #[inline]
    fn by(&self, bytes: usize) -> icrc::Shift {
        match self.0.get(bytes / 4) {
            Some(shift) if bytes.is_multiple_of(4) => *shift,
            _ => icrc::Shift::by(bytes),
        }
    }
}

/// A packet without a payload, made here.
fn made(from: Ipv4Addr, to: Ipv4Addr, port: u16, repr: &Repr) -> Emission {
    let ip = Ipv4Repr { tos: 0, id: 0, dont_fragment: true, ttl: TTL, source: from, destination: to };
    let envelope = Envelope { ip: IpRepr::V4(ip), source_port: port, udp_checksum: 0 };
    let mut transport = [0; MAX_HEAD_BYTES - OUTER_BYTES + ICRC_BYTES];
    let bytes = repr.packet_bytes();
    let _ = repr.emit(&mut transport);
    let icrc = envelope.icrc(&transport[..bytes]);
    let mut head = [0; MAX_HEAD_BYTES];
    let head_bytes = OUTER_BYTES + bytes - ICRC_BYTES;
    let _ = envelope.emit(&mut head, bytes);
    head[OUTER_BYTES..head_bytes].copy_from_slice(&transport[..bytes - ICRC_BYTES]);
    Emission { to, head, head_bytes, body: 0..0, icrc }
}

/// An acknowledgement, positive or negative.
pub(crate) fn answer(answer: &Answer) -> Emission {
    let aeth = Aeth { syndrome: answer.syndrome, msn: answer.msn };
    let headers = Headers::Response(Response::Acknowledge(aeth));
    let repr = Repr { bth: Bth::new(answer.qpn, answer.psn), headers, payload_bytes: 0 };
    made(answer.from, answer.to, answer.port, &repr)
}

/// A congestion notification.
pub(crate) fn notification(from: Ipv4Addr, to: Ipv4Addr, port: u16, qpn: u32) -> Emission {
    let mut bth = Bth::new(qpn, Psn::new(0));
    bth.becn = true;
    made(from, to, port, &Repr { bth, headers: Headers::Cnp, payload_bytes: 0 })
}
