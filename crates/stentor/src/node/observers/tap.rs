//! The queue by which the apply thread hands applied commands to the observers' thread, without ever blocking.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use super::ring;
use crate::node::state_writer::StateWriter;
use crate::observer::place::Place;
use crate::observer::record::{CommandRecord, Record, Step};

/// Flag: applied commands are handed over.
const ON: u8 = 1;
/// Flag: the apply thread must report its place.
const MARK: u8 = 2;
/// Flag: the apply thread must freeze the value.
const FREEZE: u8 = 4;
/// Size at which a block is handed over, in bytes.
const BLOCK: usize = 64 << 10;
/// Memory of a block besides its records, in bytes.
const OVERHEAD: usize = 128;
/// Capacity of the queue of [`News`], in entries.
const NEWS: usize = 1024;
/// Number of entries that are reserved for events other than blocks.
const RESERVE: usize = 16;
/// Number of waiting events at which short blocks are combined, because the observers' thread does not keep up.
pub(super) const MANY: usize = 64;
/// Maximum number of empty buffers that are kept for reuse.
const SPARE: usize = 64;

/// Concatenated records of applied commands.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The place before the first record.
    pub(super) before: Place,
    /// The place of the last record.
    pub(super) last: Place,
    pub(super) bytes: Vec<u8>,
}

/// An event from the apply thread, in order.
pub(super) enum News {
    Block(Block),
    /// The place of the machine. It need not follow from earlier events.
    Mark(Place),
    /// The frozen value at this place, or `None` if it cannot be frozen.
    State(Place, Box<Option<StateWriter>>),
    /// The machine accepts no more work.
    Poisoned,
}

/// The queues, which exist once the first observer has connected.
struct Queues {
    news: ArrayQueue<News>,
    /// Buffers that return to the apply thread, so that neither thread frees memory that the other has allocated.
    /// Otherwise the two would contend for a lock of the allocator, which the observers' thread may hold for long
    /// without running.
    spare: ArrayQueue<Vec<u8>>,
    bell: Arc<OwnedFd>,
}

/// The queue between the apply thread and the observers' thread. Neither thread waits for the other.
pub(in crate::node) struct Tap {
    /// The flags that the apply thread must act on.
    wants: AtomicU8,
    queues: OnceLock<Queues>,
    /// Size of the blocks in `news`, in bytes.
    waiting: AtomicUsize,
    /// Maximum size of these blocks, in bytes. A single block may exceed it.
    most: usize,
    /// `true` if the observers' thread sleeps until there is an event.
    sleeps: AtomicBool,
}

impl Tap {
    /// Creates a queue. `most` is the memory of the journal and this queue together, in bytes.
    pub(in crate::node) fn new(most: usize) -> Self {
        Tap {
            wants: AtomicU8::new(0),
            queues: OnceLock::new(),
            waiting: AtomicUsize::new(0),
            most: most / 4,
            sleeps: AtomicBool::new(false),
        }
    }

    /// Returns the maximum size of the journal in bytes. 0 means that observers are not served.
    pub(super) fn journal(&self) -> usize {
        3 * self.most
    }

    pub(super) fn open(&self, bell: Arc<OwnedFd>) {
        let _ = self.queues.set(Queues { news: ArrayQueue::new(NEWS), spare: ArrayQueue::new(SPARE), bell });
    }

    /// Requests the machine's present place, and the records of all commands that are applied after the apply thread
    /// has read this request.
    pub(super) fn begin(&self) {
        self.wants.fetch_or(ON | MARK, Ordering::Relaxed);
    }

    /// Requests the frozen value.
    pub(super) fn freeze(&self) {
        self.wants.fetch_or(FREEZE, Ordering::Relaxed);
    }

    /// Ends the hand-over.
    pub(super) fn end(&self) {
        self.wants.store(0, Ordering::Relaxed);
    }

    /// Returns the next event.
    pub(super) fn next(&self) -> Option<News> {
        let news = self.queues.get()?.news.pop()?;
        if let News::Block(block) = &news {
            self.waiting.fetch_sub(block.bytes.capacity() + OVERHEAD, Ordering::Relaxed);
        }
        Some(news)
    }

