//! Rings of sealed records between the processes of a bound, in shared memory: the cost of a stream of messages without
//! a protocol.
//!
//! Each writer and step that a bound uses has a ring towards each reader, or one ring that several readers share.
//! Records are sealed and opened like those of the fabrics: copied, with a checksum over all bytes computed at both
//! ends. If the writer cannot infer that a ring has room, each reader publishes how many records it has consumed, and
//! the writer loads that count only when its ring seems full. One fence covers all records that are written in a round.

use std::io;

use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD, Word};
use stentor_fabric::seal::{HEADER_WORDS, Seal, record_cells, record_words};
use stentor_fabric::{ProcessId, WaitMode};
use zerocopy::IntoBytes;

use super::bells::Bells;
use super::lane::Lane;
use super::shared_area::SharedArea;

/// Salt of the seals. Clusters have different salts; here any value works.
const SALT: u64 = 0x5eed;
/// Number of lines between two rings, so that no prefetcher couples them.
const GAP: usize = 2;

/// Writer, readers, step and size of a ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RingSpec {
    pub(super) writer: usize,
    /// The processes that read the ring. The writer is not among them.
    pub(super) readers: Vec<usize>,
    pub(super) step: usize,
    /// Longest payload, in bytes; at least one word.
    pub(super) bytes: usize,
    /// Largest number of records in the ring.
    pub(super) slots: usize,
    /// `true` if readers publish how many records they have consumed. No count is needed if the writer knows from other
    /// records that the ring has room. Then no cache line is transferred back.
    pub(super) counted: bool,
}

impl RingSpec {
    fn cells(&self) -> usize {
        record_cells(self.bytes)
    }

    /// Returns the number of lines before the records, which hold each reader's count.
    fn counts(&self) -> usize {
        self.readers.len() * (1 + GAP)
    }

    /// Returns the number of lines that the ring needs.
    fn lines(&self) -> usize {
        self.counts() + self.cells() * self.slots + GAP
    }
}

/// Returns the number of lines that all these rings need.
pub(super) fn lines(specs: &[RingSpec]) -> usize {
    specs.iter().map(RingSpec::lines).sum()
}

/// A ring at one of its ends.
#[derive(Clone, Debug)]
struct Ring {
    spec: RingSpec,
    first_line: usize,
    /// Index of the reader among the readers.
    reader: usize,
    /// Number of records that this end has written or consumed in this phase.
    next: u64,
    /// Number of records that the writer knows to be consumed. Only the writer uses it.
    freed: u64,
}

impl Ring {
    /// Returns the word with a reader's count.
    fn count<'a>(&self, area: &'a SharedArea, reader: usize) -> &'a Word {
        &area.line(self.first_line + reader * (1 + GAP))[0]
    }

    /// Returns the number of records that all readers have consumed.
    fn taken(&self, area: &SharedArea, base: u64) -> u64 {
        let of = |reader| self.count(area, reader).load(Ordering::Acquire).saturating_sub(base);
        (0..self.spec.readers.len()).map(of).min().unwrap_or(u64::MAX)
    }

    /// Returns the first line of the next record, and its lap. The laps of different phases differ.
    #[inline]
    fn place(&self, base: u64) -> (usize, u64) {
        let slots = self.spec.slots as u64;
        let line = self.first_line + self.spec.counts() + (self.next % slots) as usize * self.spec.cells();
        (line, base + self.next / slots + 1)
    }
}

/// The ends of all rings at one process.
pub(super) struct Rings<'a> {
    area: &'a SharedArea,
    me: usize,
    steps: usize,
    clients: usize,
    /// Base of the phase, which rises with each phase.
    base: u64,
    out: Vec<Ring>,
    /// Index into `out`, by reader and step. The readers of a shared ring have the same index.
    to: Vec<Option<usize>>,
    r#in: Vec<Ring>,
    /// Newest message, by writer, step and client.
    newest: Vec<u64>,
    seals: Vec<Seal>,
    /// Buffers for the record that is written and for the one that is read.
    record: Vec<u64>,
    opened: Vec<u64>,
    /// Lap, word and payload length of the record that was sealed last. A record for several readers is sealed once.
    sealed: (u64, u64, usize),
    bells: Bells<'a>,
}

/// The parameters that the processes of a bound share.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    pub(super) specs: &'a [RingSpec],
    pub(super) processes: usize,
    pub(super) steps: usize,
    pub(super) clients: usize,
}

