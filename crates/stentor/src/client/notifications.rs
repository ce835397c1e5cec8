//! The notifications that state machines send to a client's session.
//!
//! # Invariants
//! - Notifications of a group are received in the order in which the group sent them. A [`Notification::Missed`] marks
//!   the place of lost notifications.
//! - At most [`MOST`] notifications with at most [`MOST_BYTES`] are queued. Notifications that arrive when the queue is
//!   full are counted as missed, with one entry per group for adjacent losses. So memory is bounded, and no loss goes
//!   unnoticed.

use std::collections::VecDeque;

use stentor_session::{Notified, ReplyRecord};

use crate::{Group, Position};

/// Maximum number of queued notifications.
const MOST: usize = 1024;
/// Maximum size of the queued notifications, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// A notification that a state machine sent to a session through [`Context::notify`](crate::Context::notify), or a mark
/// that notifications were lost.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notification {
    /// A group sent this notification.
    Sent {
        /// The group that sent the notification.
        group: Group,
        /// The position in the group's order at which the notification was sent.
        position: Position,
        /// The content.
        bytes: Vec<u8>,
    },
    /// Notifications were lost at this place: a connection or a leader failed, the queue was full, or they were too
    /// long. Read the watched data again: an [ordered](crate::Consistency::Ordered) read, or one at the
    /// [leader](crate::Consistency::Leader), sees every change that the lost notifications announced.
    Missed {
        /// The group that sent the lost notifications.
        group: Group,
        /// Number of lost notifications.
        count: u64,
    },
}

/// The queue of notifications that were not received yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queue: VecDeque<Notification>,
    bytes: usize,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Appends the notification in a reply record, and the losses before it.
    #[cold]
    pub(super) fn take(&mut self, news: Notified, record: &ReplyRecord<'_>) {
        let group = Group(news.group);
        self.miss(group, news.missed);
        if news.is_one {
            let (position, bytes) = (Position::of(group.0, &record.position), record.bytes.to_vec());
            self.push(Notification::Sent { group, position, bytes });
        }
    }

    /// Appends a notification. If the queue is full, counts it as missed.
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

    /// Records `more` lost notifications of a group at the end of the queue.
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
    fn overflow_is_counted_as_missed_in_order() {
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
    fn a_count_of_zero_adds_no_entry() {
        let mut inbox = Inbox::default();
        inbox.miss(GROUPS[0], 0);
        assert!(inbox.is_empty());
    }
}
