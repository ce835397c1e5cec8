//! The information that a peer reports with its credits.

use super::inbound::Held;
use crate::{Incarnation, ids};

/// The information that a peer reports with its credits, besides the position that it freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct CreditReport {
    /// Number of slots freed, in a credit to a client. Number of receives consumed, in a credit between members.
    pub(super) freed: u64,
    /// The status of the client id, in a credit to a client.
    pub(super) place: Standing,
    /// The slots that are held or freed, in a credit to a client.
    pub(super) held: Held,
    /// `true` if the peer asks clients not to wait for it. Sent to clients only.
    pub(super) aside: bool,
}

/// The bit of a credit's generation that carries [`CreditReport::aside`].
pub(super) const ASIDE: u64 = 1 << 63;

/// The status of a client id at a group, as a member reports it to the process that uses the id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Standing {
    /// Generation of the process, once the group has agreed on its first slot. 0 while the process is the last one that
    /// the group knows and waits for that agreement. If the group knows another process as the last one, or none, this
    /// is the smallest generation that the next process may have.
    pub(super) generation: u64,
    /// First slot of the process, counted from the first slot that is not freed; 0 if it is freed, or not known yet.
    pub(super) first: u64,
    /// `true` if the process may begin, or continue, because the group agreed on its first slot.
    pub(super) opened: bool,
    /// `true` if the group keeps so many records of earlier processes that no further process can take over now.
    pub(super) crowded: bool,
    /// Mark of the member's incarnation, which identifies the history of the group to which this status belongs.
    pub(super) history: u32,
}

const GENERATION_BITS: u32 = 28;
const FIRST_BITS: u32 = 17;
const OPENED: u64 = 1 << (GENERATION_BITS + FIRST_BITS);
const CROWDED: u64 = OPENED << 1;
const HISTORY_SHIFT: u32 = GENERATION_BITS + FIRST_BITS + 2;
const _: () = assert!(ids::GENERATIONS == 1 << GENERATION_BITS);
const _: () = assert!(HISTORY_SHIFT + Incarnation::MARK_BITS == u64::BITS);

impl Standing {
    pub(super) fn to_word(self) -> u64 {
        let Standing { generation, first, opened, crowded, history } = self;
        let first = first.min((1 << FIRST_BITS) - 1);
        let flags = if opened { OPENED } else { 0 } | if crowded { CROWDED } else { 0 };
        generation.min(ids::GENERATIONS - 1) | first << GENERATION_BITS | flags | u64::from(history) << HISTORY_SHIFT
    }

    pub(super) fn from_word(word: u64) -> Self {
        let first = word >> GENERATION_BITS & ((1 << FIRST_BITS) - 1);
        let generation = word & (ids::GENERATIONS - 1);
        let history = (word >> HISTORY_SHIFT) as u32;
        Standing { generation, first, opened: word & OPENED != 0, crowded: word & CROWDED != 0, history }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_round_trips_through_one_word() {
        let place =
            Standing { generation: ids::GENERATIONS - 1, first: 1 << 16, opened: true, crowded: false, history: 1 };
        assert_eq!(Standing::from_word(place.to_word()), place);
        let history = (1 << Incarnation::MARK_BITS) - 1;
        let other = Standing { generation: 7, first: 0, opened: false, crowded: true, history };
        assert_eq!(Standing::from_word(other.to_word()), other);
    }
}
