//! The bounded send queue, selective signalling, and the inline limit.

use std::time::Duration;

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, called, check, same, write};
use stentor_fabric::{Access, Fabric, Opcode, PostError, QpState, Source, Status, Verb, WorkRequest};

pub(super) fn inline_limit<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let limit = bed.at(A).capabilities().inline_bytes as usize;
    let words = (limit / 8).next_multiple_of(8).max(8);
    let (region, link, remote) = bed.linked(words, Access::Write, 16)?;
    let data = vec![0xab; limit + 8];
    let too_long = |bytes: usize| PostError::InlineTooLong { bytes: bytes as u64, limit: limit as u32 };
    let one_more = limit + 1;
    let verb = Verb::Send { source: Source::Inline(&data[..one_more]), imm: None };
    same("SEND of one byte too many", &bed.try_post(A, link.a, 1, verb, true), &Err(too_long(one_more)))?;
    let next = limit / 8 * 8 + 8;
    let got = bed.try_post(A, link.a, 1, write(&data[..next], remote, 0), true);
    same("WRITE of one word too many", &got, &Err(too_long(next)))?;
    let most = limit / 8 * 8;
    bed.complete(A, link.a, 2, write(&data[..most], remote, 0), Status::Success)?;
    let word = u64::from_ne_bytes([0xab; 8]);
    bed.eventually("all inline bytes", |bed| bed.words(B, region)[..most / 8].iter().all(|got| *got == word))
}

pub(super) fn bounded_and_freed_by_signalled<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(8, Access::Write, 8)?;
    let full = Err(PostError::SendQueueFull { qp: link.a, depth: 8 });
    for lap in 0..3_u64 {
        for n in 0..7 {
            let data = (lap * 8 + n + 1).to_ne_bytes();
            called("post", bed.try_post(A, link.a, n, write(&data, remote, 0), false))?;
        }
        let id = 100 + lap;
        bed.write(A, link.a, id, (remote, 1), &[lap + 1])?;
        same("a ninth request", &bed.try_post(A, link.a, 9, write(&[0; 8], remote, 2), true), &full)?;
        for _ in 0..200 {
            bed.pass();
        }
        same("a ninth request, nothing polled", &bed.try_post(A, link.a, 9, write(&[0; 8], remote, 2), true), &full)?;
        bed.expect(A, link.a, id, (Opcode::Write, Status::Success))?;
    }
    for n in 0..8 {
        called("post", bed.try_post(A, link.a, n, write(&[1; 8], remote, 0), false))?;
    }
    bed.settle();
    same("unsignalled requests keep their slots", &bed.try_post(A, link.a, 9, write(&[0; 8], remote, 2), true), &full)?;
    check(bed.take_any(A).is_none(), || "an unsignalled success was reported".to_string())?;
    same("state", &bed.at(A).state(link.a), &QpState::Ready)?;
    same("a word that only refused requests named", &bed.word(B, region, 2), &0)
}

pub(super) fn one_completion_per_signalled<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, link, remote) = bed.linked(64, Access::Write, 64)?;
    for n in 0..60_u64 {
        let verb = write(&[7; 8], remote, n as usize);
        called("post", bed.try_post(A, link.a, n, verb, n % 3 == 2))?;
    }
    let mut reported = Vec::new();
    bed.until("the last completion", |bed| {
        while let Some(completion) = bed.take_any(A) {
            same("status", &completion.status, &Status::Success)?;
            reported.push(completion.id);
        }
        Ok((reported.last() == Some(&59)).then_some(()))
    })?;
    bed.settle();
    check(bed.take_any(A).is_none(), || "a completion after the last".to_string())?;
    same("completions, in order", &reported, &(0..20).map(|n| 3 * n + 2).collect())
}

pub(super) fn poll_and_wait_flush<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    for (id, polls) in [(1_u64, true), (2, false)] {
        let data = id.to_ne_bytes();
        let request = WorkRequest { id, verb: write(&data, remote, 0), signalled: true };
        called("post", bed.at(A).post(link.a, request))?;
        if polls {
            bed.collect(A);
        } else {
            bed.at(A).arm();
            called("wait", bed.at(A).wait(Duration::from_millis(1)))?;
        }
        let mut rounds = 0;
        while bed.word(B, region, 0) != id {
            rounds += 1;
            let what = if polls { "poll" } else { "wait" };
            check(rounds < bed.patience(), || format!("{what} did not hand over what was posted"))?;
            bed.pass();
        }
        bed.expect(A, link.a, id, (Opcode::Write, Status::Success))?;
    }
    Ok(())
}
