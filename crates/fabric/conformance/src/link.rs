//! Connections that break while both processes are alive, and recover.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, QpPair, SERVICE, bytes_of, called, check, place, same, write};
use stentor_fabric::{
    Access, Event, Fabric, Opcode, PostError, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RemoteRegion,
    Service, Source, Span, Status, Verb,
};

const WORDS: usize = 64;
const NOTHING: Span = Span { region: RegionId(0), offset: 0, bytes: 0 };

/// One queue pair, and a region in each direction.
struct Pair {
    link: QpPair,
    at_a: RegionId,
    at_b: RegionId,
}

fn setup<T: Testbed>(bed: &mut Bed<T>) -> Outcome<Pair> {
    let at_a = bed.region(A, B, 1, WORDS, Some(Access::Write))?;
    let at_b = bed.region(B, A, 1, WORDS, Some(Access::Write))?;
    Ok(Pair { link: bed.link(64, 8)?, at_a, at_b })
}

impl Pair {
    /// Returns the end of `process`, the peer of `process`, and the region that `process` owns.
    fn end(&self, process: ProcessId) -> (QpId, ProcessId, RegionId) {
        if process == A { (self.link.a, B, self.at_a) } else { (self.link.b, A, self.at_b) }
    }

    /// Breaks the connection: `process` writes beyond the end of its peer's region.
    fn break_by<T: Testbed>(&self, bed: &mut Bed<T>, process: ProcessId) -> Outcome {
        let (qp, peer, _) = self.end(process);
        let remote = RemoteRegion { bytes: u64::MAX, ..bed.resolve(process, peer, 1)? };
        bed.write(process, qp, 9_999, (remote, WORDS), &[1])
    }

    /// Checks that writes in both directions arrive.
    fn works<T: Testbed>(&self, bed: &mut Bed<T>, value: u64) -> Outcome {
        for process in [A, B] {
            let (qp, peer, _) = self.end(process);
            let (_, _, region) = self.end(peer);
            let remote = bed.resolve(process, peer, 1)?;
            bed.write_and_see((process, qp), (peer, region), (remote, 0), value)?;
        }
        Ok(())
    }
}

pub(super) fn other_end_learns_of_the_break<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let pair = setup(bed)?;
    for round in 1..=bed.repeats() {
        let first = if round % 2 == 0 { A } else { B };
        let (qp, second, _) = pair.end(first);
        let (other, _, _) = pair.end(second);
        pair.break_by(bed, first)?;
        bed.expect(first, qp, 9_999, (Opcode::Write, Status::RemoteAccess))?;
        bed.renew(first, qp, second)?;
        bed.broken(second, other, first)?;
        if round % 3 == 0 {
            // The queue pair stays down until the second end is reset, too.
            bed.settle();
            same("the end that was reset", &bed.at(first).state(qp), &QpState::Connecting)?;
            same("the end that was not", &bed.at(second).state(other), &QpState::Error)?;
        }
        bed.reset(second, other)?;
        bed.connected(pair.link)?;
        pair.works(bed, round)?;
        bed.forget();
    }
    Ok(())
}

/// Both ends repeatedly break the connection at about the same time, and reset as soon as they detect the break.
pub(super) fn both_ends_break_at_once<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let pair = setup(bed)?;
    for round in 1..=3 * bed.repeats() {
        let (first, second) = if round % 2 == 0 { (A, B) } else { (B, A) };
        pair.break_by(bed, first)?;
        for _ in 0..round % 7 {
            bed.pass();
        }
        let (qp, _, _) = pair.end(second);
        if bed.at(second).state(qp) == QpState::Ready {
            pair.break_by(bed, second)?;
        }
        bed.until("both ends broke", |bed| {
            let broken = |bed: &mut Bed<T>, process| bed.at(process).state(pair.end(process).0) != QpState::Ready;
            Ok((broken(bed, A) && broken(bed, B)).then_some(()))
        })?;
        bed.reconnect(pair.link)?;
        pair.works(bed, round)?;
        for process in [A, B] {
            let (qp, peer, _) = pair.end(process);
            let events = bed.events(process);
            let last = events.last().copied();
            same("the last event", &last, &Some(Event::Connected { qp, peer }))?;
            let told = events.contains(&Event::Disconnected { qp, peer });
            check(told, || format!("round {round}: {process} got no event for the break: {events:?}"))?;
        }
    }
    Ok(())
}

