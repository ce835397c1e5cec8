//! WRITE_WITH_IMM and its budget of posted receives.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, QpPair, bytes_of, called, check, place, same};
use stentor_fabric::{
    Access, Event, Fabric, Opcode, PostError, QpState, RegionId, RemoteRegion, Source, Span, Status, Verb,
};

/// A receive without a buffer.
const NOTHING: Span = Span { region: RegionId(0), offset: 0, bytes: 0 };

fn setup<T: Testbed>(bed: &mut Bed<T>) -> Outcome<(RegionId, QpPair, RemoteRegion)> {
    let region = bed.region(B, A, 1, 64, Some(Access::Write))?;
    let link = bed.link(32, 8)?;
    let remote = bed.resolve(A, B, 1)?;
    Ok((region, link, remote))
}

fn notify<T: Testbed>(bed: &mut Bed<T>, link: QpPair, id: u64, (remote, word): (RemoteRegion, usize)) -> Outcome {
    let data = bytes_of(&[id + 1, id + 2]);
    let verb = Verb::WriteImm { source: Source::Inline(&data), target: place(remote, word), imm: 1000 + id as u32 };
    bed.post(A, link.a, id, verb)
}

pub(super) fn notification_follows_the_data<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = setup(bed)?;
    for n in 0..8 {
        called("post_recv", bed.at(B).post_recv(link.b, NOTHING, 500 + n))?;
    }
    for n in 0..8 {
        // If the fabric orders the writes of a queue pair, a plain WRITE that was posted before the WRITE_WITH_IMM is
        // visible when the notification arrives.
        bed.write(A, link.a, 100 + n, (remote, 32 + n as usize), &[n + 7])?;
        notify(bed, link, n, (remote, 2 * n as usize))?;
    }
    let ordered = bed.at(B).capabilities().ordered_writes;
    for n in 0..8 {
        let got = bed.expect(B, link.b, 500 + n, (Opcode::RecvWriteImm, Status::Success))?;
        same("immediate", &got.imm, &Some(1000 + n as u32))?;
        same("bytes", &got.bytes, &16)?;
        let seen = (bed.word(B, region, 2 * n as usize), bed.word(B, region, 2 * n as usize + 1));
        same("data at the notification", &seen, &(n + 1, n + 2))?;
        if ordered {
            same("a write before it", &bed.word(B, region, 32 + n as usize), &(n + 7))?;
        }
        bed.expect(A, link.a, n, (Opcode::Write, Status::Success))?;
    }
    Ok(())
}

pub(super) fn waits_for_a_receive<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, link, remote) = setup(bed)?;
    called("post_recv", bed.at(B).post_recv(link.b, NOTHING, 500))?;
    notify(bed, link, 0, (remote, 0))?;
    notify(bed, link, 1, (remote, 2))?;
    bed.expect(B, link.b, 500, (Opcode::RecvWriteImm, Status::Success))?;
    for _ in 0..3 {
        bed.round();
    }
    check(bed.take(A, link.a, 1).is_none(), || "a WRITE_WITH_IMM completed without a receive".to_string())?;
    called("post_recv", bed.at(B).post_recv(link.b, NOTHING, 501))?;
    let second = bed.expect(B, link.b, 501, (Opcode::RecvWriteImm, Status::Success))?;
    same("immediate of the one that waited", &second.imm, &Some(1001))?;
    bed.expect(A, link.a, 1, (Opcode::Write, Status::Success))?;
    Ok(())
}

pub(super) fn breaks_without_a_receive<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, link, remote) = setup(bed)?;
    notify(bed, link, 0, (remote, 0))?;
    bed.write(A, link.a, 1, (remote, 9), &[1])?;
    bed.expect(A, link.a, 0, (Opcode::Write, Status::RnrRetryExceeded))?;
    bed.event(A, Event::Disconnected { qp: link.a, peer: B })?;
    same("state", &bed.at(A).state(link.a), &QpState::Error)
}

pub(super) fn receives_are_bounded<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, link, remote) = setup(bed)?;
    for n in 0..8 {
        called("post_recv", bed.at(B).post_recv(link.b, NOTHING, 500 + n))?;
    }
    let full = Err(PostError::RecvQueueFull { qp: link.b, depth: 8 });
    same("one receive too many", &bed.at(B).post_recv(link.b, NOTHING, 508), &full)?;
    notify(bed, link, 0, (remote, 0))?;
    bed.expect(B, link.b, 500, (Opcode::RecvWriteImm, Status::Success))?;
    called("post_recv into the free slot", bed.at(B).post_recv(link.b, NOTHING, 508))
}

/// Sends more notifications than receives are posted. Each notification waits for a receive, and none is lost. If the
/// fabric orders writes, the notifications arrive in order.
pub(super) fn notifications_are_late_but_not_lost<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = setup(bed)?;
    let (count, mut posted, mut got, mut done) = (28, 2, Vec::new(), Vec::new());
    for n in 0..posted {
        called("post_recv", bed.at(B).post_recv(link.b, NOTHING, 500 + n))?;
    }
    for n in 0..count {
        notify(bed, link, n, (remote, 2 * n as usize))?;
    }
    bed.until("all notifications", |bed| {
        while let Some(completion) = bed.take_any(A) {
            same("status", &completion.status, &Status::Success)?;
            done.push(completion.id);
        }
        while let Some(completion) = bed.take_any(B) {
            same("receive", &(completion.opcode, completion.status), &(Opcode::RecvWriteImm, Status::Success))?;
            let n = completion.imm.unwrap_or(0).wrapping_sub(1000) as usize;
            let seen = bed.word(B, region, 2 * n % 64);
            same("its data", &seen, &(n as u64 + 1))?;
            got.push(n as u64);
            called("post_recv", bed.at(B).post_recv(link.b, NOTHING, 500 + posted))?;
            posted += 1;
        }
        let (sent, taken) = (done.len(), got.len());
        check(sent <= posted as usize, || format!("{sent} were done with {posted} receives, {taken} taken"))?;
        Ok((done.len() as u64 == count && got.len() as u64 == count).then_some(()))
    })?;
    let mut expected: Vec<u64> = (0..count).collect();
    same("completions", &done, &expected)?;
    if !bed.at(B).capabilities().ordered_writes {
        got.sort_unstable();
    }
    expected.truncate(got.len());
    same("notifications", &got, &expected)
}

/// The retry limit breaks only the queue pair: after a reset of both ends notifications arrive again.
pub(super) fn recovers_after_the_retry_limit<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, link, _) = setup(bed)?;
    for round in 0..bed.repeats() {
        let remote = bed.resolve(A, B, 1)?;
        notify(bed, link, 0, (remote, 0))?;
        bed.expect(A, link.a, 0, (Opcode::Write, Status::RnrRetryExceeded))?;
        bed.broken(A, link.a, B)?;
        bed.broken(B, link.b, A)?;
        bed.reset(A, link.a)?;
        bed.reset(B, link.b)?;
        called("post_recv", bed.at(B).post_recv(link.b, NOTHING, 600 + round))?;
        bed.connected(link)?;
        let remote = bed.resolve(A, B, 1)?;
        notify(bed, link, 1, (remote, 0))?;
        bed.expect(B, link.b, 600 + round, (Opcode::RecvWriteImm, Status::Success))?;
        bed.expect(A, link.a, 1, (Opcode::Write, Status::Success))?;
        bed.forget();
    }
    Ok(())
}
