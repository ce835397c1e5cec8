//! The judge of reads outside the order.
//!
//! A read at the leader misses nothing that any member of the group had delivered when the read was sent. It also
//! misses no delivery of the group up to the time that the read requests, even one that is ordered later. A read after
//! a command includes that command. A read past a timestamp includes all deliveries of the group up to the timestamp
//! that some member has made when the answer arrives. Every answer is the state after the delivery that it names, which
//! is judged if the machine is a [`Tally`](super::tally::Tally).

use std::collections::BTreeMap;

use stentor_multicast::{GroupId, Timestamp};
use stentor_session::{Position, ReadGuarantee};

/// An answered read at a leader.
#[derive(Clone, Debug)]
struct Answered {
    group: GroupId,
    /// Number of deliveries that the answer includes.
    index: u64,
    /// The time that the read requested.
    not_before: u64,
}

/// The deliveries of each group, and the answered reads.
#[derive(Debug, Default)]
pub(super) struct ReadLedger {
    /// The timestamp of each delivery.
    deliveries: BTreeMap<(GroupId, u64), Timestamp>,
    /// Digest and count after each delivery that was applied.
    states: BTreeMap<(GroupId, u64), [u64; 2]>,
    answered: Vec<Answered>,
}

impl ReadLedger {
    /// Records a member's delivery. Members that reach the same number later change nothing.
    pub(super) fn delivered(&mut self, group: GroupId, number: u64, timestamp: Timestamp) {
        self.deliveries.entry((group, number)).or_insert(timestamp);
    }

    /// Records the state from which a command or a query was answered.
    pub(super) fn applied(&mut self, group: GroupId, number: u64, state: [u64; 2]) {
        self.states.entry((group, number)).or_insert(state);
    }

    /// Returns the number of deliveries of the member of a group that has delivered most.
    pub(super) fn furthest(&self, group: GroupId) -> u64 {
        self.deliveries.range((group, 0)..=(group, u64::MAX)).next_back().map_or(0, |((_, number), _)| *number)
    }

    /// Returns the timestamp of a delivery.
    pub(super) fn timestamp(&self, group: GroupId, number: u64) -> Option<Timestamp> {
        self.deliveries.get(&(group, number)).copied()
    }

    /// Judges the answer to a read. `furthest` is the largest number of deliveries of a member when the read was sent.
    /// `state` is the state in the answer, if the machine is a [`Tally`](super::tally::Tally). `heard` is the time that
    /// the answer includes.
    pub(super) fn answered(
        &mut self,
        group: GroupId,
        (guarantee, furthest): (ReadGuarantee, u64),
        (position, heard): (&Position, u64),
        state: Option<[u64; 2]>,
    ) -> Result<(), String> {
        let Position { timestamp, index, .. } = *position;
        let (least, not_before) = match guarantee {
            ReadGuarantee::Leader { not_before } => (furthest, not_before),
            ReadGuarantee::After { index, .. } => (index, 0),
            ReadGuarantee::Past { timestamp } => (self.last_before(group, timestamp), 0),
            ReadGuarantee::Local => (0, 0),
        };
        if index < least {
            return Err(format!(
                "a read of group {} has {index} deliveries, and must have {least}: {guarantee:?}",
                group.0
            ));
        }
        if self.timestamp(group, index).is_some_and(|last| timestamp != last) {
            return Err(format!("a read of group {} says another time than that of its delivery {index}", group.0));
        }
        if heard < not_before {
            return Err(format!("a read of group {} comes after {heard}, and was to come after {not_before}", group.0));
        }
        let right = self.states.range((group, 0)..=(group, index)).next_back().map_or([0; 2], |(_, state)| *state);
        if state.is_some_and(|state| state != right) {
            return Err(format!("a read of group {} has another state than that after delivery {index}", group.0));
        }
        if let ReadGuarantee::Leader { .. } = guarantee {
            self.answered.push(Answered { group, index, not_before });
        }
        Ok(())
    }

    /// Returns the number of a group's last delivery that is not later than the timestamp.
    fn last_before(&self, group: GroupId, timestamp: Timestamp) -> u64 {
        let mut deliveries = self.deliveries.range((group, 0)..=(group, u64::MAX));
        deliveries.rfind(|(_, at)| **at <= timestamp).map_or(0, |((_, number), _)| *number)
    }

    /// Judges the deliveries after answered reads, once no more messages are ordered.
    pub(super) fn close(&self) -> Option<String> {
        self.answered.iter().find_map(|Answered { group, index, not_before }| {
            let next = self.deliveries.get(&(*group, index + 1))?;
            let group = group.0;
            (next.time <= *not_before).then(|| {
                format!(
                    "a read of group {group} after time {not_before} has not delivery {} at {}",
                    index + 1,
                    next.time
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use stentor_multicast::Incarnation;

    use super::*;

    const GROUP: GroupId = GroupId(0);

    fn at(time: u64) -> Timestamp {
        Timestamp { time, group: 0 }
    }

    fn position(time: u64, index: u64) -> Position {
        Position { timestamp: at(time), index, incarnation: Incarnation::FIRST }
    }

    fn ledger() -> ReadLedger {
        let mut ledger = ReadLedger::default();
        for number in 1..=4 {
            ledger.delivered(GROUP, number, at(10 * number));
        }
        ledger.applied(GROUP, 2, [7, 1]);
        ledger.applied(GROUP, 4, [9, 2]);
        ledger
    }

    #[test]
    fn each_guarantee_is_enforced() {
        let leader = |not_before| ReadGuarantee::Leader { not_before };
        let after = |index| ReadGuarantee::After { index, incarnation: Incarnation::FIRST };
        let past = |time| ReadGuarantee::Past { timestamp: at(time) };
        for (guarantee, furthest, answer, state, is_right) in [
            (leader(0), 3, position(30, 3), [7, 1], true),
            (leader(0), 4, position(30, 3), [7, 1], false),
            (leader(0), 0, position(40, 4), [7, 1], false),
            (leader(31), 0, position(30, 3), [7, 1], false),
            (leader(0), 0, position(10, 1), [0, 0], true),
            (after(4), 0, position(30, 3), [7, 1], false),
            (after(3), 4, position(30, 3), [7, 1], true),
            (past(35), 0, position(30, 3), [7, 1], true),
            (past(40), 0, position(30, 3), [7, 1], false),
            (ReadGuarantee::Local, 4, position(20, 2), [7, 1], true),
            (ReadGuarantee::Local, 4, position(20, 2), [9, 2], false),
        ] {
            let heard = answer.timestamp.time;
            let judged = ledger().answered(GROUP, (guarantee, furthest), (&answer, heard), Some(state));
            assert_eq!(judged.is_ok(), is_right, "{guarantee:?} {answer:?}");
        }
    }

    #[test]
    fn nothing_is_ordered_before_a_read_once_it_was_answered() {
        for (not_before, is_right) in [(39, true), (40, false)] {
            let mut ledger = ledger();
            let answer = position(30, 3);
            let leader = ReadGuarantee::Leader { not_before };
            let judged = ledger.answered(GROUP, (leader, 0), (&answer, 40), Some([7, 1]));
            assert_eq!((judged, ledger.close().is_none()), (Ok(()), is_right));
        }
    }
}
