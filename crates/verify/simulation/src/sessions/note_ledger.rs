//! The judge of notifications.
//!
//! The machines of a group send the same notifications at the same position. Each session receives a notification to it
//! with the same bytes and position, or a report that the notification was lost. A session receives its notifications
//! in the order in which they were sent, and each once. By the end of a run, each open session whose client has no more
//! calls has learnt of all notifications to it.

use std::collections::BTreeMap;

use stentor_fabric::ProcessId;
use stentor_multicast::GroupId;
use stentor_session::SessionId;

use super::told::News;

/// A position in one group's order: the number of a delivery.
type Place = (GroupId, u64);

/// The notifications of a machine at one position, in order: the session and the bytes.
pub type Notes = Vec<(SessionId, Vec<u8>)>;

/// A series of notifications that are counted together: those of a group to a session in one generation. The session
/// has been open in the group since the time `since`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Count {
    pub(super) session: SessionId,
    pub(super) group: GroupId,
    pub(super) generation: u32,
    pub(super) since: u64,
}

/// The state of the judge of notifications.
#[derive(Debug, Default)]
pub(super) struct NoteLedger {
    /// For each position with notifications: those of the first machine that passed the position, and the member of
    /// this machine.
    at: BTreeMap<Place, (Notes, ProcessId)>,
    /// The notifications of each series: the number of the position, and the bytes.
    sent: BTreeMap<Count, Vec<(u64, Vec<u8>)>>,
    /// Number of notifications of a series that a process has learnt of, by series and process. An earlier process may
    /// have taken up the session in one group only. Its series there has the generation that the next process also
    /// gets, so both processes may learn of the same notifications.
    heard: BTreeMap<(Count, u64), usize>,
    /// The current series of each session and group.
    open: BTreeMap<(SessionId, GroupId), Count>,
}

impl NoteLedger {
    /// Compares the notifications that a member's machine sent at a position. `is_first` is `true` if no other member
    /// has applied the delivery there.
    pub(super) fn sent(&mut self, place: Place, me: ProcessId, notes: Notes, is_first: bool) -> Result<(), String> {
        if is_first {
            if !notes.is_empty() {
                self.at.insert(place, (notes, me));
            }
            return Ok(());
        }
        let first = self.at.get(&place);
        if first.map_or(&[][..], |(first, _)| first) == notes {
            return Ok(());
        }
        let ((group, number), mine) = (place, in_words(&notes));
        let (other, others) =
            first.map_or(("another member".to_owned(), in_words(&[])), |(notes, by)| (by.to_string(), in_words(notes)));
        Err(format!("group {} notifies at {number} of {mine} at {me}, and of {others} at {other}", group.0))
    }

    /// Records that an open session must learn of a notification.
    pub(super) fn counts(&mut self, count: Count, number: u64, bytes: &[u8]) {
        self.sent.entry(count).or_default().push((number, bytes.to_vec()));
        self.open.insert((count.session, count.group), count);
    }

    /// Records that a session has ended in a group, so it receives no further notifications there.
    pub(super) fn ended(&mut self, group: GroupId, session: SessionId) {
        self.open.remove(&(session, group));
    }

    /// Judges the notifications that a client process received.
    pub(super) fn heard(&mut self, count: Count, process: u64, news: &News) -> Result<(), String> {
        let sent = self.sent.get(&count).map_or(&[][..], |sent| sent);
        let heard = self.heard.entry((count, process)).or_default();
        *heard += news.missed as usize + usize::from(news.one.is_some());
        let Count { session, group, .. } = count;
        let who = format!("session {:08x} received {heard} notifications of group {}", session.0 >> 96, group.0);
        if *heard > sent.len() {
            return Err(format!("{who}, which has sent {}", sent.len()));
        }
        let Some((position, bytes)) = &news.one else { return Ok(()) };
        let (number, right) = &sent[*heard - 1];
        if (*number, &right[..]) == (position.index, &bytes[..]) {
            return Ok(());
        }
        let (got, right, at) = (bytes.escape_ascii(), right.escape_ascii(), position.index);
        Err(format!("{who}, and the last one says \"{got}\" at {at}: the machine has sent \"{right}\" at {number}"))
    }

