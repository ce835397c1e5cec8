//! A ring that this node writes, at one or several peers alike.
//!
//! # Invariants
//! - One position for all targets. Nothing at or behind it was ever written under its lap.
//! - Targets that are started count for flow control; others are neither written nor waited for, but for those that were
//!   never connected while the owner is patient.
//! - A ring that keeps its records starts a target again at the first record that is not freed by all who count, while a
//!   majority counts: what was lost with the connection, or with the peer's memory, is written again, the same bytes to the
//!   same places. All of it is in staging: nothing is written over before a majority has freed it, all in one ballot. Of two
//!   ballots the earlier one may have been that of a process whose memory is gone.
//! - Where writes are not ordered, a target that is started again on the same connection is written only when all that was
//!   posted there before is done: a record of an earlier lap that landed late would destroy the later one in its place.
//!   Meanwhile its records are in staging, as if it could not be written yet.
//! - A credit counts only if it names the generation of the target's last start.
//! - A report counts only if it is of the known history of its group: a member that has not heard of a newer one goes on with
//!   its own.
//! - A target whose peer asked not to be waited for is stopped, and its credits are read on. It is started again when one of
//!   them, of the same generation, no longer asks for that.

use std::time::Duration;

use stentor_fabric::memory::{LINE, LINE_WORDS, Ordering, WORD};
use stentor_fabric::ring::{Geometry, Place};
use stentor_fabric::seal::{HEADER_WORDS, Seal, record_cells};
use stentor_fabric::{
    Capabilities, Fabric, ProcessId, Purpose, RegionId, RegionSpec, RemoteSpan, RingWriter, SetTarget, SlotReader,
    Source, Span, Verb,
};
use stentor_link::purpose::multicast_staging;

use super::NodeError;
use super::credit_report::{ASIDE, CreditReport, Standing};
use super::fanout::{CompletedWrites, FanoutSender, Part};
use super::hello::Start;
use super::inbound::{CREDIT_WORDS, Held};
use super::pace::Patience;
use super::peer_link::PeerLink;
use super::sealed::Sealed;
use super::target::{CreditCell, PeerProgress, Target, staging_reader};
use crate::mutant::mutant;
use crate::{Incarnation, Mutant};

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
    /// Whether records are written up to the end of their last line, so that the next one adjoins.
    whole_lines: bool,
    /// Whether what was posted before a start may land after what is posted behind it.
    unordered: bool,
    /// A majority has freed what is before this.
    tail: u64,
    /// Whether some target has yet to get what was written before.
    late: bool,
    generations: u64,
    /// The mark of the history of the peers' group that is known; 0 between members.
    history: u32,
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
    /// If not 0: records are kept until at least so many targets have freed them in one ballot, and written again to whoever
    /// is started before that.
    pub(super) keeps: usize,
}

/// How a record goes out.
#[derive(Default)]
pub(super) struct Way<'a> {
    /// With an immediate.
    pub(super) wakes: bool,
    /// By the client's set where it reaches, and which ring this is.
    pub(super) fanout: Option<(&'a mut FanoutSender, usize)>,
}

