//! The members that answered this client as leaders of their groups.
//!
//! # Which records count
//! Only a member that leads, or does not know yet that it no longer leads, sends the reply to a command, a
//! notification, or the answer to a read at the leader. All members answer questions about commands, and messages of
//! the session.

use std::sync::atomic::{AtomicU32, Ordering};

use stentor_fabric::ProcessId;
use stentor_multicast::GroupId;
use stentor_session::{Kind, Outcome, ReplyRecord};

/// For each group, the member whose last record showed that it leads. One thread notes, and any thread may read.
#[derive(Debug)]
pub(super) struct Leaders(Box<[AtomicU32]>);

impl Leaders {
    pub(super) fn new(groups: usize) -> Self {
        Leaders((0..groups).map(|_| AtomicU32::new(0)).collect())
    }

    /// Notes the sender of a record that answers a command or is a notification, if it shows that its sender leads.
    #[inline]
    pub(super) fn note_record(&self, group: GroupId, member: ProcessId, record: &ReplyRecord<'_>) {
        let of_leader =
            matches!(record.outcome, Outcome::Applied | Outcome::Overflow | Outcome::Skipped | Outcome::Notification);
        if of_leader && matches!(record.answers, Kind::Command | Kind::Query) {
            self.note(group, member);
        }
    }

    /// Notes a member that leads its group.
    #[inline]
    pub(super) fn note(&self, group: GroupId, member: ProcessId) {
        let Some(known) = self.0.get(usize::from(group.0)) else { return };
        let word = u32::from(member.0) + 1;
        // A store takes the cache line from the threads that read it, and the leader changes rarely.
        if known.load(Ordering::Relaxed) != word {
            known.store(word, Ordering::Relaxed);
        }
    }

    /// Returns the member of a group that was noted last.
    pub(super) fn of(&self, group: GroupId) -> Option<ProcessId> {
        let word = self.0.get(usize::from(group.0))?.load(Ordering::Relaxed);
        word.checked_sub(1).map(|process| ProcessId(process as u16))
    }
}

#[cfg(test)]
mod tests {
    use stentor_session::{Position, SessionId};

    use super::*;

    #[test]
    fn only_records_that_leaders_send_name_a_leader() {
        let leaders = Leaders::new(2);
        let (group, other) = (GroupId(1), GroupId(0));
        let note = |member, answers, outcome| {
            let record = ReplyRecord {
                session: SessionId(1),
                answers,
                outcome,
                generation: 1,
                request: 1,
                position: Position::default(),
                applied: 0,
                end: 0,
                bytes: &[],
            };
            leaders.note_record(group, ProcessId(member), &record);
            leaders.of(group).map(|process| process.0)
        };
        // All members answer messages of the session, and questions.
        for kind in [Kind::Open, Kind::Renew, Kind::Widen, Kind::TakeUp, Kind::End, Kind::Resolve] {
            assert_eq!(note(4, kind, Outcome::Applied), None, "{kind:?}");
        }
        for outcome in [Outcome::Closed, Outcome::Forgotten, Outcome::SessionNotOpen, Outcome::Notified] {
            assert_eq!(note(4, Kind::Command, outcome), None, "{outcome:?}");
        }
        for (member, outcome) in
            (0..).zip([Outcome::Applied, Outcome::Overflow, Outcome::Skipped, Outcome::Notification])
        {
            assert_eq!(note(member, Kind::Command, outcome), Some(member), "{outcome:?}");
        }
        assert_eq!(note(5, Kind::Resolve, Outcome::Applied), Some(3), "any member may answer that");
        assert_eq!(leaders.of(other), None);
        leaders.note(GroupId(7), ProcessId(0));
        assert_eq!(leaders.of(GroupId(7)), None, "a group of another cluster");
    }
}