    /// Describes notifications that the process must receive for the session in this generation and has not, or returns
    /// `None`.
    pub(super) fn unheard(&self, session: SessionId, generation: u32, process: u64) -> Option<String> {
        let of_session = self.open.range((session, GroupId(0))..=(session, GroupId(u16::MAX)));
        let mut counts = of_session.map(|(_, count)| count).filter(|count| count.generation == generation);
        counts.find_map(|count| {
            let (sent, heard) =
                (self.sent[count].len(), self.heard.get(&(*count, process)).copied().unwrap_or_default());
            let (name, group) = (session.0 >> 96, count.group.0);
            (heard < sent).then(|| {
                format!("session {name:08x} has received {heard} notifications of group {group}, which has sent {sent}")
            })
        })
    }

    /// Returns the notifications of machines, by position.
    pub(super) fn into_notes(self) -> BTreeMap<Place, Notes> {
        self.at.into_iter().map(|(place, (notes, _))| (place, notes)).collect()
    }
}

fn in_words(notes: &[(SessionId, Vec<u8>)]) -> String {
    let one = |(session, bytes): &(SessionId, Vec<u8>)| {
        format!("session {:08x} by \"{}\"", session.0 >> 96, bytes[..bytes.len().min(60)].escape_ascii())
    };
    if notes.is_empty() { "nobody".to_owned() } else { notes.iter().map(one).collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests {
    use stentor_multicast::Incarnation;
    use stentor_multicast::Timestamp;
    use stentor_session::Position;

    use super::*;

    const COUNT: Count = Count { session: SessionId(7 << 96), group: GroupId(0), generation: 1, since: 5 };

    fn one(missed: u64, index: u64, bytes: &[u8]) -> News {
        let timestamp = Timestamp { time: 10 * index, group: 0 };
        let position = Position { timestamp, index, incarnation: Incarnation::FIRST };
        News { group: GroupId(0), missed, one: Some((position, bytes.to_vec())) }
    }

    fn ledger() -> NoteLedger {
        let mut ledger = NoteLedger::default();
        ledger.counts(COUNT, 3, b"a");
        ledger.counts(COUNT, 3, b"b");
        ledger.counts(COUNT, 8, b"a");
        ledger
    }

    #[test]
    fn each_notification_is_received_once_and_in_order_or_reported_as_lost() {
        let none = News { one: None, ..one(2, 0, b"") };
        for (news, is_right) in [
            (vec![one(0, 3, b"a"), one(0, 3, b"b"), one(0, 8, b"a")], true),
            (vec![one(2, 8, b"a")], true),
            (vec![one(0, 3, b"a"), none.clone()], true),
            (vec![none.clone(), none], false),
            (vec![one(0, 3, b"a"), one(0, 3, b"a")], false),
            (vec![one(0, 3, b"b")], false),
            (vec![one(0, 8, b"a")], false),
            (vec![one(1, 3, b"b"), one(0, 8, b"a"), one(0, 8, b"a")], false),
        ] {
            let mut ledger = ledger();
            let judged: Result<Vec<()>, _> = news.iter().map(|news| ledger.heard(COUNT, 1, news)).collect();
            assert_eq!(judged.is_ok(), is_right, "{news:?}: {judged:?}");
        }
    }

    #[test]
    fn missing_notifications_are_known_while_the_session_is_open() {
        let mut ledger = ledger();
        assert!(ledger.heard(COUNT, 1, &one(0, 3, b"a")).is_ok());
        assert!(ledger.unheard(COUNT.session, 1, 1).is_some_and(|text| text.contains("received 1 ")));
        assert_eq!(ledger.unheard(COUNT.session, 2, 1), None);
        ledger.ended(GroupId(0), COUNT.session);
        assert_eq!(ledger.unheard(COUNT.session, 1, 1), None);
    }

    #[test]
    fn machines_with_different_notifications_are_reported() {
        let (mut ledger, place) = (NoteLedger::default(), (GroupId(0), 3));
        let notes = |bytes: &[u8]| vec![(COUNT.session, bytes.to_vec())];
        assert_eq!(ledger.sent(place, ProcessId(0), notes(b"a"), true), Ok(()));
        assert_eq!(ledger.sent(place, ProcessId(1), notes(b"a"), false), Ok(()));
        for other in [notes(b"b"), Vec::new(), [notes(b"a"), notes(b"a")].concat()] {
            assert!(ledger.sent(place, ProcessId(1), other, false).is_err());
        }
        assert!(ledger.sent((GroupId(0), 4), ProcessId(1), notes(b"a"), false).is_err());
    }
}
