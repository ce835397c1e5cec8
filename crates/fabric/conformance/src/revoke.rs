//! Revocation, on which fencing of an old leader depends.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, called, check, same, write};
use stentor_fabric::{Access, Event, Fabric, QpState, Status};

const WORDS: usize = 4096;

pub(super) fn later_writes_are_refused<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(WORDS, Access::Write, 64)?;
    bed.complete_write(A, link.a, 1, (remote, 0), &[11], Status::Success)?;
    bed.revoke(B, region, A)?;
    same("a write that had completed", &bed.word(B, region, 0), &11)?;
    bed.complete_write(A, link.a, 2, (remote, 1), &[22], Status::RemoteAccess)?;
    bed.event(A, Event::Disconnected { qp: link.a, peer: B })?;
    bed.settle();
    same("a write after the revocation", &bed.word(B, region, 1), &0)?;
    same("what was there before", &bed.word(B, region, 0), &11)
}

/// A writer streams signalled requests while the owner revokes access. Every write reported as a success is in memory,
/// and the memory does not change after the event.
pub(super) fn completed_writes_are_kept<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(WORDS, Access::Write, 64)?;
    let (mut next, mut successes, mut failures) = (0_u64, Vec::new(), Vec::new());
    let mut at_event: Option<Vec<u64>> = None;
    let mut asked = false;
    bed.until("the stream breaks and the revocation takes effect", |bed| {
        // Poll the owner first: a completion between the two polls is newer than the event.
        if at_event.is_none() && bed.take_event(B, Event::Revoked { region, peer: A }).is_some() {
            at_event = Some(bed.words(B, region));
        }
        bed.sort_completions(A, &mut successes, &mut failures);
        if !asked && successes.len() > 40 {
            called("revoke", bed.at(B).revoke(region, A))?;
            asked = true;
        }
        for _ in 0..4 {
            let word = next as usize * 2 % WORDS;
            let data = [next + 1, next + 1];
            let data = super::bed::bytes_of(&data);
            if bed.at(A).state(link.a) != QpState::Ready
                || bed.try_post(A, link.a, next, write(&data, remote, word), true).is_err()
            {
                break;
            }
            next += 1;
        }
        Ok((at_event.is_some() && bed.at(A).state(link.a) == QpState::Error).then_some(()))
    })?;
    bed.settle();
    bed.sort_completions(A, &mut successes, &mut failures);
    let at_event = at_event.unwrap_or_default();
    same("memory long after the event", &bed.words(B, region), &at_event)?;
    let ordered = bed.at(A).capabilities().ordered_writes;
    let refused = failures.iter().position(|status| *status == Status::RemoteAccess);
    check(if ordered { refused == Some(0) } else { refused.is_some() }, || {
        format!("the stream was to break with RemoteAccess: {failures:?}")
    })?;
    let rest = failures.iter().all(|status| matches!(status, Status::RemoteAccess | Status::Flushed));
    check(rest, || format!("all others are flushed: {failures:?}"))?;
    // Where one lap overwrote another, the newer value counts; a failed write may have landed partially.
    let last = successes.last().copied().unwrap_or(0);
    for id in successes {
        let word = id as usize * 2 % WORDS;
        let overwritten = next > id + WORDS as u64 / 2;
        let there = (at_event[word], at_event[word + 1]);
        check(overwritten || there == (id + 1, id + 1), || {
            format!("write {id} of {next} (last success {last}) was reported a success; in memory is {there:?}")
        })?;
    }
    Ok(())
}

pub(super) fn new_grant_has_a_fresh_key<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, old) = bed.linked(WORDS, Access::Write, 64)?;
    bed.complete_write(A, link.a, 1, (old, 0), &[1], Status::Success)?;
    bed.revoke(B, region, A)?;
    same("memory after the revocation", &bed.word(B, region, 0), &1)?;
    called("grant again", bed.at(B).grant(region, A, Access::Write))?;
    let purpose = stentor_fabric::Purpose(1);
    let fresh = bed.until("a fresh key", |bed| Ok(bed.at(A).resolve(B, purpose).filter(|new| new.key != old.key)))?;
    bed.complete_write(A, link.a, 2, (fresh, 1), &[2], Status::Success)?;
    bed.eventually("a write with the fresh key", |bed| bed.word(B, region, 1) == 2)?;
    bed.complete_write(A, link.a, 3, (old, 2), &[3], Status::RemoteAccess)?;
    bed.settle();
    same("memory", &bed.words(B, region)[..3].to_vec(), &vec![1, 2, 0])?;
    bed.reconnect(link)?;
    let again = bed.resolve(A, B, 1)?;
    bed.complete_write(A, link.a, 4, (again, 3), &[4], Status::Success)?;
    bed.eventually("a write after the reset", |bed| bed.word(B, region, 3) == 4)
}
