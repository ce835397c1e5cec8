//! Positions in the global order.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use stentor_multicast::{GroupId, Incarnation, Timestamp};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use crate::Group;

/// The position of a command in the global order, as one group applies it. `Ord` compares positions by the global
/// order. A command has the same [`time`](Position::time) and [`group`](Position::group) in all groups that apply it,
/// and each group counts its [`index`](Position::index) separately.
///
/// The position of a read is the position of the last command, or other entry of the order, that the answer reflects.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Position {
    /// Time at which the command was ordered, in nanoseconds since 1970 if most members' clocks are right.
    pub time: u64,
    /// Group that assigned the time. Two groups may assign the same time to different commands, which this field then
    /// distinguishes and orders.
    pub group: Group,
    /// Number of the command in the order of the group that applies it, counted from 1.
    pub index: u64,
    /// Group that applies the command. `index` counts in the order of this group.
    pub applied_in: Group,
    /// Identifier of the history of `applied_in` in which `index` counts, or 0 if it is unknown. The group gets another
    /// history when it is reset or starts from nothing, and then no longer knows positions of the earlier history.
    pub incarnation: u64,
    /// Time after which later commands of a session that [observes](crate::Client::observe) this position are ordered,
    /// if this time is later than `time`. A read at the leader may follow a later time than that of the last command in
    /// its answer. Comparisons of positions ignore this field.
    pub(crate) heard: u64,
}

/// Version of the encoding.
const VERSION: u8 = 1;

/// The error of [`Position::from_bytes`]: the bytes do not encode a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "the bytes are not a position, or another version of this library wrote them; pass the bytes that `Position::to_bytes` returned"
)]
pub struct PositionError;

fn digest(bytes: &[u8]) -> [u8; 4] {
    (xxh3_64(bytes) as u32).to_le_bytes()
}

impl Position {
    /// Number of bytes that [`to_bytes`](Position::to_bytes) returns.
    pub const BYTES: usize = 41;

    /// Returns the time after which commands of a session that observes this position are ordered.
    pub(crate) fn latest(&self) -> u64 {
        self.time.max(self.heard)
    }

    /// Returns the encoding of the position, to send it to another process. That process may
    /// [observe](crate::Client::observe) the position or read [after](crate::Consistency::After) it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Position::BYTES] {
        let mut bytes = [0; Position::BYTES];
        bytes[0] = VERSION;
        bytes[1..3].copy_from_slice(&self.group.0.0.to_le_bytes());
        bytes[3..5].copy_from_slice(&self.applied_in.0.0.to_le_bytes());
        let words = [self.time, self.index, self.incarnation, self.heard];
        for (place, word) in bytes[5..37].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = digest(&bytes[..37]);
        bytes[37..].copy_from_slice(&sum);
        bytes
    }

    /// Decodes the bytes that [`to_bytes`](Position::to_bytes) returned, in this process or in another process of the
    /// same cluster.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a position, or if an incompatible version of this library encoded them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Position, PositionError> {
        let (told, sum) = bytes.split_at_checked(37).filter(|_| bytes.len() == Position::BYTES).ok_or(PositionError)?;
        if told[0] != VERSION || sum != digest(told) {
            return Err(PositionError);
        }
        let group = |at: usize| Group(GroupId(u16::from_le_bytes([told[at], told[at + 1]])));
        let word = |at: usize| told[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Ok(Position {
            time: word(5),
            group: group(1),
            index: word(13),
            applied_in: group(3),
            incarnation: word(21),
            heard: word(29),
        })
    }

    #[inline]
    fn place_key(&self) -> (u64, Group, u64, Group, u64) {
        (self.time, self.group, self.index, self.applied_in, self.incarnation)
    }

    pub(crate) fn of(group: GroupId, place: &stentor_session::Position) -> Self {
        Position::at(place.timestamp, (group, place.index), place.incarnation)
    }

    #[inline]
    pub(crate) fn at(
        Timestamp { time, group }: Timestamp,
        (applied_in, index): (GroupId, u64),
        incarnation: Incarnation,
    ) -> Self {
        let (group, incarnation) = (Group(GroupId(group)), incarnation.to_word());
        Position { time, group, index, applied_in: Group(applied_in), incarnation, heard: 0 }
    }

    /// Returns whether the index counts in this group's order, in a known history.
    pub(crate) fn is_counted_in(&self, group: GroupId) -> bool {
        self.applied_in.0 == group && self.incarnation != 0
    }

    /// Returns the position as members encode it. Its incarnation is `origin` if this position names no history.
    pub(crate) fn place(&self, origin: Incarnation) -> stentor_session::Position {
        let known = Incarnation::from_word(self.incarnation);
        stentor_session::Position {
            timestamp: Timestamp { time: self.time, group: self.group.0.0 },
            index: self.index,
            incarnation: if known.is_none() { origin } else { known },
        }
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Position) -> bool {
        self.place_key() == other.place_key()
    }
}

impl Eq for Position {}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Position) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Position) -> Ordering {
        self.place_key().cmp(&other.place_key())
    }
}

impl Hash for Position {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place_key().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_are_read_as_written(words: [u64; 4], groups: [u16; 2], at in 0..Position::BYTES, change in 1u8..) {
            let [time, index, incarnation, heard] = words;
            let [group, applied_in] = groups.map(|group| Group(GroupId(group)));
            let position = Position { time, group, index, applied_in, incarnation, heard };
            let mut bytes = position.to_bytes();
            let read = Position::from_bytes(&bytes).unwrap();
            prop_assert_eq!((read, read.latest()), (position, position.latest()));
            prop_assert!(Position::from_bytes(&bytes[..at]).is_err());
            bytes[at] ^= change;
            prop_assert!(Position::from_bytes(&bytes).is_err());
        }
    }
}
