//! Control packets: WRITEs to an address and a key that no memory has. The switch executes them.
//!
//! The payload is big endian: magic `u32`, version `u8`, operation `u8`, number of unlinked members `u8`, number of
//! linked members `u8`, lock `u32`, epoch `u32`, queue pair `u32`, PSN `u32`, message count `u32`, padding `u32`. Two
//! lists follow. An entry for an unlinked member is its rank in 4 bytes. An entry for a linked member is its rank `u8`,
//! 3 bytes of padding, its key `u32` and its base address `u64`.

use stentor_wire::{Packet, Psn, Reth};
use thiserror::Error;

use crate::registers::MOST;

/// First four bytes of a control packet's payload.
pub const MAGIC: u32 = 0x5354_4e54;
/// Version of the format.
pub const VERSION: u8 = 1;
/// Address that control packets are written to.
pub const CONTROL_VA: u64 = u64::MAX;
/// Key that control packets are written with.
pub const CONTROL_RKEY: u32 = u32::MAX;
/// Length of the payload before the lists, in bytes.
pub const HEAD_BYTES: usize = 32;
/// Length of an unlinked member's entry, in bytes.
pub const UNLINK_BYTES: usize = 4;
/// Length of a linked member's entry, in bytes.
pub const LINK_BYTES: usize = 16;
/// Length of the longest payload, in bytes.
pub const MAX_CONTROL_BYTES: usize = HEAD_BYTES + MOST * (UNLINK_BYTES + LINK_BYTES);

/// The operation that a control packet requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Replaces the member list. The sender becomes the holder if the set is free, or if another rank's lease has
    /// expired and nothing of that rank is half executed.
    Link,
    /// Releases the set if the sender holds it. Otherwise only the sender's done PSN advances.
    Release,
    /// Advances PSNs and message counts, and keeps the member list. The switch acknowledges it if the set is free or
    /// held by the sender.
    Query,
}

/// A member that a control packet links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link {
    /// Rank of the member.
    pub rank: u8,
    /// Key of the member's memory region, for WRITEs.
    pub rkey: u32,
    /// Offset that is added to the addresses of WRITEs.
    pub base: u64,
}

/// The fields of a control packet before the lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Head {
    /// The requested operation.
    pub operation: Operation,
    /// Id of the session. All control packets of the session carry the same id, including the first.
    pub lock_id: u32,
    /// The session's epoch as the holder knows it; 0 matches any epoch.
    pub epoch: u32,
    /// Number of the sender's queue pair.
    pub sqpn: u32,
    /// PSN of this packet.
    pub psn: Psn,
    /// Number of messages that the queue pair posted before this one, 24 bits.
    pub msn: u32,
}

/// Reason why a payload is not a valid control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ControlError {
    /// The payload is too short, or its length does not match its lists. From [`emit`]: the buffer is too short.
    #[error("the payload has {have} bytes, but its header and lists need {need}")]
    Length {
        /// Actual length, in bytes.
        have: usize,
        /// Expected length, in bytes.
        need: usize,
    },
    /// The payload does not begin with [`MAGIC`].
    #[error("the payload begins with {0:#010x}, not with {MAGIC:#010x}")]
    Magic(u32),
    /// The payload has another version.
    #[error("unsupported version {0}: this switch supports version {VERSION}")]
    Version(u8),
    /// The operation is unknown.
    #[error("unknown operation {0}: 1 is link, 2 is release, 3 is query")]
    Operation(u8),
    /// A list has more than [`MOST`] members, a LINK names no member to link, or another operation names members.
    #[error("links {link} and unlinks {unlink}: a link names 1 to {MOST} members, other operations none")]
    Members {
        /// Number of members to link.
        link: u8,
        /// Number of members to unlink.
        unlink: u8,
    },
    /// A rank is too large, or occurs twice.
    #[error("rank {0} is out of range, or listed twice")]
    Rank(u8),
}

impl Operation {
    const fn to_byte(self) -> u8 {
        match self {
            Operation::Link => 1,
            Operation::Release => 2,
            Operation::Query => 3,
        }
    }

    const fn from_byte(byte: u8) -> Result<Operation, ControlError> {
        match byte {
            1 => Ok(Operation::Link),
            2 => Ok(Operation::Release),
            3 => Ok(Operation::Query),
            other => Err(ControlError::Operation(other)),
        }
    }
}

/// A control packet whose lengths, ranks and counts have been validated.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    /// The fields before the lists.
    pub head: Head,
    /// Members to link, as a bit mask of ranks.
    pub mask: u32,
    links: &'a [[u8; LINK_BYTES]],
}

