//! Places in the global order.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use stentor_multicast::{GroupId, Incarnation, Timestamp};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use crate::Group;

/// The place of a command in the global order, as one group applies it. Places compare as the global order does. A command has the same
/// time and the same group of its time in all groups that apply it; the index is each group's own.
///
/// The position of a read is that of the last command, or other place, which the answer contains.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Position {
    /// The time at which the command was ordered, nanoseconds since 1970 where the clocks of most members are right.
    pub time: u64,
    /// The group that gave the time. Commands of two groups may have the same time, and this tells them apart.
    pub group: Group,
    /// The number of the command in the group that applies it, from 1.
    pub index: u64,
    /// The group that applies it, in whose order it has that number.
    pub applied_in: Group,
    /// Which history of that group the index counts in: it changes when the group is reset, or begins from nothing. 0 if that is not
    /// known. It says only whether the group still knows the place.
    pub incarnation: u64,
    /// The time after which whoever [observes](crate::Client::observe) this comes, if it is later: a read at the leader may come after more
    /// than its answer contains. It is no part of the place.
    pub(crate) heard: u64,
}

/// The version of the bytes.
const VERSION: u8 = 1;

/// Bytes are no [`Position`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "these bytes are no position, or one that another version of this library wrote; use those that `Position::to_bytes` returned"
)]
pub struct PositionError;

fn digest(bytes: &[u8]) -> [u8; 4] {
    (xxh3_64(bytes) as u32).to_le_bytes()
}

impl Position {
    /// How many bytes [`to_bytes`](Position::to_bytes) returns.
    pub const BYTES: usize = 41;

    /// Returns the time after which whoever observes this comes.
    pub(crate) fn latest(&self) -> u64 {
        self.time.max(self.heard)
    }

    /// Returns the bytes with which it goes to another process, which may [observe](crate::Client::observe) it or read
    /// [after](crate::Consistency::After) it.
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

    /// Reads what [`to_bytes`](Position::to_bytes) returned, in a process of the same cluster.
    ///
    /// # Errors
    /// If the bytes are no position, or one of another version.
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

    /// Whether the index is one of this group's order, in a history that is known.
    pub(crate) fn is_counted_in(&self, group: GroupId) -> bool {
        self.applied_in.0 == group && self.incarnation != 0
    }

    /// The same, as members say it. `origin` counts where this names no history.
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
