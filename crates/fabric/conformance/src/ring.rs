//! Rings and slots of sealed records over the fabric.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, QpPair, SERVICE, bytes_of, called, check, place, same, span};
use stentor_fabric::ring::Geometry;
use stentor_fabric::seal::{HEADER_WORDS, Seal, record_words};
use stentor_fabric::{
    Access, Fabric, QpConfig, RegionId, RemoteRegion, RingReader, RingWriter, SealedSlot, SendQueue, SlotReader,
    Source, Status, Verb,
};

const DEPTH: u32 = 32;
const MAX_WORDS: usize = 60;
const RECORDS: u64 = 2500;

/// Returns the length of record `n` in words: mostly short, sometimes any length.
fn length(n: u64) -> usize {
    let mixed = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    if n.is_multiple_of(3) { mixed % (MAX_WORDS + 1) } else { mixed % 6 }
}

fn payload(n: u64) -> Vec<u64> {
    (0..length(n) as u64).map(|i| n << 16 | i).collect()
}

/// Process A: writes records, long ones from a staging area, and reads credits.
struct Writing {
    link: QpPair,
    ring: RingWriter,
    remote: RemoteRegion,
    staging: RegionId,
    queue: SendQueue,
    credits: RegionId,
    credit: SlotReader,
    next: u64,
}

/// Process B: reads records and writes credits.
struct Reading {
    ring: RingReader,
    region: RegionId,
    remote: RemoteRegion,
    queue: SendQueue,
    slot: SealedSlot,
    expected: u64,
    /// Number of rounds since the last credit. Without order between writes, an older credit may overwrite the newest
    /// one, so the newest is written again.
    quiet: u32,
    ordered: bool,
}

impl Writing {
    fn step<T: Testbed>(&mut self, bed: &mut Bed<T>) -> Outcome {
        while let Some(done) = bed.take_any(A) {
            same("status of a record's write", &done.status, &Status::Success)?;
            self.queue.completed(done.id);
        }
        if let Some([freed]) = self.credit.read(bed.at(A).memory(self.credits)) {
            self.ring.credit(freed);
        }
        while self.next < RECORDS && self.queue.free() > 0 {
            let payload = payload(self.next);
            let mut record = vec![0; record_words(payload.len() * 8)];
            record[HEADER_WORDS..].copy_from_slice(&payload);
            let Some(target) = self.ring.seal(payload.len() * 8, &mut record) else { break };
            let target = stentor_fabric::RemoteSpan { region: self.remote, offset: target.offset };
            let id = self.queue.next_id();
            let signalled = self.queue.signal_next();
            let data = bytes_of(&record);
            let source = if data.len() <= bed.at(A).capabilities().inline_bytes.min(200) as usize {
                Source::Inline(&data)
            } else {
                // The staging area has one slot per slot of the send queue, so a free slot of the queue implies a free
                // one of the area.
                let first = (id % u64::from(DEPTH)) as usize * record_words(MAX_WORDS * 8);
                bed.store(A, self.staging, first, &record);
                Source::Region(span(self.staging, first, record.len()))
            };
            called("post", bed.try_post(A, self.link.a, id, Verb::Write { source, target }, signalled))?;
            self.queue.posted(signalled);
            self.next += 1;
        }
        Ok(())
    }
}

impl Reading {
    fn step<T: Testbed>(&mut self, bed: &mut Bed<T>, link: QpPair) -> Outcome {
        while let Some(done) = bed.take_any(B) {
            same("status of a credit's write", &done.status, &Status::Success)?;
            self.queue.completed(done.id);
        }
        let mut private = [0; HEADER_WORDS + MAX_WORDS];
        while let Some(record) = self.ring.peek(bed.at(B).memory(self.region), &mut private) {
            let got = private[HEADER_WORDS..HEADER_WORDS + record.bytes / 8].to_vec();
            same(&format!("record {}", self.expected), &got, &payload(self.expected))?;
            self.ring.advance(&record);
            self.expected += 1;
        }
        let freed = self.ring.position();
        self.quiet += 1;
        let again = !self.ordered && self.quiet > 200;
        if (self.ring.uncredited(freed) > 4 || again) && self.queue.free() > 0 {
            self.quiet = 0;
            let credit = self.ring.credit(freed);
            let mut record = [0; 8];
            let data = bytes_of(self.slot.seal(&[credit], &mut record));
            let signalled = self.queue.signal_next();
            let verb = Verb::Write { source: Source::Inline(&data), target: place(self.remote, 0) };
            called("post", bed.try_post(B, link.b, self.queue.next_id(), verb, signalled))?;
            self.queue.posted(signalled);
        }
        Ok(())
    }
}

pub(super) fn thousands_of_records<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let geometry = Geometry::new(128, 40, MAX_WORDS * 8);
    let bytes = geometry.offset + geometry.bytes();
    let region = bed.region(B, A, 1, bytes as usize / 8, Some(Access::Write))?;
    let credits = bed.region(A, B, 2, 8, Some(Access::Write))?;
    let staging_words = (DEPTH as usize * record_words(MAX_WORDS * 8)).next_multiple_of(8);
    let staging = bed.region(A, A, 3, staging_words, None)?;
    // Records validate themselves, so the queue pair may merge WRITEs.
    let link = bed.connect((A, B), SERVICE, QpConfig::reliable(DEPTH, 4).merging())?;
    let seal = Seal::new(A, 5);
    let back = Seal::new(B, 5);
    let mut writing = Writing {
        link,
        ring: RingWriter::new(geometry, seal),
        remote: bed.resolve(A, B, 1)?,
        staging,
        queue: SendQueue::new(DEPTH),
        credits,
        credit: SlotReader::new(back),
        next: 0,
    };
    let mut reading = Reading {
        ring: RingReader::new(geometry, seal),
        region,
        remote: bed.resolve(B, A, 2)?,
        queue: SendQueue::new(DEPTH),
        slot: SealedSlot::new(back),
        expected: 0,
        quiet: 0,
        ordered: bed.at(B).capabilities().ordered_writes,
    };
    bed.until(&format!("{RECORDS} records through a ring of {} bytes", geometry.bytes()), |bed| {
        writing.step(bed)?;
        reading.step(bed, link)?;
        Ok((reading.expected == RECORDS).then_some(()))
    })
}

pub(super) fn slots_show_the_newest<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(16, Access::Write, DEPTH)?;
    let seal = Seal::new(A, 5);
    let (mut slot, mut reader) = (SealedSlot::new(seal), SlotReader::new(seal));
    let mut queue = SendQueue::new(DEPTH);
    let (mut written, mut seen) = (0, 0);
    let last = 500;
    bed.until("the last value of a slot", |bed| {
        while let Some(done) = bed.take_any(A) {
            queue.completed(done.id);
        }
        // On a fabric without order between writes, an older value may overtake the last one, so the last one is
        // written again.
        if queue.free() > 0 {
            written = (written + 1).min(last);
            let mut record = [0; 16];
            let data = bytes_of(slot.seal(&[written, !written, written * 3], &mut record));
            let signalled = queue.signal_next();
            let verb = super::bed::write(&data, remote, 0);
            called("post", bed.try_post(A, link.a, queue.next_id(), verb, signalled))?;
            queue.posted(signalled);
        }
        if let Some([value, inverse, triple]) = reader.read(bed.at(B).memory(region)) {
            check(inverse == !value && triple == value * 3, || format!("a mixture of two values: {value}"))?;
            check(value >= seen, || format!("{value} after {seen}"))?;
            seen = value;
        }
        Ok((seen == last).then_some(()))
    })
}
