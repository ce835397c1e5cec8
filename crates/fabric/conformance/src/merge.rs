//! Adjacent WRITEs on a queue pair that allows merging: the results do not reveal whether they were merged.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, QpPair, SERVICE, bytes_of, called, check, place, same, span, write};
use stentor_fabric::{
    Access, Completion, Fabric, Opcode, PostError, QpConfig, QpId, QpState, Source, Status, Verb, WorkRequest,
};

fn merging<T: Testbed>(bed: &mut Bed<T>, depth: u32) -> Outcome<QpPair> {
    bed.connect((A, B), SERVICE, QpConfig::reliable(depth, 4).merging())
}

/// Posts a request without a flush.
fn post<T: Testbed>(bed: &mut Bed<T>, qp: QpId, id: u64, verb: Verb<'_>, signalled: bool) -> Outcome {
    called("post", bed.at(A).post(qp, WorkRequest { id, verb, signalled }))
}

/// Writes inline data and spans of a region, as for records of a ring. The lengths differ, and so do the numbers of
/// adjacent WRITEs.
pub(super) fn everything_lands_and_is_reported_once<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (words, depth) = (24 << 10, 64);
    let region = bed.region(B, A, 1, words, Some(Access::Write))?;
    let staging = bed.region(A, A, 2, words, None)?;
    let link = merging(bed, depth)?;
    let remote = bed.resolve(A, B, 1)?;
    let limit = bed.at(A).capabilities().inline_bytes as usize / 8;
    let expected: Vec<u64> = (1..=words as u64).collect();
    bed.store(A, staging, 0, &expected);
    let (mut id, mut first, mut waits) = (0_u64, 0, Vec::new());
    while first < words {
        for n in 0..u64::from(depth) {
            let length = [1, 3, 8, 8, 8, 40, 1, 900][(id / 5 % 8) as usize].min(words - first);
            let data = bytes_of(&expected[first..first + length]);
            let source =
                if length <= limit { Source::Inline(&data) } else { Source::Region(span(staging, first, length)) };
            let is_last = n + 1 == u64::from(depth) || first + length == words;
            let signalled = is_last || id.is_multiple_of(3);
            post(bed, link.a, id, Verb::Write { source, target: place(remote, first) }, signalled)?;
            waits.extend(signalled.then_some(id));
            (id, first) = (id + 1, first + length);
            if first == words {
                break;
            }
        }
        if id.is_multiple_of(2) {
            bed.at(A).flush();
        }
        let mut reported = Vec::new();
        bed.until("the last completion", |bed| {
            while let Some(completion) = bed.take_any(A) {
                same("status and opcode", &(completion.opcode, completion.status), &(Opcode::Write, Status::Success))?;
                reported.push(completion.id);
            }
            Ok((reported.len() == waits.len()).then_some(()))
        })?;
        reported.sort_unstable();
        same("completions", &reported, &waits)?;
        waits.clear();
    }
    bed.settle();
    check(bed.take_any(A).is_none(), || "a completion after the last".to_string())?;
    bed.eventually("every word", |bed| bed.words(B, region) == expected)
}

/// Each signalled request is reported, in the order of posting.
pub(super) fn completions_come_in_order<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    bed.region(B, A, 1, 64, Some(Access::Write))?;
    let link = merging(bed, 16)?;
    let remote = bed.resolve(A, B, 1)?;
    for n in 0..12_u64 {
        post(bed, link.a, n, write(&[1; 8], remote, n as usize), n % 2 == 1)?;
    }
    bed.at(A).flush();
    let mut reported = Vec::new();
    bed.until("six completions", |bed| {
        while let Some(completion) = bed.take_any(A) {
            reported.push((completion.id, completion.status));
        }
        Ok((reported.len() >= 6).then_some(()))
    })?;
    same("completions", &reported, &(0..6).map(|n| (2 * n + 1, Status::Success)).collect())
}

/// A later request on the queue pair executes after the merged WRITEs, and a later WRITE to the same word wins.
pub(super) fn other_requests_keep_their_order<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let local = bed.region(A, A, 2, 8, None)?;
    let region = bed.region(B, A, 1, 8, Some(Access::Write))?;
    let link = merging(bed, 16)?;
    let remote = bed.resolve(A, B, 1)?;
    let ordered = bed.at(A).capabilities().ordered_writes;
    for lap in 1..=bed.repeats() {
        let id = lap * 10;
        let value = |n: u64| (lap << 8 | n).to_ne_bytes();
        post(bed, link.a, id, write(&value(1), remote, 0), false)?;
        post(bed, link.a, id + 1, write(&value(2), remote, 1), ordered)?;
        if !ordered {
            // On a fabric without order between writes, only a completion orders two of them.
            post(bed, link.a, id + 5, write(&value(2), remote, 1), true)?;
            bed.at(A).flush();
            bed.expect(A, link.a, id + 5, (Opcode::Write, Status::Success))?;
        }
        post(bed, link.a, id + 2, write(&value(3), remote, 1), true)?;
        if !ordered {
            bed.at(A).flush();
            bed.expect(A, link.a, id + 2, (Opcode::Write, Status::Success))?;
        }
        let verb = Verb::Read { local: span(local, 0, 2), remote: place(remote, 0) };
        post(bed, link.a, id + 3, verb, true)?;
        bed.at(A).flush();
        if ordered {
            bed.expect(A, link.a, id + 1, (Opcode::Write, Status::Success))?;
            bed.expect(A, link.a, id + 2, (Opcode::Write, Status::Success))?;
            bed.expect(A, link.a, id + 3, (Opcode::Read, Status::Success))?;
            same("what the READ found", &bed.words(A, local)[..2].to_vec(), &vec![lap << 8 | 1, lap << 8 | 3])?;
        } else {
            bed.expect(A, link.a, id + 3, (Opcode::Read, Status::Success))?;
        }
    }
    let last = bed.repeats() << 8;
    bed.eventually("the last values", |bed| bed.words(B, region)[..2] == [last | 1, last | 3])
}

