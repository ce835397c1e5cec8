//! Every interleaving of a writer and a reader of the same sealed place, under the memory model of the language.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p stentor-fabric --test loom --release`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use stentor_fabric::ProcessId;
use stentor_fabric::memory::{Ordering, Word};
use stentor_fabric::seal::{HEADER_WORDS, Seal};

const WORDS: usize = HEADER_WORDS + 1;

fn record(seal: Seal, lap: u64) -> [u64; WORDS] {
    let mut record = [0; WORDS];
    record[HEADER_WORDS] = 1000 + lap;
    seal.close(lap, 8, &mut record);
    record
}

/// Stores in the order given, all relaxed: the worst that a NIC or another core does.
fn write(memory: &[Word; WORDS], record: [u64; WORDS], order: [usize; WORDS]) {
    for at in order {
        memory[at].store(record[at], Ordering::Relaxed);
    }
}

/// What opens is what was closed, whatever is half there.
fn never_a_mixture(order: [usize; WORDS]) {
    loom::model(move || {
        let seal = Seal::new(ProcessId(1), 5);
        let memory: Arc<[Word; WORDS]> = Arc::new(std::array::from_fn(|_| Word::new(0)));
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                write(&memory, record(seal, 1), order);
                write(&memory, record(seal, 2), order);
            })
        };
        let mut private = [0; WORDS];
        if let Some((lap, bytes)) = seal.open_newer(0, &memory[..], &mut private) {
            assert_eq!(bytes, 8);
            assert_eq!(private[HEADER_WORDS], 1000 + lap, "a mixture of two laps was accepted");
        }
        writer.join().expect("the writer finishes");
        assert_eq!(seal.open(2, &memory[..], &mut private), Some(8), "what is wholly there opens");
        assert_eq!(private[HEADER_WORDS], 1002);
    });
}

#[test]
fn a_reader_never_accepts_a_mixture_when_the_lap_comes_first() {
    never_a_mixture([1, 2, 3, 0]);
}

#[test]
fn a_reader_never_accepts_a_mixture_when_the_lap_comes_last() {
    never_a_mixture([0, 3, 2, 1]);
}

/// The same with the mutant that skips the checksum: this test can fail.
#[cfg(feature = "plants")]
#[test]
#[should_panic(expected = "a mixture")]
fn the_planted_bug_is_seen() {
    loom::model(|| {
        let seal = Seal::new(ProcessId(1), 5).with_mutant(stentor_fabric::Mutant::Unvalidated);
        let memory: Arc<[Word; WORDS]> = Arc::new(std::array::from_fn(|_| Word::new(0)));
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || write(&memory, record(seal, 1), [1, 2, 3, 0]))
        };
        let mut private = [0; WORDS];
        if let Some((lap, _)) = seal.open_newer(0, &memory[..], &mut private) {
            assert_eq!(private[HEADER_WORDS], 1000 + lap, "a mixture of two laps was accepted");
        }
        writer.join().expect("the writer finishes");
    });
}
