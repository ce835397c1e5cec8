//! The invariant CRC (ICRC): a CRC-32 over everything that does not change on the path.
//!
//! Fields that may change on the path are replaced by ones: IPv4 type of service, time to live and header checksum,
//! IPv6 traffic class, flow label and hop limit, the UDP checksum, and byte 4 of the BTH (FECN, BECN). A fake local
//! route header of 8 bytes of ones precedes them. All other bytes count, **including the IPv4 identification**
//! (InfiniBand specification A17.3.3; Linux `rxe_icrc.c`).
//!
//! The CRC is affine in its input. So when only headers change, the new CRC follows from the old one and the difference
//! of the headers, whatever the payload is: see [`changed`].

use crc32fast::Hasher;

use crate::headers::BTH_BYTES;
use crate::{Envelope, IpRepr};

/// CRC-32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Maximum length of the masked headers (IPv6, UDP, BTH), in bytes.
const MAX_MASKED: usize = 40 + 8 + BTH_BYTES;
/// Length of the leading ones (the fake local route header), in bytes.
const ONES: usize = 8;
/// Offset of the byte with FECN and BECN in a BTH.
const CONGESTION: usize = 4;
/// Maximum number of covered bytes, including the leading ones, of a packet that is hashed in one call. The bytes after
/// its BTH are copied behind the masked headers. The copy costs less than the end of a second call, where `crc32fast`
/// folds its wide registers into one.
const FIRST: usize = 128;
/// Room after the masked headers of a short packet over IPv4, in bytes.
const V4_ROOM: usize = FIRST - ONES - (20 + 8 + BTH_BYTES);

/// The IP header, UDP header and BTH, with ones in the fields that the ICRC does not cover.
#[derive(Clone, Copy, Debug)]
pub struct Masked {
    bytes: [u8; MAX_MASKED],
    len: usize,
}

impl Masked {
    /// Masks the headers of a packet. `transport` is the packet from the BTH to the ICRC; of the ICRC's four bytes only
    /// the length counts. If `transport` is shorter than a BTH, the BTH counts as ones.
    #[inline]
    #[must_use]
    pub fn new(envelope: &Envelope, transport: &[u8]) -> Masked {
        let mut bytes = [0xff; MAX_MASKED];
        let len = mask(envelope, transport, &mut bytes);
        Masked { bytes, len }
    }

