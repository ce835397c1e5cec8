//! A counter that its owner increments and a peer READs, as failure detectors do.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, QpPair, SERVICE, called, check, place, same, span};
use stentor_fabric::{Access, Fabric, Opcode, PostError, QpConfig, QpState, RegionId, RemoteRegion, Status, Verb};

const CONFIG: QpConfig = QpConfig::reliable(8, 0);

/// Creates B's counter with a grant for reading, and B's end of the queue pair.
fn join<T: Testbed>(bed: &mut Bed<T>) -> Outcome<(RegionId, stentor_fabric::QpId)> {
    // A heartbeat has many readers. If the fabric supports that, B is the writer of its own counter, and A a reader.
    let writer = if bed.at(B).capabilities().many_readers { B } else { A };
    let counter = bed.region(B, writer, 1, 8, None)?;
    called("grant", bed.at(B).grant(counter, A, Access::Read))?;
    Ok((counter, called("connect", bed.at(B).connect(A, SERVICE, CONFIG))?))
}

fn setup<T: Testbed>(bed: &mut Bed<T>) -> Outcome<(RegionId, RegionId, QpPair, RemoteRegion)> {
    let local = bed.region(A, A, 2, 8, None)?;
    let (counter, b) = join(bed)?;
    let link = QpPair { a: called("connect", bed.at(A).connect(B, SERVICE, CONFIG))?, b };
    bed.connected(link)?;
    Ok((local, counter, link, bed.resolve(A, B, 1)?))
}

pub(super) fn counts_up<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (local, counter, link, remote) = setup(bed)?;
    let (mut beats, mut seen) = (0, 0);
    for n in 0..100 {
        bed.post(A, link.a, n, Verb::Read { local: span(local, 0, 1), remote: place(remote, 0) })?;
        let before = beats;
        for _ in 0..n % 5 {
            beats += 1;
            bed.store(B, counter, 0, &[beats]);
            bed.round();
        }
        bed.expect(A, link.a, n, (Opcode::Read, Status::Success))?;
        let read = bed.word(A, local, 0);
        let sound = (before..=beats).contains(&read) && read >= seen;
        check(sound, || format!("read {read} after {seen}; the owner counted from {before} to {beats}"))?;
        seen = read;
    }
    Ok(())
}

pub(super) fn stops_with_the_process<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (local, mut counter, mut link, mut remote) = setup(bed)?;
    for life in 1..=bed.repeats() {
        bed.store(B, counter, 0, &[life]);
        let read = |bed: &mut Bed<T>, link: QpPair, remote, id| {
            bed.try_post(A, link.a, id, Verb::Read { local: span(local, 0, 1), remote: place(remote, 0) }, true)
        };
        called("READ", read(bed, link, remote, 0))?;
        bed.expect(A, link.a, 0, (Opcode::Read, Status::Success))?;
        same("the counter", &bed.word(A, local, 0), &life)?;
        bed.forget();
        bed.crash(B);
        // Post one READ at a time. READs that still succeed return the last value; then READs fail; then posts are
        // refused.
        for id in 1.. {
            check(id < 40_000, || "READs from a dead process never end".to_string())?;
            match read(bed, link, remote, id) {
                Ok(()) => {}
                Err(PostError::NotReady { state: QpState::Error, .. }) => break,
                Err(error) => return check(false, || format!("READ {id}: {error:?}")),
            }
            if bed.completion(A, link.a, id)?.status == Status::Success {
                same("the counter of a dead process", &bed.word(A, local, 0), &life)?;
            }
        }
        bed.renew(A, link.a, B)?;
        bed.settle();
        check(bed.take_any(A).is_none(), || "a completion after everything was flushed".to_string())?;
        bed.restart(B);
        let b;
        (counter, b) = join(bed)?;
        link = QpPair { b, ..link };
        bed.connected(link)?;
        remote = bed.resolve(A, B, 1)?;
        called("READ", read(bed, link, remote, 0))?;
        bed.expect(A, link.a, 0, (Opcode::Read, Status::Success))?;
        same("the counter of the next life", &bed.word(A, local, 0), &0)?;
    }
    Ok(())
}
