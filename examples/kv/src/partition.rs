//! The mapping of keys to groups.
//!
//! As in a Redis cluster, a key has one of 16384 slots. The slot is the CRC16 of the key modulo 16384. If the text
//! between the key's first `{` and the next `}` is not empty, the slot is the CRC16 of this text instead. So
//! `{user7}.name` and `{user7}.mail` are in one group. Group number g of n has the slots s for which s·n / 16384,
//! rounded down, is g.

/// Number of slots.
const SLOTS: u32 = 16384;

/// The part of the keys that one group has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partition {
    /// The group's number, from 0.
    pub index: u16,
    /// The number of groups, at least 1.
    pub of: u16,
}

impl Partition {
    /// Returns whether the group has a key.
    #[inline]
    #[must_use]
    pub fn has(self, key: &[u8]) -> bool {
        self.of == 1 || group_of(key, self.of) == self.index
    }
}

/// Returns the number of the group that has a key, in a store of `groups` groups.
#[inline]
#[must_use]
pub fn group_of(key: &[u8], groups: u16) -> u16 {
    if groups == 1 {
        return 0;
    }
    (u32::from(slot_of(key)) * u32::from(groups) / SLOTS) as u16
}

/// Returns the slot of a key.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key)) % SLOTS as u16
}

fn tag_of(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => &rest[..length],
        _ => key,
    }
}

/// Returns the CRC-16/XMODEM of the bytes, as Redis uses it: polynomial 0x1021, without reflection.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = ((at as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // These values are from the Redis cluster specification and `CLUSTER KEYSLOT`.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in
            [(&b"foo"[..], 12182), (b"somekey", 11058), (b"foo{hash_tag}", 2515), (b"bar{hash_tag}", 2515)]
        {
            assert_eq!(slot_of(key), slot);
        }
    }

    #[test]
    fn only_the_first_tag_that_is_not_empty_counts() {
        assert_eq!(tag_of(b"{user1000}.following"), b"user1000");
        for whole in [&b"foo{}{bar}"[..], b"{", b"}{", b"plain", b""] {
            assert_eq!(tag_of(whole), whole);
        }
        assert_eq!(tag_of(b"foo{{bar}}zap"), b"{bar");
    }

    #[test]
    fn each_key_has_one_group_and_groups_have_equal_shares() {
        for groups in [1, 2, 3, 5, 16] {
            let mut counts = vec![0u32; usize::from(groups)];
            for n in 0..20_000u32 {
                let key = n.to_le_bytes();
                let has = |index: &u16| Partition { index: *index, of: groups }.has(&key);
                assert_eq!((0..groups).filter(has).collect::<Vec<_>>(), [group_of(&key, groups)]);
                counts[usize::from(group_of(&key, groups))] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least < 20_000 / u32::from(groups) / 5 + 1, "{counts:?}");
        }
    }
}
