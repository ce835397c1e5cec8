//! The verbs, between two fabrics of this process.

use std::time::Duration;

use stentor_fabric::{
    Access, Event, Fabric, Opcode, PostError, ProcessId, Purpose, QpConfig, QpKind, QpState, RegionSpec, RemoteSpan,
    Source, Status, Verb, WorkRequest,
};

use super::support::*;
use crate::ShmFabric;

const QP: QpConfig = QpConfig::reliable(16, 8);

#[test]
fn writes_land_and_only_signalled_ones_are_reported() {
    let mut pair = Pair::new(QP);
    pair.write(1, 8, &[11], false);
    pair.write(2, 16, &[12, 13, 14], true);
    assert_eq!(ends(&poll(&mut pair.a)), [(2, Status::Success)]);
    assert_eq!((0..6).map(|word| pair.word_b(word)).collect::<Vec<_>>(), [0, 11, 12, 13, 14, 0]);
}

#[test]
fn places_are_held_until_a_later_signalled_request_is_polled() {
    let mut pair = Pair::new(QP);
    for id in 0..15 {
        pair.write(id, 0, &[id], false);
    }
    assert_eq!(poll(&mut pair.a), []);
    pair.write(15, 0, &[15], true);
    pair.a.flush();
    let target = RemoteSpan { region: pair.at_b(), offset: 0 };
    let full = PostError::SendQueueFull { qp: pair.qp_a, depth: 16 };
    assert_eq!(write(&mut pair.a, pair.qp_a, 16, target, &[16], true), Err(full));
    assert_eq!(ends(&poll(&mut pair.a)), [(15, Status::Success)]);
    assert_eq!(write(&mut pair.a, pair.qp_a, 16, target, &[16], true), Ok(()));
}

