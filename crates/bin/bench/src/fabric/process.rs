//! The work of each of the two processes in each phase.

use std::hint::black_box;

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::seal::{HEADER_WORDS, record_words};
use stentor_support::Failure;

use super::super::clock::now;
use super::super::datagrams::Sockets;
use super::super::plain::{self, Exchange, Lines, ping_pong, repeat};
use super::super::worker_spec::{Carrier, Task, Worker};
use super::verbs::{self, AREA, Lane, Pair, Room, Verbs};
use super::{Kind, POSTS_PER_FLUSH, datagrams};

pub(in super::super) fn run(worker: Worker<'_>, longest: usize, carrier: Carrier) -> Result<(), Failure> {
    let room = |yields| Room { longest, yields };
    match carrier {
        Carrier::Shm => play(worker, verbs::shm(worker, longest)?, room(false), None),
        Carrier::Roce(network) => {
            let sockets = datagrams::open(network, worker.spec.process)?;
            play(worker, verbs::roce(worker, longest, network)?, room(false), Some(sockets))
        }
        Carrier::Verbs { address, yields } => play(worker, verbs::device(worker, address)?, room(yields), None),
    }
}

/// Runs the work of a process on any fabric.
fn play<F: Pair>(worker: Worker<'_>, fabric: F, room: Room, mut sockets: Option<Sockets>) -> Result<(), Failure> {
    let mut verbs = Verbs::new(fabric, worker.id(), room)?;
    worker.serve(|task| {
        match (Kind::of(task.command.kind), &mut sockets) {
            (kind, Some(sockets)) if kind.is_datagrams() => datagrams::perform(kind, task, sockets)?,
            _ => perform(task, &mut verbs)?,
        }
        // Process 0 ends the phase. Process 1 makes progress until then, because process 0 may need its answers.
        match task.me {
            0 => task.area.end(task.phase),
            _ if F::DRIVEN => verbs.drive_until(|| task.area.is_over(task.phase))?,
            _ => {}
        }
        Ok(())
    })
}

fn perform<F: Pair>(task: &Task<'_>, verbs: &mut Verbs<F>) -> Result<(), Failure> {
    let (area, bytes) = (task.area, task.command.bytes as usize);
    let words = (bytes / WORD).max(1);
    let lines = area.lines(0, super::BOUND_LINES);
    let mut pass = |shape: Exchanged| ping_pong(task, &mut Over { verbs, words, shape });
    match Kind::of(task.command.kind) {
        Kind::Connect => connect(task, verbs),
        Kind::PlainLines => ping_pong(task, &mut Lines::new(area, task.me, bytes)),
        Kind::PlainLoad => {
            let (from, mut to) = (&area.lines(0, plain::lines_of(bytes))[..words], vec![0; words]);
            repeat(task, |_| {
                plain::load(from, &mut to);
                Ok(())
            })
        }
        Kind::PlainStore => {
            let to = &area.lines(0, plain::lines_of(bytes))[..words];
            repeat(task, |n| {
                plain::store(to, n);
                Ok(())
            })
        }
        Kind::PlainStream => timed(task, |n, _| {
            let first = place(n, words);
            let to = &lines[first..first + words];
            to.iter().for_each(|word| word.store(n, Ordering::Relaxed));
            Ok(())
        }),
        Kind::RawWrite => pass(Exchanged::Inline(Lane::Reliable)),
        Kind::SealedInAll => {
            let payload = (words - HEADER_WORDS) * WORD;
            ping_pong(task, &mut Records { verbs, bytes: payload })
        }
        Kind::Sealed => ping_pong(task, &mut Records { verbs, bytes }),
        Kind::Send => pass(Exchanged::Send),
        Kind::WriteUnsignalled => pass(Exchanged::Region),
        Kind::WriteUc => pass(Exchanged::Inline(Lane::Unreliable)),
        Kind::WriteImm => pass(Exchanged::Imm),
        Kind::Read => repeat(task, |_| verbs.read_to_completion(words)),
        Kind::WriteSignalled => repeat(task, |n| verbs.write_to_completion(words, n)),
        Kind::Stream => stream(task, verbs, words),
        Kind::StreamRegion => stream_region(task, verbs, Lane::Reliable, words),
        Kind::StreamSend => stream_region(task, verbs, Lane::Send, words),
        kind => unreachable!("{kind:?} needs a network"),
    }
}

fn connect<F: Pair>(task: &Task<'_>, verbs: &mut Verbs<F>) -> Result<(), Failure> {
    task.area.connect_two(task.me, task.phase, || Ok::<_, Failure>(verbs.connect()))?;
    // The limit decides which rows exist.
    task.area.results(task.me)[1].store(verbs.inline_limit(), Ordering::Relaxed);
    Ok(())
}

/// Returns the word offset of the `n`-th write of a stream.
fn place(n: u64, words: usize) -> usize {
    let places = (AREA / WORD / words.next_multiple_of(8)).max(1);
    (n as usize % places) * words.next_multiple_of(8)
}