impl<'a> Control<'a> {
    /// Returns whether a WRITE with this header is a control packet.
    #[inline]
    #[must_use]
    pub fn is_one(reth: Option<Reth>) -> bool {
        reth.is_some_and(|reth| reth.va == CONTROL_VA && reth.rkey == CONTROL_RKEY)
    }

    /// Parses and validates the payload of a packet.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn parse(packet: &'a Packet<&[u8]>) -> Result<Control<'a>, ControlError> {
        Control::parse_payload(packet.payload())
    }

    /// Parses and validates a payload.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn parse_payload(payload: &'a [u8]) -> Result<Control<'a>, ControlError> {
        let have = payload.len();
        let (head, lists) =
            payload.split_first_chunk::<HEAD_BYTES>().ok_or(ControlError::Length { have, need: HEAD_BYTES })?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != MAGIC {
            return Err(ControlError::Magic(word(0)));
        }
        let [_, _, _, _, version, operation, unlink, link, ..] = *head;
        if version != VERSION {
            return Err(ControlError::Version(version));
        }
        let operation = Operation::from_byte(operation)?;
        let counts = match operation {
            Operation::Link => (1..=MOST as u8).contains(&link) && unlink <= MOST as u8,
            Operation::Release | Operation::Query => link == 0 && unlink == 0,
        };
        if !counts {
            return Err(ControlError::Members { link, unlink });
        }
        let unlinked = usize::from(unlink) * UNLINK_BYTES;
        let need = HEAD_BYTES + unlinked + usize::from(link) * LINK_BYTES;
        if have != need {
            return Err(ControlError::Length { have, need });
        }
        let (unlinked, linked) = lists.split_at(unlinked);
        mask(unlinked.as_chunks::<UNLINK_BYTES>().0.iter().map(|[_, _, _, rank]| *rank))?;
        let links = linked.as_chunks::<LINK_BYTES>().0;
        let mask = mask(links.iter().map(|link| link[0]))?;
        let head = Head {
            operation,
            lock_id: word(8),
            epoch: word(12),
            sqpn: word(16),
            psn: Psn::new(word(20)),
            msn: word(24) & 0xff_ffff,
        };
        Ok(Control { head, mask, links })
    }

    /// Returns the number of members to link.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u8 {
        self.links.len() as u8
    }

    /// Returns whether the packet links no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Returns the linked member with this index, or `None` if the list is shorter.
    #[inline]
    #[must_use]
    pub fn link(&self, slot: u8) -> Option<Link> {
        let [rank, _, _, _, k0, k1, k2, k3, base @ ..] = *self.links.get(usize::from(slot))?;
        Some(Link { rank, rkey: u32::from_be_bytes([k0, k1, k2, k3]), base: u64::from_be_bytes(base) })
    }
}

/// Returns ranks as a bit mask, or an error if one is too large or occurs twice.
fn mask(ranks: impl Iterator<Item = u8>) -> Result<u32, ControlError> {
    let mut mask = 0_u32;
    for rank in ranks {
        let bit = 1_u32.checked_shl(rank.into()).ok_or(ControlError::Rank(rank))?;
        if mask & bit != 0 {
            return Err(ControlError::Rank(rank));
        }
        mask |= bit;
    }
    Ok(mask)
}

