//! Sends credits: informs the writers of rings how much space is free.

use stentor_fabric::Fabric;

use super::Member;
use crate::node::counts::Step;
use crate::node::credit_report::{ASIDE, Standing};
use crate::node::inbound::Held;
use crate::{ClientId, Succession};

impl<F: Fabric> Member<F> {
    /// Sends the credits that are due. `idle`: there is nothing else to do, so small credits are sent, too.
    pub(super) fn send_credits(&mut self, idle: bool) {
        if !self.outputs.touched.is_empty() {
            self.send_client_credits(idle);
        }
        let Member { fabric, links, peers, streams, outputs, gate, .. } = self;
        // A credit can be due only for rings at which this round looked. A credit that cannot be sent now is sent when
        // its peer writes again, or in the next round that looks at all peers.
        for process in gate.looked_at(peers.len()) {
            if let Some(peer) = &mut peers[process.index()] {
                outputs.counts.write(Step::Credit, peer.inbound.send_credit(fabric, links));
            }
        }
        if let Some((_, stream)) = streams.read_mut() {
            outputs.counts.write(Step::Credit, stream.ring.send_credit(fabric, links));
        }
    }

    fn send_client_credits(&mut self, idle: bool) {
        let mut share = u64::MAX;
        if let Some(budget) = self.transfers.throttle.budget() {
            if budget == 0 {
                return;
            }
            // The order rotates: otherwise nothing of the budget might be left for the last client in any round.
            share = budget.div_ceil(self.outputs.touched.len() as u64);
            self.outputs.touched.rotate_left(1);
        }
        let mut touched = std::mem::take(&mut self.outputs.touched);
        touched.retain(|client| {
            let waits = self.send_client_credit(*client, idle, share);
            if !waits {
                self.outputs.untouch(*client);
            }
            waits
        });
        self.outputs.touched = touched;
    }

    /// Asks clients not to wait for this member (it *stands aside*), or withdraws that request. A member that is cut
    /// off from the group's leader delivers nothing. If clients waited for it, every client of this group would stop as
    /// soon as its window is full. When the request is withdrawn, clients write to the member again as after a broken
    /// connection.
    pub fn set_aside(&mut self, aside: bool) {
        self.aside = aside;
        self.tell_aside();
    }

    /// Notifies clients whether to wait for this member, if that has changed. A member that receives another member's
    /// state delivers nothing either.
    pub(super) fn tell_aside(&mut self) {
        let aside = self.aside || self.is_receiving();
        if std::mem::replace(&mut self.told_aside, aside) == aside {
            return;
        }
        for client in (0..self.bodies.len() as u16).map(ClientId) {
            self.outputs.notify[usize::from(client.0)] = true;
            self.outputs.touch(client);
        }
        self.gate.disturb();
    }

    /// Returns whether clients are asked not to wait for this member: it [stands aside](Member::set_aside), or receives
    /// another member's state.
    #[must_use]
    pub fn is_aside(&self) -> bool {
        self.told_aside
    }

    /// Sends credits when another ballot is installed: the messages that this member holds then count together with
    /// those that other members hold in that ballot.
    pub(super) fn tell_ballot(&mut self) {
        let ballot = self.replica.counts_in();
        if ballot.is_none() || std::mem::replace(&mut self.told_ballot, ballot) == ballot {
            return;
        }
        for client in (0..self.bodies.len() as u16).map(ClientId) {
            self.outputs.notify[usize::from(client.0)] = true;
            self.outputs.touch(client);
        }
    }

    /// Frees the slots and the ring space of delivered messages. Returns the first slot that is not freed.
    pub(super) fn free_delivered(&mut self, client: ClientId) -> u64 {
        let at = usize::from(client.0);
        let (body, store) = (&mut self.bodies[at], &mut self.stores[at]);
        let freed = self.replica.first_held(client);
        if freed > body.freed_slots {
            // The store has no slots beyond a window.
            for slot in body.freed_slots..freed.min(body.freed_slots + u64::from(self.window)) {
                if let Some(end) = store.release(slot) {
                    body.freed_position = end;
                }
            }
            body.freed_slots = freed;
            body.held_slots = body.held_slots.max(freed);
            // A state may free slots whose messages never arrived here. Messages in later slots may be here already.
            while store.has(body.held_slots) {
                body.held_slots += 1;
            }
        }
        if store.is_mirror_empty() {
            body.freed_position = body.ring.reader.position();
        }
        freed
    }

