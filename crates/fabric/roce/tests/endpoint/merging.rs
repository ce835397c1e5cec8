//! Tests that adjacent WRITEs are sent as one WRITE if no difference is observable.

use crate::common::{Flying, Setup, Side, inline_send, inline_write, pair, settle};
use stentor_fabric::{QpKind, Status};
use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_wire::{Headers, Message, Packet, Repr};

const APART: Setup = Setup {
    kind: QpKind::Reliable,
    mtu: 256,
    psn_a: 0xff_fffe,
    psn_b: 7,
    window: 512,
    timeout: 14,
    retries: 1,
    rnr_retries: 7,
    rd_atomic: 4,
    rnr_code: 1,
    words: 2048,
    apart: true,
};

/// Posts a WRITE of `bytes` bytes, each of value `id`, to offset `at`. It has a completion if `signalled`.
fn post(side: &mut Side, id: u64, (at, bytes): (u64, usize), key_of: &Side, signalled: bool) {
    let data = vec![id as u8; bytes];
    let work = Work { id, request: inline_write(&data, key_of.remote(at)), signalled, solicited: false };
    side.endpoint.post_send(side.qp, &work).expect("there is room");
}

/// Returns the offset and length of each WRITE that fits in one packet.
fn writes(packets: &[Flying], to: &Side) -> Vec<(u64, u32)> {
    let one = |packet: &Flying| match Repr::parse(&Packet::new_checked(&packet.1[..]).expect("the packet is complete"))
        .expect("the opcode is known")
    {
        Repr { headers: Headers::Rc(Message::WriteOnly(reth)), .. } => Some((reth.va - to.remote(0).va, reth.bytes)),
        _ => None,
    };
    packets.iter().filter_map(one).collect()
}

#[test]
fn adjacent_writes_fill_packets_and_complete_with_the_last() {
    let (mut a, mut b) = pair(&APART);
    for (id, at) in (1..=10).zip((0..).step_by(100)) {
        post(&mut a, id, (at, 100), &b, id == 10);
    }
    let packets = a.packets(0);
    assert_eq!(writes(&packets, &b), [(0, 256), (256, 256), (512, 256), (768, 232)]);
    packets.iter().for_each(|packet| b.take(0, packet));
    settle(0, &mut a, &mut b);
    let written = b.bytes(b.shared);
    assert!((0..1000).all(|at| usize::from(written[at]) == at / 100 + 1));
    let done: Vec<_> = a.completions().iter().map(|done| (done.id, done.status)).collect();
    assert_eq!(done, [(10, Status::Success)]);
    assert_eq!(a.endpoint.send_queue_len(a.qp), 0);
}

/// A signalled WRITE must complete as soon as it is acknowledged, so no WRITE is merged into it. A WRITE that is not
/// adjacent is sent separately.
#[test]
fn signalled_or_not_adjacent_writes_are_not_merged() {
    let (mut a, mut b) = pair(&APART);
    post(&mut a, 1, (0, 64), &b, true);
    post(&mut a, 2, (64, 64), &b, false);
    post(&mut a, 3, (192, 64), &b, false);
    a.post(4, inline_send(b"between"));
    post(&mut a, 5, (256, 64), &b, false);
    let other = Remote { rkey: b.key ^ 0x100, ..b.remote(320) };
    let work = Work { id: 6, request: inline_write(&[6; 8], other), signalled: true, solicited: false };
    a.endpoint.post_send(a.qp, &work).expect("there is room");
    let packets = a.packets(0);
    assert_eq!(writes(&packets, &b), [(0, 64), (64, 64), (192, 64), (256, 64), (320, 8)]);
    let region = b.local;
    post(&mut b, 1, (0, 8), &a, false);
    let from_region = Request::Write { data: Data::Region(b.span(0, 8)), remote: a.remote(8), imm: None };
    b.post(2, from_region);
    assert_eq!(writes(&b.packets(0), &a), [(0, 8), (8, 8)], "one inline and one of region {region:?}");
}

#[test]
fn sent_write_is_not_extended() {
    let (mut a, b) = pair(&APART);
    post(&mut a, 1, (0, 64), &b, false);
    assert_eq!(writes(&a.packets(0), &b), [(0, 64)]);
    post(&mut a, 2, (64, 64), &b, false);
    post(&mut a, 3, (128, 300), &b, true);
    assert_eq!(writes(&a.packets(0), &b), [(64, 256), (320, 108)]);
}

#[test]
fn adjacent_parts_of_a_region_merge() {
    let (mut a, mut b) = pair(&APART);
    a.fill(a.local, 0, &[9; 300]);
    for (id, at, bytes) in [(1, 0, 100), (2, 100, 200)] {
        let request = Request::Write { data: Data::Region(a.span(at, bytes)), remote: b.remote(at), imm: None };
        let work = Work { id, request, signalled: id == 2, solicited: false };
        a.endpoint.post_send(a.qp, &work).expect("there is room");
    }
    let packets = a.packets(0);
    assert_eq!(writes(&packets, &b), [(0, 256), (256, 44)]);
    packets.iter().for_each(|packet| b.take(0, packet));
    assert_eq!(b.bytes(b.shared)[..301], [&[9; 300][..], &[0]].concat());
}

#[test]
fn separate_parts_of_a_region_do_not_merge() {
    let (mut a, b) = pair(&APART);
    for (id, from, at) in [(1, 0, 0), (2, 128, 64)] {
        let request = Request::Write { data: Data::Region(a.span(from, 64)), remote: b.remote(at), imm: None };
        let work = Work { id, request, signalled: id == 2, solicited: false };
        a.endpoint.post_send(a.qp, &work).expect("there is room");
    }
    assert_eq!(writes(&a.packets(0), &b), [(0, 64), (64, 64)]);
}

/// A WRITE with which the merged length would exceed 64 KiB begins another merged WRITE, and therefore another packet.
#[test]
fn length_of_merged_writes_is_limited() {
    let (mut a, b) = pair(&APART);
    (0..700).for_each(|n| post(&mut a, n, (n * 100, 100), &b, false));
    let packets = writes(&a.packets(0), &b);
    let short: Vec<_> = packets.iter().filter(|(_, bytes)| *bytes < 256).collect();
    assert_eq!(short, [&(65_280, 220), &(69_852, 148)]);
}

/// When a queue pair breaks, every request completes: the first one with the reason, and all others as flushed,
/// including requests that were merged into another one.
#[test]
fn every_merged_request_is_flushed_with_its_id() {
    let (mut a, b) = pair(&APART);
    let wrong = Remote { rkey: b.key ^ 0x100, ..b.remote(0) };
    let work = Work { id: 1, request: inline_write(&[1; 8], wrong), signalled: false, solicited: false };
    a.endpoint.post_send(a.qp, &work).expect("there is room");
    (2..=4).for_each(|id| post(&mut a, id, (id * 8, 8), &b, id == 4));
    let mut b = b;
    settle(0, &mut a, &mut b);
    let done: Vec<_> = a.completions().iter().map(|done| (done.id, done.status)).collect();
    let flushed = |id| (id, Status::Flushed);
    assert_eq!(done, [(1, Status::RemoteAccess), flushed(2), flushed(3), flushed(4)]);
}
