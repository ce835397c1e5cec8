//! Gives up clients that are away, so that a message that a client left half-written does not block its groups for
//! ever, even if no other process takes over its client id.
//!
//! # When a client is given up
//! A client is *away* from a member while the two have not exchanged hellos over a link that is up. A member that waits
//! for a client writes to it, and thereby learns whether the link is up.
//!
//! - A client that is not away and still leaves a gap open for the timeout is stalled, or has lost the bytes that it
//!   had to write. The member then ends the connection. A running client reconnects and writes the missing messages. If
//!   the connected process came later, it has not left the gap; the process that left the gap is away.
//! - A client is *given up* if the process that left the gap is away for the timeout, and for the same time the leader
//!   has seen one gap before a message that is held. The leader gives the client up. So does each member that the
//!   leader asks for the message in the gap, if the client is away from that member for the timeout, too. Afterwards
//!   they accept no messages of its generation.
//!
//! # Invariants
//! - A client that was given up, or whose generation is closed (`no_op.rs`), is refused: if it has begun to multicast,
//!   a member answers its hello with the notice that it is superseded. The client gets no credit, because it would
//!   count a no-op as a delivery.
//! - A client is given up only if it is away while a held message waits for its gap. A client that is silent, or away
//!   for hours with nothing half-written, is not given up. A client whose gap other members fill is not given up,
//!   either: a client that is cut off only from the leader proceeds with the other members, and the messages that they
//!   forward arrive in any order.
//! - Each member measures by itself how long a client is away, starting with the member's first check. So a member that
//!   restarts without memory waits for the full timeout again.

use std::time::Duration;

use stentor_fabric::Fabric;

use super::Member;
use crate::ClientId;
use crate::node::hello::{HelloKind, Start};

/// Default time for which a client is away before it is given up; see
/// [`set_client_timeout`](Member::set_client_timeout).
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The times since which clients are away.
#[derive(Debug)]
pub(super) struct Absence {
    timeout: Duration,
    /// Time of the last check.
    now: Duration,
    /// Time since which each client is away, indexed by client; `None` if the client was connected at the last check.
    /// Empty before the first check.
    since: Vec<Option<Duration>>,
    /// The slot of the gap that each client left, and the time since which the gap exists, indexed by client. Used only
    /// by a leader.
    gaps: Vec<Option<(u64, Duration)>>,
    /// Indexed by client: the times of the leader's first and last question about a gap.
    asked: Vec<Option<(Duration, Duration)>>,
}

impl Default for Absence {
    fn default() -> Self {
        Absence { timeout: CLIENT_TIMEOUT, now: Duration::ZERO, since: Vec::new(), gaps: Vec::new(), asked: Vec::new() }
    }
}

impl Absence {
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Starts a check of `clients` clients.
    fn look(&mut self, now: Duration, clients: usize) {
        self.now = now;
        self.since.resize(clients, None);
        self.gaps.resize(clients, None);
        self.asked.resize(clients, None);
    }

    fn note_gap(&mut self, client: ClientId, slot: Option<u64>) {
        let gap = &mut self.gaps[usize::from(client.0)];
        if gap.map(|(slot, _)| slot) != slot {
            *gap = slot.map(|slot| (slot, self.now));
        }
    }

    fn is_long(&self, since: Option<Duration>) -> bool {
        since.is_some_and(|since| self.now.saturating_sub(since) >= self.timeout)
    }

    fn is_over(&self, client: ClientId) -> bool {
        self.is_long(self.since.get(usize::from(client.0)).copied().flatten())
    }

    /// Notes that the leader asks about a client's gap. Returns whether it has asked for the whole timeout.
    fn note_asked(&mut self, client: ClientId) -> bool {
        let Some(asked) = self.asked.get_mut(usize::from(client.0)) else { return false };
        let (first, last) = asked.unwrap_or((self.now, self.now));
        let goes_on = self.now.saturating_sub(last) < self.timeout;
        let first = if goes_on { first } else { self.now };
        *asked = Some((first, self.now));
        self.is_long(Some(first))
    }

    /// Restarts the time for which the leader has asked about a client's gap.
    fn forget_asked(&mut self, client: ClientId) {
        if let Some(asked) = self.asked.get_mut(usize::from(client.0)) {
            *asked = None;
        }
    }

