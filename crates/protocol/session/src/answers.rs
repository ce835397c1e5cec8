//! Records that one member sends to clients.
//!
//! # Which member sends a record
//! The leader sends the replies to commands. All members send rare records: answers about sessions, and answers to
//! refused and repeated commands. Records that are in flight when a connection ends are lost. A leader therefore sends
//! again every reply that a client has not acknowledged, when the client connects to it and when it begins to lead.
//! Each unacknowledged reply has therefore been sent on the present connection.
//!
//! # Invariants
//! - Records for one client keep their order: while one waits for room, later ones wait after it.
//! - At most [`MOST`] records wait for a client, which is more than any window holds. They are dropped when the client
//!   connects again.
//! - A notification is dropped if [`MOST_BYTES`] or more already wait for the client, because a machine may send any
//!   number of notifications, and a client may be stopped.
//! - If records for a client were dropped for lack of room, the leader sends all unacknowledged replies to it again,
//!   once no record waits. The client thus learns of the notifications that were dropped.

use std::collections::VecDeque;

use stentor_fabric::Fabric;
use stentor_multicast::{ClientId, Limits, Member, RecordSent};

use crate::{Delivered, Verdict};

/// Largest number of records that wait for one client. It exceeds the number in flight in any window.
const MOST: usize = 2 * Limits::MAX_WINDOW as usize;
/// Number of bytes waiting for one client at which further notifications to it are dropped.
const MOST_BYTES: usize = 1 << 20;

/// A record for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The client that receives the record.
    pub client: ClientId,
    /// `true` if every member sends the record. Otherwise only the leader does.
    pub by_all: bool,
    /// `true` if the record is a notification, which is dropped if many bytes wait for the client.
    pub is_notification: bool,
    /// A serialized [`ReplyRecord`](crate::ReplyRecord).
    pub record: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Returns the answer to the client of a message that was delivered.
    #[inline]
    #[must_use]
    pub fn to(client: ClientId, delivered: &Delivered<'a>) -> Self {
        let by_all = !matches!(delivered.verdict, Verdict::Applied | Verdict::Skipped);
        Answer { client, by_all, is_notification: false, record: delivered.record }
    }

    /// Returns a record of [`Sessions::replies_of`](crate::Sessions::replies_of), to be sent to a client again.
    #[must_use]
    pub fn again(client: ClientId, record: &'a [u8]) -> Self {
        Answer { client, by_all: true, is_notification: false, record }
    }
}

/// Records for one client that wait for room.
#[derive(Debug, Default)]
struct Waiting {
    records: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// `true` if a record was dropped.
    dropped: bool,
}

impl Waiting {
    fn push(&mut self, record: &[u8], is_notification: bool) {
        let is_full = self.records.len() >= MOST || is_notification && self.bytes >= MOST_BYTES;
        if is_full {
            self.dropped = true;
        } else {
            self.bytes += record.len();
            self.records.push_back(record.into());
        }
    }

    fn pop(&mut self) {
        self.bytes -= self.records.pop_front().map_or(0, |record| record.len());
    }
}

/// The queues of one member's records to clients.
///
/// Call [`send`](Answers::send) with the answers to deliveries, and [`look`](Answers::look) after each
/// [`Member::step`].
#[derive(Debug)]
pub struct Answers {
    /// Waiting records of each client.
    waiting: Vec<Waiting>,
    /// Number of clients with waiting records.
    busy: usize,
    /// `true` if this member led at the last call of [`look`](Answers::look).
    led: bool,
}

impl Answers {
    /// Returns the empty queues of a member, in a cluster with this many client ids.
    #[must_use]
    pub fn new(clients: usize) -> Self {
        Answers { waiting: (0..clients).map(|_| Waiting::default()).collect(), busy: 0, led: false }
    }

    /// Sends the answers to deliveries in their order. Answers without room wait.
    #[inline]
    pub fn send<'a, F: Fabric>(&mut self, member: &mut Member<F>, replies: impl IntoIterator<Item = Answer<'a>>) {
        let leads = member.replica().is_leader();
        for Answer { client, by_all, is_notification, record } in replies {
            if !(leads || by_all) {
                continue;
            }
            let Some(waiting) = self.waiting.get_mut(usize::from(client.0)) else { continue };
            if waiting.records.is_empty() && member.reply(client, &[record]) != RecordSent::Full {
                continue;
            }
            let was_empty = waiting.records.is_empty();
            waiting.push(record, is_notification);
            self.busy += usize::from(was_empty && !waiting.records.is_empty());
        }
    }

    /// Sends waiting records; called after each step of the member. Calls `say_again` for each client that must be sent
    /// again every reply that it has not acknowledged; the caller passes those records to [`send`](Answers::send).
    /// Returns whether there was any work.
    #[inline]
    pub fn look<F: Fabric>(&mut self, member: &mut Member<F>, mut say_again: impl FnMut(ClientId)) -> bool {
        let leads = member.replica().is_leader();
        let mut worked = self.busy > 0 && self.send_waiting(member, leads, &mut say_again);
        while let Some(client) = member.take_met_client() {
            self.forget(client);
            if leads {
                say_again(client);
                worked = true;
            }
        }
        if leads != self.led {
            self.led = leads;
            for client in (0..self.waiting.len() as u16).map(ClientId) {
                if leads && member.is_connected_to_client(client) {
                    say_again(client);
                    worked = true;
                }
            }
        }
        worked
    }

    /// Returns the number of records that wait for room in their client's ring.
    #[must_use]
    pub fn waiting(&self) -> usize {
        if self.busy == 0 { 0 } else { self.waiting.iter().map(|waiting| waiting.records.len()).sum() }
    }

    fn forget(&mut self, client: ClientId) {
        let Some(waiting) = self.waiting.get_mut(usize::from(client.0)) else { return };
        self.busy -= usize::from(!waiting.records.is_empty());
        *waiting = Waiting::default();
    }

    #[cold]
    fn send_waiting<F: Fabric>(
        &mut self,
        member: &mut Member<F>,
        leads: bool,
        mut say_again: impl FnMut(ClientId),
    ) -> bool {
        let mut sent = false;
        for (client, waiting) in (0..).map(ClientId).zip(&mut self.waiting) {
            let before = waiting.records.len();
            while let Some(record) = waiting.records.front()
                && member.reply(client, &[record]) != RecordSent::Full
            {
                waiting.pop();
            }
            let is_empty = waiting.records.is_empty();
            self.busy -= usize::from(before > 0 && is_empty);
            sent |= waiting.records.len() != before;
            if is_empty && std::mem::take(&mut waiting.dropped) && leads {
                say_again(client);
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_dropped_when_too_many_bytes_wait() {
        let (mut waiting, record) = (Waiting::default(), [7; 1 << 16]);
        (0..20).for_each(|_| waiting.push(&record, true));
        assert_eq!((waiting.records.len(), waiting.bytes, waiting.dropped), (16, MOST_BYTES, true));
        waiting.push(&record, false);
        assert_eq!(waiting.records.len(), 17, "a reply waits in any case");
        (0..2).for_each(|_| waiting.pop());
        waiting.push(&record, true);
        assert_eq!((waiting.records.len(), waiting.bytes), (16, MOST_BYTES));
    }

    #[test]
    fn number_of_waiting_records_is_bounded() {
        let mut waiting = Waiting::default();
        (0..=MOST).for_each(|_| waiting.push(&[], false));
        assert_eq!((waiting.records.len(), waiting.dropped), (MOST, true));
    }
}