impl<'a> Rings<'a> {
    /// Creates the ends of process `me` for the phase with this base.
    pub(super) fn new(area: &'a SharedArea, shape: Shape<'_>, (me, base): (usize, u64), mode: WaitMode) -> Self {
        let Shape { specs, processes, steps, clients } = shape;
        let (mut out, mut r#in, mut to) = (Vec::new(), Vec::new(), vec![None; processes * steps]);
        let mut first_line = 0;
        for spec in specs {
            let ring = |reader| Ring { spec: spec.clone(), first_line, reader, next: 0, freed: 0 };
            if spec.writer == me {
                spec.readers.iter().for_each(|reader| to[reader * steps + spec.step] = Some(out.len()));
                out.push(ring(0));
            }
            r#in.extend(spec.readers.iter().position(|reader| *reader == me).map(ring));
            first_line += spec.lines();
        }
        let longest = specs.iter().map(|spec| record_words(spec.bytes)).max().unwrap_or(0);
        Rings {
            area,
            me,
            steps,
            clients,
            base,
            out,
            to,
            r#in,
            newest: vec![0; processes * steps * clients],
            seals: (0..processes).map(|process| Seal::new(ProcessId(process as u16), SALT)).collect(),
            record: vec![0; longest.next_multiple_of(LINE_WORDS)],
            opened: vec![0; longest.next_multiple_of(LINE_WORDS)],
            sealed: (0, 0, 0),
            bells: Bells::new(area, processes, me, mode),
        }
    }

    fn place(&self, writer: usize, step: usize, client: usize) -> usize {
        (writer * self.steps + step) * self.clients + client
    }

    /// Waits until a ring has room. Meanwhile it reads the rings towards this process, so that two processes cannot
    /// wait for each other forever.
    fn make_room(&mut self, ring: usize) -> io::Result<()> {
        loop {
            let out = &mut self.out[ring];
            if !out.spec.counted || out.next < out.freed + out.spec.slots as u64 {
                return Ok(());
            }
            let taken = out.taken(self.area, self.base);
            if std::mem::replace(&mut out.freed, taken) == taken {
                self.flush();
                let worked = self.look()?;
                self.bells.pause(worked)?;
            }
        }
    }
}

impl Lane for Rings<'_> {
    /// Opens the records that have arrived, in order, and counts them.
    #[inline]
    fn look(&mut self) -> io::Result<bool> {
        let mut worked = false;
        for at in 0..self.r#in.len() {
            let before = self.r#in[at].next;
            loop {
                let ring = &mut self.r#in[at];
                let (line, lap) = ring.place(self.base);
                let (writer, step) = (ring.spec.writer, ring.spec.step);
                let shared = self.area.lines(line, ring.spec.cells());
                if self.seals[writer].open(lap, shared, &mut self.opened).is_none() {
                    break;
                }
                ring.next += 1;
                let (client, n) = unpack(self.opened[HEADER_WORDS]);
                let place = self.place(writer, step, client);
                self.newest[place] = n;
            }
            let ring = &self.r#in[at];
            if ring.next > before {
                if ring.spec.counted {
                    ring.count(self.area, ring.reader).store(self.base + ring.next, Ordering::Release);
                }
                worked = true;
            }
        }
        Ok(worked)
    }

    #[inline]
    fn put(&mut self, reader: usize, step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()> {
        if reader == self.me {
            let place = self.place(self.me, step, client);
            self.newest[place] = n;
            return Ok(());
        }
        let ring = self.to[reader * self.steps + step].expect("a ring for each step that is taken");
        self.make_room(ring)?;
        let (line, lap) = self.out[ring].place(self.base);
        let bytes = bytes.max(WORD);
        let sealed = (lap, pack(client, n), bytes);
        if std::mem::replace(&mut self.sealed, sealed) != sealed {
            self.record[HEADER_WORDS] = sealed.1;
            self.seals[self.me].close(lap, bytes, &mut self.record);
        }
        self.area.store(line, self.record[..record_words(bytes)].as_bytes());
        self.out[ring].next += 1;
        self.out[ring].spec.readers.iter().for_each(|reader| self.bells.touch(*reader));
        Ok(())
    }

    /// Writes one record, which all readers share.
    #[inline]
    fn put_for(&mut self, readers: &[usize], step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()> {
        readers.first().map_or(Ok(()), |first| self.put(*first, step, client, n, bytes))
    }

    #[inline]
    fn newest(&self, writer: usize, step: usize, client: usize) -> u64 {
        self.newest[self.place(writer, step, client)]
    }

    #[inline]
    fn flush(&mut self) {
        self.bells.flush();
    }

    #[inline]
    fn pause(&mut self, worked: bool) -> io::Result<()> {
        self.bells.pause(worked)
    }
}

/// Packs a client and the number of its message, counted from 1, into a word.
fn pack(client: usize, n: u64) -> u64 {
    (client as u64) << 48 | n
}

fn unpack(word: u64) -> (usize, u64) {
    ((word >> 48) as usize, word & ((1 << 48) - 1))
}

#[cfg(test)]
mod tests {
    use super::super::shared_area;
    use super::*;

    fn specs() -> [RingSpec; 2] {
        let ring = |writer, reader: usize, step, bytes, slots| RingSpec {
            writer,
            readers: vec![reader],
            step,
            bytes,
            slots,
            counted: true,
        };
        [ring(0, 1, 0, 100, 4), ring(1, 0, 1, 8, 2)]
    }

    fn shape(specs: &[RingSpec], processes: usize) -> Shape<'_> {
        Shape { specs, processes, steps: 2, clients: 2 }
    }

    fn area(specs: &[RingSpec], processes: usize) -> SharedArea {
        SharedArea::create(shared_area::Shape { processes, lines: lines(specs), samples: 0 }).unwrap()
    }

    #[test]
    fn records_come_in_order_and_a_full_ring_waits_for_its_reader() {
        let specs = specs();
        let area = area(&specs, 2);
        for phase in 1..4_u64 {
            std::thread::scope(|scope| {
                let end = |me| Rings::new(&area, shape(&specs, 2), (me, phase << 32), WaitMode::YIELD);
                scope.spawn(move || {
                    let mut writer = end(0);
                    for n in 1..=1000 {
                        writer.put(1, 0, (n % 2) as usize, n, 100).unwrap();
                        if n % 3 == 0 {
                            writer.flush();
                        }
                    }
                    writer.flush();
                    while writer.newest(1, 1, 1) < 1000 {
                        let worked = writer.look().unwrap();
                        writer.pause(worked).unwrap();
                    }
                });
                let mut reader = end(1);
                let (mut even, mut odd) = (0, 0);
                while (even, odd) != (1000, 999) {
                    let worked = reader.look().unwrap();
                    let seen = (reader.newest(0, 0, 0), reader.newest(0, 0, 1));
                    assert!(seen.0 >= even && seen.1 >= odd, "{seen:?}");
                    (even, odd) = seen;
                    reader.pause(worked).unwrap();
                }
                reader.put(0, 1, 1, 1000, 8).unwrap();
                reader.flush();
            });
        }
    }

    #[test]
    fn readers_of_uncounted_rings_store_nothing() {
        for counted in [false, true] {
            let specs = [RingSpec { writer: 0, readers: vec![1], step: 0, bytes: 8, slots: 2, counted }];
            let area = area(&specs, 2);
            let end = |me| Rings::new(&area, shape(&specs, 2), (me, 1 << 32), WaitMode::POLL);
            let (mut writer, mut reader) = (end(0), end(1));
            for n in 1..=2 {
                writer.put(1, 0, 0, n, 8).unwrap();
            }
            assert!(reader.look().unwrap());
            assert_eq!(reader.newest(0, 0, 0), 2);
            let count = reader.r#in[0].count(&area, 0).load(Ordering::Relaxed);
            assert_eq!(count, if counted { (1 << 32) + 2 } else { 0 });
        }
    }

    #[test]
    fn records_to_the_own_process_need_no_ring() {
        let specs = specs();
        let area = area(&specs, 2);
        let mut rings = Rings::new(&area, shape(&specs, 2), (0, 1 << 32), WaitMode::POLL);
        rings.put(0, 1, 0, 7, 8).unwrap();
        assert_eq!((rings.newest(0, 1, 0), rings.newest(0, 1, 1)), (7, 0));
        assert_eq!(unpack(pack(15, 1 << 40)), (15, 1 << 40));
    }

    #[test]
    fn a_ring_of_several_readers_waits_for_the_slowest() {
        let specs = [RingSpec { writer: 0, readers: vec![1, 2], step: 1, bytes: 8, slots: 3, counted: true }];
        let area = area(&specs, 3);
        let [mut writer, mut one, mut other] =
            [0, 1, 2].map(|me| Rings::new(&area, shape(&specs, 3), (me, 1 << 32), WaitMode::POLL));
        (1..=3).for_each(|n| writer.put_for(&[1, 2], 1, 0, n, 8).unwrap());
        assert!(one.look().unwrap() && one.newest(0, 1, 0) == 3);
        assert_eq!(writer.out[0].taken(&area, 1 << 32), 0, "the other reader has consumed nothing");
        assert!(other.look().unwrap() && other.newest(0, 1, 0) == 3);
        writer.put_for(&[1, 2], 1, 0, 4, 8).unwrap();
        assert!(one.look().unwrap() && one.newest(0, 1, 0) == 4);
    }
}