#[test]
fn a_region_is_a_source_and_a_read_goes_the_other_way() {
    let mut pair = Pair::new(QP);
    let (local, region) = (staging(&mut pair.a, 9), pair.at_b());
    store(&pair.a, local, 2, 77);
    let source = Source::Region(span(local, 16, 8));
    let target = RemoteSpan { region, offset: 40 };
    pair.a.post(pair.qp_a, WorkRequest { id: 1, verb: Verb::Write { source, target }, signalled: true }).unwrap();
    let read = Verb::Read { local: span(local, 64, 16), remote: RemoteSpan { region, offset: 32 } };
    store(&pair.b, pair.region_b, 4, 55);
    pair.a.post(pair.qp_a, WorkRequest { id: 2, verb: read, signalled: true }).unwrap();
    let completions = poll(&mut pair.a);
    assert_eq!(ends(&completions), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(completions[1].opcode, Opcode::Read);
    assert_eq!([load(&pair.a, local, 8), load(&pair.a, local, 9)], [55, 77]);
}

#[test]
fn atomics_return_the_old_value() {
    let mut pair = Pair::new(QP);
    let (local, region) = (staging(&mut pair.a, 9), pair.at_b());
    let remote = RemoteSpan { region, offset: 24 };
    let add = Verb::FetchAdd { local: span(local, 0, 8), remote, add: 5 };
    let swap = |expected| Verb::CompareSwap { local: span(local, 8, 8), remote, expected, new: 90 };
    for (verb, old, now) in [(add, 0, 5), (add, 5, 10), (swap(3), 10, 10), (swap(10), 10, 90)] {
        pair.a.post(pair.qp_a, WorkRequest { id: 1, verb, signalled: true }).unwrap();
        assert_eq!(poll(&mut pair.a)[0].opcode, Opcode::Atomic);
        let word = if matches!(verb, Verb::FetchAdd { .. }) { 0 } else { 1 };
        assert_eq!((load(&pair.a, local, word), pair.word_b(3)), (old, now), "{verb:?}");
    }
}

#[test]
fn sends_of_any_length_meet_receives_in_order() {
    let mut pair = Pair::new(QP);
    let local = staging(&mut pair.b, 9);
    for (id, offset) in [(1, 0), (2, 64)] {
        pair.b.post_recv(pair.qp_b, span(local, offset, 64), id).unwrap();
    }
    send(&mut pair.a, pair.qp_a, 5, b"hello, world", None);
    send(&mut pair.a, pair.qp_a, 6, b"", Some(9));
    assert_eq!(ends(&poll(&mut pair.a)), [(5, Status::Success), (6, Status::Success)]);
    let completions = poll(&mut pair.b);
    assert_eq!(ends(&completions), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(
        completions.iter().map(|c| (c.opcode, c.bytes, c.imm)).collect::<Vec<_>>(),
        [(Opcode::Recv, 12, None), (Opcode::Recv, 0, Some(9))]
    );
    let words = [load(&pair.b, local, 0), load(&pair.b, local, 1)];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(&bytes, b"hello, world\0\0\0\0");
}

#[test]
fn an_immediate_arrives_after_its_data_and_uses_up_a_receive() {
    let mut pair = Pair::new(QP);
    let target = RemoteSpan { region: pair.at_b(), offset: 8 };
    pair.b.post_recv(pair.qp_b, span(pair.region_b, 0, 0), 3).unwrap();
    let verb = Verb::WriteImm { source: Source::Inline(&7_u64.to_ne_bytes()), target, imm: 42 };
    pair.a.post(pair.qp_a, WorkRequest { id: 1, verb, signalled: true }).unwrap();
    let completions = poll(&mut pair.b);
    assert_eq!(completions.len(), 1);
    let completion = completions[0];
    assert_eq!((completion.id, completion.opcode, completion.imm), (3, Opcode::RecvWriteImm, Some(42)));
    assert_eq!((completion.bytes, pair.word_b(1)), (8, 7));
}

#[test]
fn send_without_a_receive_waits_and_blocks_later_posts() {
    let mut pair = Pair::new(QP);
    let local = staging(&mut pair.b, 9);
    let mut data = *b"abcdefgh";
    send(&mut pair.a, pair.qp_a, 1, &data, None);
    data.fill(0);
    pair.write(2, 0, &[5], true);
    assert_eq!((poll(&mut pair.a).len(), pair.word_b(0)), (0, 0));
    pair.b.post_recv(pair.qp_b, span(local, 0, 64), 9).unwrap();
    assert_eq!(ends(&poll(&mut pair.a)), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(ends(&poll(&mut pair.b)), [(9, Status::Success)]);
    assert_eq!(load(&pair.b, local, 0).to_ne_bytes(), *b"abcdefgh", "inline data are the sender's at once");
    assert_eq!(pair.word_b(0), 5);
}

#[test]
fn send_that_waits_too_long_for_a_receive_fails() {
    let directory = TestDirectory::new();
    let quick = |me| crate::ShmConfig { rnr_timeout: Duration::from_millis(5), ..config(&directory.0, me, 2) };
    let (mut a, mut b) = (ShmFabric::start(quick(0)).unwrap(), ShmFabric::start(quick(1)).unwrap());
    let (qp_a, qp_b) = (a.connect(ProcessId(1), SERVICE, QP).unwrap(), b.connect(ProcessId(0), SERVICE, QP).unwrap());
    until("ready", || {
        events(&mut b);
        events(&mut a);
        a.state(qp_a) == QpState::Ready && b.state(qp_b) == QpState::Ready
    });
    send(&mut a, qp_a, 1, b"1", None);
    send(&mut a, qp_a, 2, b"2", None);
    let mut completions = Vec::new();
    until("failed", || {
        completions.extend(poll(&mut a));
        completions.len() == 2
    });
    assert_eq!(ends(&completions), [(1, Status::RnrRetryExceeded), (2, Status::Flushed)]);
    assert_eq!(events(&mut a), [Event::Disconnected { qp: qp_a, peer: ProcessId(1) }]);
}

#[test]
fn message_longer_than_its_receive_breaks_both_ends_until_a_reset() {
    let mut pair = Pair::new(QP);
    let local = staging(&mut pair.b, 9);
    pair.b.post_recv(pair.qp_b, span(local, 0, 8), 1).unwrap();
    pair.b.post_recv(pair.qp_b, span(local, 0, 8), 2).unwrap();
    send(&mut pair.a, pair.qp_a, 1, b"nine bytes", None);
    poll(&mut pair.a);
    assert_eq!(ends(&poll(&mut pair.b)), [(1, Status::LocalLength), (2, Status::Flushed)]);
    assert_eq!(events(&mut pair.b), [Event::Disconnected { qp: pair.qp_b, peer: ProcessId(0) }]);
    assert_eq!(events(&mut pair.a), [Event::Disconnected { qp: pair.qp_a, peer: ProcessId(1) }]);
    let not_ready = PostError::NotReady { qp: pair.qp_b, state: QpState::Error };
    assert_eq!(pair.b.post_recv(pair.qp_b, span(local, 0, 8), 3), Err(not_ready));
    pair.b.reset(pair.qp_b).unwrap();
    pair.a.reset(pair.qp_a).unwrap();
    pair.b.post_recv(pair.qp_b, span(local, 0, 8), 4).unwrap();
    pair.until_ready();
    send(&mut pair.a, pair.qp_a, 7, b"8 bytes.", None);
    assert_eq!(ends(&poll(&mut pair.a)), [(7, Status::Success)]);
    assert_eq!(ends(&poll(&mut pair.b)), [(4, Status::Success)]);
}

#[test]
fn write_outside_the_region_is_refused_and_later_ones_do_not_execute() {
    let mut pair = Pair::new(QP);
    pair.write(1, 0, &[1], false);
    pair.write(2, BYTES - 8, &[1, 2], false);
    let target = RemoteSpan { region: pair.at_b(), offset: 0 };
    let not_ready = PostError::NotReady { qp: pair.qp_a, state: QpState::Error };
    assert_eq!(write(&mut pair.a, pair.qp_a, 3, target, &[3], false), Err(not_ready));
    assert_eq!(ends(&poll(&mut pair.a)), [(2, Status::RemoteAccess)]);
    assert_eq!((pair.word_b(0), pair.word_b(511)), (1, 0));
}

#[test]
fn access_rights_limit_the_verbs() {
    for (access, id) in [(Access::Read, 1), (Access::Write, 2)] {
        let mut pair = Pair::new(QP);
        pair.b.grant(pair.region_b, ProcessId(0), access).unwrap();
        store(&pair.b, pair.region_b, 0, 6);
        let region = pair.at_b();
        until("granted anew", || {
            events(&mut pair.a);
            pair.a.resolve(ProcessId(1), PURPOSE).is_some_and(|now| now.key != region.key)
        });
        let (local, remote) = (staging(&mut pair.a, 9), RemoteSpan { region: pair.at_b(), offset: 0 });
        let read = Verb::Read { local: span(local, 0, 8), remote };
        pair.a.post(pair.qp_a, WorkRequest { id: 9, verb: read, signalled: false }).unwrap();
        let verb = if access == Access::Read {
            Verb::Write { source: Source::Inline(&[0; 8]), target: remote }
        } else {
            Verb::FetchAdd { local: span(local, 8, 8), remote, add: 1 }
        };
        pair.a.post(pair.qp_a, WorkRequest { id, verb, signalled: false }).unwrap();
        assert_eq!(ends(&poll(&mut pair.a)), [(id, Status::RemoteAccess)]);
        assert_eq!((load(&pair.a, local, 0), pair.word_b(0)), (6, 6));
    }
}

#[test]
fn failures_are_silent_on_an_unreliable_connection() {
    let mut pair = Pair::new(QpConfig { kind: QpKind::Unreliable, ..QP });
    let local = staging(&mut pair.b, 9);
    send(&mut pair.a, pair.qp_a, 1, b"nobody waits for this", None);
    pair.b.post_recv(pair.qp_b, span(local, 0, 8), 1).unwrap();
    send(&mut pair.a, pair.qp_a, 2, b"too long for it", None);
    pair.write(3, BYTES, &[1], true);
    assert_eq!(poll(&mut pair.b), []);
    send(&mut pair.a, pair.qp_a, 4, b"this", None);
    let success: Vec<_> = (1..=4).map(|id| (id, Status::Success)).collect();
    assert_eq!(ends(&poll(&mut pair.a)), success);
    assert_eq!(ends(&poll(&mut pair.b)), [(1, Status::Success)]);
    let read = Verb::Read { local: span(local, 0, 8), remote: RemoteSpan { region: pair.at_b(), offset: 0 } };
    let refused = pair.a.post(pair.qp_a, WorkRequest { id: 5, verb: read, signalled: true });
    assert!(matches!(refused, Err(PostError::Unsupported(_))), "{refused:?}");
}

#[test]
fn memory_is_counted_and_limited() {
    let directory = TestDirectory::new();
    let limited = crate::ShmConfig { max_bytes: 1 << 20, max_regions: 64, ..config(&directory.0, 0, 2) };
    let mut fabric = ShmFabric::start(limited).unwrap();
    let before = fabric.memory_bytes();
    let spec = |purpose, bytes| RegionSpec { purpose: Purpose(purpose), writer: ProcessId(1), bytes };
    fabric.register(spec(1, 4096)).unwrap();
    assert_eq!(fabric.memory_bytes(), before + 4096);
    let error = fabric.register(spec(2, 1 << 20)).unwrap_err().to_string();
    assert!(error.contains("max_bytes"), "{error}");
    let deep = QpConfig::reliable(1, 1 << 16);
    let error = fabric.connect(ProcessId(1), SERVICE, deep).unwrap_err().to_string();
    assert!(error.contains("max_bytes"), "{error}");
}
