//! A ring that a peer writes here, and the credit that goes back.

use stentor_fabric::memory::WORD;
use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Fabric, RegionId, RemoteRegion, RemoteSpan, RingReader, SealedSlot, Source};
use zerocopy::IntoBytes;

use super::CONTROL;
use super::posting::Link;

/// A ring that a peer writes.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) region: RegionId,
    pub(super) reader: RingReader,
    pub(super) credit: CreditOut,
}

/// Where the credit for a ring goes: a cell in the writer's control region.
#[derive(Debug)]
pub(super) struct CreditOut {
    slot: SealedSlot,
    /// Index into the node's links.
    pub(super) link: usize,
    offset: u64,
    remote: Option<RemoteRegion>,
    /// The request that wrote the last credit, where writes are not ordered (rule 5).
    last: u64,
}

/// Words of a credit: position freed, slots freed, highest sequence, position read.
const CREDIT_WORDS: usize = 4;
/// Bytes of a credit's record: what a fabric must take inline.
pub(super) const CREDIT_BYTES: usize = (HEADER_WORDS + CREDIT_WORDS) * WORD;

impl CreditOut {
    pub(super) fn new(seal: Seal, link: usize, offset: u64) -> Self {
        CreditOut { slot: SealedSlot::new(seal), link, offset, remote: None, last: 0 }
    }

    /// The peer is another process now: its region must be asked for again.
    pub(super) fn forget(&mut self) {
        self.remote = None;
        self.last = 0;
    }

    /// Whether a credit could be sent now.
    pub(super) fn ready<F: Fabric>(&mut self, fabric: &mut F, links: &[Link]) -> bool {
        let link = &links[self.link];
        if self.remote.is_none() && link.ready {
            self.remote = fabric.resolve(link.peer, CONTROL);
        }
        // Of two credits on their way through an unordered fabric the older one could land last, and stay.
        let alone = self.last <= link.queue.done();
        link.can_post() && self.remote.is_some() && alone
    }

    /// Sends [position freed, slots freed, highest sequence, position read]; call when [`ready`](CreditOut::ready)
    /// says so.
    pub(super) fn send<F: Fabric>(&mut self, fabric: &mut F, links: &mut [Link], values: [u64; CREDIT_WORDS]) -> bool {
        let Some(region) = self.remote else { return false };
        let mut record = [0_u64; 8];
        let sealed = self.slot.seal(&values, &mut record);
        let target = RemoteSpan { region, offset: self.offset };
        let (ordered, source) = (fabric.capabilities().ordered_writes, Source::Inline(sealed.as_bytes()));
        let request = links[self.link].write(fabric, source, target, !ordered);
        if !ordered {
            self.last = request.unwrap_or(0);
        }
        request.is_some()
    }
}

impl Inbound {
    /// Sends the credit for what was consumed when it is a quarter of the ring or more. Returns the number of writes.
    #[inline]
    pub(super) fn send_credit<F: Fabric>(&mut self, fabric: &mut F, links: &mut [Link]) -> u64 {
        let freed = self.reader.position();
        if self.reader.uncredited(freed) * 4 < self.reader.geometry().lap_cells() {
            return 0;
        }
        if !self.credit.ready(fabric, links) {
            return 0;
        }
        let value = self.reader.credit(freed);
        u64::from(self.credit.send(fabric, links, [value, 0, 0, freed]))
    }
}