/// Repeats an operation in process 0. The first result is the time of the measured iterations, in nanoseconds.
///
/// The second argument of the operation is `true` in the last call of the warm-up and in that of the measurement. In
/// these calls the operation waits for its outstanding requests, which would otherwise complete in the time of later
/// iterations.
fn timed(task: &Task<'_>, mut operation: impl FnMut(u64, bool) -> Result<(), Failure>) -> Result<(), Failure> {
    if task.me != 0 {
        return Ok(());
    }
    let mut all = |count: u64| (0..count).try_for_each(|n| operation(n, n + 1 == count));
    all(task.command.warmup)?;
    let start = now();
    all(task.command.iterations)?;
    task.area.results(0)[0].store(now() - start, Ordering::Relaxed);
    Ok(())
}

fn stream<F: Pair>(task: &Task<'_>, verbs: &mut Verbs<F>, words: usize) -> Result<(), Failure> {
    timed(task, |n, is_last| {
        verbs.record[..words].fill(n);
        let flush = (n + 1) % POSTS_PER_FLUSH == 0;
        verbs.write_inline(Lane::Reliable, words, (place(n, words) * WORD) as u64, flush)?;
        if is_last { verbs.drain() } else { Ok(()) }
    })
}

/// Streams from a region, until the last request has completed. The other process receives the messages of SENDs.
fn stream_region<F: Pair>(task: &Task<'_>, verbs: &mut Verbs<F>, lane: Lane, words: usize) -> Result<(), Failure> {
    if task.me != 0 && lane == Lane::Send {
        return (0..task.total()).try_for_each(|_| verbs.receive(lane));
    }
    timed(task, |n, is_last| {
        let number = verbs.stream_region(lane, words, (n + 1) % POSTS_PER_FLUSH == 0, is_last)?;
        if is_last { verbs.complete(lane, number) } else { Ok(()) }
    })
}

/// The verb that carries a payload.
#[derive(Clone, Copy)]
enum Exchanged {
    Inline(Lane),
    Region,
    Send,
    Imm,
}

/// Ping-pong of payloads whose words all have one value.
struct Over<'a, F: Pair> {
    verbs: &'a mut Verbs<F>,
    words: usize,
    shape: Exchanged,
}

/// Returns whether every word has arrived. All words must be checked, because the words of a raw write may land in any
/// order (rule 2 of the `Fabric` contract). `shm` stores the second word last, so that word is checked first.
#[inline]
fn is_there(words: &[Word], tag: u64) -> bool {
    let likely_last = words.get(1).unwrap_or(&words[0]);
    likely_last.load(Ordering::Acquire) == tag && words.iter().all(|word| word.load(Ordering::Acquire) == tag)
}

impl<F: Pair> Exchange for Over<'_, F> {
    #[inline]
    fn send(&mut self, tag: u64) -> Result<(), Failure> {
        let words = self.words;
        if !matches!(self.shape, Exchanged::Region) {
            self.verbs.record[..words].fill(tag);
        }
        match self.shape {
            Exchanged::Inline(lane) => self.verbs.write_inline(lane, words, 0, true),
            Exchanged::Region => self.verbs.write_region(words, tag, false).map(|_| ()),
            Exchanged::Send => self.verbs.send(words, tag),
            Exchanged::Imm => self.verbs.write_imm(words),
        }
    }

    #[inline]
    fn receive(&mut self, tag: u64) -> Result<(), Failure> {
        match self.shape {
            Exchanged::Inline(_) | Exchanged::Region => {
                while !is_there(&self.verbs.landed()[..self.words], tag) {
                    self.verbs.drive()?;
                }
                Ok(())
            }
            Exchanged::Send => self.verbs.receive(Lane::Send),
            Exchanged::Imm => {
                self.verbs.receive(Lane::Imm)?;
                debug_assert!(is_there(&self.verbs.landed()[..self.words], tag));
                Ok(())
            }
        }
    }
}

/// Ping-pong of sealed records at a fixed location.
struct Records<'a, F: Pair> {
    verbs: &'a mut Verbs<F>,
    bytes: usize,
}

impl<F: Pair> Exchange for Records<'_, F> {
    #[inline]
    fn send(&mut self, tag: u64) -> Result<(), Failure> {
        let words = record_words(self.bytes);
        let verbs = &mut *self.verbs;
        verbs.record[HEADER_WORDS..words].fill(tag);
        verbs.seal.0.close(tag, self.bytes, &mut verbs.record[..words]);
        verbs.write_inline(Lane::Reliable, words, 0, true)
    }

    #[inline]
    fn receive(&mut self, tag: u64) -> Result<(), Failure> {
        let mut private = std::mem::take(&mut self.verbs.private);
        while self.verbs.seal.1.open(tag, self.verbs.landed(), &mut private).is_none() {
            self.verbs.drive()?;
        }
        black_box(&private);
        self.verbs.private = private;
        Ok(())
    }
}
