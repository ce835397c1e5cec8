//! Sets of processes on `roce` with the software switch: the cases of the contract, and cases that need a real network.

mod bed;

use std::time::{Duration, Instant};

use bed::{Bed, Group, Setup};
use stentor_fabric::{Fabric, PostError, ProcessId, QpState, Status};
use stentor_fabric_conformance::{Testbed, suite_of};
use stentor_fabric_roce::driver::Chances;
use stentor_soft_switch::Faults;

#[test]
fn contract_cases() {
    let report = suite_of(|count| Bed::new(count, Setup::default()), |name| name.starts_with("set::"));
    report.assert_ok();
    assert_eq!(report.skipped(), ["set::survives_a_cut"], "this bed cannot cut a path");
}

/// Each receiver's memory holds what the writes to it contained, whatever their other receivers were, and despite loss.
/// Runs of packets, which the switch cannot handle, never go to it.
#[test]
fn writes_to_changing_receivers_on_a_lossy_switch() {
    for faults in [Faults::default(), LOSSY] {
        let (mut bed, group) = Group::new(6, Setup { faults, ..Setup::default() });
        let mut expected = vec![vec![0_u64; Group::WORDS]; 6];
        let mut draw = 11_u64;
        for n in 1..=400_u64 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mask = draw >> 33 & 0b11111;
            let mask = if mask == 0 { 0b11111 } else { mask };
            let to: Vec<u16> = (1..6).filter(|peer| mask >> (peer - 1) & 1 == 1).collect();
            // A write of 1 to 300 words takes up to three packets.
            let (words, at) = ((draw >> 40) as usize % 300 + 1, (draw >> 50) as usize % 200);
            let values: Vec<u64> = (0..words as u64).map(|word| n << 16 | word).collect();
            to.iter().for_each(|peer| expected[usize::from(*peer)][at..at + words].copy_from_slice(&values));
            loop {
                match group.post(&mut bed, n, &values, &to, at) {
                    Ok(()) => break,
                    Err(PostError::SendQueueFull { .. }) => bed.run(),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        bed.until("all writes", |bed| bed.done.len() == 400);
        let done: Vec<_> = std::mem::take(&mut bed.done);
        assert!(done.iter().zip(1..).all(|((id, status), n)| (*id, *status) == (n, Status::Success)));
        for peer in 1..6 {
            assert_eq!(bed.words(peer, &group), expected[usize::from(peer)], "{peer}");
        }
        let losses: u64 = bed.switch.as_ref().unwrap().injected().iter().sum();
        assert_eq!(losses > 20, faults != Faults::default(), "{losses} faults");
        assert_eq!(bed.at(0).device().port_counters().in_runs, 0);
    }
}

const LOSSY: Faults = Faults {
    links: Chances { drop: 0.01, duplicate: 0.01, reorder: 0.01, corrupt: 0.0, delay: 0 },
    loop_drop: 0.01,
    seed: 5,
};

/// A suspended member breaks the set within two seconds. The other members continue without it. Before the suspended
/// member has left, no process may write to its memory by another path. After that, no copy lands there.
#[test]
fn suspended_member_is_left_out_and_settles_when_it_resumes() {
    let (mut bed, group) = Group::new(3, Setup::default());
    let since = Instant::now();
    bed.stopped.push(ProcessId(2));
    group.post(&mut bed, 1, &[7], &[1, 2], 0).unwrap();
    bed.until("the break", |bed| bed.done.len() == 1);
    let took = since.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(2), "{took:?}");
    assert_eq!(bed.done.remove(0), (1, Status::RetryExceeded));
    assert_eq!(bed.words(1, &group)[0], 7, "the running member has it");
    bed.until("a life of two", |bed| bed.at(0).set_reaches(group.set, ProcessId(1)));
    assert!(!bed.at(0).set_reaches(group.set, ProcessId(2)));
    assert!(bed.at(0).set_settled(group.set, ProcessId(1)) && !bed.at(0).set_settled(group.set, ProcessId(2)));
    // A write that names the absent member is refused. The other members still receive the writes to them.
    assert!(matches!(group.post(&mut bed, 2, &[8], &[1, 2], 8), Err(PostError::NotReached { .. })));
    group.post(&mut bed, 3, &[9], &[1], 16).unwrap();
    bed.until("a write in a life of two", |bed| bed.done.len() == 1);
    bed.stopped.clear();
    // The socket of the member that was stopped still holds a copy of the first write.
    bed.until("that it is settled", |bed| bed.at(0).set_settled(group.set, ProcessId(2)));
    let then = bed.words(2, &group);
    bed.until("a life of three", |bed| bed.at(0).set_reaches(group.set, ProcessId(2)));
    assert_eq!(bed.words(2, &group), then);
    group.post(&mut bed, 4, &[10], &[1, 2], 24).unwrap();
    bed.until("a write in a life of three", |bed| bed.done.len() == 2 && bed.words(2, &group)[24] == 10);
}

/// A process whose switch is absent reports that once, works without a switch, and uses the switch once the switch has
/// started.
#[test]
fn processes_work_without_a_switch() {
    let (mut bed, group) = Group::new(2, Setup { no_switch: true, ..Setup::default() });
    let since = Instant::now();
    bed.until("a second", |_| since.elapsed() > Duration::from_secs(1));
    assert_eq!(bed.at(0).state(group.set), QpState::Connecting);
    assert!(bed.at(0).set_settled(group.set, ProcessId(1)) && !bed.at(0).set_reaches(group.set, ProcessId(1)));
    let notes = bed.notes(0);
    assert!(notes.len() == 1 && notes[0].contains("cannot be used") && notes[0].contains("refused"), "{notes:?}");
    group.write_alone(&mut bed, 1, 3, 5);
    bed.until("a write without the switch", |bed| bed.words(1, &group)[3] == 5);
    bed.start_switch();
    bed.until("the set", |bed| bed.at(0).set_reaches(group.set, ProcessId(1)));
    let notes = bed.notes(0);
    assert!(notes.len() == 1 && notes[0].contains("is there"), "{notes:?}");
    group.post(&mut bed, 1, &[7], &[1], 0).unwrap();
    bed.until("a write with the switch", |bed| bed.words(1, &group)[0] == 7);
}

/// A restarted switch has no memory: every set breaks at once and recovers, and no write is executed twice. If no
/// switch starts again, receivers settle all the same, because they notify the sender.
#[test]
fn sets_settle_after_the_switch_restarts_or_stops() {
    let (mut bed, group) = Group::new(3, Setup::default());
    for round in 1..=5_u64 {
        for n in 0..20 {
            group.post(&mut bed, n, &[round << 8 | n], &[1, 2], n as usize).unwrap();
        }
        for _ in 0..round * 40 {
            bed.advance();
        }
        bed.start_switch();
        bed.until("the break", |bed| bed.breaks > 0 && bed.done.len() == 20);
        bed.done.clear();
        bed.until("that both are settled", |bed| {
            [1, 2].iter().all(|peer| bed.at(0).set_settled(group.set, ProcessId(*peer)))
        });
        let then = [bed.words(1, &group), bed.words(2, &group)];
        bed.until("the next life", |bed| [1, 2].iter().all(|p| bed.at(0).set_reaches(group.set, ProcessId(*p))));
        assert_eq!([bed.words(1, &group), bed.words(2, &group)], then);
        group.post(&mut bed, 1, &[round], &[1, 2], 100).unwrap();
        bed.until("a write", |bed| bed.done.len() == 1 && bed.words(2, &group)[100] == round);
        assert_eq!(bed.done.remove(0), (1, Status::Success));
        bed.breaks = 0;
    }
    bed.switch = None;
    bed.until("the last break", |bed| bed.breaks == 3);
    assert!(!bed.at(0).set_reaches(group.set, ProcessId(1)));
    bed.until("that both are settled", |bed| {
        [1, 2].iter().all(|peer| bed.at(0).set_settled(group.set, ProcessId(*peer)))
    });
    group.write_alone(&mut bed, 1, 3, 99);
    bed.until("a write without the switch", |bed| bed.words(1, &group)[3] == 99);
    let notes = bed.notes(0);
    let can_be_used: Vec<bool> = notes.iter().map(|note| !note.contains("cannot be used")).collect();
    // Consecutive reasons count once, because a process that dials while the switch starts reports a second reason.
    let times = can_be_used.chunk_by(|one, next| one == next).filter(|same| !same[0]).count();
    assert_eq!(times, 6, "{notes:?}");
}

/// A set leaves out a process that does not return, and a process that has not started yet.
#[test]
fn set_consists_of_the_processes_that_are_present() {
    let (mut bed, group) = Group::of(&[0, 1], 3, Setup::default());
    bed.until("two of three", |bed| bed.at(0).set_reaches(group.set, ProcessId(1)));
    bed.restart(ProcessId(2));
    group.join(&mut bed, 2);
    bed.until("the break", |bed| bed.breaks >= 2);
    bed.until("three of three", |bed| [1, 2].iter().all(|peer| bed.at(0).set_reaches(group.set, ProcessId(*peer))));
    bed.crash(ProcessId(2));
    bed.until("two of three", |bed| {
        bed.at(0).set_reaches(group.set, ProcessId(1)) && !bed.at(0).set_reaches(group.set, ProcessId(2))
    });
    assert!(bed.at(0).set_settled(group.set, ProcessId(2)));
}
