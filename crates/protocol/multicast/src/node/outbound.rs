//! A ring that this node writes, at one or several peers alike.
//!
//! # Invariants
//! - One position for all targets. Nothing at or behind it was ever written under its lap.
//! - Targets that are started count for flow control; others are neither written nor waited for, but for those that were
//!   never connected while the owner is patient.
//! - A ring that keeps its records starts a target again at the first record that is not freed by all who count, while a
//!   majority counts: what was lost with the connection, or with the peer's memory, is written again, the same bytes to the
//!   same places. All of it is in staging: nothing is written over before a majority has freed it.
//! - Where writes are not ordered, a target that is started again on the same connection is written only when all that was
//!   posted there before is done: a record of an earlier lap that landed late would destroy the later one in its place.
//!   Meanwhile its records are in staging, as if it could not be written yet.
//! - A credit counts only if it names the generation of the target's last start.
//! - A target whose peer asked not to be waited for is stopped, and its credits are read on. It is started again when one of
//!   them, of the same generation, no longer asks for that.

use std::collections::VecDeque;

use stentor_fabric::memory::{LINE, LINE_WORDS, Ordering, WORD};
use stentor_fabric::ring::{Geometry, Place};
use stentor_fabric::seal::{HEADER_WORDS, Seal, record_cells};
use stentor_fabric::{
    Capabilities, Fabric, ProcessId, Purpose, RegionId, RegionSpec, RemoteRegion, RemoteSpan, RingReader, RingWriter,
    SetTarget, SlotReader, Source, Span, Verb,
};

use super::fan::{Fan, Past};
use super::greeting::Start;
use super::inbound::{CREDIT_WORDS, Held};
use super::posting::Link;
use super::{NodeError, STAGING};
use crate::Plant;
use crate::plant::planted;

/// The record that was sealed last, if it is a short one: what goes to several peers alike, each in a ring of its own, is
/// sealed once as long as their rings are in the same lap.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    record: [u64; LINE_WORDS],
    /// Words of its payload.
    words: usize,
}

impl Sealed {
    /// Takes a payload of at most a line without its header. Whether it is the one that was sealed.
    #[inline]
    fn take(&mut self, payload: &[u64]) -> bool {
        let kept = &mut self.record[HEADER_WORDS..];
        if self.words == payload.len() && kept.iter().zip(payload).all(|(kept, word)| kept == word) {
            return true;
        }
        self.words = payload.len();
        for (kept, word) in kept.iter_mut().zip(payload) {
            *kept = *word;
        }
        false
    }
}

/// Whether a target counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Course {
    /// Never started.
    Awaited,
    Started,
    Stopped,
}

/// What a peer says with its credits, besides the position that it freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Told {
    /// Slots freed (for clients); receives consumed (between members).
    pub(super) freed: u64,
    /// Highest sequence seen (for clients).
    pub(super) sequence: u64,
    /// What is held or freed (for clients).
    pub(super) held: Held,
    /// Whether the peer asks not to be waited for (to clients).
    pub(super) aside: bool,
}

/// The bit of a credit's generation that carries [`Told::aside`].
pub(super) const ASIDE: u64 = 1 << 63;

/// One peer that gets the ring's records.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) peer: ProcessId,
    /// Index into the node's links.
    pub(super) link: usize,
    purpose: Purpose,
    /// As it was resolved in a life of the link.
    remote: Option<(u32, RemoteRegion)>,
    credit: Option<SlotReader>,
    /// Local region and byte offset where the peer writes its credit.
    credit_at: (RegionId, u64),
    course: Course,
    /// Whether the target is stopped because the peer asked for that; its credits are read on, because they say when
    /// that is over.
    aside: bool,
    /// Whether the target stood aside and is to be started again.
    back: bool,
    generation: u64,
    freed: u64,
    /// The last credit since the start; `None` before the first.
    pub(super) told: Option<Told>,
    /// Posts from staging that may still be read: (request, position).
    staged: VecDeque<(u64, u64)>,
    /// Started, but not writable then: the records from here on are in staging.
    behind: Option<RingReader>,
    /// The last request on its link before the start: what is behind is written when that is done.
    before: u64,
    /// Records that went there by the set, and are not known to be done: (request, position).
    fanned: VecDeque<(u64, u64)>,
    /// The first of those that a broken set carried, which may land late.
    haunted: Option<u64>,
}

