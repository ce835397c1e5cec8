//! The three algorithms in which other processes take part, in every interleaving (of the queue: with at most 3
//! preemptions) and with every value that the memory model permits a load to return. Run with `RUSTFLAGS="--cfg loom"
//! cargo test -p stentor-fabric-shm --test loom --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use stentor_fabric::memory::{Ordering, Word, fence};
use stentor_fabric_shm::doorbell::{self, AWAKE, FUTEX};
use stentor_fabric_shm::gate;
use stentor_fabric_shm::queue::{Consumer, Header, Producer, Readiness, RecordKind, Shape};

fn words(count: usize) -> Arc<Vec<Word>> {
    Arc::new((0..count).map(|_| Word::new(0)).collect())
}

/// A sleeper that arms, checks once more and only then sleeps is woken, or has seen the write.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let memory = words(2);
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                memory[0].store(7, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                doorbell::ring(&memory[1]) != AWAKE
            })
        };
        doorbell::arm(&memory[1], FUTEX);
        let seen = memory[0].load(Ordering::Acquire) == 7;
        let rung = writer.join().unwrap();
        // If this failed, the sleeper would hang: it is armed and has not seen the write, and no writer has claimed the
        // duty to wake it.
        assert!(seen || rung);
        assert!(!rung || memory[1].load(Ordering::Relaxed) == AWAKE);
    });
}

/// Of two writers, at most one wakes the sleeper, and exactly one if the sleeper has not seen both writes.
#[test]
fn one_of_two_writers_wakes() {
    loom::model(|| {
        let memory = words(3);
        let writers: Vec<_> = (0..2)
            .map(|index| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    memory[index].store(7, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    doorbell::ring(&memory[2]) != AWAKE
                })
            })
            .collect();
        doorbell::arm(&memory[2], FUTEX);
        let seen = (0..2).filter(|index| memory[*index].load(Ordering::Acquire) == 7).count();
        let rung = writers.into_iter().map(|writer| writer.join().unwrap()).filter(|rung| *rung).count();
        assert!(seen == 2 || rung >= 1, "seen {seen}, rung {rung}");
        assert!(rung <= 1);
    });
}

/// Writes that the writer counts as done are in the owner's copy.
#[test]
fn completed_writes_are_in_the_snapshot() {
    loom::model(|| {
        let memory = words(3);
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                memory[0].store(1, Ordering::Relaxed);
                memory[1].store(2, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                gate::is_open(memory[2].load(Ordering::Relaxed), 0)
            })
        };
        gate::close(&memory[2]);
        let copy = [Word::new(0), Word::new(0)];
        gate::snapshot(&memory[..2], &copy);
        let copied = [0, 1].map(|word| copy[word].load(Ordering::Relaxed));
        let done = writer.join().unwrap();
        assert!(!done || copied == [1, 2], "done, but the copy is {copied:?}");
    });
}

/// One load after closing suffices to see a completed write. The copy is repeated only for the order of writes.
#[test]
fn completed_writes_are_visible_after_closing() {
    loom::model(|| {
        let memory = words(2);
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                memory[0].store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                gate::is_open(memory[1].load(Ordering::Relaxed), 0)
            })
        };
        gate::close(&memory[1]);
        let seen = memory[0].load(Ordering::Relaxed);
        assert!(!writer.join().unwrap() || seen == 1);
    });
}

/// A copy that contains a later write also contains the earlier one. This holds even though the word of the earlier
/// write is copied first, and neither write counts as done.
#[test]
fn the_snapshot_keeps_the_order_of_writes() {
    loom::model(|| {
        let memory = words(3);
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                memory[0].store(1, Ordering::Relaxed);
                fence(Ordering::Release);
                memory[1].store(2, Ordering::Relaxed);
            })
        };
        gate::close(&memory[2]);
        let copy = [Word::new(0), Word::new(0)];
        gate::snapshot(&memory[..2], &copy);
        let copied = [0, 1].map(|word| copy[word].load(Ordering::Relaxed));
        assert_ne!(copied, [0, 2]);
        writer.join().unwrap();
    });
}

/// Records are received whole, in order, after their receives were posted, and with everything that was written before
/// them.
#[test]
fn queue_delivers_whole_records_in_order() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shape = Shape::new(2, 16);
        let memory = words(shape.words() as usize);
        let beside = words(1);
        let producer = {
            let (memory, beside) = (Arc::clone(&memory), Arc::clone(&beside));
            thread::spawn(move || {
                let mut producer = Producer::new(shape);
                beside[0].store(5, Ordering::Relaxed);
                let mut sent = 0;
                for n in 1..=2 {
                    let header = Header { kind: RecordKind::SendImm, bytes: 8, imm: n };
                    match producer.readiness(&memory, header) {
                        Readiness::Ready => producer.push(&memory, header, |_| u64::from(n) * 10),
                        Readiness::Wait => break,
                        Readiness::TooLong => panic!("both receives are long enough"),
                    }
                    sent = n;
                }
                sent
            })
        };
        let mut consumer = Consumer::new(shape);
        consumer.post(&memory, 8);
        consumer.post(&memory, 8);
        let mut taken = 0;
        let mut take = |consumer: &mut Consumer| {
            while let Some(header) = consumer.peek(&memory).unwrap() {
                taken += 1;
                assert_eq!(header, Header { kind: RecordKind::SendImm, bytes: 8, imm: taken });
                consumer.take(&memory, header, |_, word| assert_eq!(word, u64::from(taken) * 10));
                assert_eq!(beside[0].load(Ordering::Relaxed), 5);
            }
            taken
        };
        take(&mut consumer);
        let sent = producer.join().unwrap();
        assert_eq!(take(&mut consumer), sent);
    });
}

/// A cell is not overwritten before the consumer has read it.
#[test]
fn queue_reuses_only_free_cells() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shape = Shape::new(3, 30 * 8);
        let memory = words(shape.words() as usize);
        let (mut producer, mut consumer) = (Producer::new(shape), Consumer::new(shape));
        for _ in 0..3 {
            consumer.post(&memory, 400);
        }
        // The first two records take 42 and 20 of 64 words. The third fits only where the first was.
        let records = [(40 * 8, 1), (18 * 8, 2), (2 * 8, 3)];
        let header = |(bytes, imm)| Header { kind: RecordKind::SendImm, bytes, imm };
        for record in &records[..2] {
            assert_eq!(producer.readiness(&memory, header(*record)), Readiness::Ready);
            producer.push(&memory, header(*record), |_| u64::from(record.1));
        }
        let late = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                if producer.readiness(&memory, header(records[2])) == Readiness::Ready {
                    producer.push(&memory, header(records[2]), |_| 3);
                }
            })
        };
        let first = consumer.peek(&memory).unwrap().unwrap();
        consumer.take(&memory, first, |_, word| assert_eq!(word, 1));
        late.join().unwrap();
    });
}