    /// Returns the buffer of a block for reuse.
    pub(super) fn give_back(&self, mut bytes: Vec<u8>) {
        // The buffer of a long command is not worth keeping.
        if let Some(queues) = self.queues.get().filter(|_| bytes.capacity() <= 2 * BLOCK) {
            bytes.clear();
            let _ = queues.spare.push(bytes);
        }
    }

    /// Prepares a sleep of the observers' thread. Returns whether it may sleep, because there is no event.
    pub(super) fn arm(&self) -> bool {
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.queues.get().is_none_or(|queues| queues.news.is_empty())
    }

    pub(super) fn disarm(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
    }

    /// Returns whether the queue contains so many events that short blocks would fill it.
    fn is_crowded(&self) -> bool {
        self.queues.get().is_some_and(|queues| queues.news.len() >= MANY)
    }

    /// Returns whether there is room for a block of this size.
    fn has_room(&self, bytes: usize) -> bool {
        let waiting = self.waiting.load(Ordering::Relaxed);
        // If nothing waits, a block of any size is accepted, because it may be a single long command.
        let fits = waiting == 0 || waiting + bytes <= self.most;
        fits && self.queues.get().is_some_and(|queues| queues.news.len() < NEWS - RESERVE)
    }

    /// Adds an event, and wakes the observers' thread if it sleeps.
    fn tell(&self, news: News) {
        let Some(queues) = self.queues.get() else { return };
        let _ = queues.news.push(news);
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            ring::ring(&queues.bell);
        }
    }
}

/// An applied delivery.
pub(in crate::node) struct Applied<'a> {
    pub(in crate::node) place: Place,
    /// The command that the machine applied. `None` if the delivery contains none.
    pub(in crate::node) command: Option<CommandRecord<'a>>,
}

/// The apply thread's end of the queue.
pub(in crate::node) struct Writer {
    tap: Arc<Tap>,
    /// `true` if applied commands are handed over.
    is_on: bool,
    /// `true` if records are skipped, because there was no room. Writing resumes when the waiting blocks take at most
    /// half of their bound.
    skips: bool,
    /// The place of the last applied delivery.
    place: Place,
    block: Block,
}

impl Writer {
    pub(in crate::node) fn new(tap: Tap) -> Self {
        let (place, block) = (Place::default(), Block::default());
        Writer { tap: Arc::new(tap), is_on: false, skips: false, place, block }
    }

    pub(in crate::node) fn tap(&self) -> &Arc<Tap> {
        &self.tap
    }

    /// Returns the place of the last applied delivery.
    pub(in crate::node) fn place(&self) -> Place {
        self.place
    }

    /// Records an applied delivery.
    #[inline]
    pub(in crate::node) fn note(&mut self, applied: &Applied<'_>) {
        if self.is_on {
            self.write(applied);
        }
        self.place = applied.place;
    }

    fn write(&mut self, applied: &Applied<'_>) {
        let Applied { place, command } = applied;
        if self.skips {
            self.skips = self.tap.waiting.load(Ordering::Relaxed) > self.tap.most / 2;
            if self.skips {
                return;
            }
        }
        let block = &mut self.block;
        if block.bytes.is_empty() {
            block.before = self.place;
            if block.bytes.capacity() == 0 {
                block.bytes = self.tap.queues.get().and_then(|queues| queues.spare.pop()).unwrap_or_default();
            }
        }
        if place.origin != self.place.origin {
            Record::Origin { origin: place.origin, kept: place.index.saturating_sub(1) }.write(&mut block.bytes);
        }
        let step = Step { index: place.index, timestamp: place.timestamp };
        match command {
            Some(command) => Record::Command(step, *command).write(&mut block.bytes),
            None => Record::Step(step).write(&mut block.bytes),
        }
        block.last = *place;
        if block.bytes.len() >= BLOCK {
            self.publish();
        }
    }