impl Target {
    pub(super) fn is_started(&self) -> bool {
        self.course == Course::Started
    }

    /// Returns whether the peer asked not to be waited for, and no longer does.
    pub(super) fn is_back(&self) -> bool {
        self.aside && self.back
    }

    /// Whether what is written goes there at once, and nothing before it is still to go. Others than started ones get
    /// nothing.
    #[inline]
    fn is_plain(&self, links: &[Link], patient: bool) -> bool {
        if self.course != Course::Started {
            return self.course == Course::Stopped || !patient;
        }
        let link = &links[self.link];
        let resolved = self.remote.is_some_and(|(life, _)| life == link.life);
        resolved && link.can_post() && self.behind.is_none() && self.staged.is_empty()
    }

    /// Forgets of the set's writes what is over. The position of the first that is not.
    fn unfinished<F: Fabric>(&mut self, past: &Past<'_, F>) -> Option<u64> {
        while self.fanned.front().is_some_and(|(request, _)| *request <= past.done) {
            self.fanned.pop_front();
        }
        if self.haunted.is_some() && past.is_settled(self.peer) {
            self.haunted = None;
        }
        self.haunted.or_else(|| self.fanned.front().map(|(_, position)| *position))
    }

    /// Resolves the region once per life.
    #[inline]
    fn resolve<F: Fabric>(&mut self, fabric: &mut F, link: &Link) -> Option<RemoteRegion> {
        if let Some((life, region)) = self.remote
            && life == link.life
        {
            return Some(region);
        }
        let region = if link.ready { fabric.resolve(self.peer, self.purpose) } else { None };
        self.remote = region.map(|region| (link.life, region));
        region
    }
}

/// A ring at one or several peers: one position, the smallest credit counts.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) writer: RingWriter,
    geometry: Geometry,
    seal: Seal,
    staging: Option<RegionId>,
    pub(super) targets: Vec<Target>,
    /// Whether credits came that the owner has not looked at.
    news: bool,
    /// Whether some peers have asked not to be waited for, or have withdrawn that, since the last look.
    asides: bool,
    /// Targets that were never connected are waited for.
    pub(super) patient: bool,
    /// A target may be started before it can be written; it gets what it missed from staging.
    catches_up: bool,
    /// See [`Shape::keeps`].
    keeps: usize,
    /// Whether a short record may go the short way, as far as the ring is concerned.
    plain: bool,
    /// Whether what was posted before a start may land after what is posted behind it.
    unordered: bool,
    /// A majority has freed what is before this.
    tail: u64,
    /// Whether some target has yet to get what was written before.
    late: bool,
    generations: u64,
}

/// How a ring is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) geometry: Geometry,
    /// Keeps the staging regions of one node apart.
    pub(super) serial: u16,
    /// See [`Outbound::patient`].
    pub(super) patient: bool,
    /// Targets may be started before they can be written.
    pub(super) catches_up: bool,
    /// If not 0: records are kept until at least so many targets have freed them, and written again to whoever is started
    /// before that.
    pub(super) keeps: usize,
}

