//! What a node has to say to clients.
//!
//! # Who says what
//! The reply to a command is said by the member that leads. What is rare is said by all members: answers about sessions, and answers to
//! commands that came twice. A reply that is lost is said again: when a client connects to the member that leads, and when a member begins
//! to lead, it says again all that the client has not acknowledged. So whoever leads has said each reply on the present connection.
//!
//! # Invariants
//! - Records for one client keep their order: while one waits for room, later ones wait behind it.
//! - What waits for a client is dropped when its connection ends, and is at most [`MOST`] records.

use std::collections::VecDeque;

use stentor_fabric::Fabric;
use stentor_multicast::{ClientId, Member, ReplySent};

use super::apply::{Answer, Replies};
use super::machine::Machine;
use crate::state_machine::StateMachine;

/// Records that wait for one client, at most: more than are under way in any window.
const MOST: usize = 2 * stentor_multicast::Limits::MAX_WINDOW as usize;

/// What is on its way to clients.
#[derive(Debug)]
pub(super) struct Answers {
    /// By client: records for which there was no room.
    waiting: Vec<VecDeque<Box<[u8]>>>,
    /// Clients for which some wait.
    busy: usize,
    /// Whether this member led at the last look.
    led: bool,
}

impl Answers {
    pub(super) fn new(clients: usize) -> Self {
        Answers { waiting: (0..clients).map(|_| VecDeque::new()).collect(), busy: 0, led: false }
    }

    /// Says what came from the apply side.
    #[inline]
    pub(super) fn send<F: Fabric>(&mut self, member: &mut Member<F>, replies: Replies<'_>) {
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
            }
        }
    }

    /// Says what waits, and what is to be said again; after each round of the protocol. Returns whether there was anything.
    #[inline]
    pub(super) fn look<F: Fabric, S: StateMachine>(
        &mut self,
        member: &mut Member<F>,
        machine: &mut Machine<S>,
    ) -> bool {
        let mut worked = self.busy > 0 && self.send_waiting(member);
        let leads = member.replica().is_leader();
        while let Some(client) = member.take_met_client() {
            self.forget(client);
            if leads {
                machine.say_again(client);
                worked = true;
            }
        }
        if leads != self.led {
            self.led = leads;
            for client in (0..self.waiting.len() as u16).map(ClientId) {
                if leads && member.is_connected_to_client(client) {
                    machine.say_again(client);
                    worked = true;
                }
            }
        }
        worked
    }

    fn forget(&mut self, client: ClientId) {
        let waiting = &mut self.waiting[usize::from(client.0)];
        self.busy -= usize::from(!waiting.is_empty());
        waiting.clear();
    }

    #[cold]
    fn send_waiting<F: Fabric>(&mut self, member: &mut Member<F>) -> bool {
        let mut sent = false;
        for (client, waiting) in (0..).map(ClientId).zip(&mut self.waiting) {
            let before = waiting.len();
            while let Some(record) = waiting.front()
                && member.reply(client, &[record]) != ReplySent::Full
            {
                waiting.pop_front();
            }
            self.busy -= usize::from(before > 0 && waiting.is_empty());
            sent |= waiting.len() != before;
        }
        sent
    }
}
