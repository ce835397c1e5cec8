//! A ring that this node writes, at one or several peers alike.

use std::collections::VecDeque;

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::ring::{Geometry, Place};
use stentor_fabric::seal::{HEADER_WORDS, Seal, record_cells};
use stentor_fabric::{
    Fabric, ProcessId, Purpose, RegionId, RegionSpec, RemoteRegion, RemoteSpan, RingWriter, SlotReader, Source, Span,
};

use super::posting::Link;
use super::{NodeError, STAGING};

/// One peer that gets the ring's records.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) peer: ProcessId,
    /// Index into the node's links.
    pub(super) link: usize,
    purpose: Purpose,
    remote: Option<RemoteRegion>,
    credit: SlotReader,
    /// Local region and byte offset where the peer writes its credit.
    credit_at: (RegionId, u64),
    freed: u64,
    /// Slots freed, as the credit says (for clients).
    pub(super) freed_slots: u64,
    /// Highest sequence seen (for clients).
    pub(super) last_sequence: u64,
    /// Up to where the ring was read when the credit went out (for clients).
    read: u64,
    /// Whether a credit came at all.
    pub(super) credited: bool,
    pub(super) expelled: bool,
    /// Posts from staging that may still be read: (request, position).
    staged: VecDeque<(u64, u64)>,
}

impl Target {
    /// Up to where the peer has freed the ring.
    pub(super) fn freed_position(&self) -> u64 {
        self.freed
    }

    /// Whether the peer holds a message that it has not freed.
    pub(super) fn holds_messages(&self) -> bool {
        self.read != self.freed
    }
}

/// A ring at one or several peers: one position, the smallest credit counts.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) writer: RingWriter,
    geometry: Geometry,
    staging: Option<RegionId>,
    pub(super) targets: Vec<Target>,
    /// Whether credits came that the owner has not looked at.
    news: bool,
}

impl Outbound {
    /// `serial` keeps the staging regions of one node apart.
    pub(super) fn new<F: Fabric>(
        fabric: &mut F,
        geometry: Geometry,
        seal: Seal,
        serial: u16,
    ) -> Result<Self, NodeError> {
        let longest = record_cells(geometry.max_payload()) as u64 * 64;
        let staging = if longest > u64::from(fabric.capabilities().inline_bytes) {
            let me = fabric.me();
            let purpose = Purpose(STAGING.0 + serial);
            Some(fabric.register(RegionSpec { purpose, writer: me, bytes: geometry.bytes() })?)
        } else {
            None
        };
        Ok(Outbound { writer: RingWriter::new(geometry, seal), geometry, staging, targets: Vec::new(), news: false })
    }

    /// Bytes registered for staging.
    pub(super) fn staging_bytes(&self) -> u64 {
        if self.staging.is_some() { self.geometry.bytes() } else { 0 }
    }

    pub(super) fn add_target(
        &mut self,
        peer: ProcessId,
        link: usize,
        purpose: Purpose,
        credit_at: (RegionId, u64),
        credit_seal: Seal,
    ) {
        self.targets.push(Target {
            peer,
            link,
            purpose,
            remote: None,
            credit: SlotReader::new(credit_seal),
            credit_at,
            freed: 0,
            freed_slots: 0,
            last_sequence: 0,
            read: 0,
            credited: false,
            expelled: false,
            staged: VecDeque::new(),
        });
    }

    /// Whether credits came since the last call, whoever read them.
    pub(super) fn take_news<F: Fabric>(&mut self, fabric: &F) -> bool {
        self.read_credits(fabric);
        std::mem::take(&mut self.news)
    }

