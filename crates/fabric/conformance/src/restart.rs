//! Processes that crash and restart with the same id.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, QpPair, SERVICE, called, check, same, write};
use stentor_fabric::{Access, Event, Fabric, ProcessId, QpConfig, QpId, QpState, RegionId, Service, Status};

const CONFIG: QpConfig = QpConfig::reliable(64, 4);
const WORDS: usize = 64;
const SIDE: Service = Service(8);

/// Sets up a fresh B: its region for A, and its end of a service.
fn join<T: Testbed>(bed: &mut Bed<T>) -> Outcome<(RegionId, QpId)> {
    let region = bed.region(B, A, 1, WORDS, Some(Access::Write))?;
    Ok((region, called("connect", bed.at(B).connect(A, SERVICE, CONFIG))?))
}

/// Sets up A with a region for B, and connects both.
fn setup<T: Testbed>(bed: &mut Bed<T>) -> Outcome<(RegionId, RegionId, QpPair)> {
    let at_a = bed.region(A, B, 1, WORDS, Some(Access::Write))?;
    let (at_b, b) = join(bed)?;
    let a = called("connect", bed.at(A).connect(B, SERVICE, CONFIG))?;
    let link = QpPair { a, b };
    bed.connected(link)?;
    Ok((at_a, at_b, link))
}

/// Kills B, waits until A detects it, and restarts B.
fn replace<T: Testbed>(bed: &mut Bed<T>, a: QpId) -> Outcome<(RegionId, QpPair)> {
    bed.forget();
    bed.crash(B);
    bed.renew(A, a, B)?;
    bed.restart(B);
    let (at_b, b) = join(bed)?;
    bed.connected(QpPair { a, b })?;
    Ok((at_b, QpPair { a, b }))
}

pub(super) fn the_next_life_connects<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, mut at_b, mut link) = setup(bed)?;
    for life in 1..=bed.repeats() {
        let Some(remote) = bed.at(A).resolve(B, stentor_fabric::Purpose(1)) else {
            return check(false, || format!("life {life}: granted before connecting, not resolved after Connected"));
        };
        same("the memory of a new process", &bed.words(B, at_b), &vec![0; WORDS])?;
        bed.write_and_see((A, link.a), (B, at_b), (remote, 3), life)?;
        // B stays down for a while, or restarts before A detects the crash.
        if life % 2 == 0 {
            (at_b, link) = replace(bed, link.a)?;
            continue;
        }
        bed.forget();
        bed.crash(B);
        bed.restart(B);
        let b;
        (at_b, b) = join(bed)?;
        bed.renew(A, link.a, B)?;
        link = QpPair { b, ..link };
        bed.connected(link)?;
    }
    Ok(())
}

pub(super) fn granted_regions_stay_granted<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (at_a, _, mut link) = setup(bed)?;
    for life in 1..=bed.repeats() {
        let Some(remote) = bed.at(B).resolve(A, stentor_fabric::Purpose(1)) else {
            return check(false, || format!("life {life} of B cannot resolve what A granted to B before"));
        };
        let before = bed.words(A, at_a);
        let word = life as usize % WORDS;
        bed.write_and_see((B, link.b), (A, at_a), (remote, word), life)?;
        let mut expected = before;
        expected[word] = life;
        same("what all lives of B wrote at A", &bed.words(A, at_a), &expected)?;
        (_, link) = replace(bed, link.a)?;
    }
    Ok(())
}

pub(super) fn old_regions_are_refused<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, _, link) = setup(bed)?;
    let old = bed.resolve(A, B, 1)?;
    let (at_b, link) = replace(bed, link.a)?;
    let new = bed.resolve(A, B, 1)?;
    check(new.key != old.key, || format!("two lives of a process have one key {}", new.key))?;
    bed.write_and_see((A, link.a), (B, at_b), (new, 0), 7)?;
    bed.complete_write(A, link.a, 8, (old, 1), &[8], Status::RemoteAccess)?;
    bed.settle();
    same("memory", &bed.words(B, at_b)[..3].to_vec(), &vec![7, 0, 0])?;
    bed.reconnect(link)?;
    let again = bed.resolve(A, B, 1)?;
    bed.write_and_see((A, link.a), (B, at_b), (again, 1), 9)
}

