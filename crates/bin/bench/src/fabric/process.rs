//! What one of the two processes does in each phase.

use std::hint::black_box;

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::seal::{HEADER_WORDS, record_words};
use stentor_support::Failure;

use super::super::clock::now;
use super::super::datagrams::Sockets;
use super::super::plain::{self, Exchange, Lines, ping_pong, repeat};
use super::super::shared_area::{Command, SharedArea};
use super::super::worker_spec::{Carrier, WorkerSpec, serve};
use super::verbs::{self, AREA, Lane, Pair, Room, Verbs};
use super::{Kind, POSTS_PER_FLUSH, datagrams};

pub(in super::super) fn run(
    spec: &WorkerSpec,
    area: &SharedArea,
    longest: usize,
    carrier: Carrier,
) -> Result<(), Failure> {
    let verbs = |yields| Room { longest, yields };
    match carrier {
        Carrier::Shm => play(spec, area, &mut Verbs::new(verbs::shm(spec, longest)?, spec, verbs(false))?, None),
        Carrier::Roce(network) => {
            let sockets = datagrams::open(network, spec.process)?;
            let fabric = verbs::roce(spec, longest, network)?;
            play(spec, area, &mut Verbs::new(fabric, spec, verbs(false))?, Some(sockets))
        }
        Carrier::Verbs { address, yields } => {
            play(spec, area, &mut Verbs::new(verbs::device(spec, address)?, spec, verbs(yields))?, None)
        }
    }
}

/// A process's part, on any fabric.
fn play<F: Pair>(
    spec: &WorkerSpec,
    area: &SharedArea,
    verbs: &mut Verbs<F>,
    mut sockets: Option<Sockets>,
) -> Result<(), Failure> {
    let me = spec.process;
    serve(spec, area, |command, phase| {
        match (Kind::of(command.kind), &mut sockets) {
            (kind, Some(sockets)) if kind.is_datagrams() => {
                datagrams::perform(kind, area, me, sockets, &command, phase)?;
            }
            _ => perform(me, area, verbs, &command, phase)?,
        }
        // The first process ends the phase; until then it may need the other one's answers.
        match me {
            0 => area.end(phase),
            _ if F::DRIVEN => verbs.drive_until(|| area.is_over(phase))?,
            _ => {}
        }
        Ok(())
    })
}

fn perform<F: Pair>(
    me: usize,
    area: &SharedArea,
    verbs: &mut Verbs<F>,
    command: &Command,
    phase: u64,
) -> Result<(), Failure> {
    let bytes = command.bytes as usize;
    let words = (bytes / WORD).max(1);
    let lines = area.lines(0, super::FLOOR_LINES);
    let mut pass = |shape: Exchanged| ping_pong(area, me, command, phase, &mut Over { verbs, words, shape });
    match Kind::of(command.kind) {
        Kind::Connect => connect(area, me, verbs, phase),
        Kind::PlainLines => ping_pong(area, me, command, phase, &mut Lines::new(area, me, bytes)),
        Kind::PlainLoad => {
            let (from, mut to) = (&area.lines(0, plain::lines_of(bytes))[..words], vec![0; words]);
            repeat(area, me, command, |_| {
                plain::load(from, &mut to);
                Ok(())
            })
        }
        Kind::PlainStore => {
            let to = &area.lines(0, plain::lines_of(bytes))[..words];
            repeat(area, me, command, |n| {
                plain::store(to, n);
                Ok(())
            })
        }
        Kind::PlainStream => timed(area, me, command, |n, _| {
            let first = place(n, words);
            let to = &lines[first..first + words];
            to.iter().for_each(|word| word.store(n, Ordering::Relaxed));
            Ok(())
        }),
        Kind::RawWrite => pass(Exchanged::Inline(Lane::Reliable)),
        Kind::SealedInAll => {
            let payload = (words - HEADER_WORDS) * WORD;
            ping_pong(area, me, command, phase, &mut Records { verbs, bytes: payload })
        }
        Kind::Sealed => ping_pong(area, me, command, phase, &mut Records { verbs, bytes }),
        Kind::Send => pass(Exchanged::Send),
        Kind::WriteUnsignalled => pass(Exchanged::Region),
        Kind::WriteUc => pass(Exchanged::Inline(Lane::Unreliable)),
        Kind::WriteImm => pass(Exchanged::Imm),
        Kind::Read => repeat(area, me, command, |_| verbs.read_to_completion(words)),
        Kind::WriteSignalled => repeat(area, me, command, |n| verbs.write_to_completion(words, n)),
        Kind::Stream => stream(area, me, verbs, command, words),
        Kind::StreamRegion => stream_region(area, me, verbs, command, (Lane::Reliable, words)),
        Kind::StreamSend => stream_region(area, me, verbs, command, (Lane::Send, words)),
        kind => unreachable!("{kind:?} needs a network"),
    }
}

