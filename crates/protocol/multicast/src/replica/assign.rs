//! Step 2: a leader gives a message its group's timestamp.

use super::order::Entry;
use super::{Replica, Variant};
use crate::item::{RemoteTimestamp, StreamEntry, StreamItem};
use crate::plant::planted;
use crate::{ClientId, Effects};

impl Replica {
    /// Assigns a client's messages in its order, as far as bodies are held and the FIFO rule allows.
    pub(super) fn assign_ready<E: Effects>(&mut self, client: ClientId, effects: &mut E) {
        loop {
            let window = &self.windows[usize::from(client.0)];
            let slot = window.assigned;
            let any_order = planted!(self.config.plant, NoFifo);
            if window.closed > 0 && self.void_closed(client, slot, effects) {
                continue;
            }
            let window = &self.windows[usize::from(client.0)];
            if !window.holds(slot) || !(any_order || window.may_assign(&window.slot(slot).set)) {
                return;
            }
            self.assign(client, slot, effects);
        }
    }

    fn assign<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        self.clock += 1;
        self.counter += 1;
        let (time, ballot) = (self.clock, self.ballot);
        let window = &mut self.windows[usize::from(client.0)];
        window.assigned += 1;
        let message = window.slot_mut(slot);
        let own = message.own;
        message.stamp(own, ballot, time);
        message.ordered = true;
        let (set, key) = (message.set, message.tentative());
        let entry = StreamEntry::Assign { position: own as u8, ballot, time };
        effects.to_followers(&StreamItem { head: message.head(client, own), counter: self.counter, entry });
        for (position, to) in message.destinations.iter().enumerate().filter(|(position, _)| *position != own) {
            let head = message.head(client, position);
            let leader = self.known[usize::from(to.group.0)].leader();
            effects.timestamp(leader, &RemoteTimestamp { head, position: own as u8, ballot, time });
        }
        if planted!(self.config.plant, NotGenuine) {
            for leader in self.known.iter().map(|ballot| ballot.leader()).filter(|leader| *leader != self.config.me) {
                let head = message.head(client, own);
                effects.timestamp(leader, &RemoteTimestamp { head, position: own as u8, ballot, time });
            }
        }
        window.count_undecided(set);
        self.order_push(key, client, slot);
        if self.config.variant == Variant::V1 {
            self.pass_on_known(client, slot, effects);
        }
        self.complete_if_known(client, slot, effects);
    }

    pub(super) fn order_push(&mut self, key: crate::Timestamp, client: ClientId, slot: u64) {
        let by_arrival = planted!(self.config.plant, TiesByArrival);
        let (key, arrival) = if by_arrival { (crate::Timestamp { group: 0, ..key }, self.counter) } else { (key, 0) };
        self.order.push(Entry { key, arrival, client, slot });
    }
}
