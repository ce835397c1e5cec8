//! Records that one member sends to clients.
//!
//! # Which member sends a record
//! The leader sends the replies to commands. All members send what is rare: answers about sessions, and answers to commands that came twice.
//! Records that are under way when a connection ends are lost. So a leader sends again every reply that a client has not acknowledged, when
//! the client connects to it and when it begins to lead. Each reply has then been sent on the present connection.
//!
//! # Invariants
//! - Records for one client keep their order: while one waits for room, later ones wait behind it.
//! - At most [`MOST`] records wait for a client. They are dropped when the client connects anew.
//! - A client for which there was no room any more is sent again what it has not acknowledged, once nothing waits: so it hears of the
//!   notifications that were dropped.

use std::collections::VecDeque;

use stentor_fabric::Fabric;
use stentor_multicast::{ClientId, Limits, Member, ReplySent};

use crate::{Delivered, Verdict};

/// Records that wait for one client, at most: more than are under way in any window.
const MOST: usize = 2 * Limits::MAX_WINDOW as usize;

/// A record for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The client that it goes to.
    pub client: ClientId,
    /// Whether every member sends it; otherwise only the leader does.
    pub by_all: bool,
    /// A [`ReplyRecord`](crate::ReplyRecord).
    pub record: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Returns the answer to the client of a message that was delivered.
    #[inline]
    #[must_use]
    pub fn to(client: ClientId, delivered: &Delivered<'a>) -> Self {
        let by_all = !matches!(delivered.verdict, Verdict::Applied | Verdict::Skipped);
        Answer { client, by_all, record: delivered.record }
    }

    /// Returns a record of [`Sessions::replies_of`](crate::Sessions::replies_of), to be sent to a client again.
    #[must_use]
    pub fn again(client: ClientId, record: &'a [u8]) -> Self {
        Answer { client, by_all: true, record }
    }
}

/// The queues of one member's records to clients.
///
/// Call [`send`](Answers::send) with the answers to deliveries, and [`look`](Answers::look) after each [`Member::step`].
#[derive(Debug)]
pub struct Answers {
    /// By client: records for which there was no room.
    waiting: Vec<VecDeque<Box<[u8]>>>,
    /// By client: whether one was dropped.
    dropped: Vec<bool>,
    /// The number of clients for which some wait.
    busy: usize,
    /// Whether this member led at the last look.
    led: bool,
}

impl Answers {
    /// Returns the empty queues of a member, in a cluster with this many client ids.
    #[must_use]
    pub fn new(clients: usize) -> Self {
        let waiting = (0..clients).map(|_| VecDeque::new()).collect();
        Answers { waiting, dropped: vec![false; clients], busy: 0, led: false }
    }

    /// Sends the answers to deliveries, in their order. Those for which there is no room wait.
    #[inline]
    pub fn send<'a, F: Fabric>(&mut self, member: &mut Member<F>, replies: impl IntoIterator<Item = Answer<'a>>) {
        let leads = member.replica().is_leader();
        for Answer { client, by_all, record } in replies {
            if !(leads || by_all) {
                continue;
            }
            let Some(waiting) = self.waiting.get_mut(usize::from(client.0)) else { continue };
            if waiting.is_empty() && member.reply(client, &[record]) != ReplySent::Full {
                continue;
            }
            self.busy += usize::from(waiting.is_empty());
            if waiting.len() < MOST {
                waiting.push_back(record.into());
            } else {
                self.dropped[usize::from(client.0)] = true;
            }
        }
    }

    /// Sends what waits, after each step of the member. Calls `say_again` for each client that is to be sent again every reply that it has not
    /// acknowledged: those records go to [`send`](Answers::send). Returns whether there was anything to do.
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
        if self.busy == 0 { 0 } else { self.waiting.iter().map(VecDeque::len).sum() }
    }

    fn forget(&mut self, client: ClientId) {
        let Some(waiting) = self.waiting.get_mut(usize::from(client.0)) else { return };
        self.busy -= usize::from(!waiting.is_empty());
        waiting.clear();
        self.dropped[usize::from(client.0)] = false;
    }

    #[cold]
    fn send_waiting<F: Fabric>(
        &mut self,
        member: &mut Member<F>,
        leads: bool,
        mut say_again: impl FnMut(ClientId),
    ) -> bool {
        let mut sent = false;
        for ((client, waiting), dropped) in (0..).map(ClientId).zip(&mut self.waiting).zip(&mut self.dropped) {
            let before = waiting.len();
            while let Some(record) = waiting.front()
                && member.reply(client, &[record]) != ReplySent::Full
            {
                waiting.pop_front();
            }
            self.busy -= usize::from(before > 0 && waiting.is_empty());
            sent |= waiting.len() != before;
            if waiting.is_empty() && std::mem::take(dropped) && leads {
                say_again(client);
            }
        }
        sent
    }
}