fn connect<F: Pair>(area: &SharedArea, me: usize, verbs: &mut Verbs<F>, phase: u64) -> Result<(), Failure> {
    area.connect_two(me, phase, || Ok::<_, Failure>(verbs.connect()))?;
    // Which rows there are depends on it.
    area.results(me)[1].store(verbs.inline_limit(), Ordering::Relaxed);
    Ok(())
}

/// Word offset of the n-th write of a stream.
fn place(n: u64, words: usize) -> usize {
    let places = (AREA / WORD / words.next_multiple_of(8)).max(1);
    (n as usize % places) * words.next_multiple_of(8)
}

/// Process 0 does something over and over; its first result is the time of the measured iterations, ns. The operation is told
/// when it is the last one, of those before the clock starts, too: whoever has something under way waits for it then, or it
/// would be done in the time of others.
fn timed(
    area: &SharedArea,
    me: usize,
    command: &Command,
    mut operation: impl FnMut(u64, bool) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if me != 0 {
        return Ok(());
    }
    let mut all = |count: u64| (0..count).try_for_each(|n| operation(n, n + 1 == count));
    all(command.warmup)?;
    let start = now();
    all(command.iterations)?;
    area.results(0)[0].store(now() - start, Ordering::Relaxed);
    Ok(())
}

fn stream<F: Pair>(
    area: &SharedArea,
    me: usize,
    verbs: &mut Verbs<F>,
    command: &Command,
    words: usize,
) -> Result<(), Failure> {
    timed(area, me, command, |n, is_last| {
        verbs.record[..words].fill(n);
        let flush = (n + 1) % POSTS_PER_FLUSH == 0;
        verbs.write_inline(Lane::Reliable, words, (place(n, words) * WORD) as u64, flush)?;
        if is_last { verbs.drain() } else { Ok(()) }
    })
}

/// From a region, until the last one has its completion. The other process takes what is sent.
fn stream_region<F: Pair>(
    area: &SharedArea,
    me: usize,
    verbs: &mut Verbs<F>,
    command: &Command,
    (lane, words): (Lane, usize),
) -> Result<(), Failure> {
    if me != 0 && lane == Lane::Send {
        return (0..command.warmup + command.iterations).try_for_each(|_| verbs.receive(lane));
    }
    timed(area, me, command, |n, is_last| {
        let number = verbs.stream_region(lane, words, (n + 1) % POSTS_PER_FLUSH == 0, is_last)?;
        if is_last { verbs.complete(lane, number) } else { Ok(()) }
    })
}

/// How a payload goes over.
#[derive(Clone, Copy)]
enum Exchanged {
    Inline(Lane),
    Region,
    Send,
    Imm,
}

/// Payloads of one value.
struct Over<'a, F: Pair> {
    verbs: &'a mut Verbs<F>,
    words: usize,
    shape: Exchanged,
}

/// Whether every word has come: nothing less tells of a raw write (rule 2). `shm` stores the second one last, so that
/// is looked at first.
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

/// Sealed records in a fixed place.
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