    /// Returns the masked headers in the order of the wire.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes the masked headers to the beginning of `bytes`, which must be ones. Returns their length.
#[inline]
fn mask(envelope: &Envelope, transport: &[u8], bytes: &mut [u8; MAX_MASKED]) -> usize {
    let at = envelope.header_bytes();
    mask_headers(envelope, transport.len(), bytes);
    if let Some(bth) = transport.first_chunk::<BTH_BYTES>() {
        bytes[at..at + BTH_BYTES].copy_from_slice(bth);
        bytes[at + CONGESTION] = 0xff;
    }
    at + BTH_BYTES
}

/// Writes the masked IP and UDP headers to `bytes`, whose contents do not matter.
#[inline]
fn mask_headers(envelope: &Envelope, transport_bytes: usize, bytes: &mut [u8]) {
    envelope.emit_unsummed(bytes, transport_bytes);
    match envelope.ip {
        IpRepr::V4(_) => {
            bytes[1] = 0xff;
            bytes[8] = 0xff;
            bytes[10..12].fill(0xff);
        }
        IpRepr::V6(_) => {
            bytes[0] |= 0x0f;
            bytes[1..4].fill(0xff);
            bytes[7] = 0xff;
        }
    }
    let udp = envelope.ip.header_bytes();
    bytes[udp + 6..udp + 8].fill(0xff);
}

/// Returns the ICRC of a packet. `transport` is the packet from the BTH to the ICRC; the present contents of the ICRC
/// field do not matter.
#[inline]
#[must_use]
pub fn whole(envelope: &Envelope, transport: &[u8]) -> u32 {
    let mut first = [0xff; FIRST];
    let masked = first[ONES..].first_chunk_mut().map_or(0, |bytes| mask(envelope, transport, bytes));
    let end = transport.len().saturating_sub(crate::ICRC_BYTES);
    let rest = transport.get(BTH_BYTES..end).unwrap_or(&[]);
    let filled = ONES + masked;
    let mut hasher = Hasher::new();
    if let Some(room) = first.get_mut(filled..).filter(|room| rest.len() <= room.len()) {
        match (room.first_chunk_mut(), <&[u8; V4_ROOM]>::try_from(rest)) {
            // A separate case, because the compiler turns a copy of constant length into a few moves.
            (Some(room), Ok(rest)) => *room = *rest,
            _ => room[..rest.len()].copy_from_slice(rest),
        }
        hasher.update(&first[..filled + rest.len()]);
    } else {
        hasher.update(&first[..filled]);
        hasher.update(rest);
    }
    hasher.finalize()
}

/// Multiplication by a power of x modulo the polynomial: the effect of a number of zero bytes that are appended to the
/// input of a CRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift(u32);

/// x^0 in the reflected order of bits.
const ONE: u32 = 1 << 31;
/// x^(8·2^k).
const POWERS: [u32; 32] = squares(ONE >> 8);
/// x^(-8·2^k). These inverses exist because the polynomial is primitive: x^(2^32 - 1) = 1.
const INVERSES: [u32; 32] = squares(inverse_of_x8());

const fn times(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a & ONE != 0 {
            product ^= b;
        }
        a <<= 1;
        b = if b & 1 != 0 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// `BYTES[n][byte]` is the remainder of `byte` after the register has been shifted by n + 1 bytes.
const BYTES: [[u32; 256]; 4] = {
    let mut table = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let (mut rest, mut bit) = (byte as u32, 0);
        while bit < 32 {
            rest = if rest & 1 != 0 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
            if bit % 8 == 0 {
                table[bit / 8 - 1][byte] = rest;
            }
        }
        byte += 1;
    }
    table
};

/// Multiplies like [`times`], but without branches, which depend on the data and would be mispredicted half of the
/// time.
///
/// The function computes a product without carries from integer products of operands with holes. Each operand keeps one
/// bit of every four, so a sum of eight bits does not reach the next bit that counts (T. Pornin, BearSSL,
/// "constant-time crypto").
#[inline]
const fn multiply(a: u32, b: u32) -> u32 {
    const HOLES: u64 = 0x1111_1111_1111_1111;
    let (a, b) = (a as u64, b as u64);
    let [a0, a1, a2, a3] = [a & HOLES, a & HOLES << 1, a & HOLES << 2, a & HOLES << 3];
    let [b0, b1, b2, b3] = [b & HOLES, b & HOLES << 1, b & HOLES << 2, b & HOLES << 3];
    let z0 = (a0 * b0) ^ (a1 * b3) ^ (a2 * b2) ^ (a3 * b1);
    let z1 = (a0 * b1) ^ (a1 * b0) ^ (a2 * b3) ^ (a3 * b2);
    let z2 = (a0 * b2) ^ (a1 * b1) ^ (a2 * b0) ^ (a3 * b3);
    let z3 = (a0 * b3) ^ (a1 * b2) ^ (a2 * b1) ^ (a3 * b0);
    let product = z0 & HOLES | z1 & HOLES << 1 | z2 & HOLES << 2 | z3 & HOLES << 3;
    // Bit k is x^(62 - k). Powers of x^32 and above are reduced with four table lookups that do not depend on each
    // other.
    let [b0, b1, b2, b3] = ((product as u32) << 1).to_le_bytes();
    let low = BYTES[3][b0 as usize] ^ BYTES[2][b1 as usize] ^ BYTES[1][b2 as usize] ^ BYTES[0][b3 as usize];
    (product >> 31) as u32 ^ low
}

const fn squares(first: u32) -> [u32; 32] {
    let mut powers = [first; 32];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = times(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
}

/// x^(2^32 - 1 - 8).
const fn inverse_of_x8() -> u32 {
    let (mut result, mut power, mut exponent) = (ONE, ONE >> 1, u32::MAX - 8);
    while exponent != 0 {
        if exponent & 1 != 0 {
            result = times(result, power);
        }
        power = times(power, power);
        exponent >>= 1;
    }
    result
}

const fn power(table: &[u32; 32], bytes: usize) -> u32 {
    let (mut result, mut rest, mut k) = (ONE, bytes as u32, 0);
    while rest != 0 {
        if rest & 1 != 0 {
            result = times(result, table[k]);
        }
        rest >>= 1;
        k += 1;
    }
    result
}

impl Shift {
    /// Returns the shift by `bytes` zero bytes (below 2^32). Callers keep the result when many packets have the same
    /// length.
    #[must_use]
    pub const fn by(bytes: usize) -> Shift {
        Shift(power(&POWERS, bytes))
    }

    /// Returns the inverse of [`by`](Shift::by).
    #[must_use]
    pub const fn back(bytes: usize) -> Shift {
        Shift(power(&INVERSES, bytes))
    }

    #[inline]
    const fn apply(self, crc: u32) -> u32 {
        multiply(crc, self.0)
    }
}

/// Returns the ICRC after a part of the packet has changed from `old` to `new`. Both have the same length, and in both
/// the fields that the ICRC does not cover are masked. `behind` is the distance from the end of the changed part to the
/// end of the covered bytes, which exclude the ICRC itself. The function reads neither the payload nor the other
/// headers. Several changes in one packet need one call each.
///
/// # Panics
/// Panics if the lengths differ.
#[must_use]
pub fn changed(icrc: u32, old: &[u8], new: &[u8], behind: Shift) -> u32 {
    assert_eq!(old.len(), new.len(), "the changed part must keep its length");
    // Hash the difference with an initial register of 0 and without the final complement. Leading zeros then change
    // nothing, so the difference is padded to whole blocks of 64 bytes, for which `crc32fast` is fast.
    let mut hasher = Hasher::new_with_initial(u32::MAX);
    let mut difference = [0; 64];
    let (first, rest) = (old.len() % difference.len(), old.len() / difference.len());
    let mut at = 0;
    for len in (first > 0).then_some(first).into_iter().chain(core::iter::repeat_n(difference.len(), rest)) {
        let begin = difference.len() - len;
        let (old, new) = (&old[at..at + len], &new[at..at + len]);
        for ((to, old), new) in difference[begin..].iter_mut().zip(old).zip(new) {
            *to = old ^ new;
        }
        hasher.update(&difference);
        at += len;
    }
    icrc ^ behind.apply(!hasher.finalize())
}

/// Returns the ICRC after a change like [`changed`], given the difference itself: old XOR new bytes, with zeros in the
/// fields that the ICRC does not cover. Leading zeros change nothing, and whole blocks of 16 bytes are fastest.
#[inline]
#[must_use]
pub fn changed_by(icrc: u32, difference: &[u8], behind: Shift) -> u32 {
    // Hash with an initial register of 0 and without the final complement, as in `changed`.
    let mut hasher = Hasher::new_with_initial(u32::MAX);
    hasher.update(difference);
    icrc ^ behind.apply(!hasher.finalize())
}

/// Returns the IPv4 identification that makes the ICRC correct, if there is one. A plain UDP socket does not see the
/// identification of a received packet. Half of the ICRC's strength remains: 1 of 65 536 wrong packets passes.
///
/// `icrc` is the ICRC in the packet. The identification in `envelope` does not matter.
#[must_use]
pub fn solve_ip_id(envelope: &Envelope, transport: &[u8], icrc: u32) -> Option<u16> {
    let IpRepr::V4(ip) = envelope.ip else { return None };
    let id_at = 4;
    let behind = 20 + 8 + transport.len().checked_sub(crate::ICRC_BYTES)? - id_at;
    let difference = Shift::back(behind).apply(whole(envelope, transport) ^ icrc);
    // The two bytes of the identification enter the low half of the register, before a shift by x^16. `behind` includes
    // that shift, so a difference of the identification alone is below 2^16.
    (difference >> 16 == 0).then(|| ip.id ^ (difference as u16).swap_bytes())
}

/// The differences that the IPv4 identifications make to the ICRCs of packets that leave in one run.
///
/// With UDP_SEGMENT, Linux splits one buffer into the packets of a run and numbers them from the identification that a
/// single packet would have. That is 0 on an unconnected socket that never fragments. The ICRC of each packet follows
/// from the ICRC that the packet would have with identification 0, by a difference that depends only on the
/// identification and the packet's length.
///
/// A receiver that does not see the identification, and accepts any of the few possible ones, accepts about one of 2^28
/// randomly damaged packets instead of one of 2^32. Such a receiver detects every single wrong bit. In a packet of 4096
/// bytes the whole ICRC detects any two wrong bits, but here some pairs look like another identification.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RunIds {
    transport_bytes: usize,
    differences: [u32; RunIds::MOST],
}

impl Default for RunIds {
    fn default() -> RunIds {
        RunIds::new(0)
    }
}

impl RunIds {
    /// Maximum number of packets in a run: 15 packets of 4096 bytes fit in one buffer below 64 KiB.
    pub const MOST: usize = 15;

