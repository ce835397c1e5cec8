//! Loom models: every interleaving of a writer and a reader of the same sealed location, and of a sleeper and its
//! wakers, under the memory model of the language.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p stentor-fabric --test loom --release`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use stentor_fabric::memory::{Ordering, Word};
use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Alarm, ProcessId};

const WORDS: usize = HEADER_WORDS + 1;

fn record(seal: Seal, lap: u64) -> [u64; WORDS] {
    let mut record = [0; WORDS];
    record[HEADER_WORDS] = 1000 + lap;
    seal.close(lap, 8, &mut record);
    record
}

/// Stores the words in the given order, all relaxed. The model then allows every order in which a NIC or another core
/// could make them visible.
fn write(memory: &[Word; WORDS], record: [u64; WORDS], order: [usize; WORDS]) {
    for at in order {
        memory[at].store(record[at], Ordering::Relaxed);
    }
}

/// Checks that the reader accepts only a complete sealed record, whichever of its words have landed.
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
        assert_eq!(seal.open(2, &memory[..], &mut private), Some(8), "a complete record validates");
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

/// With the mutant that skips the checksum the reader accepts a mixture, which shows that this test can fail.
#[cfg(feature = "plants")]
#[test]
#[should_panic(expected = "a mixture")]
fn the_unvalidated_mutant_is_found() {
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

/// A sleeper that arms, checks once more and only then sleeps is either woken or has seen what was stored. This also
/// holds for the second arming.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let shared = Arc::new((Alarm::default(), Word::new(0)));
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.store(7, Ordering::Relaxed);
                shared.0.ring()
            })
        };
        // The sleeper arms twice and checks for work only after the second time, so a ring may fall between the two.
        shared.0.arm();
        shared.0.disarm();
        shared.0.arm();
        let seen = shared.1.load(Ordering::Relaxed) == 7;
        let rung = waker.join().unwrap();
        assert!(seen || rung && shared.0.has_rung());
    });
}

/// If the sleeper has not seen the stores of both wakers, exactly one of them wakes it. Never do both.
#[test]
fn one_of_two_wakers_wakes() {
    loom::model(|| {
        let shared = Arc::new((Alarm::default(), [Word::new(0), Word::new(0)]));
        let wakers: Vec<_> = (0..2)
            .map(|index| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1[index].store(7, Ordering::Relaxed);
                    shared.0.ring()
                })
            })
            .collect();
        shared.0.arm();
        let seen = shared.1.iter().filter(|word| word.load(Ordering::Relaxed) == 7).count();
        let rung = wakers.into_iter().map(|waker| waker.join().unwrap()).filter(|rung| *rung).count();
        assert!(seen == 2 || rung == 1, "seen {seen}, rung {rung}");
        assert!(rung <= 1);
    });
}
