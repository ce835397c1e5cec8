//! Places in the order of a group, as members and observers exchange them.

use stentor_multicast::{GroupId, Incarnation, Timestamp};

use super::fields::Fields;
use crate::Position;

/// A place in a group's order. It is the place of the last command of a prefix of that order, and identifies the
/// prefix.
///
/// If two histories of a group share an origin and an index, they are equal up to that index, independent of any
/// resets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    /// The origin of the history that the command belongs to. [`Incarnation::NONE`] before the first command.
    pub(crate) origin: Incarnation,
    /// The index of the command, from 1. 0 if the group has applied nothing.
    pub(crate) index: u64,
    /// The final timestamp of the command.
    pub(crate) timestamp: Timestamp,
}

impl Default for Place {
    fn default() -> Self {
        Place { origin: Incarnation::NONE, index: 0, timestamp: Timestamp { time: 0, group: 0 } }
    }
}

impl Place {
    /// Size of an encoded place, in bytes.
    pub(crate) const BYTES: usize = 26;

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.origin.to_word().to_be_bytes());
        out.extend(self.index.to_be_bytes());
        out.extend(self.timestamp.time.to_be_bytes());
        out.extend(self.timestamp.group.to_be_bytes());
    }

    pub(crate) fn read(from: &mut Fields<'_>) -> Option<Place> {
        let (origin, index) = (Incarnation::from_word(from.u64()?), from.u64()?);
        let timestamp = Timestamp { time: from.u64()?, group: from.u16()? };
        Some(Place { origin, index, timestamp })
    }

    /// Returns the place as a client's position. `group` is the group in whose order it is.
    pub(crate) fn position(&self, group: GroupId) -> Position {
        Position::at(self.timestamp, (group, self.index), self.origin)
    }

    /// Returns whether the group has applied nothing up to here.
    pub(crate) fn is_beginning(&self) -> bool {
        self.index == 0
    }
}
