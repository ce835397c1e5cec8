//! Tests queue pairs on the kernel's Soft-RoCE that are connected within one process. Ignored by default: the tests
//! need a device, which `cargo xtask test --only verbs` creates in a guest.

mod common;
mod kernel;

use common::{BYTES, End, INLINE_WANTED, host, pair};
use kernel::{resources, settled};
use stentor_fabric::{Access, Opcode, QpKind};
use stentor_fabric_verbs::device::GidKind;
use stentor_fabric_verbs::qp::{Data, Endpoint, Local, Own, QueuePair, Remote, Size, State, Tuning, Work, WorkError};
use stentor_fabric_verbs::{CompletionQueue, Context, Domain, Errno, Mtu, PortNumber, Verbs, WorkStatus};

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn every_operation_on_a_reliable_connection() {
    let host = host();
    let [a, b] = pair(&host, QpKind::Reliable);
    let granted = a.qp.inline_bytes();
    println!("{}: {}, MTU {}, {granted} bytes inline", host.choice.device, host.choice.gid, host.mtu.bytes());
    assert!((64..INLINE_WANTED).contains(&granted), "{granted}");

    a.run(
        Work::Write { data: Data::Inline(&0x1122_3344_5566_7788_u64.to_ne_bytes()), remote: b.remote(8), imm: None },
        Opcode::Write,
    );
    assert_eq!((b.word(0), b.word(8), b.word(16)), (0, 0x1122_3344_5566_7788, 0), "inline WRITE");

    // Post a WRITE of several packets from a region.
    for n in 0..1000 {
        a.set(8 * n, n as u64 + 1);
    }
    a.run(Work::Write { data: Data::Region(a.local(0, 8000)), remote: b.remote(4096), imm: None }, Opcode::Write);
    assert!((0..1000).all(|n| b.word(4096 + 8 * n) == n as u64 + 1), "WRITE");

    b.set(40960, 99);
    a.run(Work::Read { local: a.local(16384, 8), remote: b.remote(40960) }, Opcode::Read);
    assert_eq!(a.word(16384), 99, "READ");

    b.qp.post_recv(70, Some(b.local(20480, 4096))).unwrap();
    a.run(Work::Send { data: Data::Region(a.local(0, 1600)), imm: Some(0xdead_beef) }, Opcode::Send);
    let taken = b.completion();
    assert_eq!((taken.id, taken.opcode, taken.bytes, taken.imm), (70, Some(Opcode::Recv), 1600, Some(0xdead_beef)));
    assert_eq!((b.word(20480), b.word(20480 + 1592)), (1, 200), "SEND");

    b.qp.post_recv(71, None).unwrap();
    a.run(Work::Write { data: Data::Inline(&[1; 16]), remote: b.remote(32768), imm: Some(55) }, Opcode::Write);
    let taken = b.completion();
    assert_eq!((taken.id, taken.opcode, taken.imm), (71, Some(Opcode::RecvWriteImm), Some(55)));
    assert_eq!(b.word(32768), 0x0101_0101_0101_0101, "WRITE_WITH_IMM");

    let old = a.local(24576, 8);
    for (add, before) in [(5, 0), (7, 5)] {
        a.run(Work::FetchAdd { local: old, remote: b.remote(49152), add }, Opcode::Atomic);
        assert_eq!(a.word(24576), before, "fetch-and-add");
    }
    for (expected, new, before) in [(12, 100, 12), (12, 200, 100)] {
        a.run(Work::CompareSwap { local: old, remote: b.remote(49152), expected, new }, Opcode::Atomic);
        assert_eq!(a.word(24576), before, "compare-and-swap");
    }
    assert_eq!(b.word(49152), 100, "a compare-and-swap with a wrong expected value changes nothing");

    // Post unsignalled WRITEs and a signalled one. Only the last one has a completion, and then all have landed.
    for n in 0..10_u64 {
        let data = n.to_ne_bytes();
        a.qp.post(n, &Work::Write { data: Data::Inline(&data), remote: b.remote(57344 + 8 * n), imm: None }, n == 9)
            .unwrap();
    }
    assert_eq!((a.completion().id, b.word(57344 + 72)), (9, 9));
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn writes_and_sends_on_an_unreliable_connection() {
    let host = host();
    let [a, b] = pair(&host, QpKind::Unreliable);
    a.run(Work::Write { data: Data::Inline(&[3; 8]), remote: b.remote(0), imm: None }, Opcode::Write);
    b.qp.post_recv(1, Some(b.local(64, 64))).unwrap();
    a.run(Work::Send { data: Data::Inline(&[4; 8]), imm: None }, Opcode::Send);
    let taken = b.completion();
    assert_eq!(
        (taken.bytes, taken.imm, b.word(0), b.word(64)),
        (8, None, 0x0303_0303_0303_0303, 0x0404_0404_0404_0404)
    );
    let read = Work::Read { local: a.local(0, 8), remote: b.remote(0) };
    assert_eq!(a.qp.post(1, &read, true), Err(WorkError::Unreliable));
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn wrong_key_breaks_the_queue_pair_and_a_reset_restores_it() {
    let host = host();
    let [a, b] = pair(&host, QpKind::Reliable);
    let wrong = Remote { key: b.memory.remote_key() ^ 0x55, ..b.remote(0) };
    a.qp.post(1, &Work::Write { data: Data::Inline(&[9; 8]), remote: wrong, imm: None }, true).unwrap();
    assert_eq!(a.completion().status, WorkStatus::REMOTE_ACCESS);
    assert_eq!((a.qp.state(), b.word(0)), (Ok(State::Error), 0));
    // A request posted to a broken queue pair is flushed.
    a.qp.post(2, &Work::Write { data: Data::Inline(&[9; 8]), remote: b.remote(0), imm: None }, true).unwrap();
    let flushed = a.completion();
    assert_eq!((flushed.id, flushed.status, flushed.opcode), (2, WorkStatus::FLUSHED, None));
    for (end, peer, psn) in [(&a, &b, 77), (&b, &a, 99)] {
        end.qp.reset().unwrap();
        end.qp.init(host.own.port, Some(Access::Write)).unwrap();
        end.qp.ready_to_receive(host.own, &peer.endpoint(&host, 176 - psn), &Tuning::default()).unwrap();
        end.qp.ready_to_send(host.own, psn, &Tuning::default()).unwrap();
    }
    a.run(Work::Write { data: Data::Inline(&[9; 8]), remote: b.remote(0), imm: None }, Opcode::Write);
    assert_eq!(b.word(0), 0x0909_0909_0909_0909);
    b.qp.fail().unwrap();
    assert_eq!(b.qp.state(), Ok(State::Error));
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn failed_transition_names_states_attribute_and_remedy() {
    let host = host();
    let end = End::new(&host, QpKind::Reliable);
    let (peer, tuning) = (end.endpoint(&host, 1), Tuning::default());
    let blamed = |result: Result<(), stentor_fabric_verbs::qp::TransitionError>| {
        let error = result.unwrap_err();
        println!("{error}");
        (error.from, error.to, error.attribute.expect("the error names the attribute").0)
    };
    let early = end.qp.ready_to_receive(host.own, &peer, &tuning);
    assert_eq!(blamed(early), (State::Reset, State::Rtr, "qp_state"));
    assert_eq!(blamed(end.qp.init(PortNumber(9), None)), (State::Reset, State::Init, "port_num"));
    end.qp.init(host.own.port, None).unwrap();
    let rtr = |own: Own, peer: Endpoint, tuning: Tuning| blamed(end.qp.ready_to_receive(own, &peer, &tuning));
    let of = |attribute| (State::Init, State::Rtr, attribute);
    let large = Endpoint { mtu: Mtu::B4096, ..peer };
    assert_eq!(rtr(host.own, large, tuning), of("path_mtu"));
    assert_eq!(rtr(host.own, peer, Tuning { reads_answered: 255, ..tuning }), of("max_dest_rd_atomic"));
    assert_eq!(rtr(Own { gid_index: 200, ..host.own }, peer, tuning), of("ah_attr.grh.sgid_index"));
    assert_eq!(end.qp.state(), Ok(State::Init), "failed transitions change nothing");
    end.qp.ready_to_receive(host.own, &peer, &tuning).unwrap();
    let late = end.qp.ready_to_send(host.own, 1, &Tuning { retries: 8, ..tuning });
    assert_eq!(blamed(late), (State::Rtr, State::Rts, "retry_cnt"));
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn invalid_requests_are_refused_with_a_reason() {
    let host = host();
    assert_eq!(host.choice.gid.kind, GidKind::RoceV2);
    let [a, b] = pair(&host, QpKind::Reliable);
    let outside = Local { region: &a.memory, offset: BYTES as u64 - 8, bytes: 16 };
    let write = |data| a.qp.post(1, &Work::Write { data, remote: b.remote(0), imm: None }, true);
    assert!(matches!(write(Data::Region(outside)), Err(WorkError::OutOfBounds { .. })));
    let long = vec![0; a.qp.inline_bytes() as usize + 1];
    assert!(matches!(write(Data::Inline(&long)), Err(WorkError::InlineTooLong { .. })));
    assert!(matches!(a.qp.post_recv(1, Some(outside)), Err(WorkError::OutOfBounds { .. })));
    let limits = host.context.limits().unwrap();
    let error = CompletionQueue::new(&host.context, limits.completions + 1).unwrap_err();
    assert_eq!(error.errno, Errno::INVALID);
    println!("{error}");
    // A second context of the same device counts as another device.
    let other = Context::open(Verbs::load().unwrap(), &host.choice.device).unwrap();
    let (domain, queue) = (Domain::new(&other).unwrap(), CompletionQueue::new(&host.context, 1).unwrap());
    let size = Size { kind: QpKind::Reliable, send_depth: 1, recv_depth: 1, inline_bytes: 0 };
    assert_eq!(QueuePair::new(&domain, &queue, &queue, size).unwrap_err().errno, Errno::INVALID);
}

/// Drops objects in an order that is valid only because of their `Arc`s, while work is outstanding. Afterwards no
/// object is left.
#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn objects_are_destroyed_in_the_right_order_for_any_drop_order() {
    let mut host = host();
    let before = resources();
    assert!(before.contains("qp"), "{before}");
    for _ in 0..200 {
        host.context = Context::open(Verbs::load().unwrap(), &host.choice.device).unwrap();
        let [a, b] = pair(&host, QpKind::Reliable);
        let work = Work::Write { data: Data::Region(a.local(0, 4096)), remote: b.remote(0), imm: None };
        a.qp.post(1, &work, true).unwrap();
        drop((a.memory, b.memory, a.queue, b.queue));
        drop((a.qp, b.qp));
    }
    assert_eq!(settled(Some(&before)), before);
}

/// Commits the fault that `STENTOR_PLANTED` names, which valgrind must report: a read beyond an allocation, or memory
/// that is never freed.
#[test]
#[ignore = "deliberate faults: run by `cargo xtask test --only verbs`"]
fn faults_that_valgrind_must_report() {
    let planted = std::env::var("STENTOR_PLANTED").unwrap_or_default();
    let words = vec![7_u64; std::hint::black_box(4)];
    if planted == "overrun" {
        // SAFETY: deliberately violated. The call reads the word after the last one, so that valgrind reports it. The
        // value is not used.
        std::hint::black_box(unsafe { words.as_ptr().add(words.len()).read_volatile() });
    }
    if planted == "leak" {
        std::mem::forget(words);
    }
}