    /// Sends a client its credit if a quarter of the window or of the ring is free, if there is nothing else to do, or
    /// if the client waits for it. At most `share` slots are credited, and at most what is left of the throttle's
    /// budget. Returns whether the credit must be tried again.
    fn send_client_credit(&mut self, client: ClientId, idle: bool, share: u64) -> bool {
        if self.is_outlived(client) {
            // The freed slots may be no-ops, and are then not deliveries of this process.
            self.turn_away(client);
            return false;
        }
        let delivered = self.free_delivered(client);
        let at = usize::from(client.0);
        if self.bodies[at].refused.is_some() {
            self.look_at_refused(client);
        }
        if self.bodies[at].settling || std::mem::take(&mut self.outputs.place_changed[at]) {
            self.look_at_place(client);
        }
        let Member { fabric, links, bodies, outputs, window, replica, told_aside, transfers, .. } = self;
        let body = &mut bodies[at];
        let held = body.held_slots;
        let budget = transfers.throttle.budget();
        let freed = delivered.min(body.credited_slots.saturating_add(share.min(budget.unwrap_or(u64::MAX))));
        let idle = idle || budget.is_some();
        let slots = (freed - body.credited_slots) * 4 >= u64::from(*window);
        // Ring space alone counts, too: no delivery follows a message that was held already or was refused.
        let position = body.refused.map_or(body.freed_position, |refused| refused.position.min(body.freed_position));
        let uncredited = body.ring.reader.uncredited(position);
        let small = freed > body.credited_slots || uncredited > 0;
        let cells = uncredited * 4 >= body.ring.reader.geometry().lap_cells();
        if !(slots || cells || outputs.notify[at] || (idle && small)) {
            // Slots that the throttle withholds are owed, too. Nothing else triggers their credit when the window is
            // full.
            return small || freed < delivered;
        }
        if !links[body.ring.credit.link].is_met() {
            // The client gets its credit when it reconnects.
            return false;
        }
        // The first credit of a process that takes over a ring must cover all records in the ring, so the ring is
        // drained first.
        if (body.settling && !body.drained) || !body.ring.credit.ready(fabric, links) {
            return true;
        }
        outputs.counts.space_credits += u64::from(freed == body.credited_slots && uncredited > 0);
        let position = body.ring.reader.credit(position);
        let held = Held::new(held, replica.counts_in()).to_word(freed);
        let aside = if *told_aside || body.refused.is_some() { ASIDE } else { 0 };
        // Each credit carries the complete status, because the client may not have read the previous one.
        let first = body.first.saturating_sub(freed);
        let history = replica.incarnation().mark();
        let place = Standing { first, history, ..body.place }.to_word();
        let values = [position, freed, place, held, body.ring.generation() | aside];
        outputs.counts.write(Step::Credit, u64::from(body.ring.credit.send(fabric, links, values)));
        transfers.throttle.spend(freed - body.credited_slots);
        body.credited_slots = freed;
        body.settling &= !body.place.opened;
        outputs.notify[at] = false;
        freed < delivered
    }

    /// Updates the status of a client id that is to be reported to its present process.
    #[cold]
    fn look_at_place(&mut self, client: ClientId) {
        let body = &mut self.bodies[usize::from(client.0)];
        let last = self.replica.succession(client);
        // The life identifies a process. The generation does so only while the group knows no life, because a home
        // group that lost all memory may give a new process the generation of an earlier one.
        let same = |last: &Succession| last.life == 0 && body.generation == Some(last.generation);
        let own = |last: &Succession| body.ring.life() == Some(last.life) || same(last);
        let crowded = self.replica.is_crowded(client);
        let unopened = |generation| Standing { generation, crowded, ..Standing::default() };
        (body.place, body.first) = match last {
            Some(last) if own(&last) && self.replica.has_opened(&last) && self.replica.counts_in().is_some() => {
                body.generation = Some(last.generation);
                (Standing { opened: true, ..unopened(last.generation) }, last.first)
            }
            Some(last) if own(&last) => (unopened(0), 0),
            last => {
                let after = last.map_or(0, |last| last.generation + 1).max(self.replica.over_below(client));
                (unopened(after), 0)
            }
        };
    }
}
