//! Regions that further peers may read.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, SERVICE, called, check, need, place, same, span, write};
use stentor_fabric::{Access, Fabric, ProcessId, QpConfig, QpState, Status, Verb};

/// The reader of A's writes at B.
const C: ProcessId = ProcessId(2);

pub(super) fn readers_read_and_never_write<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(B).capabilities().many_readers, "many_readers")?;
    let region = bed.region(B, A, 1, 16, Some(Access::Write))?;
    called("grant to a reader", bed.at(B).grant(region, C, Access::Read))?;
    let local = bed.region(C, C, 2, 16, None)?;
    let writer = bed.link(16, 4)?;
    let reader = bed.connect((C, B), SERVICE, QpConfig::reliable(16, 4))?;
    let (at_a, at_c) = (bed.resolve(A, B, 1)?, bed.resolve(C, B, 1)?);
    for n in 1..20 {
        bed.complete_write(A, writer.a, n, (at_a, 3), &[n, n + 1], Status::Success)?;
        // A write that completed at the writer is visible to every reader (rule 3), without any call of the owner.
        bed.complete(C, reader.a, n, Verb::Read { local: span(local, 0, 2), remote: place(at_c, 3) }, Status::Success)?;
        same("what the reader sees", &bed.words(C, local)[..2].to_vec(), &vec![n, n + 1])?;
    }
    bed.complete(C, reader.a, 99, write(&[7; 8], at_c, 0), Status::RemoteAccess)?;
    bed.settle();
    same("the word that a reader tried to write", &bed.word(B, region, 0), &0)
}

pub(super) fn one_reader_loses_access_and_the_others_keep_it<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(B).capabilities().many_readers, "many_readers")?;
    let region = bed.region(B, A, 1, 8, Some(Access::Write))?;
    called("grant to a reader", bed.at(B).grant(region, C, Access::Read))?;
    let local = bed.region(C, C, 2, 8, None)?;
    let writer = bed.link(16, 4)?;
    let reader = bed.connect((C, B), SERVICE, QpConfig::reliable(16, 4))?;
    bed.resolve(C, B, 1)?;
    bed.resolve(A, B, 1)?;
    bed.revoke(B, region, C)?;
    bed.settle();
    if let Some(stale) = bed.at(C).resolve(B, stentor_fabric::Purpose(1)) {
        bed.complete(
            C,
            reader.a,
            1,
            Verb::Read { local: span(local, 0, 1), remote: place(stale, 0) },
            Status::RemoteAccess,
        )?;
    }
    check(bed.at(A).state(writer.a) == QpState::Ready, || "the writer's queue pair broke".to_string())?;
    let at_a = bed.resolve(A, B, 1)?;
    bed.complete_write(A, writer.a, 2, (at_a, 0), &[5], Status::Success)?;
    bed.eventually("the write of the one that kept access", |bed| bed.word(B, region, 0) == 5)
}