/// Writes the payload of a control packet to `to` and returns its length in bytes. Hosts send it as a WRITE to
/// [`CONTROL_VA`] with [`CONTROL_RKEY`].
///
/// # Errors
/// Returns [`ControlError::Members`] if a list is too long, or [`ControlError::Length`] if the payload does not fit
/// into `to`. [`MAX_CONTROL_BYTES`] is always enough.
pub fn emit(head: &Head, unlink: &[u8], links: &[Link], to: &mut [u8]) -> Result<usize, ControlError> {
    let (have, need) = (to.len(), HEAD_BYTES + unlink.len() * UNLINK_BYTES + links.len() * LINK_BYTES);
    if links.len() > MOST || unlink.len() > MOST {
        return Err(ControlError::Members { link: links.len().min(255) as u8, unlink: unlink.len().min(255) as u8 });
    }
    let to = to.get_mut(..need).ok_or(ControlError::Length { have, need })?;
    let (first, rest) = to.split_at_mut(HEAD_BYTES);
    let (unlinked, linked) = rest.split_at_mut(unlink.len() * UNLINK_BYTES);
    first[4..8].copy_from_slice(&[VERSION, head.operation.to_byte(), unlink.len() as u8, links.len() as u8]);
    let words = [(0, MAGIC), (8, head.lock_id), (12, head.epoch), (16, head.sqpn), (20, head.psn.get())];
    for (at, word) in words.into_iter().chain([(24, head.msn), (28, 0)]) {
        first[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    for (to, rank) in unlinked.chunks_exact_mut(UNLINK_BYTES).zip(unlink) {
        to.copy_from_slice(&[0, 0, 0, *rank]);
    }
    for (to, link) in linked.chunks_exact_mut(LINK_BYTES).zip(links) {
        to[..4].copy_from_slice(&[link.rank, 0, 0, 0]);
        to[4..8].copy_from_slice(&link.rkey.to_be_bytes());
        to[8..].copy_from_slice(&link.base.to_be_bytes());
    }
    Ok(need)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(operation: Operation) -> Head {
        Head { operation, lock_id: 7, epoch: 9, sqpn: 0x1234, psn: Psn::new(0xff_fffe), msn: 5 }
    }

    #[test]
    fn control_payload_round_trips() {
        let links: Vec<Link> =
            (0..32).map(|rank| Link { rank, rkey: 100 + u32::from(rank), base: u64::from(rank) << 40 }).collect();
        let mut bytes = [0; MAX_CONTROL_BYTES];
        for (unlink, links) in [(&[][..], &links[..1]), (&[3, 31], &links[..]), (&[0], &links[5..9])] {
            let len = emit(&head(Operation::Link), unlink, links, &mut bytes).unwrap();
            let control = Control::parse_payload(&bytes[..len]).unwrap();
            assert_eq!(control.head, head(Operation::Link));
            assert_eq!((0..control.len()).map(|slot| control.link(slot).unwrap()).collect::<Vec<_>>(), links);
            assert_eq!(control.mask, links.iter().fold(0, |mask, link| mask | 1 << link.rank));
            assert_eq!(control.link(control.len()), None);
        }
        for operation in [Operation::Release, Operation::Query] {
            let len = emit(&head(operation), &[], &[], &mut bytes).unwrap();
            assert_eq!(len, HEAD_BYTES);
            assert_eq!(Control::parse_payload(&bytes[..len]).unwrap().head, head(operation));
        }
        assert_eq!(MAX_CONTROL_BYTES, 32 + 128 + 512);
    }

    #[test]
    fn malformed_control_payload_is_refused_by_cause() {
        let link = |rank| Link { rank, rkey: 1, base: 2 };
        let mut bytes = [0; MAX_CONTROL_BYTES];
        let len = emit(&head(Operation::Link), &[4], &[link(1), link(2)], &mut bytes).unwrap();
        let parse = |change: &dyn Fn(&mut [u8]), len: usize| {
            let mut bytes = bytes;
            change(&mut bytes);
            Control::parse_payload(&bytes[..len]).map(|_| ()).unwrap_err()
        };
        assert_eq!(parse(&|_| {}, len - 1), ControlError::Length { have: len - 1, need: len });
        assert_eq!(parse(&|_| {}, len + 1), ControlError::Length { have: len + 1, need: len });
        assert_eq!(parse(&|_| {}, 31), ControlError::Length { have: 31, need: HEAD_BYTES });
        assert_eq!(parse(&|b| b[0] = 0, len), ControlError::Magic(MAGIC & 0xff_ffff));
        assert_eq!(parse(&|b| b[4] = 2, len), ControlError::Version(2));
        assert_eq!(parse(&|b| b[5] = 4, len), ControlError::Operation(4));
        assert_eq!(parse(&|b| b[5] = 2, len), ControlError::Members { link: 2, unlink: 1 });
        assert_eq!(parse(&|b| b[7] = 33, len), ControlError::Members { link: 33, unlink: 1 });
        assert_eq!(parse(&|b| b[7] = 0, len), ControlError::Members { link: 0, unlink: 1 });
        assert_eq!(parse(&|b| b[HEAD_BYTES + 4 + LINK_BYTES] = 1, len), ControlError::Rank(1), "twice");
        assert_eq!(parse(&|b| b[HEAD_BYTES + 4] = 32, len), ControlError::Rank(32));
        assert_eq!(parse(&|b| b[HEAD_BYTES + 3] = 32, len), ControlError::Rank(32), "unlinked");
        assert!(emit(&head(Operation::Link), &[], &[link(0); 33], &mut bytes).is_err());
        assert!(emit(&head(Operation::Link), &[], &[link(0)], &mut [0; 40]).is_err());
    }
}