pub(super) fn services_are_independent<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let pair = setup(bed)?;
    let side = bed.connect((A, B), Service(8), QpConfig::reliable(64, 8))?;
    let stream = bed.region(B, A, 2, 512, Some(Access::Write))?;
    let remote = bed.resolve(A, B, 2)?;
    let mut next = 0;
    for round in 1..=bed.repeats() {
        pair.break_by(bed, A)?;
        for _ in 0..20 {
            bed.write(A, side.a, next, (remote, next as usize % 512), &[next + 1])?;
            bed.round();
            bed.expect(A, side.a, next, (Opcode::Write, Status::Success))?;
            next += 1;
        }
        bed.reconnect(pair.link)?;
        pair.works(bed, round)?;
        for (process, qp) in [(A, side.a), (B, side.b)] {
            let theirs = |event: &Event| !matches!(event, Event::Connected { qp: q, .. } | Event::Disconnected { qp: q, .. } if *q == qp);
            let heard = bed.events(process);
            check(heard.iter().all(theirs), || format!("the other service was disturbed: {heard:?}"))?;
        }
    }
    bed.until("everything on the other service", |bed| {
        let words = bed.words(B, stream);
        Ok((next.saturating_sub(512)..next).all(|n| words[n as usize % 512] == n + 1).then_some(()))
    })
}

/// After `Disconnected` a process can poll all outstanding completions. No completion is reported later.
pub(super) fn completions_precede_disconnected<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let pair = setup(bed)?;
    for round in 0..bed.repeats() {
        let remote = bed.resolve(A, B, 1)?;
        let ids = |process: ProcessId| 100 * round + 1000 * u64::from(process.0);
        let mut expected = [vec![], vec![]];
        for process in [A, B] {
            for n in 50..54 {
                called("post_recv", bed.at(process).post_recv(pair.end(process).0, NOTHING, ids(process) + n))?;
                expected[process.index()].push(ids(process) + n);
            }
        }
        for n in 0..40 {
            // The 21st write is refused.
            let word = if n == 20 { WORDS } else { n as usize };
            let data = round.to_ne_bytes();
            let verb = write(&data, RemoteRegion { bytes: u64::MAX, ..remote }, word);
            match bed.try_post(A, pair.link.a, ids(A) + n, verb, true) {
                Ok(()) => expected[0].push(ids(A) + n),
                Err(PostError::NotReady { state: QpState::Error, .. }) if n > 20 => {}
                Err(error) => return check(false, || format!("post {n}: {error:?}")),
            }
        }
        for process in [A, B] {
            let (qp, peer, _) = pair.end(process);
            bed.broken(process, qp, peer)?;
            // The poll in `broken` preceded the event, so completions may have followed it: poll once more, without
            // letting time pass.
            bed.collect(process);
            let mut got = Vec::new();
            while let Some(completion) = bed.take_any(process) {
                got.push(completion.id);
            }
            got.sort_unstable();
            let expected = &mut expected[process.index()];
            expected.sort_unstable();
            same(&format!("completions of {process} at Disconnected"), &got, expected)?;
        }
        bed.settle();
        bed.reconnect(pair.link)?;
        bed.settle();
        let late = (bed.take_any(A), bed.take_any(B));
        same("completions of the old connection after that", &late, &(None, None))?;
        bed.forget();
    }
    Ok(())
}

pub(super) fn receives_end_with_the_connection<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let pair = setup(bed)?;
    for round in 0..bed.repeats() {
        let old = 10 * round;
        called("post_recv", bed.at(B).post_recv(pair.link.b, NOTHING, old))?;
        pair.break_by(bed, A)?;
        bed.expect(B, pair.link.b, old, (Opcode::Recv, Status::Flushed))?;
        bed.broken(B, pair.link.b, A)?;
        let refused = Err(PostError::NotReady { qp: pair.link.b, state: QpState::Error });
        same("post_recv on a broken queue pair", &bed.at(B).post_recv(pair.link.b, NOTHING, old + 1), &refused)?;
        bed.reset(B, pair.link.b)?;
        called("post_recv while connecting", bed.at(B).post_recv(pair.link.b, NOTHING, old + 2))?;
        bed.renew(A, pair.link.a, B)?;
        bed.connected(pair.link)?;
        let data = bytes_of(&[round]);
        let target = place(bed.resolve(A, B, 1)?, 0);
        bed.post(A, pair.link.a, 5, Verb::WriteImm { source: Source::Inline(&data), target, imm: 7 })?;
        bed.expect(B, pair.link.b, old + 2, (Opcode::RecvWriteImm, Status::Success))?;
        bed.expect(A, pair.link.a, 5, (Opcode::Write, Status::Success))?;
        bed.forget();
    }
    Ok(())
}

