//! Step 5, second half: deliver what is decided and can no longer be preceded.

use super::{Delivery, Replica};
use crate::plant::planted;
use crate::{ClientId, Effects, MessageId, Timestamp};

impl Replica {
    /// Delivers, in order, every decided message that no other message of the stream can still come before.
    pub(super) fn deliver_due<E: Effects>(&mut self, effects: &mut E) {
        if self.promised != self.ballot {
            // Another ballot decides what comes first now.
            return;
        }
        while let Some(first) = self.order.first() {
            let window = &self.windows[usize::from(first.client.0)];
            let message = window.slot(first.slot);
            if first.slot < window.first_undelivered() || message.delivered || message.void {
                self.order.pop();
                continue;
            }
            let Some(last) = message.decided else {
                if planted!(self.config.plant, TentativeIgnored) {
                    self.order.pop();
                    continue;
                }
                if planted!(self.config.plant, VectorUnblocks) && message.vector {
                    let full = message.latest(message.times());
                    if full > first.key {
                        self.order.raise_first(full);
                        continue;
                    }
                }
                return;
            };
            let key = if planted!(self.config.plant, TiesByArrival) { Timestamp { group: 0, ..last } } else { last };
            if key > first.key {
                self.order.raise_first(key);
                continue;
            }
            // It is the entry with the decided vector that the stream must be processed through: after an earlier one,
            // with other times, the leader may have given times that come before.
            let dense = message.is_settled() || message.vector && planted!(self.config.plant, AnyVectorIsDense);
            if !dense && !planted!(self.config.plant, NoDensity) {
                return;
            }
            self.order.pop();
            self.deliver(first.client, first.slot, last, effects);
        }
    }

    fn deliver<E: Effects>(&mut self, client: ClientId, slot: u64, timestamp: Timestamp, effects: &mut E) {
        self.delivered += 1;
        let window = &mut self.windows[usize::from(client.0)];
        let message = window.slot_mut(slot);
        message.finish();
        let id = MessageId { client, sequence: message.sequence };
        window.pass_delivered();
        effects.deliver(&Delivery { id, slot, timestamp, number: self.delivered, ballot: self.ballot });
    }

    /// For the planted bugs that order a message as soon as it is decided.
    pub(super) fn order_without_density(&mut self, client: ClientId, slot: u64, latest: Timestamp) {
        let no_density =
            planted!(self.config.plant, NoDensity) && !self.windows[usize::from(client.0)].slot(slot).ordered;
        if no_density || planted!(self.config.plant, TentativeIgnored) {
            self.order_push(latest, client, slot);
        }
    }
}
