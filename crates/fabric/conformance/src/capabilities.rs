//! Capabilities: the fabric can do what it claims, and refuses what it does not claim.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, SERVICE, check, place, same, span};
use stentor_fabric::{
    Access, ConnectError, Fabric, Opcode, PostError, QpConfig, QpKind, Service, Source, Status, Verb,
};

pub(super) fn constant_and_sane<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let first = bed.at(A).capabilities().clone();
    check(!first.name.is_empty(), || "a fabric without a name".to_string())?;
    check(first.max_send_depth > 0 && first.max_recv_depth > 0, || format!("queues without slots: {first:?}"))?;
    check(first.max_message_bytes >= 64 * 1024, || {
        format!("messages of at most {} bytes: 64 KiB are needed", first.max_message_bytes)
    })?;
    bed.link(16, 4)?;
    bed.settle();
    same("capabilities later", bed.at(A).capabilities(), &first)?;
    let other = bed.at(B).capabilities().clone();
    // If fabrics of two kinds are connected, each has its own capabilities.
    if other.name == first.name {
        same("capabilities of another process", &other, &first)?;
    }
    let deepest = QpConfig::reliable(
        first.max_send_depth.min(other.max_send_depth).min(1 << 16),
        first.max_recv_depth.min(other.max_recv_depth).min(1 << 16),
    );
    bed.connect((A, B), Service(9), deepest)?;
    Ok(())
}

pub(super) fn honest<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let capabilities = bed.at(A).capabilities().clone();
    bed.region(B, A, 1, 8, Some(Access::Atomic))?;
    let local = bed.region(A, A, 2, 8, None)?;
    let link = bed.connect((A, B), SERVICE, QpConfig::reliable(16, 4))?;
    let remote = place(bed.resolve(A, B, 1)?, 0);
    let target = span(local, 0, 1);
    let supported = |result: Result<(), PostError>| !matches!(result, Err(PostError::Unsupported(_)));
    let add = supported(bed.try_post(A, link.a, 1, Verb::FetchAdd { local: target, remote, add: 1 }, true));
    same("fetch-and-add", &add, &capabilities.atomics)?;
    let verb = Verb::CompareSwap { local: target, remote, expected: 0, new: 0 };
    same("compare-and-swap", &supported(bed.try_post(A, link.a, 2, verb, true)), &capabilities.atomics)?;
    let recv = supported(bed.at(A).post_tagged_recv(link.a, target, 1, 0, 3));
    same("tagged receive", &recv, &capabilities.tagged)?;
    let verb = Verb::TaggedSend { source: Source::Inline(&[1]), tag: 1 };
    same("tagged send", &supported(bed.try_post(A, link.a, 4, verb, true)), &capabilities.tagged)?;
    let config = QpConfig { kind: QpKind::Unreliable, send_depth: 4, recv_depth: 4, merges: false };
    let connected = bed.at(A).connect(B, Service(2), config);
    same("unreliable", &(connected != Err(ConnectError::NoUnreliable)), &capabilities.unreliable)
}

/// Checks the claim of ordered bytes. A fabric that claims no more than rule 2 passes at once.
pub(super) fn bytes_in_order_if_claimed<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    // The capability describes writes that land at the process that claims it.
    if !bed.at(B).capabilities().ordered_bytes {
        return Ok(());
    }
    let words = 256;
    let local = bed.region(A, A, 2, words, None)?;
    let (region, link, remote) = bed.linked(words, Access::Write, 16)?;
    for id in 1..60_u64 {
        bed.store(A, local, 0, &vec![id; words]);
        let source = Source::Region(span(local, 0, words));
        bed.post(A, link.a, id, Verb::Write { source, target: place(remote, 0) })?;
        bed.until("the whole write", |bed| {
            // Load from the end, so that later loads can only be newer.
            let seen: Vec<u64> = (0..words).rev().map(|word| bed.word(B, region, word)).collect();
            check(seen.is_sorted(), || format!("a later word of write {id} is visible before an earlier one"))?;
            Ok((seen[0] == id).then_some(()))
        })?;
        bed.expect(A, link.a, id, (Opcode::Write, Status::Success))?;
    }
    Ok(())
}