impl Outbound {
    pub(super) fn new<F: Fabric>(fabric: &mut F, shape: Shape, seal: Seal, plant: Plant) -> Result<Self, NodeError> {
        let Shape { geometry, serial, patient, catches_up, keeps } = shape;
        let longest = record_cells(geometry.max_payload()) as u64 * 64;
        let staging = if catches_up || keeps > 0 || longest > u64::from(fabric.capabilities().inline_bytes) {
            let me = fabric.me();
            let purpose = Purpose(STAGING.0 + serial);
            Some(fabric.register(RegionSpec { purpose, writer: me, bytes: geometry.bytes() })?)
        } else {
            None
        };
        let Capabilities { inline_bytes, ordered_writes, .. } = *fabric.capabilities();
        let plain = keeps == 0 && inline_bytes as usize >= LINE && (ordered_writes || !catches_up);
        let unordered = !ordered_writes && !planted!(plant, StartedUnderWrites);
        let writer = RingWriter::new(geometry, seal);
        let targets = Vec::new();
        Ok(Outbound {
            writer,
            geometry,
            seal,
            staging,
            targets,
            news: false,
            asides: false,
            patient,
            catches_up,
            keeps,
            plain,
            unordered,
            tail: 0,
            late: false,
            generations: 0,
        })
    }

    /// Bytes registered for staging.
    pub(super) fn staging_bytes(&self) -> u64 {
        if self.staging.is_some() { self.geometry.bytes() } else { 0 }
    }

    pub(super) fn add_target(&mut self, peer: ProcessId, link: usize, purpose: Purpose, credit_at: (RegionId, u64)) {
        self.targets.push(Target {
            peer,
            link,
            purpose,
            remote: None,
            credit: None,
            credit_at,
            course: Course::Awaited,
            generation: 0,
            freed: 0,
            told: None,
            aside: false,
            back: false,
            staged: VecDeque::new(),
            behind: None,
            before: 0,
            fanned: VecDeque::new(),
            haunted: None,
        });
    }

    /// The target of a peer.
    pub(super) fn target_of(&self, peer: ProcessId) -> Option<usize> {
        self.targets.iter().position(|target| target.peer == peer)
    }

    /// A target counts from here on. Everything that is written from the returned position on goes to it, too. Where writes
    /// are not ordered a signalled request follows on its link, or preceded this: its completion says that nothing posted
    /// before can land any more.
    pub(super) fn start(&mut self, target: usize, links: &[Link]) -> Start {
        self.generations += 1;
        let end = self.writer.position();
        let start = Start { position: if self.keeps > 0 { self.tail } else { end }, generation: self.generations };
        let (geometry, seal) = (self.geometry, self.seal);
        let target = &mut self.targets[target];
        let queue = &links[target.link].queue;
        // On a new connection all is over. Rings without staging are started on new ones only.
        target.before = if self.unordered && self.staging.is_some() { queue.next_id() - 1 } else { 0 };
        let waits = target.before > queue.done();
        target.course = Course::Started;
        (target.aside, target.back) = (false, false);
        target.remote = None;
        target.generation = start.generation;
        target.freed = start.position;
        target.told = None;
        target.behind = (waits || start.position < end).then(|| staging_reader(geometry, start.position, seal));
        self.late = self.is_behind();
        self.settle_freed();
        start
    }

    /// A target does not count any more.
    pub(super) fn stop(&mut self, target: usize) {
        let target = &mut self.targets[target];
        target.aside = false;
        if target.course == Course::Started {
            target.course = Course::Stopped;
            target.told = None;
            target.behind = None;
            self.late = self.is_behind();
            self.settle_freed();
        }
    }

    /// Stops writing to a target as `stop` does, until the peer says that it is back.
    pub(super) fn set_aside(&mut self, target: usize) {
        self.stop(target);
        let target = &mut self.targets[target];
        (target.aside, target.back) = (true, false);
    }

    /// A target's credits are sealed like this from here on.
    pub(super) fn hear_credits(&mut self, target: usize, seal: Seal) {
        self.targets[target].credit = Some(SlotReader::new(seal));
    }

    fn settle_freed(&mut self) {
        let counted = self.targets.iter().filter(|target| target.is_started()).map(|target| target.freed);
        if self.keeps > 0 && counted.clone().count() < self.keeps {
            return;
        }
        if let Some(freed) = counted.min() {
            self.writer.credit(freed);
            self.tail = self.tail.max(freed);
        }
    }