impl Outbound {
    pub(super) fn new<F: Fabric>(fabric: &mut F, shape: Shape, seal: Seal, mutant: Mutant) -> Result<Self, NodeError> {
        let Shape { geometry, serial, patient, catches_up, keeps } = shape;
        let longest = record_cells(geometry.max_payload()) as u64 * 64;
        let staging = if catches_up || keeps > 0 || longest > u64::from(fabric.capabilities().inline_bytes) {
            let me = fabric.me();
            let purpose = multicast_staging(serial);
            Some(fabric.register(RegionSpec { purpose, writer: me, bytes: geometry.bytes() })?)
        } else {
            None
        };
        let Capabilities { inline_bytes, ordered_writes, merges_writes, .. } = *fabric.capabilities();
        let plain = keeps == 0 && inline_bytes as usize >= LINE && (ordered_writes || !catches_up);
        let unordered = !ordered_writes && !mutant!(mutant, StartedUnderWrites);
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
            whole_lines: merges_writes,
            unordered,
            tail: 0,
            late: false,
            generations: 0,
            history: 0,
        })
    }

    /// Bytes registered for staging.
    pub(super) fn staging_bytes(&self) -> u64 {
        if self.staging.is_some() { self.geometry.bytes() } else { 0 }
    }

    pub(super) fn add_target(&mut self, peer: ProcessId, link: usize, purpose: Purpose, cell: CreditCell) {
        self.targets.push(Target::new(peer, link, purpose, cell));
    }

    /// Returns the last report of each peer since its start, if that is of the known history.
    pub(super) fn reports(&self) -> impl Iterator<Item = CreditReport> {
        self.targets.iter().filter_map(|target| target.report)
    }

    /// Another history of the peers' group is known: reports of others do not count from here on.
    pub(super) fn know(&mut self, incarnation: Incarnation) {
        let mark = incarnation.mark();
        if mark != self.history {
            (self.history, self.news) = (mark, true);
            self.targets.iter_mut().for_each(|target| target.look_again(mark));
        }
    }

    /// The target of a peer.
    pub(super) fn target_of(&self, peer: ProcessId) -> Option<usize> {
        self.targets.iter().position(|target| target.peer == peer)
    }

    /// A target counts from here on. Everything that is written from the returned position on goes to it, too. Where writes
    /// are not ordered a signalled request follows on its link, or preceded this: its completion says that nothing posted
    /// before can land any more.
    pub(super) fn start(&mut self, target: usize, links: &[PeerLink]) -> Start {
        self.generations += 1;
        let end = self.writer.position();
        let start = Start { position: if self.keeps > 0 { self.tail } else { end }, generation: self.generations };
        let (geometry, seal) = (self.geometry, self.seal);
        let target = &mut self.targets[target];
        let link = &links[target.link];
        // On a new connection all is over. Rings without staging are started on new ones only.
        target.before = if self.unordered && self.staging.is_some() { link.last() } else { 0 };
        let is_behind = target.before > link.done() || start.position < end;
        let behind = is_behind.then(|| staging_reader(geometry, start.position, seal));
        target.start(start.generation, start.position, behind);
        self.late = self.is_behind();
        self.settle_freed();
        start
    }

    /// The number of targets that count, but for one.
    pub(super) fn others_started(&self, peer: ProcessId) -> usize {
        self.targets.iter().filter(|target| target.is_started() && target.peer != peer).count()
    }

    /// A target does not count any more.
    pub(super) fn stop(&mut self, target: usize) {
        if self.targets[target].stop() {
            self.late = self.is_behind();
            self.settle_freed();
        }
    }

    /// Stops writing to a target as `stop` does, until the peer says that it is back.
    pub(super) fn set_aside(&mut self, target: usize) {
        self.stop(target);
        self.targets[target].progress = PeerProgress::Aside;
    }

    /// A target's credits are sealed like this from here on.
    pub(super) fn hear_credits(&mut self, target: usize, seal: Seal) {
        self.targets[target].credit = Some(SlotReader::new(seal));
    }

    fn settle_freed(&mut self) {
        if self.keeps > 0 && !self.has_majority_in_one_ballot() {
            return;
        }
        let counted = self.targets.iter().filter(|target| target.is_started()).map(|target| target.freed);
        if let Some(freed) = counted.min() {
            self.writer.credit(freed);
            self.tail = self.tail.max(freed);
        }
    }

    /// Whether as many targets as must free a record are started and count what they hold in the same ballot.
    fn has_majority_in_one_ballot(&self) -> bool {
        let started = || self.targets.iter().filter(|target| target.is_started());
        started().any(|first| {
            let ballot = first.held_in();
            ballot != 0 && started().filter(|target| target.held_in() == ballot).count() >= self.keeps
        })
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
        for target in self.targets.iter_mut().filter(|target| target.is_started() || target.is_aside()) {
            let Some(credit) = &mut target.credit else { continue };
            let CreditCell { region, offset } = target.cell;
            let cell = &fabric.memory(region)[offset as usize / WORD..];
            if let Some::<[u64; CREDIT_WORDS]>([position, freed, place, held, generation]) = credit.read(cell)
                && generation & !ASIDE == target.generation
            {
                any = true;
                let aside = generation & ASIDE != 0;
                self.asides |= aside || target.is_aside();
                if target.is_aside() {
                    target.progress = if aside { PeerProgress::Aside } else { PeerProgress::Back };
                    continue;
                }
                target.freed = self.writer.absorb(target.freed, position);
                let (place, held) = (Standing::from_word(place), Held::from_word(held, freed));
                target.note(CreditReport { freed, place, held, aside }, self.history);
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
        links: &mut [PeerLink],
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
        let words = self.words_to_write(&place, &mut sealed.record);
        let data = zerocopy::IntoBytes::as_bytes(&sealed.record[..words]);
        let mut writes = 0;
        for target in &self.targets {
            if target.is_started()
                && let Some(region) = target.region.last()
            {
                let to = RemoteSpan { region, offset: place.offset };
                writes += u64::from(links[target.link].write_inline(fabric, data, to, false).is_some());
            }
        }
        Some(writes)
    }

    /// Returns the words of a sealed record to write: more than it has, if the next one is to adjoin it. Those behind it are 0,
    /// so that nothing is told that was for others.
    #[inline]
    fn words_to_write(&self, place: &Place, record: &mut [u64]) -> usize {
        if !self.whole_lines {
            return place.words;
        }
        let words = place.words.next_multiple_of(LINE_WORDS).min(record.len());
        record[place.words..words].fill(0);
        words
    }

    /// Whether all targets that count can take a record with this payload now.
    pub(super) fn ready<F: Fabric>(&mut self, fabric: &mut F, links: &[PeerLink], bytes: usize) -> bool {
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
                return target.is_left(self.patient);
            }
            let link = &links[target.link];
            let writable = target.resolve(fabric, links).is_some() && link.is_ready();
            target.has_read_staging(links, last, lap) && if writable { link.can_post() } else { catches_up }
        })
    }

    /// Whether no place that the next record takes is one where a write of the set may still land. Ask beside
    /// [`ready`](Outbound::ready).
    pub(super) fn is_clear<F: Fabric>(&mut self, completed: &CompletedWrites<'_, F>, bytes: usize) -> bool {
        let last = self.writer.position() + record_cells(bytes) as u64;
        let lap = self.geometry.lap_cells();
        let started = self.targets.iter_mut().filter(|target| target.is_started());
        let clear = |target: &mut Target| target.unfinished(completed).is_none_or(|position| last <= position + lap);
        // All are asked, so that all forget what is over.
        started.fold(true, |all, target| clear(target) & all) || completed.is_ignored()
    }

    /// Whether nothing of the set can land at a target, wherever.
    pub(super) fn is_clear_of<F: Fabric>(&mut self, target: usize, completed: &CompletedWrites<'_, F>) -> bool {
        self.targets[target].unfinished(completed).is_none() || completed.is_ignored_at_start()
    }

    /// Looks at which targets copies of a broken set may still land.
    pub(super) fn settle_doubts<F: Fabric>(&mut self, completed: &CompletedWrites<'_, F>) {
        for target in self.targets.iter_mut().filter(|target| target.is_in_doubt()) {
            target.unfinished(completed);
        }
    }

    /// A record went to a target by the set.
    pub(super) fn fanned(&mut self, target: usize, request: u64, position: u64) {
        self.targets[target].fanned.push_back((request, position));
    }

    /// The set broke, whose writes are done up to `done`: what it may not have copied is behind at targets that count.
    pub(super) fn set_broke(&mut self, done: u64, forgets: bool) {
        let (geometry, seal) = (self.geometry, self.seal);
        for target in &mut self.targets {
            if let Some(missing) = target.set_broke(done).filter(|_| !forgets) {
                let from = target.behind.as_ref().map_or(missing, |behind| behind.position().min(missing));
                target.behind = Some(staging_reader(geometry, from, seal));
            }
        }
        self.late = self.is_behind();
    }

    /// Seals the payload in `record[3..]` and writes it to every target, but leaves those whom the set reaches to its next
    /// write. Call when [`ready`](Outbound::ready) says so. Returns the number of writes.
    pub(super) fn send<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [PeerLink],
        bytes: usize,
        record: &mut [u64],
        Way { wakes, mut fanout }: Way<'_>,
    ) -> u64 {
        let (position, lap) = (self.writer.position(), self.writer.lap());
        let Some(mut place) = self.writer.seal(bytes, record) else { return 0 };
        place.words = self.words_to_write(&place, record);
        let inline = place.words * WORD <= fabric.capabilities().inline_bytes as usize;
        let lags = (self.catches_up || self.late) && self.targets.iter().any(|target| target.lags(links));
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
            if lags && target.lags(links) {
                let (geometry, seal) = (self.geometry, self.seal);
                target.behind.get_or_insert_with(|| staging_reader(geometry, position, seal));
                self.late = true;
                continue;
            }
            let Some(region) = target.region.last() else { continue };
            let target_span = RemoteSpan { region, offset: place.offset };
            if let Some((sender, ring)) = &mut fanout
                && inline
                && sender.set.reaches(target.peer)
                && target.behind.is_none()
            {
                let to = SetTarget { peer: target.peer, to: target_span };
                sender.add(Part { ring: *ring, target: at, link: target.link, position }, to, lap, place.words);
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
    pub(super) fn catch_up<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink], scratch: &mut [u64]) -> u64 {
        let Some(staging) = self.staging else { return 0 };
        let (mut writes, end) = (0, self.writer.position());
        // Whatever is staged was staged up to the end of its last line.
        let unit = if self.whole_lines { LINE_WORDS } else { 1 };
        for target in self.targets.iter_mut().filter(|target| target.behind.is_some()) {
            if target.before > links[target.link].done() {
                continue;
            }
            let Some(region) = target.resolve(fabric, links) else { continue };
            let Some(reader) = &mut target.behind else { continue };
            if reader.position() < target.freed {
                // It had got that before its start, and the staging of what is freed is written over.
                reader.skip_to(target.freed);
            }
            while reader.position() < end && links[target.link].can_post() {
                let Some(record) = reader.peek(fabric.memory(staging), scratch) else { break };
                let offset = (record.word * WORD) as u64;
                let words = (HEADER_WORDS + record.bytes.div_ceil(WORD)).next_multiple_of(unit);
                let bytes = (words * WORD) as u32;
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

    /// For the mutant that writes over what a peer has not freed.
    pub(super) fn leave_unfreed(&mut self, target: usize) {
        self.targets[target].freed = self.writer.position();
        self.settle_freed();
    }

    /// Looks how fast targets free, `step` after the last look. `quiet`: cells that a peer may have freed without saying so;
    /// `slots`: those that a client has used, each of which its members free.
    pub(super) fn look<F: Fabric>(&mut self, fabric: &F, step: Duration, quiet: u64, slots: u64) {
        self.read_credits(fabric);
        let end = self.writer.position();
        for target in self.targets.iter_mut().filter(|target| target.is_started()) {
            let freed = target.report.map_or(0, |report| report.freed);
            // A message that came through another member takes a slot, and no place in the ring.
            let owes = end.saturating_sub(target.freed) > quiet || freed < slots || target.is_in_doubt();
            target.pace.look(step, target.freed.wrapping_add(freed), owes);
        }
    }

    /// Cells that a member may have freed of this ring without saying so: it says it a quarter at a time.
    pub(super) fn quiet_cells(&self) -> u64 {
        self.geometry.lap_cells() / 4 + record_cells(self.geometry.max_payload()) as u64
    }

    /// Whether there is no room for the longest record, or a target that counts takes nothing more.
    pub(super) fn is_full(&self, links: &[PeerLink]) -> bool {
        let is_stuck = |link: &PeerLink| link.is_ready() && !link.can_post();
        let stuck = |target: &Target| target.is_started() && (is_stuck(&links[target.link]) || target.is_in_doubt());
        !self.writer.has_room(self.geometry.max_payload()) || self.targets.iter().any(stuck)
    }

    /// Whether a target that counts stands still.
    pub(super) fn stands(&self, target: usize, patience: &Patience, full: bool) -> bool {
        let target = &self.targets[target];
        target.is_started() && target.pace.stands(patience, full)
    }

    /// Whether nobody gets or waits for what is written.
    pub(super) fn is_deserted(&self) -> bool {
        self.targets.iter().all(|target| !target.is_started() && target.is_left(self.patient))
    }
}

/// Copies parts one after the other to the beginning of `to`.
///
/// # Panics
/// If they are longer than that.
#[inline]
pub(super) fn copy_parts(parts: &[&[u8]], mut to: &mut [u8]) {
    for part in parts {
        let (first, rest) = to.split_at_mut(part.len());
        first.copy_from_slice(part);
        to = rest;
    }
}

/// Words of a scratch record for a ring.
pub(super) fn scratch(geometry: &Geometry) -> Vec<u64> {
    vec![0; (HEADER_WORDS + geometry.max_payload().div_ceil(WORD)).next_multiple_of(LINE_WORDS)]
}

#[cfg(test)]
mod tests {
    use stentor_fabric_sim::{NetworkModel, SimConfig, World};

    use super::*;

    /// What was for others and lies behind a short record is not told.
    #[test]
    fn a_record_is_padded_to_whole_lines_where_writes_merge() {
        let mut fabric = World::new(SimConfig::new(1, 1, NetworkModel::calm())).fabric(ProcessId(0));
        let geometry = Geometry::new(0, 64, 256);
        let shape = Shape { geometry, serial: 0, patient: false, catches_up: true, keeps: 0 };
        let mut ring =
            Outbound::new(&mut fabric, shape, Seal::new(ProcessId(0), 1), Mutant::None).expect("a possible ring");
        for (bytes, words) in [(8, 8), (40, 8), (48, 16), (256, 40)] {
            let mut record = vec![7; scratch(&geometry).len()];
            let place = ring.writer.seal(bytes, &mut record).expect("there is room");
            ring.whole_lines = false;
            assert_eq!(ring.words_to_write(&place, &mut record), place.words);
            ring.whole_lines = true;
            assert_eq!(ring.words_to_write(&place, &mut record), words, "{bytes} bytes");
            assert!(record[place.words..words].iter().all(|word| *word == 0), "{bytes} bytes");
            let staging = ring.staging.expect("who catches up has one");
            fabric.memory(staging).iter().for_each(|word| word.store(7, Ordering::Relaxed));
            ring.stage(&fabric, &Place { words, ..place }, &record);
            let first = (place.offset - geometry.offset) as usize / WORD;
            let staged = &fabric.memory(staging)[first..first + words];
            assert!(staged.iter().zip(&record).all(|(word, value)| word.load(Ordering::Relaxed) == *value));
        }
    }
}
