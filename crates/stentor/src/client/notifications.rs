//! What state machines send to a client's session.
//!
//! # Invariants
//! - Notifications of a group come in the order in which it sent them. What was lost has its place among them.
//! - At most [`MOST`] wait, and at most [`MOST_BYTES`] of theirs. What comes when there is no room is told as missed, once for each group
//!   in a row. So memory is bounded, and nothing is lost unseen.

use std::collections::VecDeque;

use stentor_session::{Notified, ReplyRecord};

use crate::{Group, Position};

/// Notifications that wait, at most.
const MOST: usize = 1024;
/// Bytes of theirs, at most.
const MOST_BYTES: usize = 1 << 20;

/// What a state machine has sent to a session by [`Context::notify`](crate::Context::notify), or that something was lost.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notification {
    /// A group has sent this.
    Sent {
        /// The group.
        group: Group,
        /// The place in the order at which it was sent.
        position: Position,
        /// What was sent.
        bytes: Vec<u8>,
    },
    /// Notifications were lost here: with a connection or a leader, for want of room, or because they were too long. Read again what is
    /// watched: a read from now on, [ordered](crate::Consistency::Ordered) or at the [leader](crate::Consistency::Leader), sees what they told of.
    Missed {
        /// The group.
        group: Group,
        /// How many.
        count: u64,
    },
}

/// Notifications that wait to be taken.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queue: VecDeque<Notification>,
    bytes: usize,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes what came with a record.
    #[cold]
    pub(super) fn take(&mut self, news: Notified, record: &ReplyRecord<'_>) {
        let group = Group(news.group);
        self.miss(group, news.missed);
        if news.is_one {
            let (position, bytes) = (Position::of(group.0, &record.position), record.bytes.to_vec());
            self.push(Notification::Sent { group, position, bytes });
        }
    }

    /// Appends a notification, if there is room.
    pub(crate) fn push(&mut self, notification: Notification) {
        match notification {
            Notification::Missed { group, count } => self.miss(group, count),
            Notification::Sent { group, ref bytes, .. } => {
                let after = self.bytes + bytes.len();
                if self.queue.len() < MOST && after <= MOST_BYTES {
                    self.bytes = after;
                    self.queue.push_back(notification);
                } else {
                    self.miss(group, 1);
                }
            }
        }
    }

    /// Notes that so many are lost, behind all that wait.
    pub(crate) fn miss(&mut self, group: Group, more: u64) {
        for last in self.queue.iter_mut().rev() {
            match last {
                Notification::Missed { group: known, count } if *known == group => {
                    *count = count.saturating_add(more);
                    return;
                }
                Notification::Missed { .. } => {}
                Notification::Sent { .. } => break,
            }
        }
        if more > 0 {
            self.queue.push_back(Notification::Missed { group, count: more });
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Notification> {
        let first = self.queue.pop_front()?;
        if let Notification::Sent { bytes, .. } = &first {
            self.bytes -= bytes.len();
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use stentor_multicast::GroupId;

    use super::*;

    const GROUPS: [Group; 2] = [Group(GroupId(0)), Group(GroupId(1))];

    fn sent(group: Group, bytes: usize) -> Notification {
        let position = Position { time: 0, group, index: 0, applied_in: group, incarnation: 0, heard: 0 };
        Notification::Sent { group, position, bytes: vec![7; bytes] }
    }

    fn missed(group: Group, count: u64) -> Notification {
        Notification::Missed { group, count }
    }

    #[test]
    fn what_finds_no_room_is_told_as_missed_in_its_place() {
        for (most, bytes) in [(MOST, 0), (4, MOST_BYTES / 4)] {
            let mut inbox = Inbox::default();
            (0..most).for_each(|_| inbox.push(sent(GROUPS[0], bytes)));
            for group in [0, 1, 0, 0] {
                inbox.push(sent(GROUPS[group], bytes.max(1)));
            }
            inbox.push(missed(GROUPS[1], 5));
            assert_eq!(inbox.queue.len(), most + 2, "one for each group");
            assert_eq!(inbox.pop(), Some(sent(GROUPS[0], bytes)));
            (1..most).for_each(|_| drop(inbox.pop()));
            inbox.push(sent(GROUPS[1], 1));
            inbox.push(missed(GROUPS[0], 1));
            let rest: Vec<_> = std::iter::from_fn(|| inbox.pop()).collect();
            let expected = [missed(GROUPS[0], 3), missed(GROUPS[1], 6), sent(GROUPS[1], 1), missed(GROUPS[0], 1)];
            assert_eq!((rest.as_slice(), inbox.bytes), (&expected[..], 0));
        }
    }

    #[test]
    fn nothing_missed_is_nothing() {
        let mut inbox = Inbox::default();
        inbox.miss(GROUPS[0], 0);
        assert!(inbox.is_empty());
    }
}