/// B crashes with outstanding writes, none of which lands after its next life is connected.
pub(super) fn no_late_write_lands_after_connected<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (at_a, _, mut link) = setup(bed)?;
    for round in 1..=bed.repeats() {
        let remote = bed.resolve(B, A, 1)?;
        for n in 0..60 {
            let value = round * 100 + n;
            let posted = bed.try_post(B, link.b, n, write(&value.to_ne_bytes(), remote, n as usize), n % 16 == 15);
            called("post", posted)?;
        }
        for _ in 0..round % 8 {
            bed.pass();
        }
        bed.crash(B);
        bed.restart(B);
        let (_, b) = join(bed)?;
        bed.renew(A, link.a, B)?;
        let connected = bed.words_at_connected(A, (link.a, B), at_a)?;
        let first_hole = connected[..60].iter().position(|word| *word / 100 != round).unwrap_or(60);
        let ordered = bed.at(A).capabilities().ordered_writes;
        let later = connected[first_hole..60].iter().any(|word| *word / 100 == round);
        check(!(ordered && later), || format!("round {round}: not a prefix of what B posted: {connected:?}"))?;
        link.b = b;
        bed.event(B, Event::Connected { qp: b, peer: A })?;
        bed.settle();
        same("memory long after Connected", &bed.words(A, at_a), &connected)?;
    }
    Ok(())
}

/// The survivor fences the dead process, clears the memory, and grants it to the next life.
pub(super) fn memory_is_fresh_after_revoke_and_grant<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (at_a, _, mut link) = setup(bed)?;
    for round in 1..=bed.repeats() {
        let remote = bed.resolve(B, A, 1)?;
        bed.write_and_see((B, link.b), (A, at_a), (remote, 63), round)?;
        for n in 0..50_usize {
            called("post", bed.try_post(B, link.b, 0, write(&round.to_ne_bytes(), remote, n), false))?;
        }
        bed.crash(B);
        bed.broken(A, link.a, B)?;
        bed.revoke(A, at_a, B)?;
        let fenced = bed.words(A, at_a);
        same("what had completed", &fenced[63], &round)?;
        bed.settle();
        same("memory long after the fence", &bed.words(A, at_a), &fenced)?;
        bed.store(A, at_a, 0, &[0; WORDS]);
        called("grant", bed.at(A).grant(at_a, B, Access::Write))?;
        bed.reset(A, link.a)?;
        bed.restart(B);
        (_, link.b) = join(bed)?;
        bed.connected(link)?;
        bed.settle();
        same("memory that the owner cleared", &bed.words(A, at_a), &vec![0; WORDS])?;
    }
    Ok(())
}

pub(super) fn services_reconnect_one_by_one<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, _, main) = setup(bed)?;
    let side = bed.connect((A, B), SIDE, CONFIG)?;
    for _ in 0..bed.repeats() {
        bed.crash(B);
        bed.broken(A, main.a, B)?;
        bed.broken(A, side.a, B)?;
        bed.restart(B);
        let (at_b, _) = join(bed)?;
        let b = called("connect", bed.at(B).connect(A, SIDE, CONFIG))?;
        bed.reset(A, side.a)?;
        bed.connected(QpPair { a: side.a, b })?;
        same("the service that was not reset", &bed.at(A).state(main.a), &QpState::Error)?;
        let remote = bed.resolve(A, B, 1)?;
        bed.write_and_see((A, side.a), (B, at_b), (remote, 0), 5)?;
        bed.reset(A, main.a)?;
        bed.event(A, Event::Connected { qp: main.a, peer: B })?;
        bed.write_and_see((A, main.a), (B, at_b), (remote, 1), 6)?;
    }
    Ok(())
}

pub(super) fn both_processes_restart_at_once<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    setup(bed)?;
    for round in 0..bed.repeats() {
        for process in [A, B] {
            bed.crash(process);
            // The first process may be back before the second one crashes.
            if round % 2 == 1 {
                bed.restart(process);
            }
        }
        if round % 2 == 0 {
            bed.restart(B);
            bed.restart(A);
        }
        let (_, at_b, link) = setup(bed)?;
        let remote = bed.resolve(A, B, 1)?;
        bed.write_and_see((A, link.a), (B, at_b), (remote, 0), 4)?;
        bed.forget();
    }
    Ok(())
}

pub(super) fn absent_process_blocks_no_other<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    const GONE: ProcessId = ProcessId(2);
    let (_, at_b, link) = setup(bed)?;
    let main = bed.connect((A, GONE), SERVICE, CONFIG)?;
    let side = bed.connect((A, GONE), SIDE, CONFIG)?;
    bed.crash(GONE);
    bed.broken(A, main.a, GONE)?;
    bed.broken(A, side.a, GONE)?;
    bed.reset(A, main.a)?;
    let remote = bed.resolve(A, B, 1)?;
    bed.forget();
    for value in 1..100 {
        bed.write_and_see((A, link.a), (B, at_b), (remote, 0), value)?;
    }
    bed.settle();
    let states = (bed.at(A).state(main.a), bed.at(A).state(side.a));
    same("the queue pairs to the dead process", &states, &(QpState::Connecting, QpState::Error))?;
    same("events meanwhile", &bed.events(A), &vec![])?;
    bed.restart(GONE);
    let b = called("connect", bed.at(GONE).connect(A, SERVICE, CONFIG))?;
    bed.event(A, Event::Connected { qp: main.a, peer: GONE })?;
    bed.event(GONE, Event::Connected { qp: b, peer: A })
}
