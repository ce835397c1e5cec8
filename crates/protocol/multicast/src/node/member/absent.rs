//! Gives up clients that are away: what one of them left half-written must not stop its groups for ever, also if no other
//! process takes its place.
//!
//! # When a client is given up
//! A client is *away* from a member while the two have not greeted each other over a link that is up. A member that waits
//! for a client writes to it, and so learns whether the link is up.
//!
//! - A client that is not away and still leaves a gap open for the timeout stands still, or has lost what it had to write.
//!   The member then ends the connection. A client that runs greets again and writes what is missing.
//!   A later process that is there, and waits until it may begin, is not blamed for the gap; the process that left it is away.
//! - A client is *given up* if the process that left the gap is away for the timeout, and the leader has seen for as long
//!   one gap before a message that is held. The leader gives it up, and so does each member that the leader asks what it
//!   holds there. Nothing more of its generation is taken then.
//!
//! # Invariants
//! - A client that was given up, or whose generation is closed (`no_op.rs`), is not let in any more: it is told that it is
//!   superseded. It gets no credit, because it would count a no-op as a delivery.
//! - A client is given up only if it is away while somebody waits for it. A client that is silent, or away for hours with
//!   nothing half-written, is not given up. Nor is one whose gap others fill: a client that is cut off from the leader only
//!   goes on with the other members, and the messages that they forward arrive in any order.
//! - Each member counts by itself how long a client is away, from when it began to look. So a member that comes back
//!   without memory waits as long as all others did.

use std::time::Duration;

use stentor_fabric::Fabric;

use super::Member;
use crate::ClientId;
use crate::node::hello::{HelloKind, Start};

/// How long a client is away before it is given up, if nothing else is [set](Member::set_client_timeout).
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Since when clients are away.
#[derive(Debug)]
pub(super) struct Absence {
    timeout: Duration,
    /// At the last look.
    now: Duration,
    /// By client; `None`: it was there at the last look. Empty before the first.
    since: Vec<Option<Duration>>,
    /// By client, as a leader: the slot of the gap that it left, and since when that stands.
    gaps: Vec<Option<(u64, Duration)>>,
    /// By client: since when its leader asks for a gap, and when it asked last.
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

    /// Another look, at so many clients.
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

    /// The leader asks for a gap that a client left. Returns whether it has asked for so long.
    fn note_asked(&mut self, client: ClientId) -> bool {
        let Some(asked) = self.asked.get_mut(usize::from(client.0)) else { return false };
        let (first, last) = asked.unwrap_or((self.now, self.now));
        let goes_on = self.now.saturating_sub(last) < self.timeout;
        let first = if goes_on { first } else { self.now };
        *asked = Some((first, self.now));
        self.is_long(Some(first))
    }

    /// Whoever left a gap is given another chance.
    fn forget_asked(&mut self, client: ClientId) {
        if let Some(asked) = self.asked.get_mut(usize::from(client.0)) {
            *asked = None;
        }
    }

    /// The gap of a client counts from now on.
    fn restart_gap(&mut self, client: ClientId) {
        if let Some(Some((_, since))) = self.gaps.get_mut(usize::from(client.0)) {
            *since = self.now;
        }
    }

    /// Whether others have waited at one gap for so long.
    fn is_awaited(&self, client: ClientId) -> bool {
        self.is_long(self.gaps[usize::from(client.0)].map(|(_, since)| since))
    }
}

impl<F: Fabric> Member<F> {
    /// Looks who is away, and as a leader gives up those that others wait for.
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

    /// Writes to a client that should write: if nobody is there, the link breaks. Who only reads does not notice.
    fn call(&mut self, client: ClientId) {
        self.outputs.notify[usize::from(client.0)] = true;
        self.outputs.touch(client);
    }

    /// The leader looks for what a process of a client's place left out.
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

    /// A process has the client's place, and a gap that a process of this generation left stands for as long as the timeout. If it
    /// is that process, its connection ends. If it came later, the other one is away.
    fn end_wait(&mut self, client: ClientId, generation: u64) {
        let body = &self.bodies[usize::from(client.0)];
        // Who was told no generation has multicast nothing.
        if body.generation.is_some_and(|own| own <= generation) {
            self.disconnect(body.ring.credit.link);
        } else {
            self.give_up(client, generation);
        }
    }

    /// Nobody who has had the client's place up to this generation goes on here.
    fn give_up(&mut self, client: ClientId, generation: u64) {
        if generation >= self.replica.over_below(client) {
            self.replica.end_client(client, generation);
            self.gate.disturb();
        }
    }

    /// Whether the process that has a client's place is of a generation that is over, and may have begun. Such a process
    /// came before this member knew that its generation is over; from then on its greeting is refused. A process that
    /// cannot have begun hears which generations are over, and takes another one.
    pub(super) fn is_outlived(&self, client: ClientId) -> bool {
        let body = &self.bodies[usize::from(client.0)];
        let may_have_begun = body.begun || !body.settling;
        may_have_begun && body.generation.is_some_and(|generation| generation < self.replica.over_below(client))
    }

    /// The process that has a client's place is of a generation that is over. It is told so, now or when it comes back.
    pub(super) fn turn_away(&mut self, client: ClientId) {
        let link = self.bodies[usize::from(client.0)].ring.credit.link;
        if self.links[link].is_met() {
            self.greet(link, HelloKind::Superseded, Start::NONE);
        }
    }
}
