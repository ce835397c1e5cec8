//! A ring that this node writes, with the same records at one or several peers.
//!
//! # Invariants
//! - All targets share one position. Nothing at or after it was ever written in its lap.
//! - Only started targets count for flow control. Others are neither written nor waited for, except that a patient
//!   owner waits for targets that were never started.
//! - A ring that keeps its records restarts a target at the first record that not all counting targets have freed,
//!   provided that a majority counts. Records lost with the connection, or with the peer's memory, are written again:
//!   the same bytes at the same positions. All of them are in staging, because no record is overwritten before a
//!   majority has freed it, all in one ballot. Reports in two ballots do not add up: the earlier one may come from a
//!   process that has lost its memory.
//! - Where writes are not ordered, a target restarted on the same connection is written only when everything posted
//!   there before is done. Otherwise a late record of an earlier lap could overwrite a newer one at the same position.
//!   Until then its records are in staging, as if the target could not be written yet.
//! - A credit counts only if it names the generation of the target's last start.
//! - A report counts only if it belongs to the known history of its group. A member that has not learnt of a newer
//!   history continues in its old one.
//! - A target whose peer asked not to be waited for is stopped, but its credits are still read. The target is restarted
//!   when a credit of the same generation no longer contains that request.

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

/// A ring at one or several peers, with one position. The smallest credit of the started targets counts.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) writer: RingWriter,
    geometry: Geometry,
    seal: Seal,
    staging: Option<RegionId>,
    pub(super) targets: Vec<Target>,
    /// `true` if credits arrived that the owner has not processed, or another history became known.
    news: bool,
    /// `true` if a peer has asked not to be waited for, or has withdrawn that request, since the owner last checked.
    asides: bool,
    /// `true` if the owner waits for targets that were never started.
    pub(super) patient: bool,
    /// `true` if a target may be started before it can be written. The records that it missed are then written to it
    /// from staging.
    catches_up: bool,
    /// See [`Shape::keeps`].
    keeps: usize,
    /// `true` if the ring allows the fast path for short records.
    plain: bool,
    /// `true` if records are written up to the end of their last cache line, so that adjacent writes can merge.
    whole_lines: bool,
    /// `true` if writes that are posted before a start may land after writes that are posted after the start.
    unordered: bool,
    /// Position before which all started targets had freed all records. If records are kept, these targets included a
    /// majority in one ballot.
    tail: u64,
    /// `true` if a target has yet to get records that were written before.
    late: bool,
    generations: u64,
    /// The mark of the known history of the peers' group, in a client's body ring; 0 in other rings.
    history: u32,
}

/// The properties of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) geometry: Geometry,
    /// Number that distinguishes the staging regions of one node.
    pub(super) serial: u16,
    /// See [`Outbound::patient`].
    pub(super) patient: bool,
    /// `true` if targets may be started before they can be written.
    pub(super) catches_up: bool,
    /// Least number of targets that must have freed a record in one ballot before the record is dropped. Until then the
    /// record is written again to each target that starts. 0 if records are not kept.
    pub(super) keeps: usize,
}

