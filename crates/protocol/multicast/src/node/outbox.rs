//! Writes outboxes to rings, with as many items in a record as there are and as fit.

use stentor_fabric::Fabric;
use stentor_fabric::seal::HEADER_WORDS;

use super::counts::{Counts, Step};
use super::outbound::{Outbound, Way};
use super::peer_link::PeerLink;
use super::sealed::Sealed;
use crate::item;

/// Borrowed parts of a node that sending an outbox needs.
pub(super) struct BoxSender<'a, F: Fabric> {
    pub(super) fabric: &'a mut F,
    pub(super) links: &'a mut [PeerLink],
    pub(super) scratch: &'a mut [u64],
    pub(super) counts: &'a mut Counts,
    pub(super) sealed: Sealed,
    /// `true` if several items may share a record.
    pub(super) batch: bool,
}

impl<F: Fabric> BoxSender<'_, F> {
    /// Writes as many items as there is room for. Returns whether the outbox is empty now.
    #[inline]
    pub(super) fn send(&mut self, outbound: &mut Outbound, outbox: &mut Vec<u64>) -> bool {
        let first = outbox.first().and_then(|first| item::own_item(*first));
        if let Some((kind, words)) = first
            && (self.batch || words == outbox.len())
            && let Some(writes) = outbound.send_plain(self.fabric, self.links, outbox, &mut self.sealed)
        {
            self.counts.write(Step::from(kind), writes);
            outbox.clear();
            return true;
        }
        self.send_parts(outbound, outbox)
    }

    /// Writes the items in as many records as necessary. Items for which the ring has no room stay in the outbox, but
    /// are dropped if the ring has no target to write to or wait for. Returns whether the outbox is empty.
    fn send_parts(&mut self, outbound: &mut Outbound, outbox: &mut Vec<u64>) -> bool {
        let mut sent = 0;
        while let Some((kind, _)) = outbox.get(sent).and_then(|first| item::own_item(*first)) {
            let words = self.chunk(outbound, &outbox[sent..]);
            if !outbound.ready(self.fabric, self.links, words * 8) {
                if outbound.is_deserted() {
                    sent = outbox.len();
                }
                break;
            }
            self.scratch[HEADER_WORDS..HEADER_WORDS + words].copy_from_slice(&outbox[sent..sent + words]);
            let writes = outbound.send(self.fabric, self.links, words * 8, self.scratch, Way::default());
            self.counts.write(Step::from(kind), writes);
            sent += words;
        }
        // The outbox is drained once per call and not once per record, because a long outbox takes many records.
        outbox.drain(..sent);
        outbox.is_empty()
    }

    /// Returns the words of the whole items that go into the next record: one without batching, otherwise as many as
    /// fit inline, but at least one.
    fn chunk(&self, outbound: &Outbound, outbox: &[u64]) -> usize {
        let inline = (self.fabric.capabilities().inline_bytes as usize / 8).saturating_sub(HEADER_WORDS);
        let limit = (outbound.writer.max_payload() / 8).min(inline);
        if self.batch && outbox.len() <= limit {
            return outbox.len();
        }
        let mut words = 0;
        while let Some((_, next)) = outbox.get(words).and_then(|word| item::own_item(*word)) {
            if words > 0 && (!self.batch || words + next > limit) {
                break;
            }
            words += next;
        }
        words
    }
}
