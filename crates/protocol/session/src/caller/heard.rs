//! Numbers of the notifications that a caller has received or knows to be lost.

use stentor_multicast::{GroupId, Incarnation};

use crate::{Outcome, ReplyRecord};

/// New information about the notifications of one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notified {
    /// Group that sent the notifications.
    pub group: GroupId,
    /// Number of notifications that were lost since the last report.
    pub missed: u64,
    /// `true` if the record itself holds a notification. It is later than the lost notifications.
    pub is_one: bool,
}

/// Number of notifications, for each group, that were received or are known to be lost.
///
/// A group numbers notifications from 1 in each generation of the session. The numbering restarts if the session has
/// expired in the group and is widened into it again, and in each incarnation of the group. Each such numbering is a
/// [`Count`] of its own. A record is old, and is ignored, if its number is not above the known one, or if it belongs to
/// an earlier count than a record that has already arrived.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Heard(Vec<(GroupId, Count)>);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Count {
    incarnation: Incarnation,
    /// Time since which the session is open in the group.
    since: u64,
    number: u64,
}

impl Count {
    fn is_before(&self, other: &Count) -> bool {
        (self.incarnation.number, self.since) < (other.incarnation.number, other.since)
    }
}

impl Heard {
    /// Processes a record of the caller's session and generation. Returns what the record adds to the known numbers, if
    /// anything.
    pub(super) fn take(&mut self, group: GroupId, record: &ReplyRecord<'_>) -> Option<Notified> {
        let told = Count { incarnation: record.position.incarnation, since: record.end, number: record.request };
        let at = self.0.iter().position(|(known, _)| *known == group).unwrap_or_else(|| {
            self.0.push((group, Count { number: 0, ..told }));
            self.0.len() - 1
        });
        let known = &mut self.0[at].1;
        if told.is_before(known) {
            return None;
        }
        if (known.incarnation, known.since) != (told.incarnation, told.since) {
            known.number = 0;
        }
        let new = told.number.checked_sub(known.number).filter(|new| *new > 0)?;
        *known = told;
        let is_one = record.outcome == Outcome::Notification;
        Some(Notified { group, missed: new - u64::from(is_one), is_one })
    }

    /// Resets the numbers because another generation begins.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
