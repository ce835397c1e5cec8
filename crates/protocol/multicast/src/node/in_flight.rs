//! A client's messages that are not known to be freed by a majority of each destination group.
//!
//! A client keeps two such sets: messages not known to be delivered, and messages not known to be held (synced). In the
//! second set, *freed* means held by a majority of the group.

use std::collections::VecDeque;

use crate::{Destination, GroupId};

/// The messages that a client waits for. At each group, at most a window of messages is not known to be delivered,
/// however far the client is ahead at other groups.
#[derive(Debug)]
pub(super) struct InFlight {
    groups: Vec<Waiting>,
    /// Indexed by entry: number of groups that have not freed the message.
    left: Vec<u16>,
    unused: Vec<u32>,
    last: u64,
}

/// The messages that one group has not freed, the oldest first.
#[derive(Debug, Default)]
struct Waiting {
    /// Slot, sequence and entry of each message.
    messages: VecDeque<(u64, u64, u32)>,
}

impl InFlight {
    /// Bytes of a message at one group: its element in the group's queue, its element in `left`, and one in `unused`.
    pub(super) const MESSAGE_BYTES: u64 = (size_of::<(u64, u64, u32)>() + size_of::<u16>() + size_of::<u32>()) as u64;

    pub(super) fn new(groups: usize) -> Self {
        let groups = (0..groups).map(|_| Waiting::default()).collect();
        InFlight { groups, left: Vec::new(), unused: Vec::new(), last: 0 }
    }

    #[inline]
    pub(super) fn submitted(&mut self, sequence: u64, to: &[Destination]) {
        self.last = sequence;
        let entry = self.unused.pop().unwrap_or_else(|| {
            self.left.push(0);
            self.left.len() as u32 - 1
        });
        self.left[entry as usize] = to.len() as u16;
        for to in to {
            self.groups[usize::from(to.group.0)].messages.push_back((to.slot, sequence, entry));
        }
    }

    /// Returns the first slot whose message the group has not freed.
    #[inline]
    pub(super) fn oldest(&self, group: GroupId) -> Option<u64> {
        self.groups[usize::from(group.0)].messages.front().map(|(slot, ..)| *slot)
    }

    /// Removes the slots below `slots`, which a majority of the group has freed.
    #[inline]
    pub(super) fn freed(&mut self, group: GroupId, slots: u64) {
        let group = &mut self.groups[usize::from(group.0)];
        while group.messages.front().is_some_and(|(slot, ..)| *slot < slots)
            && let Some((.., entry)) = group.messages.pop_front()
        {
            let left = &mut self.left[entry as usize];
            *left -= 1;
            if *left == 0 {
                self.unused.push(entry);
            }
        }
    }

    /// Returns the number of messages that some group has not freed.
    pub(super) fn messages(&self) -> usize {
        self.left.len() - self.unused.len()
    }

    /// Returns the largest sequence up to which all messages are freed by all their groups.
    pub(super) fn delivered_up_to(&self) -> u64 {
        let oldest =
            self.groups.iter().filter_map(|group| group.messages.front()).map(|(_, sequence, _)| *sequence).min();
        oldest.map_or(self.last, |oldest| oldest - 1)
    }

    /// Returns whether the message with this sequence is freed by `to`, which are its destinations.
    pub(super) fn is_delivered(&self, sequence: u64, to: &[GroupId]) -> bool {
        let is_freed = |group: &GroupId| {
            let group = self.groups.get(usize::from(group.0));
            group.is_some_and(|group| group.messages.front().is_none_or(|(_, oldest, _)| *oldest > sequence))
        };
        sequence <= self.last && to.iter().all(is_freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(slots: &[(u16, u64)]) -> Vec<Destination> {
        slots.iter().map(|(group, slot)| Destination { group: GroupId(*group), slot: *slot }).collect()
    }

    #[test]
    fn a_message_is_awaited_until_its_last_group_has_freed_it() {
        let mut in_flight = InFlight::new(2);
        assert_eq!((in_flight.messages(), in_flight.delivered_up_to()), (0, 0));
        in_flight.submitted(5, &to(&[(0, 7), (1, 3)]));
        in_flight.submitted(6, &to(&[(1, 4)]));
        in_flight.freed(GroupId(1), 5);
        assert_eq!((in_flight.messages(), in_flight.delivered_up_to()), (1, 4));
        in_flight.freed(GroupId(0), 7);
        assert_eq!(in_flight.messages(), 1);
        in_flight.freed(GroupId(0), 8);
        assert_eq!((in_flight.messages(), in_flight.delivered_up_to()), (0, 6));
    }

    #[test]
    fn freed_messages_use_no_memory_while_another_group_is_stuck() {
        let mut in_flight = InFlight::new(2);
        in_flight.submitted(1, &to(&[(0, 0)]));
        for n in 0..1000 {
            in_flight.submitted(2 + n, &to(&[(1, n)]));
            in_flight.freed(GroupId(1), n + 1);
        }
        assert_eq!((in_flight.messages(), in_flight.delivered_up_to(), in_flight.left.len()), (1, 0, 2));
    }

    #[test]
    fn message_is_delivered_although_another_group_is_stuck() {
        let mut in_flight = InFlight::new(2);
        in_flight.submitted(1, &to(&[(0, 0)]));
        in_flight.submitted(2, &to(&[(1, 0)]));
        in_flight.submitted(3, &to(&[(0, 1), (1, 1)]));
        in_flight.freed(GroupId(1), 2);
        assert_eq!(in_flight.delivered_up_to(), 0, "group 0 answers nothing");
        let [zero, one] = [GroupId(0), GroupId(1)];
        assert!(in_flight.is_delivered(2, &[one]));
        assert!(!in_flight.is_delivered(1, &[zero]) && !in_flight.is_delivered(3, &[zero, one]));
        assert!(!in_flight.is_delivered(4, &[one]) && !in_flight.is_delivered(2, &[GroupId(2)]), "none was submitted");
    }
}