    /// Hands over the present block. If there is no room for it, the journal gets a gap.
    fn publish(&mut self) {
        if self.block.bytes.is_empty() {
            return;
        }
        let bytes = self.block.bytes.capacity() + OVERHEAD;
        if !self.tap.has_room(bytes) {
            self.skips = true;
            self.block.bytes.clear();
            return;
        }
        let block = std::mem::take(&mut self.block);
        self.tap.waiting.fetch_add(bytes, Ordering::Relaxed);
        self.tap.tell(News::Block(block));
    }

    /// Hands over the applied records, and acts on the requests of the observers' thread. If `is_well`, the machine can
    /// be frozen, by calling `freeze`.
    #[inline]
    pub(in crate::node) fn serve(&mut self, is_well: bool, freeze: impl FnOnce() -> Option<StateWriter>) {
        let wants = self.tap.wants.load(Ordering::Relaxed);
        if wants != 0 || self.is_on {
            self.serve_wants(wants, is_well, freeze);
        }
    }

    fn serve_wants(&mut self, wants: u8, is_well: bool, freeze: impl FnOnce() -> Option<StateWriter>) {
        let asked = wants & (MARK | FREEZE) != 0;
        self.is_on = wants & ON != 0;
        // While the queue is crowded, the records stay in this writer. The observers' thread wakes the apply thread
        // again after it has taken many events at once, so this function is called again.
        if asked || !self.is_on || !self.tap.is_crowded() {
            self.publish();
        }
        if !asked {
            return;
        }
        self.tap.wants.fetch_and(!(MARK | FREEZE), Ordering::Relaxed);
        if !is_well {
            self.tap.tell(News::Poisoned);
            return;
        }
        if wants & MARK != 0 {
            self.tap.tell(News::Mark(self.place));
        }
        if wants & FREEZE != 0 {
            self.tap.tell(News::State(self.place, Box::new(freeze())));
        }
    }

    /// Continues at the place of a restored state, or with `None` reports that the machine accepts no more work.
    pub(in crate::node) fn begin_anew(&mut self, place: Option<Place>) {
        self.publish();
        if let Some(place) = place {
            self.place = place;
        }
        if self.is_on {
            self.tap.tell(place.map_or(News::Poisoned, News::Mark));
        }
    }
}

#[cfg(test)]
mod tests {
    use stentor_multicast::{Incarnation, Timestamp};

    use super::*;
    use crate::observer::record::GroupList;

    fn place(index: u64) -> Place {
        let origin = Incarnation { number: if index > 5 { 2 } else { 1 }, tag: 0 };
        Place { origin, index, timestamp: Timestamp { time: 10 * index, group: 0 } }
    }

    fn note(writer: &mut Writer, index: u64, bytes: &[u8]) {
        let command = CommandRecord { client: 0, session: 0, groups: GroupList::Ids(&[]), bytes };
        writer.note(&Applied { place: place(index), command: Some(command) });
    }

