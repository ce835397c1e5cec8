//! Packets that the switch sends: new headers, followed by a part of the packet that arrived.

use core::net::Ipv4Addr;
use std::ops::Range;

use stentor_wire::{
    Aeth, BTH_BYTES, Bth, Envelope, Headers, ICRC_BYTES, IpRepr, Ipv4Repr, Psn, Repr, Response, Syndrome, icrc,
};

use crate::parsed::Parsed;

/// Length of the IPv4 and UDP headers, in bytes.
const OUTER_BYTES: usize = 28;
/// Length of the RETH, in bytes.
const RETH_BYTES: usize = 16;
/// Length of the longest headers that the switch rewrites, in bytes. The headers of a congestion notification have the
/// same length.
pub const MAX_HEAD_BYTES: usize = OUTER_BYTES + BTH_BYTES + RETH_BYTES;
/// Time to live of packets that the switch originates.
const TTL: u8 = 64;

/// A packet to send: new headers, then a part of the packet that arrived, then the ICRC. The payload is copied only by
/// [`Emission::write`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Emission {
    to: Ipv4Addr,
    head: [u8; MAX_HEAD_BYTES],
    head_bytes: usize,
    body: Range<usize>,
    icrc: u32,
}

impl Emission {
    /// Returns the destination address.
    #[must_use]
    pub fn to(&self) -> Ipv4Addr {
        self.to
    }

    /// Returns the IP, UDP and transport headers.
    #[inline]
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    /// Returns the range of the arrived packet that follows the headers.
    #[inline]
    #[must_use]
    pub fn body(&self) -> Range<usize> {
        self.body.clone()
    }

    /// Returns the ICRC, the last bytes of the packet.
    #[inline]
    #[must_use]
    pub fn icrc(&self) -> [u8; ICRC_BYTES] {
        self.icrc.to_le_bytes()
    }

    /// Returns the length of the packet in bytes.
    #[must_use]
    pub fn packet_bytes(&self) -> usize {
        self.head_bytes + self.body.len() + ICRC_BYTES
    }

    /// Writes the packet, which begins with its IP header, to `to`. `input` is the packet that arrived. Returns the
    /// length in bytes, or `None` if `to` or `input` is too short.
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

    /// Returns the packet in a new vector, which is empty if `input` is too short.
    #[must_use]
    pub fn to_vec(&self, input: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; self.packet_bytes()];
        match self.write(input, &mut bytes) {
            Some(_) => bytes,
            None => Vec::new(),
        }
    }
}

/// Source address and port of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) address: Ipv4Addr,
    /// Source port; with `None` the copy keeps the source port of the original packet.
    pub(crate) port: Option<u16>,
}

/// The differences between a copy and the original packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Translation {
    pub(crate) to: u32,
    pub(crate) qpn: u32,
    pub(crate) psn: Psn,
    pub(crate) rkey: u32,
    pub(crate) base: u64,
}

/// Contents and destination of an answer that the switch originates.
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

/// Makes a copy for one receiver. The ICRC of the copy follows from the old ICRC and the change of the headers,
/// whatever the payload is, so the copy of a damaged packet is damaged, too.
#[inline]
pub(crate) fn copy(parsed: &Parsed<'_>, source: Source, change: &Translation, shifts: &Shifts) -> Emission {
    if parsed.opcode.shape().reth {
        copy_of::<{ MAX_HEAD_BYTES / 4 }>(parsed, source, change, shifts)
    } else {
        copy_of::<{ (OUTER_BYTES + BTH_BYTES) / 4 }>(parsed, source, change, shifts)
    }
}

/// Makes a copy whose rewritten headers have `WORDS` words. The headers are handled word by word, as a pipeline does.
#[inline]
fn copy_of<const WORDS: usize>(parsed: &Parsed<'_>, source: Source, change: &Translation, shifts: &Shifts) -> Emission {
    let transport = parsed.packet.as_bytes();
    // The parser has checked that the packet has the headers of its opcode.
    let old = parsed.words.first_chunk().copied().unwrap_or([[0; 4]; WORDS]).map(u32::from_be_bytes);
    // Words 0 to 4 are the IP header, 5 and 6 UDP, 7 to 9 the BTH, 10 to 13 the RETH.
    let mut new = old;
    // Decrement the TTL and clear the checksum, which is computed below.
    new[2] = (old[2] & 0xffff_0000).wrapping_sub(1 << 24);
    (new[3], new[4]) = (source.address.to_bits(), change.to);
    if let Some(port) = source.port {
        new[5] = old[5] & 0xffff | u32::from(port) << 16;
    }
    new[2] |= checksum(&new);
    // The copy has no UDP checksum.
    new[6] &= 0xffff_0000;
    new[8] = old[8] & 0xff00_0000 | change.qpn;
    new[9] = old[9] & 0xff00_0000 | change.psn.get();
    if WORDS > 12 {
        let va = (u64::from(old[10]) << 32 | u64::from(old[11])).wrapping_add(change.base);
        (new[10], new[11], new[12]) = ((va >> 32) as u32, va as u32, change.rkey);
    }
    let mut head = [0; MAX_HEAD_BYTES];
    // `difference` holds the XOR of old and new header, from word 2 on. Words that the ICRC does not cover stay 0.
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

/// Returns the Internet checksum of the first five words, an IPv4 header whose own checksum is 0.
#[inline]
fn checksum(words: &[u32]) -> u32 {
    let sum: u64 = words.iter().take(5).map(|word| u64::from(*word)).sum();
    let folded = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let folded = (folded & 0xffff) + (folded >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u32 & 0xffff
}

/// The operations that turn the CRC of a change in the headers into the CRC of that change followed by the payload: one
/// for each length of a padded payload, up to 4128 bytes.
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

/// Makes a packet without a payload.
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

/// Makes an acknowledgement, positive or negative.
pub(crate) fn answer(answer: &Answer) -> Emission {
    let aeth = Aeth { syndrome: answer.syndrome, msn: answer.msn };
    let headers = Headers::Response(Response::Acknowledge(aeth));
    let repr = Repr { bth: Bth::new(answer.qpn, answer.psn), headers, payload_bytes: 0 };
    made(answer.from, answer.to, answer.port, &repr)
}

/// Makes a congestion notification.
pub(crate) fn notification(from: Ipv4Addr, to: Ipv4Addr, port: u16, qpn: u32) -> Emission {
    let mut bth = Bth::new(qpn, Psn::new(0));
    bth.becn = true;
    made(from, to, port, &Repr { bth, headers: Headers::Cnp, payload_bytes: 0 })
}