    /// Reads the credits that came.
    pub(super) fn read_credits<F: Fabric>(&mut self, fabric: &F) {
        let mut any = false;
        for target in &mut self.targets {
            let (region, offset) = target.credit_at;
            let cell = &fabric.memory(region)[offset as usize / WORD..];
            if let Some([freed, slots, sequence, read]) = target.credit.read(cell) {
                target.freed = self.writer.absorb(target.freed, freed);
                target.freed_slots = slots;
                target.last_sequence = sequence;
                target.read = read;
                target.credited = true;
                any = true;
            }
        }
        if any {
            let counted = self.targets.iter().filter(|target| !target.expelled).map(|target| target.freed);
            if let Some(freed) = counted.min() {
                self.writer.credit(freed);
            }
        }
        self.news |= any;
    }

    /// Whether all targets that count can take a record with this payload now.
    pub(super) fn ready<F: Fabric>(&mut self, fabric: &mut F, links: &[Link], bytes: usize) -> bool {
        if !self.writer.has_room(bytes) {
            self.read_credits(fabric);
            if !self.writer.has_room(bytes) {
                return false;
            }
        }
        let last = self.writer.position() + record_cells(bytes) as u64;
        let lap = self.geometry.lap_cells();
        self.targets.iter_mut().all(|target| {
            if target.expelled {
                return true;
            }
            let link = &links[target.link];
            if target.remote.is_none() {
                target.remote = fabric.resolve(target.peer, target.purpose);
            }
            while target.staged.front().is_some_and(|(request, _)| *request <= link.queue.done()) {
                target.staged.pop_front();
            }
            let staging_free = target.staged.front().is_none_or(|(_, position)| last <= position + lap);
            link.can_post() && target.remote.is_some() && staging_free
        })
    }

    /// Seals the payload in `record[3..]` and writes it to every target. Call when [`ready`](Outbound::ready) says so.
    /// Returns the number of writes.
    pub(super) fn send<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [Link],
        bytes: usize,
        record: &mut [u64],
    ) -> u64 {
        let position = self.writer.position();
        let Some(place) = self.writer.seal(bytes, record) else { return 0 };
        let inline = place.words * WORD <= fabric.capabilities().inline_bytes as usize;
        if !inline {
            self.stage(fabric, &place, record);
        }
        let mut writes = 0;
        for target in &mut self.targets {
            let (Some(region), false) = (target.remote, target.expelled) else { continue };
            let source = match self.staging {
                Some(region) if !inline => {
                    let offset = place.offset - self.geometry.offset;
                    Source::Region(Span { region, offset, bytes: (place.words * WORD) as u32 })
                }
                _ => Source::Inline(zerocopy::IntoBytes::as_bytes(&record[..place.words])),
            };
            let span = RemoteSpan { region, offset: place.offset };
            if let Some(request) = links[target.link].write(fabric, source, span, false) {
                writes += 1;
                if !inline {
                    target.staged.push_back((request, position));
                }
            }
        }
        writes
    }

    fn stage<F: Fabric>(&self, fabric: &F, place: &Place, record: &[u64]) {
        let Some(region) = self.staging else { return };
        let first = (place.offset - self.geometry.offset) as usize / WORD;
        let words = &fabric.memory(region)[first..first + place.words];
        for (to, from) in words.iter().zip(record) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    /// Whether no target counts any more.
    pub(super) fn is_deserted(&self) -> bool {
        self.targets.iter().all(|target| target.expelled)
    }

    /// The peers behind broken links no longer count.
    pub(super) fn expel_broken(&mut self, links: &[Link]) -> bool {
        let mut any = false;
        for target in &mut self.targets {
            if links[target.link].broken && !target.expelled {
                target.expelled = true;
                any = true;
            }
        }
        if any {
            let counted = self.targets.iter().filter(|target| !target.expelled).map(|target| target.freed);
            if let Some(freed) = counted.min() {
                self.writer.credit(freed);
            }
        }
        any
    }
}

/// Words of a scratch record for a ring.
pub(super) fn scratch(geometry: &Geometry) -> Vec<u64> {
    vec![0; HEADER_WORDS + geometry.max_payload().div_ceil(WORD)]
}
