//! The position of an observer, which a program can store.

use stentor_multicast::GroupId;
use xxhash_rust::xxh3::xxh3_64;

use super::error::{ObserveError, Problem};
use super::fields::Fields;
use super::place::Place;
use crate::{Group, Position};

/// Version of the encoding.
const VERSION: u8 = 1;
/// Size of an encoded position, in bytes: version, group, place, digest.
const BYTES: usize = 1 + 2 + Place::BYTES + 4;

/// The position of an observer in the order of a group, from which another observer can
/// [continue](crate::ObserverBuilder::from). It also identifies the history of the group, so a group that began anew is
/// not confused with the observed one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObservedPosition {
    pub(crate) group: Group,
    pub(crate) place: Place,
}

impl ObservedPosition {
    /// Returns the observed group.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
    }

    /// Returns the position for use with [`Client::observe`](crate::Client::observe).
    #[must_use]
    pub fn position(&self) -> Position {
        self.place.position(self.group.0)
    }

    /// Returns the index of this position in the group's order, from 1. Returns 0 if the group had applied nothing.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.place.index
    }

    /// Returns the position as bytes, for storage.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend(self.group.0.0.to_be_bytes());
        self.place.write(&mut bytes);
        bytes.extend(digest(&bytes).to_be_bytes());
        bytes
    }

    /// Parses the bytes of [`to_bytes`](ObservedPosition::to_bytes).
    ///
    /// # Errors
    /// Returns an error if the bytes are not a position.
    pub fn from_bytes(bytes: &[u8]) -> Result<ObservedPosition, ObserveError> {
        read(bytes).ok_or_else(|| Problem::Bytes.into())
    }
}

fn read(bytes: &[u8]) -> Option<ObservedPosition> {
    let (told, sum) = bytes.split_at_checked(BYTES - 4)?;
    let (mut from, mut sum) = (Fields(told), Fields(sum));
    let version = from.u8()?;
    let group = Group(GroupId(from.u16()?));
    let place = Place::read(&mut from)?;
    let is_whole = version == VERSION && sum.u32()? == digest(told);
    sum.end(ObservedPosition { group, place }).filter(|_| is_whole)
}

fn digest(bytes: &[u8]) -> u32 {
    xxh3_64(bytes) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stentor_multicast::{Incarnation, Timestamp};

    use super::*;

    #[test]
    fn a_position_survives_a_round_trip_and_damaged_bytes_are_rejected() {
        let origin = Incarnation { number: 3, tag: 0x8000_0001 };
        let place = Place { origin, index: 12, timestamp: Timestamp { time: 1 << 61, group: 1 } };
        let position = ObservedPosition { group: Group(GroupId(2)), place };
        let bytes = position.to_bytes();
        assert_eq!(ObservedPosition::from_bytes(&bytes).expect("its own bytes"), position);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            let error = ObservedPosition::from_bytes(&damaged).expect_err("the position is damaged");
            assert!(error.to_string().contains("not a position"), "{error}");
            assert!(ObservedPosition::from_bytes(&bytes[..at]).is_err());
        }
        assert!(ObservedPosition::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_position_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(position) = ObservedPosition::from_bytes(&bytes) {
                prop_assert_eq!(position.to_bytes(), bytes);
            }
        }
    }
}