    /// Returns whether credits that ask not to be waited for, or no longer do, came since the last call.
    pub(super) fn take_asides(&mut self) -> bool {
        std::mem::take(&mut self.asides)
    }

    /// Takes credits. Returns whether any came since the last call of this function, whoever found them.
    pub(super) fn take_news<F: Fabric>(&mut self, fabric: &F) -> bool {
        self.read_credits(fabric);
        std::mem::take(&mut self.news)
    }

    pub(super) fn read_credits<F: Fabric>(&mut self, fabric: &F) {
        let mut any = false;
        for target in self.targets.iter_mut().filter(|target| target.is_started() || target.aside) {
            let Some(credit) = &mut target.credit else { continue };
            let (region, offset) = target.credit_at;
            let cell = &fabric.memory(region)[offset as usize / WORD..];
            if let Some::<[u64; CREDIT_WORDS]>([position, freed, sequence, held, generation]) = credit.read(cell)
                && generation & !ASIDE == target.generation
            {
                any = true;
                let aside = generation & ASIDE != 0;
                self.asides |= aside || target.aside;
                if target.aside {
                    target.back = !aside;
                    continue;
                }
                target.freed = self.writer.absorb(target.freed, position);
                target.told = Some(Told { freed, sequence, held: Held::from_word(held, freed), aside });
            }
        }
        if any {
            self.settle_freed();
        }
        self.news |= any;
    }

