//! Reuse of the source of a request.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, called, place, span};
use stentor_fabric::{Access, Opcode, Source, Status, Verb};

pub(super) fn source_is_free_after_a_later_completion<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let local = bed.region(A, A, 2, 128, None)?;
    let (region, link, remote) = bed.linked(128, Access::Write, 32)?;
    let mut expected = vec![0; 128];
    for lap in 0..8_usize {
        for n in 0..4 {
            let first = lap * 16 + n * 4;
            let values = [first as u64 + 1; 4];
            bed.store(A, local, n * 4, &values);
            expected[first..first + 4].copy_from_slice(&values);
            let source = Source::Region(span(local, n * 4, 4));
            let verb = Verb::Write { source, target: place(remote, first) };
            called("post", bed.try_post(A, link.a, lap as u64, verb, n == 3))?;
        }
        bed.expect(A, link.a, lap as u64, (Opcode::Write, Status::Success))?;
        bed.store(A, local, 0, &[u64::MAX; 128]);
    }
    bed.settle();
    bed.eventually("what the sources held before the completion", |bed| bed.words(B, region) == expected)
}

pub(super) fn inline_source_is_free_at_once<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(64, Access::Write, 64)?;
    let mut data = [0; 8];
    for n in 0..60_usize {
        data.copy_from_slice(&(n as u64 + 1).to_ne_bytes());
        called("post", bed.try_post(A, link.a, n as u64, super::bed::write(&data, remote, n), n == 59))?;
        data.fill(0xff);
    }
    bed.expect(A, link.a, 59, (Opcode::Write, Status::Success))?;
    bed.eventually("what the buffer held while posting", |bed| (0..60).all(|n| bed.word(B, region, n) == n as u64 + 1))
}
