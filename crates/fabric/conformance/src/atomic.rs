//! 8-byte compare-and-swap and fetch-and-add.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, check, need, place, same, span};
use stentor_fabric::{Access, Fabric, Opcode, QpConfig, RegionId, RemoteRegion, Service, Status, Verb};

fn setup<T: Testbed>(bed: &mut Bed<T>) -> Outcome<(RegionId, RegionId)> {
    need(bed.at(A).capabilities().atomics, "atomics")?;
    let region = bed.region(B, A, 1, 8, Some(Access::Atomic))?;
    let local = bed.region(A, A, 2, 128, None)?;
    Ok((region, local))
}

fn swap(local: RegionId, remote: RemoteRegion, expected: u64, new: u64) -> Verb<'static> {
    Verb::CompareSwap { local: span(local, 0, 1), remote: place(remote, 3), expected, new }
}

pub(super) fn compare_and_swap<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, local) = setup(bed)?;
    let link = bed.link(16, 4)?;
    let remote = bed.resolve(A, B, 1)?;
    // Tuples of (expected, new, old value that the swap returns).
    for (id, (expected, new, old)) in
        [(0, 5, 0), (0, 9, 5), (5, u64::MAX, 5), (u64::MAX, 1, u64::MAX)].into_iter().enumerate()
    {
        bed.store(A, local, 0, &[77, 77]);
        bed.complete(A, link.a, id as u64, swap(local, remote, expected, new), Status::Success)?;
        same("old value, and nothing behind it", &bed.words(A, local)[..2].to_vec(), &vec![old, 77])?;
    }
    bed.eventually("the last value", |bed| bed.words(B, region) == [0, 0, 0, 1, 0, 0, 0, 0])
}

pub(super) fn fetch_and_add<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, local) = setup(bed)?;
    let link = bed.link(16, 4)?;
    let remote = bed.resolve(A, B, 1)?;
    let mut expected = 0_u64;
    for (id, add) in [1, 10, u64::MAX, 1 << 63].into_iter().enumerate() {
        let verb = Verb::FetchAdd { local: span(local, 0, 1), remote: place(remote, 0), add };
        bed.complete(A, link.a, id as u64, verb, Status::Success)?;
        same("old value", &bed.word(A, local, 0), &expected)?;
        expected = expected.wrapping_add(add);
    }
    bed.eventually("the sum", |bed| bed.word(B, region, 0) == expected)
}

pub(super) fn atomic_among_themselves<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, local) = setup(bed)?;
    let config = QpConfig::reliable(64, 4);
    let links = [bed.connect((A, B), Service(1), config)?, bed.connect((A, B), Service(2), config)?];
    let remote = bed.resolve(A, B, 1)?;
    for n in 0..60 {
        let verb = Verb::FetchAdd { local: span(local, n, 1), remote: place(remote, 1), add: 1 };
        bed.post(A, links[n % 2].a, n as u64, verb)?;
    }
    for n in 0..60 {
        bed.expect(A, links[n % 2].a, n as u64, (Opcode::Atomic, Status::Success))?;
    }
    let mut old = bed.words(A, local)[..60].to_vec();
    old.sort_unstable();
    check(old.iter().enumerate().all(|(n, value)| *value == n as u64), || {
        format!("60 additions on two queue pairs saw {old:?}, not every number once")
    })?;
    bed.eventually("the sum", |bed| bed.word(B, region, 1) == 60)
}