    /// Computes the differences for packets of `transport_bytes` from the BTH to the ICRC, both included.
    #[must_use]
    pub const fn new(transport_bytes: usize) -> RunIds {
        // Distance from the beginning of the identification to the end of the covered bytes.
        let behind = Shift::by((20 - 4 + 8 + transport_bytes).saturating_sub(crate::ICRC_BYTES));
        let mut differences = [0; RunIds::MOST];
        let mut id = 1;
        while id < RunIds::MOST {
            // An input enters the register with its first byte lowest, and the identification is big endian.
            differences[id] = behind.apply((id as u32) << 8);
            id += 1;
        }
        RunIds { transport_bytes, differences }
    }

    /// Recomputes the differences if the length has changed.
    #[inline]
    pub fn fit(&mut self, transport_bytes: usize) {
        if self.transport_bytes != transport_bytes {
            *self = RunIds::new(transport_bytes);
        }
    }

    /// Returns the ICRC of packet `id` of a run, given its ICRC with identification 0.
    ///
    /// # Panics
    /// Panics if `id` is not below [`MOST`](RunIds::MOST).
    #[inline]
    #[must_use]
    pub const fn change(&self, icrc: u32, id: usize) -> u32 {
        icrc ^ self.differences[id]
    }

    /// Returns the number of a packet in its run, given the ICRC that it would have with identification 0 and the ICRC
    /// that it has.
    #[inline]
    #[must_use]
    pub fn find(&self, with_id_0: u32, icrc: u32) -> Option<u16> {
        self.differences.iter().position(|difference| *difference == with_id_0 ^ icrc).map(|id| id as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_multiplications_are_the_same() {
        let mut word = 0x9e37_79b9_u32;
        let mut next = || {
            word = word.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            word ^ word >> 15
        };
        for _ in 0..10_000 {
            let (a, b) = (next(), next());
            assert_eq!(multiply(a, b), times(a, b), "{a:#x} by {b:#x}");
        }
        for a in [0, 1, ONE, u32::MAX] {
            assert_eq!((multiply(a, ONE), multiply(ONE, a), multiply(a, 0)), (a, a, 0));
        }
    }
}
