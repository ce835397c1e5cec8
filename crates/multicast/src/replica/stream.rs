//! Step 4: a follower processes its leader's dense stream and acknowledges.

use super::{Rejected, Replica};
use crate::item::{StreamEntry, StreamItem, Times};
use crate::{ClientId, Effects};

impl Replica {
    /// Whether a stream entry can be processed now: its body must be held, else the stream waits.
    #[inline]
    #[must_use]
    pub fn holds_body(&self, item: &StreamItem<'_>) -> bool {
        let window = self.windows.get(usize::from(item.head.client.0));
        window.is_none_or(|window| window.resolve(&item.head).is_none_or(|slot| window.holds(slot)))
    }

    /// The next entry of the leader's stream; call only when [`holds_body`](Replica::holds_body) says so.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_stream<E: Effects>(&mut self, item: &StreamItem<'_>, effects: &mut E) -> Result<(), Rejected> {
        if self.is_leader() {
            return Err(Rejected::Role);
        }
        if item.counter != self.counter + 1 {
            return Err(Rejected::Counter { counter: item.counter, expected: self.counter + 1 });
        }
        let client = item.head.client;
        let window = self.windows.get(usize::from(client.0)).ok_or(Rejected::Client(client.0))?;
        if let Some(slot) = window.resolve(&item.head) {
            window.require_held(client, slot)?;
        }
        let Some(slot) = self.locate(&item.head)? else {
            // Only a broken process delivers (and frees) before it has processed the entry.
            self.counter += 1;
            return Ok(());
        };
        // A planted bug may have found another slot.
        self.windows[usize::from(client.0)].require_held(client, slot)?;
        match item.entry {
            StreamEntry::Assign { ballot, .. } if ballot != self.ballot => return Err(Rejected::Ballot(ballot)),
            StreamEntry::Assign { time, .. } => self.order_assigned(client, slot, time),
            StreamEntry::Remote { position, ballot, time } => {
                self.windows[usize::from(client.0)].slot_mut(slot).stamp(usize::from(position), ballot, time);
            }
            StreamEntry::Vector(times) => self.take_vector(client, slot, times),
        }
        self.counter += 1;
        let message = self.windows[usize::from(client.0)].slot(slot);
        if message.times().complete() && !message.vector {
            self.vector_processed(client, slot, effects);
        }
        self.deliver_due(effects);
        Ok(())
    }

    fn order_assigned(&mut self, client: ClientId, slot: u64, time: u64) {
        self.clock = self.clock.max(time);
        let ballot = self.ballot;
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        message.stamp(message.own, ballot, time);
        message.ordered = true;
        let key = message.tentative();
        self.order_push(key, client, slot);
    }

    fn take_vector(&mut self, client: ClientId, slot: u64, times: Times<'_>) {
        self.windows[usize::from(client.0)].slot_mut(slot).stamp_all(times);
    }

    fn vector_processed<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        message.vector = true;
        let latest = message.times().max();
        self.clock = self.clock.max(latest);
        self.vote(client, slot);
        self.acknowledge(client, slot, effects);
        self.decide(client, slot);
    }
}
