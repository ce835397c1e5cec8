//! Errors of `post` and `post_recv`, one by one; a refused call has no effect.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, QpPair, place, same, span, write};
use stentor_fabric::{Access, Fabric, PostError, QpId, RegionId, RemoteRegion, RemoteSpan, Source, Span, Status, Verb};

pub(super) fn one_by_one<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let local = bed.region(A, A, 2, 8, None)?;
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    let unknown = QpId(4_000_000);
    let got = bed.try_post(A, unknown, 1, write(&[0; 8], remote, 0), true);
    same("post on nothing", &got, &Err(PostError::UnknownQp(unknown)))?;
    let got = bed.at(A).post_recv(unknown, span(local, 0, 1), 1);
    same("receive on nothing", &got, &Err(PostError::UnknownQp(unknown)))?;
    local_spans(bed, link, local, remote)?;
    alignment(bed, link, local, remote)?;
    bed.settle();
    same("completions of refused requests", &bed.take_any(A), &None)?;
    same("memory after refused requests", &bed.words(B, region), &vec![0; 8])?;
    bed.complete_write(A, link.a, 77, (remote, 0), &[7], Status::Success)
}

fn local_spans<T: Testbed>(bed: &mut Bed<T>, link: QpPair, local: RegionId, remote: RemoteRegion) -> Outcome {
    let nowhere = RegionId(4_000_000);
    let outside = [
        Span { region: local, offset: 64, bytes: 8 },
        Span { region: local, offset: 56, bytes: 16 },
        Span { region: local, offset: u64::MAX - 7, bytes: 8 },
        Span { region: nowhere, offset: 0, bytes: 8 },
    ];
    for span in outside {
        let Span { region, offset, bytes } = span;
        let refused = Err(PostError::OutOfLocalRegion { region, offset, bytes: u64::from(bytes) });
        let target = place(remote, 0);
        let verb = Verb::Write { source: Source::Region(span), target };
        same("source outside", &bed.try_post(A, link.a, 1, verb, true), &refused)?;
        let verb = Verb::Send { source: Source::Region(span), imm: None };
        same("source of a SEND outside", &bed.try_post(A, link.a, 1, verb, true), &refused)?;
        let verb = Verb::Read { local: span, remote: target };
        same("READ to outside", &bed.try_post(A, link.a, 1, verb, true), &refused)?;
        same("receive outside", &bed.at(A).post_recv(link.a, span, 1), &refused)?;
    }
    Ok(())
}

fn alignment<T: Testbed>(bed: &mut Bed<T>, link: QpPair, local: RegionId, remote: RemoteRegion) -> Outcome {
    let at = |offset| RemoteSpan { region: remote, offset };
    let misaligned = |result: &Result<(), PostError>| matches!(result, Err(PostError::Misaligned { .. }));
    let posts = [
        ("WRITE to an odd offset", Verb::Write { source: Source::Inline(&[0; 8]), target: at(4) }),
        ("WRITE of an odd length", Verb::Write { source: Source::Inline(&[0; 12]), target: at(0) }),
        ("WRITE_WITH_IMM of an odd length", Verb::WriteImm { source: Source::Inline(&[0; 3]), target: at(0), imm: 1 }),
        ("READ from an odd offset", Verb::Read { local: span(local, 0, 1), remote: at(12) }),
        ("READ of an odd length", Verb::Read { local: Span { region: local, offset: 0, bytes: 4 }, remote: at(0) }),
    ];
    for (what, verb) in posts {
        same(what, &misaligned(&bed.try_post(A, link.a, 1, verb, true)), &true)?;
    }
    if bed.at(A).capabilities().atomics {
        let verb = Verb::FetchAdd { local: span(local, 0, 1), remote: at(2), add: 1 };
        same("atomic at an odd offset", &misaligned(&bed.try_post(A, link.a, 1, verb, true)), &true)?;
    }
    Ok(())
}