    /// Restarts the timeout of a client's gap.
    fn restart_gap(&mut self, client: ClientId) {
        if let Some(Some((_, since))) = self.gaps.get_mut(usize::from(client.0)) {
            *since = self.now;
        }
    }

    /// Returns whether other messages have waited on one gap of a client for the whole timeout.
    fn is_awaited(&self, client: ClientId) -> bool {
        self.is_long(self.gaps[usize::from(client.0)].map(|(_, since)| since))
    }
}

impl<F: Fabric> Member<F> {
    /// Checks which clients are away. A leader also handles each client that left a gap on which other messages have
    /// waited for the timeout: a client that is away for the timeout is given up, and for a connected one the wait ends
    /// (`end_wait`).
    pub(super) fn note_absent(&mut self, now: Duration) {
        self.recovery.absence.look(now, self.bodies.len());
        for client in (0..self.bodies.len() as u16).map(ClientId) {
            let at = usize::from(client.0);
            let gap = self.replica.gap_left_by(client);
            self.recovery.absence.note_gap(client, gap.map(|(slot, _)| slot));
            if self.links[self.bodies[at].ring.credit.link].is_met() {
                self.recovery.absence.since[at] = None;
                match gap {
                    Some((_, generation)) if self.recovery.absence.is_awaited(client) => {
                        self.recovery.absence.restart_gap(client);
                        self.end_wait(client, generation);
                    }
                    Some(_) => self.call(client),
                    None => {}
                }
                continue;
            }
            self.recovery.absence.since[at].get_or_insert(now);
            let absence = &self.recovery.absence;
            if let Some((_, generation)) = gap.filter(|_| absence.is_over(client) && absence.is_awaited(client)) {
                self.give_up(client, generation);
            }
        }
    }

    /// Writes a credit to a client that should write, so that the link breaks if the client is dead. A process that
    /// only reads does not notice a broken link.
    fn call(&mut self, client: ClientId) {
        self.outputs.notify[usize::from(client.0)] = true;
        self.outputs.touch(client);
    }

    /// Handles the leader's question about a gap that a process with this client id left.
    pub(super) fn give_up_if_absent(&mut self, client: ClientId, generation: u64) {
        if usize::from(client.0) >= self.bodies.len() {
            return;
        }
        if self.recovery.absence.is_over(client) {
            self.give_up(client, generation);
        } else if self.recovery.absence.note_asked(client) {
            self.recovery.absence.forget_asked(client);
            self.end_wait(client, generation);
        } else {
            self.call(client);
        }
    }

    /// Ends the wait for a gap that has existed for the timeout, while a process with the client id is connected. If
    /// that process left the gap, its connection ends. If it came later, the process that left the gap is away, and is
    /// given up.
    fn end_wait(&mut self, client: ClientId, generation: u64) {
        let body = &self.bodies[usize::from(client.0)];
        // A process to which no generation was reported has multicast nothing.
        if body.generation.is_some_and(|own| own <= generation) {
            self.disconnect(body.ring.credit.link);
        } else {
            self.give_up(client, generation);
        }
    }

    /// Gives up all processes of a client id up to this generation.
    fn give_up(&mut self, client: ClientId, generation: u64) {
        if generation >= self.replica.over_below(client) {
            self.replica.end_client(client, generation);
            self.gate.disturb();
        }
    }

    /// Returns whether the process with this client id belongs to a generation that has ended, and may have begun. The
    /// hello of such a process arrived before this member knew that the generation has ended; otherwise it would have
    /// been refused. A process that cannot have begun learns which generations have ended, and gets a new one.
    pub(super) fn is_outlived(&self, client: ClientId) -> bool {
        let body = &self.bodies[usize::from(client.0)];
        let may_have_begun = body.begun || !body.settling;
        may_have_begun && body.generation.is_some_and(|generation| generation < self.replica.over_below(client))
    }

    /// Notifies the process with this client id that it is superseded. If the process is not connected, its next hello
    /// gets this answer.
    pub(super) fn turn_away(&mut self, client: ClientId) {
        let link = self.bodies[usize::from(client.0)].ring.credit.link;
        if self.links[link].is_met() {
            self.greet(link, HelloKind::Superseded, Start::NONE);
        }
    }
}