/// One end streams while the other end breaks the connection: a posted write lands before the next connection or never.
pub(super) fn no_late_write_lands_after_connected<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let pair = setup(bed)?;
    for round in 1..=bed.repeats() {
        let remote = bed.resolve(A, B, 1)?;
        bed.store(B, pair.at_b, 0, &[0; WORDS]);
        for n in 0..50 {
            let data = round.to_ne_bytes();
            let verb = write(&data, remote, n);
            if bed.try_post(A, pair.link.a, n as u64, verb, n % 8 == 7).is_err() {
                break;
            }
            if n == 5 * (round as usize % 9) {
                pair.break_by(bed, B)?;
            }
            if n % 4 == 0 {
                bed.pass();
            }
        }
        bed.renew(B, pair.link.b, A)?;
        bed.renew(A, pair.link.a, B)?;
        let connected = bed.words_at_connected(B, (pair.link.b, A), pair.at_b)?;
        bed.event(A, Event::Connected { qp: pair.link.a, peer: B })?;
        bed.settle();
        same("memory long after Connected", &bed.words(B, pair.at_b), &connected)?;
        bed.forget();
    }
    Ok(())
}

/// Grants and revocations during a break are known when the connection is up again.
pub(super) fn grants_arrive_while_broken<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let pair = setup(bed)?;
    let late = bed.region(B, A, 2, WORDS, None)?;
    for round in 1..=bed.repeats() {
        let old = bed.resolve(A, B, 1)?;
        pair.break_by(bed, A)?;
        bed.broken(A, pair.link.a, B)?;
        bed.broken(B, pair.link.b, A)?;
        for region in [pair.at_b, late] {
            bed.revoke(B, region, A)?;
            called("grant", bed.at(B).grant(region, A, Access::Write))?;
        }
        bed.reset(A, pair.link.a)?;
        bed.reset(B, pair.link.b)?;
        bed.connected(pair.link)?;
        for (region, purpose) in [(pair.at_b, 1), (late, 2)] {
            let Some(remote) = bed.at(A).resolve(B, Purpose(purpose)) else {
                return check(false, || format!("purpose {purpose} is not resolved after Connected"));
            };
            check(remote.key != old.key, || "the key is the revoked one".to_string())?;
            bed.write_and_see((A, pair.link.a), (B, region), (remote, 5), round)?;
        }
        bed.forget();
    }
    Ok(())
}

/// Cuts one or both directions until the queue pair breaks. After the cut the connection recovers.
pub(super) fn survives_a_cut<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let pair = setup(bed)?;
    for round in 1..=bed.repeats().max(6) {
        let (there, back) = (round % 3 != 1, round % 3 != 2);
        let ways = [(A, B, there), (B, A, back)];
        for (from, to, _) in ways.into_iter().filter(|way| way.2) {
            bed.cut(from, to)?;
        }
        let remote = bed.resolve(A, B, 1)?;
        for n in 0..10 {
            let id = 100 * round + n;
            bed.write(A, pair.link.a, id, (remote, 10 + n as usize), &[id])?;
        }
        bed.expect(A, pair.link.a, 100 * round, (Opcode::Write, Status::RetryExceeded))?;
        bed.broken(A, pair.link.a, B)?;
        let seen = bed.words(B, pair.at_b)[10..20].iter().filter(|word| **word / 100 == round).count();
        same("writes that landed through the cut", &seen, &if there { 0 } else { 10 })?;
        bed.reset(A, pair.link.a)?;
        bed.settle();
        same("not through a cut", &bed.at(A).state(pair.link.a), &QpState::Connecting)?;
        for (from, to, _) in ways.into_iter().filter(|way| way.2) {
            bed.heal(from, to);
        }
        bed.renew(B, pair.link.b, A)?;
        let connected = bed.words_at_connected(B, (pair.link.b, A), pair.at_b)?;
        bed.event(A, Event::Connected { qp: pair.link.a, peer: B })?;
        bed.settle();
        same("memory long after Connected", &bed.words(B, pair.at_b), &connected)?;
        pair.works(bed, round)?;
        bed.forget();
    }
    same("the service is the one of old", &bed.at(A).state(pair.link.a), &QpState::Ready)?;
    let duplicate = bed.at(A).connect(B, SERVICE, QpConfig::reliable(4, 0));
    check(duplicate.is_err(), || "a service was made twice".to_string())
}