    /// The short way, which almost every record takes: it fits one line, and all who get it can be written at once. Seals
    /// the payload and writes it; returns the number of writes. `None`, and nothing is done, if it is not that simple: ask
    /// [`ready`](Outbound::ready).
    #[inline]
    pub(super) fn send_plain<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [Link],
        payload: &[u64],
        sealed: &mut Sealed,
    ) -> Option<u64> {
        let bytes = payload.len() * WORD;
        let plain = self.plain
            && payload.len() <= LINE_WORDS - HEADER_WORDS
            && bytes <= self.writer.max_payload()
            && self.targets.iter().all(|target| target.is_plain(links, self.patient));
        if !plain {
            return None;
        }
        let known = sealed.take(payload);
        let Some(place) = self.writer.seal_unless(bytes, &mut sealed.record, known) else {
            sealed.words = 0;
            return None;
        };
        let data = zerocopy::IntoBytes::as_bytes(&sealed.record[..place.words]);
        let mut writes = 0;
        for target in &self.targets {
            if let Course::Started = target.course
                && let Some((_, region)) = target.remote
            {
                let to = RemoteSpan { region, offset: place.offset };
                writes += u64::from(links[target.link].write_inline(fabric, data, to, false).is_some());
            }
        }
        Some(writes)
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
        let (lap, catches_up) = (self.geometry.lap_cells(), self.catches_up);
        self.targets.iter_mut().all(|target| {
            if !target.is_started() {
                return target.course == Course::Stopped || !self.patient;
            }
            let link = &links[target.link];
            let writable = target.resolve(fabric, link).is_some() && link.ready;
            while target.staged.front().is_some_and(|(request, _)| *request <= link.queue.done()) {
                target.staged.pop_front();
            }
            let staging_free = target.staged.front().is_none_or(|(_, position)| last <= position + lap);
            staging_free && if writable { link.can_post() } else { catches_up }
        })
    }

    /// Whether no place that the next record takes is one where a write of the set may still land. Ask beside
    /// [`ready`](Outbound::ready).
    pub(super) fn is_clear<F: Fabric>(&mut self, past: &Past<'_, F>, bytes: usize) -> bool {
        let last = self.writer.position() + record_cells(bytes) as u64;
        let lap = self.geometry.lap_cells();
        let started = self.targets.iter_mut().filter(|target| target.is_started());
        let clear = |target: &mut Target| target.unfinished(past).is_none_or(|position| last <= position + lap);
        // All are asked, so that all forget what is over.
        started.fold(true, |all, target| clear(target) & all) || past.is_ignored()
    }

    /// Whether nothing of the set can land at a target, wherever.
    pub(super) fn is_clear_of<F: Fabric>(&mut self, target: usize, past: &Past<'_, F>) -> bool {
        self.targets[target].unfinished(past).is_none() || past.is_ignored_at_start()
    }

    /// A record went to a target by the set.
    pub(super) fn fanned(&mut self, target: usize, request: u64, position: u64) {
        self.targets[target].fanned.push_back((request, position));
    }

    /// The set broke, whose writes are done up to `done`: what it may not have copied is behind at targets that count.
    pub(super) fn fan_broke(&mut self, done: u64, forgets: bool) {
        let (geometry, seal) = (self.geometry, self.seal);
        for target in &mut self.targets {
            target.fanned.retain(|(request, _)| *request > done);
            let Some((_, first)) = target.fanned.front().copied() else { continue };
            let missing = target.fanned.iter().map(|(_, position)| *position).find(|at| *at >= target.freed);
            target.haunted = Some(target.haunted.map_or(first, |haunted| haunted.min(first)));
            target.fanned.clear();
            if let Some(missing) = missing.filter(|_| target.is_started() && !forgets) {
                let from = target.behind.as_ref().map_or(missing, |behind| behind.position().min(missing));
                target.behind = Some(staging_reader(geometry, from, seal));
            }
        }
        self.late = self.is_behind();
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
        self.send_by(fabric, links, bytes, record, (false, None))
    }

    /// The same, but those whom the set reaches are left to its next write. `ring`: which this is.
    pub(super) fn send_with<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [Link],
        bytes: usize,
        record: &mut [u64],
        fan: Option<(&mut Fan, usize)>,
    ) -> u64 {
        self.send_by(fabric, links, bytes, record, (false, fan))
    }

    /// The same; if it `wakes`, with an immediate.
    pub(super) fn send_as<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [Link],
        bytes: usize,
        record: &mut [u64],
        wakes: bool,
    ) -> u64 {
        self.send_by(fabric, links, bytes, record, (wakes, None))
    }

    fn send_by<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [Link],
        bytes: usize,
        record: &mut [u64],
        (wakes, mut fan): (bool, Option<(&mut Fan, usize)>),
    ) -> u64 {
        let (position, lap) = (self.writer.position(), self.writer.lap());
        let Some(place) = self.writer.seal(bytes, record) else { return 0 };
        let inline = place.words * WORD <= fabric.capabilities().inline_bytes as usize;
        let lags = (self.catches_up || self.late) && self.targets.iter().any(|target| lags(target, links));
        if !inline || lags || self.keeps > 0 {
            self.stage(fabric, &place, record);
        }
        let source = match self.staging {
            Some(region) if !inline => Source::Region(self.staged(region, &place)),
            _ => Source::Inline(zerocopy::IntoBytes::as_bytes(&record[..place.words])),
        };
        let unordered = !fabric.capabilities().ordered_writes;
        let mut writes = 0;
        let started = self.targets.iter_mut().enumerate().filter(|(_, target)| target.is_started());
        for (at, target) in started {
            if lags && self::lags(target, links) {
                let (geometry, seal) = (self.geometry, self.seal);
                target.behind.get_or_insert_with(|| staging_reader(geometry, position, seal));
                self.late = true;
                continue;
            }
            let Some((_, region)) = target.remote else { continue };
            let target_span = RemoteSpan { region, offset: place.offset };
            if let Some((fan, ring)) = &mut fan
                && inline
                && fan.reaches(target.link)
                && target.behind.is_none()
            {
                let to = SetTarget { peer: target.peer, to: target_span };
                fan.take((*ring, at, target.link), to, position, (lap, place.words));
                continue;
            }
            let awaited = !inline || unordered && self.catches_up;
            let link = &mut links[target.link];
            let request = match source {
                _ if wakes => link.post(fabric, Verb::WriteImm { source, target: target_span, imm: 0 }, awaited),
                Source::Inline(data) => link.write_inline(fabric, data, target_span, awaited),
                Source::Region(_) => link.write(fabric, source, target_span, awaited),
            };
            if let Some(request) = request {
                writes += 1;
                if !inline {
                    target.staged.push_back((request, position));
                }
            }
        }
        writes
    }

    /// Cells of a lap.
    pub(super) fn lap_cells(&self) -> u64 {
        self.geometry.lap_cells()
    }

    /// Cells that the first target has not freed, if what it says is possible.
    pub(super) fn in_use(&self) -> u64 {
        self.targets.first().map_or(0, |target| self.writer.position().saturating_sub(target.freed))
    }

    /// Where a record lies in the staging region.
    fn staged(&self, region: RegionId, place: &Place) -> Span {
        Span { region, offset: place.offset - self.geometry.offset, bytes: (place.words * WORD) as u32 }
    }

    fn stage<F: Fabric>(&self, fabric: &F, place: &Place, record: &[u64]) {
        let Some(region) = self.staging else { return };
        let first = (place.offset - self.geometry.offset) as usize / WORD;
        let words = &fabric.memory(region)[first..first + place.words];
        for (to, from) in words.iter().zip(record) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    /// Writes what targets missed that were started before they could be written. Returns the number of writes.
    pub(super) fn catch_up<F: Fabric>(&mut self, fabric: &mut F, links: &mut [Link], scratch: &mut [u64]) -> u64 {
        let Some(staging) = self.staging else { return 0 };
        let (mut writes, end) = (0, self.writer.position());
        for target in self.targets.iter_mut().filter(|target| target.behind.is_some()) {
            if target.before > links[target.link].queue.done() {
                continue;
            }
            let Some(region) = target.resolve(fabric, &links[target.link]) else { continue };
            let Some(reader) = &mut target.behind else { continue };
            if reader.position() < target.freed {
                // It had got that before its start, and the staging of what is freed is written over.
                reader.skip_to(target.freed);
            }
            while reader.position() < end && links[target.link].can_post() {
                let Some(record) = reader.peek(fabric.memory(staging), scratch) else { break };
                let offset = (record.word * WORD) as u64;
                let bytes = ((HEADER_WORDS + record.bytes.div_ceil(WORD)) * WORD) as u32;
                let source = Source::Region(Span { region: staging, offset, bytes });
                let span = RemoteSpan { region, offset: self.geometry.offset + offset };
                let Some(request) = links[target.link].write(fabric, source, span, true) else { break };
                target.staged.push_back((request, reader.position()));
                reader.advance(&record);
                writes += 1;
            }
            if reader.position() >= end {
                target.behind = None;
            }
        }
        self.late = self.is_behind();
        writes
    }

    /// Whether a target that was started has yet to get what was written before; see [`catch_up`](Outbound::catch_up).
    pub(super) fn is_late(&self) -> bool {
        self.late
    }

    /// The same, looked at.
    fn is_behind(&self) -> bool {
        self.targets.iter().any(|target| target.behind.is_some())
    }

    /// Whether nobody gets or waits for what is written.
    pub(super) fn is_deserted(&self) -> bool {
        self.targets.iter().all(|target| match target.course {
            Course::Awaited => !self.patient,
            Course::Started => false,
            Course::Stopped => true,
        })
    }
}

/// Whether a target must get its records later: it cannot be written yet, or has not got those before.
#[inline]
fn lags(target: &Target, links: &[Link]) -> bool {
    let link = &links[target.link];
    let writable = link.ready && target.remote.is_some_and(|(life, _)| life == link.life);
    target.is_started() && (target.behind.is_some() || !writable)
}

/// Reads what this node put into its own staging region.
fn staging_reader(mut geometry: Geometry, position: u64, seal: Seal) -> RingReader {
    geometry.offset = 0;
    let mut reader = RingReader::new(geometry, seal);
    reader.restart(position, seal);
    reader
}

/// Words of a scratch record for a ring.
pub(super) fn scratch(geometry: &Geometry) -> Vec<u64> {
    vec![0; HEADER_WORDS + geometry.max_payload().div_ceil(WORD)]
}