/// The way in which a record is sent.
#[derive(Default)]
pub(super) struct Way<'a> {
    /// `true` if the write carries an immediate, which wakes the peer.
    pub(super) wakes: bool,
    /// The client's fan-out set, and the number of this ring. Peers that the set reaches get the record through it.
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

    /// Returns the bytes registered for staging.
    pub(super) fn staging_bytes(&self) -> u64 {
        if self.staging.is_some() { self.geometry.bytes() } else { 0 }
    }

    pub(super) fn add_target(&mut self, peer: ProcessId, link: usize, purpose: Purpose, cell: CreditCell) {
        self.targets.push(Target::new(peer, link, purpose, cell));
    }

    /// Returns the last report of each peer since its start, if it belongs to the known history.
    pub(super) fn reports(&self) -> impl Iterator<Item = CreditReport> {
        self.targets.iter().filter_map(|target| target.report)
    }

    /// Sets the known history of the peers' group. Reports of other histories no longer count.
    pub(super) fn know(&mut self, incarnation: Incarnation) {
        let mark = incarnation.mark();
        if mark != self.history {
            (self.history, self.news) = (mark, true);
            self.targets.iter_mut().for_each(|target| target.look_again(mark));
        }
    }

    /// Returns the target of a peer.
    pub(super) fn target_of(&self, peer: ProcessId) -> Option<usize> {
        self.targets.iter().position(|target| target.peer == peer)
    }

    /// Starts a target, which then counts for flow control. Every record at or after the returned position is written
    /// to it as well. Where writes are not ordered, the last request on the target's link before this call, or a later
    /// one, must be signalled: its completion proves that no write from before this call can land any more.
    pub(super) fn start(&mut self, target: usize, links: &[PeerLink]) -> Start {
        self.generations += 1;
        let end = self.writer.position();
        let start = Start { position: if self.keeps > 0 { self.tail } else { end }, generation: self.generations };
        let (geometry, seal) = (self.geometry, self.seal);
        let target = &mut self.targets[target];
        let link = &links[target.link];
        // On a new connection no earlier write can land. Rings without staging are started on new connections only.
        target.before = if self.unordered && self.staging.is_some() { link.last() } else { 0 };
        let is_behind = target.before > link.done() || start.position < end;
        let behind = is_behind.then(|| staging_reader(geometry, start.position, seal));
        target.start(start.generation, start.position, behind);
        self.late = self.is_behind();
        self.settle_freed();
        start
    }

    /// Returns the number of counting targets other than `peer`.
    pub(super) fn others_started(&self, peer: ProcessId) -> usize {
        self.targets.iter().filter(|target| target.is_started() && target.peer != peer).count()
    }

    /// Stops a target, so that it no longer counts for flow control.
    pub(super) fn stop(&mut self, target: usize) {
        if self.targets[target].stop() {
            self.late = self.is_behind();
            self.settle_freed();
        }
    }

    /// Stops a target as `stop` does, until the peer withdraws its request not to be waited for.
    pub(super) fn set_aside(&mut self, target: usize) {
        self.stop(target);
        self.targets[target].progress = PeerProgress::Aside;
    }

    /// Sets the seal that later credits of a target carry.
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

    /// Returns whether at least [`keeps`](Outbound::keeps) started targets report the slots that they hold in the same
    /// ballot.
    fn has_majority_in_one_ballot(&self) -> bool {
        let started = || self.targets.iter().filter(|target| target.is_started());
        started().any(|first| {
            let ballot = first.held_in();
            ballot != 0 && started().filter(|target| target.held_in() == ballot).count() >= self.keeps
        })
    }

    /// Returns whether a credit arrived since the last call in which a peer asks not to be waited for, or withdraws
    /// that request.
    pub(super) fn take_asides(&mut self) -> bool {
        std::mem::take(&mut self.asides)
    }

    /// Reads credits. Returns whether any arrived, no matter which call read them, or another history became known,
    /// since the last call of this function.
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

    /// Seals the payload and writes it to every started target: the fast path for most records of control and stream
    /// rings. Returns the number of writes. Does nothing and returns `None` if this path is not possible, for example
    /// because the record does not fit one cache line, or because a started target cannot be written now; call
    /// [`ready`](Outbound::ready) then.
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

    /// Returns the number of words to write of a sealed record. Where writes merge, the record is padded to whole cache
    /// lines, so that the next record adjoins it. The padding is zeroed, because the buffer may contain data for other
    /// peers.
    #[inline]
    fn words_to_write(&self, place: &Place, record: &mut [u64]) -> usize {
        if !self.whole_lines {
            return place.words;
        }
        let words = place.words.next_multiple_of(LINE_WORDS).min(record.len());
        record[place.words..words].fill(0);
        words
    }

    /// Returns whether a record with a payload of `bytes` bytes can be sent now: the ring has room, and each target can
    /// take the record now, gets it later from staging, or is not waited for.
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

    /// Returns whether no write of the fan-out set can still land at a position that the next record uses. Check this
    /// in addition to [`ready`](Outbound::ready).
    pub(super) fn is_clear<F: Fabric>(&mut self, completed: &CompletedWrites<'_, F>, bytes: usize) -> bool {
        let last = self.writer.position() + record_cells(bytes) as u64;
        let lap = self.geometry.lap_cells();
        let started = self.targets.iter_mut().filter(|target| target.is_started());
        let clear = |target: &mut Target| target.unfinished(completed).is_none_or(|position| last <= position + lap);
        // All targets are asked, so that each forgets its completed writes.
        started.fold(true, |all, target| clear(target) & all) || completed.is_ignored()
    }

    /// Returns whether no write of the fan-out set can still land anywhere at a target.
    pub(super) fn is_clear_of<F: Fabric>(&mut self, target: usize, completed: &CompletedWrites<'_, F>) -> bool {
        self.targets[target].unfinished(completed).is_none() || completed.is_ignored_at_start()
    }

    /// Checks at which targets writes of a broken fan-out set may still land.
    pub(super) fn settle_doubts<F: Fabric>(&mut self, completed: &CompletedWrites<'_, F>) {
        for target in self.targets.iter_mut().filter(|target| target.is_in_doubt()) {
            target.unfinished(completed);
        }
    }

    /// Notes that a record was sent to a target through the fan-out set.
    pub(super) fn fanned(&mut self, target: usize, request: u64, position: u64) {
        self.targets[target].fanned.push_back((request, position));
    }

    /// Handles a broken fan-out set, whose writes are done up to `done`. Counting targets must get the records again
    /// that the set may not have copied.
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

    /// Seals the payload in `record[3..]` and writes it to every started target. Targets that lag get it later from
    /// staging, and those that the fan-out set reaches get it with the set's next write. Call it when
    /// [`ready`](Outbound::ready) returns true. Returns the number of writes.
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

    /// Returns the number of cells of a lap.
    pub(super) fn lap_cells(&self) -> u64 {
        self.geometry.lap_cells()
    }

    /// Returns the number of cells that the first target has not freed; 0 if its credit is impossible.
    pub(super) fn in_use(&self) -> u64 {
        self.targets.first().map_or(0, |target| self.writer.position().saturating_sub(target.freed))
    }

    /// Returns the location of a record in the staging region.
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

    /// Writes the records in staging that targets have yet to get, as far as that is possible now. Returns the number
    /// of writes.
    pub(super) fn catch_up<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink], scratch: &mut [u64]) -> u64 {
        let Some(staging) = self.staging else { return 0 };
        let (mut writes, end) = (0, self.writer.position());
        // Where writes merge, records were staged up to the end of their last cache line.
        let unit = if self.whole_lines { LINE_WORDS } else { 1 };
        for target in self.targets.iter_mut().filter(|target| target.behind.is_some()) {
            if target.before > links[target.link].done() {
                continue;
            }
            let Some(region) = target.resolve(fabric, links) else { continue };
            let Some(reader) = &mut target.behind else { continue };
            if reader.position() < target.freed {
                // The target has freed these records, so it does not lack them. They may be overwritten in staging.
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

    /// Returns whether a started target has yet to get earlier records; see [`catch_up`](Outbound::catch_up).
    pub(super) fn is_late(&self) -> bool {
        self.late
    }

    /// Computes [`is_late`](Outbound::is_late) from the targets.
    fn is_behind(&self) -> bool {
        self.targets.iter().any(|target| target.behind.is_some())
    }

    /// Pretends that a target has freed all records. Used by the mutant that overwrites records that a peer has not
    /// freed.
    pub(super) fn leave_unfreed(&mut self, target: usize) {
        self.targets[target].freed = self.writer.position();
        self.settle_freed();
    }

    /// Measures how fast targets free, `step` after the last measurement. `quiet`: number of cells that a peer may have
    /// freed without reporting it. `slots`: number of slots that a client has used, each of which its members must
    /// free.
    pub(super) fn look<F: Fabric>(&mut self, fabric: &F, step: Duration, quiet: u64, slots: u64) {
        self.read_credits(fabric);
        let end = self.writer.position();
        for target in self.targets.iter_mut().filter(|target| target.is_started()) {
            let freed = target.report.map_or(0, |report| report.freed);
            // Slots are checked, too: a message that arrived through another member takes a slot, but no ring space.
            let owes = end.saturating_sub(target.freed) > quiet || freed < slots || target.is_in_doubt();
            target.pace.look(step, target.freed.wrapping_add(freed), owes);
        }
    }

    /// Returns the number of cells that a member may have freed of this ring without reporting it. A member reports a
    /// quarter of the ring at a time.
    pub(super) fn quiet_cells(&self) -> u64 {
        self.geometry.lap_cells() / 4 + record_cells(self.geometry.max_payload()) as u64
    }

    /// Returns whether there is no room for the longest record, or a counting target accepts nothing more.
    pub(super) fn is_full(&self, links: &[PeerLink]) -> bool {
        let is_stuck = |link: &PeerLink| link.is_ready() && !link.can_post();
        let stuck = |target: &Target| target.is_started() && (is_stuck(&links[target.link]) || target.is_in_doubt());
        !self.writer.has_room(self.geometry.max_payload()) || self.targets.iter().any(stuck)
    }

    /// Returns whether a counting target is stalled.
    pub(super) fn stands(&self, target: usize, patience: &Patience, full: bool) -> bool {
        let target = &self.targets[target];
        target.is_started() && target.pace.stands(patience, full)
    }

    /// Returns whether no target is started, and the owner waits for none.
    pub(super) fn is_deserted(&self) -> bool {
        self.targets.iter().all(|target| !target.is_started() && target.is_left(self.patient))
    }
}

/// Copies the concatenation of `parts` to the beginning of `to`.
///
/// # Panics
/// Panics if the parts are longer than `to`.
#[inline]
pub(super) fn copy_parts(parts: &[&[u8]], mut to: &mut [u8]) {
    for part in parts {
        let (first, rest) = to.split_at_mut(part.len());
        first.copy_from_slice(part);
        to = rest;
    }
}

/// Returns a scratch record of the ring's largest size.
pub(super) fn scratch(geometry: &Geometry) -> Vec<u64> {
    vec![0; (HEADER_WORDS + geometry.max_payload().div_ceil(WORD)).next_multiple_of(LINE_WORDS)]
}

#[cfg(test)]
mod tests {
    use stentor_fabric_sim::{NetworkModel, SimConfig, World};

    use super::*;

    /// The padding after a short record contains no data of other peers.
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
            let staging = ring.staging.expect("a ring that catches up has staging");
            fabric.memory(staging).iter().for_each(|word| word.store(7, Ordering::Relaxed));
            ring.stage(&fabric, &Place { words, ..place }, &record);
            let first = (place.offset - geometry.offset) as usize / WORD;
            let staged = &fabric.memory(staging)[first..first + words];
            assert!(staged.iter().zip(&record).all(|(word, value)| word.load(Ordering::Relaxed) == *value));
        }
    }
}