    fn blocks(tap: &Tap) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        while let Some(news) = tap.next() {
            match news {
                News::Block(block) => {
                    found.push((block.before.index, block.last.index));
                    tap.give_back(block.bytes);
                }
                News::Mark(at) => found.push((at.index, at.index)),
                News::State(..) | News::Poisoned => found.push((0, 0)),
            }
        }
        found
    }

    #[test]
    fn records_are_handed_over_only_between_request_and_end() {
        let mut writer = Writer::new(Tap::new(1 << 20));
        let tap = Arc::clone(writer.tap());
        tap.open(Arc::new(ring::make().expect("a bell")));
        let serve = |writer: &mut Writer| writer.serve(true, || None);
        note(&mut writer, 1, b"one");
        serve(&mut writer);
        assert!(tap.next().is_none());
        tap.begin();
        note(&mut writer, 2, b"two");
        serve(&mut writer);
        (3..=7).for_each(|index| note(&mut writer, index, b"more"));
        serve(&mut writer);
        assert_eq!(blocks(&tap), [(2, 2), (2, 7)]);
        tap.end();
        note(&mut writer, 8, b"eight");
        serve(&mut writer);
        assert_eq!(blocks(&tap), [(7, 8)], "the apply thread had not checked the flags yet");
        note(&mut writer, 9, b"nine");
        serve(&mut writer);
        assert!(tap.next().is_none() && tap.waiting.load(Ordering::Relaxed) == 0);
    }

    /// Prints the cost of a command for the apply thread, with and without observers.
    #[test]
    #[ignore = "it measures"]
    fn cost_of_a_command() {
        for (bytes, is_on) in [(64, false), (64, true), (1024, true), (16 << 10, true)] {
            let mut writer = Writer::new(Tap::new(32 << 20));
            let (tap, command) = (Arc::clone(writer.tap()), vec![7; bytes]);
            tap.open(Arc::new(ring::make().expect("a bell")));
            if is_on {
                tap.begin();
            }
            writer.serve(true, || None);
            let (count, mut took) = (1_000_000 / (1 + bytes as u64 / 1024), std::time::Duration::ZERO);
            for batch in 0..count / 32 {
                let since = std::time::Instant::now();
                (0..32).for_each(|at| note(&mut writer, 32 * batch + at + 10, &command));
                writer.serve(true, || None);
                took += since.elapsed();
                blocks(&tap);
            }
            let each = took.as_secs_f64() * 1e9 / count as f64;
            println!("a command of {bytes} bytes, {}: {each:.1} ns", if is_on { "observed" } else { "not observed" });
        }
    }

    #[test]
    fn records_that_do_not_fit_leave_a_gap() {
        let mut writer = Writer::new(Tap::new(64 << 10));
        let tap = Arc::clone(writer.tap());
        tap.open(Arc::new(ring::make().expect("a bell")));
        tap.begin();
        writer.serve(true, || None);
        for index in 1..=100 {
            note(&mut writer, index, &[7; 1000]);
            writer.serve(true, || None);
            assert!(tap.waiting.load(Ordering::Relaxed) <= 16 << 10);
        }
        let (found, next) = (blocks(&tap), 101);
        assert!(found.len() < 20 && found.windows(2).all(|pair| pair[0].1 == pair[1].0), "no gap in it: {found:?}");
        note(&mut writer, next, b"there is room");
        writer.serve(true, || None);
        assert_eq!(blocks(&tap), [(100, 101)]);
        // A command that exceeds the whole bound is handed over if nothing else waits.
        note(&mut writer, 102, &[1; 50_000]);
        writer.serve(true, || None);
        assert_eq!(blocks(&tap), [(101, 102)]);
    }

    #[test]
    fn short_blocks_are_combined_when_many_wait() {
        let mut writer = Writer::new(Tap::new(64 << 20));
        let tap = Arc::clone(writer.tap());
        tap.open(Arc::new(ring::make().expect("a bell")));
        tap.begin();
        writer.serve(true, || None);
        for index in 1..=20_000 {
            note(&mut writer, index, &[7; 9]);
            writer.serve(true, || None);
        }
        let mut found = blocks(&tap);
        assert!(found.len() >= MANY && found.len() < 2 * MANY, "{}", found.len());
        writer.serve(true, || None);
        found.extend(blocks(&tap));
        assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].0), "{found:?}");
        assert_eq!(found.last().map(|last| last.1), Some(20_000));
    }

    #[test]
    fn a_poisoned_machine_and_a_restored_place_are_reported() {
        let mut writer = Writer::new(Tap::new(1 << 20));
        let tap = Arc::clone(writer.tap());
        tap.open(Arc::new(ring::make().expect("a bell")));
        writer.begin_anew(Some(place(4)));
        assert!(tap.next().is_none() && writer.place() == place(4), "nobody asks");
        tap.begin();
        writer.serve(false, || panic!("it is not frozen"));
        assert!(matches!(tap.next(), Some(News::Poisoned)));
        writer.begin_anew(Some(place(9)));
        assert!(matches!(tap.next(), Some(News::Mark(at)) if at == place(9)));
        tap.freeze();
        writer.serve(true, || None);
        assert!(matches!(tap.next(), Some(News::State(at, none)) if at == place(9) && none.is_none()));
    }
}
