//! READs (rule 3).

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, place, same, span};
use stentor_fabric::{Access, Opcode, Status, Verb};

pub(super) fn completed_writes_are_read<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let local = bed.region(A, A, 2, 8, None)?;
    let (_, link, remote) = bed.linked(64, Access::Write, 32)?;
    for n in 1..40_u64 {
        let values = [n, n + 1, n + 2, n + 3];
        bed.store(A, local, 0, &[u64::MAX; 4]);
        bed.complete_write(A, link.a, 2 * n, (remote, n as usize % 16), &values, Status::Success)?;
        let verb = Verb::Read { local: span(local, 0, 4), remote: place(remote, n as usize % 16) };
        bed.complete(A, link.a, 2 * n + 1, verb, Status::Success)?;
        same("what the READ brought", &bed.words(A, local)[..4].to_vec(), &values.to_vec())?;
    }
    Ok(())
}

pub(super) fn stores_of_the_owner_are_read<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let local = bed.region(A, A, 2, 8, None)?;
    let (region, link, remote) = bed.linked(8, Access::Read, 32)?;
    for n in 1..20_u64 {
        bed.store(B, region, 5, &[n * n]);
        bed.complete(A, link.a, n, Verb::Read { local: span(local, 2, 1), remote: place(remote, 5) }, Status::Success)?;
        same("what the READ brought", &bed.words(A, local), &vec![0, 0, n * n, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

pub(super) fn many_words_are_read<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let words = 2048;
    let local = bed.region(A, A, 2, words, None)?;
    let (region, link, remote) = bed.linked(words, Access::Read, 32)?;
    let values: Vec<u64> = (0..words as u64).map(|i| i << 20 | 1).collect();
    bed.store(B, region, 0, &values);
    // Several READs at once, into different locations.
    for n in 0..8 {
        let verb = Verb::Read { local: span(local, n * 256, 256), remote: place(remote, n * 256) };
        bed.post(A, link.a, n as u64, verb)?;
    }
    for n in 0..8 {
        bed.expect(A, link.a, n as u64, (Opcode::Read, Status::Success))?;
        let (first, last) = (n * 256, (n + 1) * 256);
        same("what a READ brought", &bed.words(A, local)[first..last].to_vec(), &values[first..last].to_vec())?;
    }
    Ok(())
}