/// If a merged WRITE is refused, its first request is reported as refused, and each other one as flushed. Without order
/// between writes, several may be refused. The queue pair works again after a reset.
pub(super) fn every_part_of_a_refused_write_is_reported<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let region = bed.region(B, A, 1, 64, Some(Access::Write))?;
    let link = merging(bed, 16)?;
    let old = bed.resolve(A, B, 1)?;
    bed.complete_write(A, link.a, 1, (old, 0), &[1], Status::Success)?;
    bed.revoke(B, region, A)?;
    let mut posted = Vec::new();
    for n in 0..6_u64 {
        let request =
            WorkRequest { id: 10 + n, verb: write(&[7; 8], old, 8 + n as usize), signalled: n == 2 || n == 5 };
        match bed.at(A).post(link.a, request) {
            Ok(()) => posted.push(10 + n),
            // A fabric that executes requests while posting has already broken the queue pair.
            Err(PostError::NotReady { state: QpState::Error, .. }) if n > 0 => {}
            Err(error) => return check(false, || format!("post {n}: {error:?}")),
        }
    }
    bed.at(A).flush();
    let (ordered, mut refused) = (bed.at(A).capabilities().ordered_writes, 0);
    for id in posted {
        let Completion { status, .. } = bed.completion(A, link.a, id)?;
        let is_known = [Status::RemoteAccess, Status::Flushed].contains(&status);
        let is_first = (status == Status::RemoteAccess) == (id == 10);
        check(is_known && (is_first || !ordered), || format!("request {id} ended with {status:?}"))?;
        refused += u32::from(status == Status::RemoteAccess);
    }
    check(refused > 0, || "no request was refused".to_string())?;
    bed.settle();
    check(bed.take_any(A).is_none(), || "a completion after the last".to_string())?;
    same("words that only refused requests named", &bed.words(B, region)[8..].to_vec(), &vec![0; 56])?;
    called("grant", bed.at(B).grant(region, A, Access::Write))?;
    bed.reconnect(link)?;
    let fresh = bed.until("a fresh grant", |bed| {
        Ok(bed.at(A).resolve(B, stentor_fabric::Purpose(1)).filter(|found| *found != old))
    })?;
    for n in 0..6_u64 {
        post(bed, link.a, 20 + n, write(&(n + 1).to_ne_bytes(), fresh, 8 + n as usize), n == 5)?;
    }
    bed.at(A).flush();
    bed.expect(A, link.a, 25, (Opcode::Write, Status::Success))?;
    bed.eventually("what was posted after the reset", |bed| bed.words(B, region)[8..14] == [1, 2, 3, 4, 5, 6])
}

/// Requests that no `flush` has passed to the network fail when the connection ends, unless the fabric has executed
/// them before.
pub(super) fn unflushed_requests_fail_with_the_connection<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, depth) = (bed.region(B, A, 1, 64, Some(Access::Write))?, 8);
    let link = merging(bed, depth)?;
    let remote = bed.resolve(A, B, 1)?;
    for n in 0..4_u64 {
        post(bed, link.a, n, write(&[9; 8], remote, n as usize), n == 1)?;
    }
    called("disconnect", bed.at(A).disconnect(link.a))?;
    bed.until("the queue pair is broken", |bed| Ok((bed.at(A).state(link.a) == QpState::Error).then_some(())))?;
    bed.settle();
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    bed.sort_completions(A, &mut done, &mut failed);
    check(done.iter().all(|id| *id == 1), || format!("requests that are not signalled are done: {done:?}"))?;
    bed.reconnect(link)?;
    let remote = bed.resolve(A, B, 1)?;
    for n in 0..u64::from(depth) {
        post(bed, link.a, 10 + n, write(&(n + 1).to_ne_bytes(), remote, n as usize), n + 1 == u64::from(depth))?;
    }
    bed.at(A).flush();
    bed.expect(A, link.a, 9 + u64::from(depth), (Opcode::Write, Status::Success))?;
    bed.eventually("what was posted behind it", |bed| bed.words(B, region)[..8] == [1, 2, 3, 4, 5, 6, 7, 8])
}
