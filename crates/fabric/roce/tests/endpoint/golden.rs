//! Checks that this endpoint sends the same bytes for each operation as rxe, the RoCE driver of the Linux kernel.
//!
//! The IPv4 identification is not compared, because rxe counts it and a plain UDP socket sends 0. The IPv4 header
//! checksum and the ICRC depend on it and are not compared either. All other fields are compared: lengths, ports,
//! opcodes, flags, AckReq, PSNs, keys, addresses, syndromes, MSNs, payloads and pads.
//!
//! `STENTOR_GOLDEN` names a folder with new captures that replace the committed ones (`cargo xtask test --only
//! roce-peer`).

use crate::common::{DOMAIN, MS, Setup, Side, VA, golden};
use stentor_fabric::{Access, Span, Status};
use stentor_fabric_roce::endpoint::{Arrival, Check, Data, Remote, Request, Work};
use stentor_wire::{Envelope, Headers, IpPacket, IpRepr, Message, Packet, Repr, Reth};

const LENGTHS: [u32; 12] = [0, 1, 2, 3, 4, 8, 64, 1024, 1025, 2048, 3000, 8192];
const SETUP: Setup = Setup {
    kind: stentor_fabric::QpKind::Reliable,
    mtu: 1024,
    psn_a: 0,
    psn_b: 0,
    window: 32,
    timeout: 14,
    retries: 7,
    rnr_retries: 7,
    rd_atomic: 16,
    rnr_code: 14,
    words: 2048,
    // The kernel sends a long WRITE as one message.
    apart: false,
};

/// Returns a packet without the fields that may differ.
fn comparable(envelope: &Envelope, transport: &[u8]) -> (Envelope, Vec<u8>, String) {
    let mut envelope = *envelope;
    if let IpRepr::V4(ip) = &mut envelope.ip {
        ip.id = 0;
    }
    let text = Packet::new_checked(transport).unwrap().to_string();
    (envelope, transport[..transport.len() - 4].to_vec(), text)
}

fn same(file: &str, n: usize, ours: &(Envelope, Vec<u8>), theirs: &IpPacket<'_>) {
    let ours = comparable(&ours.0, &ours.1);
    let theirs = comparable(&theirs.envelope, theirs.packet.as_bytes());
    assert_eq!(ours.2, theirs.2, "{file} packet {n}");
    assert_eq!(ours, theirs, "{file} packet {n}");
}

fn is_from_a(packet: &IpPacket<'_>) -> bool {
    packet.envelope.ip.source() == crate::common::address(1)
}

/// Splits a capture into its connections, by queue pair number.
fn connections<'a>(packets: &'a [Vec<u8>]) -> Vec<Vec<IpPacket<'a>>> {
    let mut all: Vec<(u32, Vec<IpPacket<'a>>)> = Vec::new();
    for bytes in packets {
        let packet = IpPacket::new_checked(bytes).unwrap();
        // In these captures the queue pairs of both ends have the same number.
        let number = packet.packet.dest_qp();
        match all.iter_mut().find(|(known, _)| *known == number) {
            Some((_, list)) => list.push(packet),
            None => all.push((number, vec![packet])),
        }
    }
    all.into_iter().map(|(_, list)| list).collect()
}

fn data(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|i| (bytes + 7 * i) as u8).collect()
}

/// Posts operation `n`. Returns `false` if there is no such operation.
type Operations<'a> = &'a dyn Fn(&mut Side, usize) -> bool;

/// Compares this endpoint's requester with the kernel's requester. The responses are those of the kernel.
fn as_requester(file: &str, packets: &[IpPacket<'_>], operations: Operations<'_>, ends: Status) {
    as_requester_on(SETUP, file, packets, operations, ends);
}

fn as_requester_on(setup: Setup, file: &str, packets: &[IpPacket<'_>], operations: Operations<'_>, ends: Status) {
    let first = &packets[0];
    let number = first.packet.dest_qp();
    let mut a = Side::new(number, &setup);
    let psn = first.packet.psn().get();
    a.ready(first.envelope_like_ours(), number, (psn, 0), &setup);
    let (mut now, mut posted, mut ours) = (0, 0, std::collections::VecDeque::new());
    for (n, packet) in packets.iter().enumerate() {
        if !is_from_a(packet) {
            a.take(now, &(packet.envelope, packet.packet.as_bytes().to_vec()));
            continue;
        }
        if ours.is_empty() {
            ours.extend(a.packets(now));
        }
        while ours.is_empty() && a.completions().len() == usize::from(posted > 0) && operations(&mut a, posted) {
            posted += 1;
            ours.extend(a.packets(now));
        }
        while ours.is_empty() {
            // The requester sends nothing now because it waits after "receiver not ready".
            now = a
                .endpoint
                .next_deadline()
                .unwrap_or_else(|| panic!("{file} packet {n}: this endpoint would send nothing"));
            a.endpoint.tick(now);
            ours.extend(a.packets(now));
        }
        same(file, n, &ours.pop_front().unwrap(), packet);
    }
    let last: Vec<_> = a.completions().iter().map(|completion| completion.status).collect();
    assert_eq!(last, [ends], "{file}: status of the last operation");
    assert!(!operations(&mut a, posted), "{file}: the capture has fewer operations");
    assert!(now <= 10 * MS);
}

/// Compares this endpoint's responder with the kernel's responder. The requests are those of the kernel.
fn as_responder(file: &str, packets: &[IpPacket<'_>], receives: &[usize]) -> Side {
    let memory: Vec<_> = (0..8192_u32).map(|i| (3 + 7 * i) as u8).collect();
    as_responder_on(SETUP, file, packets, receives, &memory)
}

fn as_responder_on(setup: Setup, file: &str, packets: &[IpPacket<'_>], receives: &[usize], memory: &[u8]) -> Side {
    let number = packets[0].packet.dest_qp();
    let mut b = Side::new(number, &setup);
    let ip = &packets[0].envelope.ip;
    let to_a = packets.iter().find(|packet| !is_from_a(packet)).map(LikeOurs::envelope_like_ours);
    // An unreliable connection has no responses.
    let to_a = to_a.unwrap_or_else(|| Envelope::plain(ip.destination(), 0xc000, ip.source()).unwrap());
    b.ready(to_a, number, (0, packets[0].packet.psn().get()), &setup);
    b.fill(b.shared, 0, memory);
    let base = target(packets).va;
    let mut ours = std::collections::VecDeque::new();
    for (n, packet) in packets.iter().enumerate() {
        if receives.contains(&n) {
            let span = b.span(0, 8192);
            b.endpoint.post_receive(b.qp, span, n as u64).unwrap();
        }
        if is_from_a(packet) {
            let bytes = with_our_key(packet, b.key, base);
            b.take(0, &(packet.envelope, bytes));
            ours.extend(b.packets(0));
        } else {
            let packet_of_ours =
                ours.pop_front().unwrap_or_else(|| panic!("{file} packet {n}: this endpoint would not answer"));
            same(file, n, &packet_of_ours, packet);
        }
    }
    assert!(ours.is_empty(), "{file}: this endpoint would send more packets");
    b
}

/// Replaces the key and the addresses (relative to `base`) in a request, because the responder chooses both. A wrong
/// key stays wrong.
fn with_our_key(packet: &IpPacket<'_>, key: u32, base: u64) -> Vec<u8> {
    let mut bytes = packet.packet.as_bytes().to_vec();
    let mut view = Packet::new_checked(&mut bytes[..]).unwrap();
    if let Some(reth) = view.reth() {
        let key = if reth.rkey & 0xffff == WRONG_KEY & 0xffff { WRONG_KEY } else { key };
        view.set_reth(Reth { rkey: key, va: reth.va - base + VA, ..reth });
    }
    if let Some(atomic) = view.atomic() {
        bytes[12..20].copy_from_slice(&(atomic.va - base + VA).to_be_bytes());
        bytes[20..24].copy_from_slice(&key.to_be_bytes());
    }
    packet.envelope.seal(&mut bytes);
    bytes
}

/// The wrong key in the requests of `rxe_nak.pcap`.
const WRONG_KEY: u32 = 0xdead_beef;

trait LikeOurs {
    /// Returns the headers around the packet as this endpoint would send them.
    fn envelope_like_ours(&self) -> Envelope;
}

impl LikeOurs for IpPacket<'_> {
    fn envelope_like_ours(&self) -> Envelope {
        let ip = &self.envelope.ip;
        Envelope::plain(ip.source(), self.envelope.source_port, ip.destination()).unwrap()
    }
}

/// Returns the key and the address in the requests of a capture.
fn target(packets: &[IpPacket<'_>]) -> Remote {
    let reth = |packet: &IpPacket<'_>| packet.packet.reth().map(|reth| (reth.va, reth.rkey));
    let atomic = |packet: &IpPacket<'_>| packet.packet.atomic().map(|atomic| (atomic.va, atomic.rkey));
    let found = packets.iter().find_map(|packet| reth(packet).or_else(|| atomic(packet)));
    found.map_or(Remote::default(), |(va, rkey)| Remote { va, rkey })
}

#[test]
fn sends_equal_those_of_the_kernel() {
    let packets = golden("rxe_send.pcap");
    let packets = &connections(&packets)[0];
    let operations = |a: &mut Side, n: usize| {
        let Some(bytes) = LENGTHS.get(n) else { return false };
        a.fill(a.local, 0, &data(*bytes));
        let data = Data::Region(a.span(0, *bytes));
        a.post(n as u64, Request::Send { data, imm: None });
        true
    };
    as_requester("rxe_send", packets, &operations, Status::Success);
    let every: Vec<_> = (0..packets.len()).filter(|n| is_from_a(&packets[*n])).collect();
    let mut b = as_responder("rxe_send", packets, &every);
    let received: Vec<_> = b.completions().iter().map(|completion| completion.bytes).collect();
    assert_eq!(received, LENGTHS);
    assert_eq!(b.bytes(b.local)[..8192], data(8192));
}

#[test]
fn writes_equal_those_of_the_kernel() {
    for (file, imm) in [("rxe_write.pcap", None), ("rxe_writeimm.pcap", Some(0xdead_beef_u32))] {
        let packets = golden(file);
        let packets = &connections(&packets)[0];
        let remote = target(packets);
        let operations = |a: &mut Side, n: usize| {
            let inline = [data(16)];
            let bytes = LENGTHS.get(n).copied();
            let data = match (bytes, imm) {
                (Some(bytes), _) => {
                    a.fill(a.local, 0, &data(bytes));
                    Data::Region(a.span(0, bytes))
                }
                (None, None) if n == LENGTHS.len() => Data::Inline(&inline[0]),
                _ => return false,
            };
            // The first operation of this capture is a WRITE without data, which names no memory.
            a.post(n as u64, Request::Write { data, remote, imm });
            true
        };
        as_requester(file, packets, &operations, Status::Success);
        let every: Vec<_> = (0..packets.len()).filter(|n| imm.is_some() && is_from_a(&packets[*n])).collect();
        let mut b = as_responder(file, packets, &every);
        let received: Vec<_> = b.completions().iter().map(|completion| (completion.bytes, completion.imm)).collect();
        let expected: Vec<_> = LENGTHS.iter().filter(|_| imm.is_some()).map(|bytes| (*bytes, imm)).collect();
        assert_eq!(received, expected);
        assert_eq!(b.bytes(b.shared)[16..8192], data(8192)[16..]);
    }
}

#[test]
fn reads_equal_those_of_the_kernel() {
    let packets = golden("rxe_read.pcap");
    let packets = &connections(&packets)[0];
    let remote = target(packets);
    let operations = |a: &mut Side, n: usize| {
        let Some(bytes) = LENGTHS.get(n + 1) else { return false };
        let local = a.span(0, *bytes);
        a.post(n as u64, Request::Read { local, remote });
        true
    };
    as_requester("rxe_read", packets, &operations, Status::Success);
    as_responder("rxe_read", packets, &[]);
}

#[test]
fn receiver_not_ready_equals_that_of_the_kernel() {
    let packets = golden("rxe_rnr.pcap");
    let packets = &connections(&packets)[0];
    let payload = packets[0].packet.payload();
    let operations = |a: &mut Side, n: usize| {
        if n == 0 {
            a.post(0, crate::common::inline_send(payload));
        }
        n == 0
    };
    as_requester("rxe_rnr", packets, &operations, Status::Success);
    let b = as_responder("rxe_rnr", packets, &[4]);
    assert_eq!(b.endpoint.counters().rnr_sent, 2);
}

#[test]
fn remote_access_errors_equal_those_of_the_kernel() {
    let packets = golden("rxe_nak.pcap");
    for packets in connections(&packets) {
        let Ok(Repr { headers, .. }) = Repr::parse(&packets[0].packet) else { panic!("not a packet") };
        let payload = packets[0].packet.payload();
        let operations = |a: &mut Side, n: usize| {
            let request = match headers {
                Headers::Rc(Message::WriteOnly(Reth { va, rkey, .. })) => {
                    crate::common::inline_write(payload, Remote { va, rkey })
                }
                Headers::ReadRequest(Reth { va, rkey, bytes }) => {
                    Request::Read { local: Span { region: a.local, offset: 0, bytes }, remote: Remote { va, rkey } }
                }
                other => panic!("{other}"),
            };
            if n == 0 {
                a.post(0, request);
            }
            n == 0
        };
        as_requester("rxe_nak", &packets, &operations, Status::RemoteAccess);
        // Send the request to this endpoint, first with a key of another protection domain, then for memory outside the
        // region.
        let number = packets[0].packet.dest_qp();
        let mut b = Side::new(number, &SETUP);
        b.ready(packets[1].envelope_like_ours(), number, (0, packets[0].packet.psn().get()), &SETUP);
        let other = stentor_fabric_roce::endpoint::ProtectionDomain(DOMAIN.0 + 1);
        let foreign = b.endpoint.memory_mut().grant(b.shared, other, Access::Atomic, 9).unwrap();
        let key = if matches!(headers, Headers::ReadRequest(_)) { b.key } else { foreign };
        let bytes = with_our_key(&packets[0], key, VA);
        b.endpoint.receive(0, &Arrival { envelope: packets[0].envelope, transport: &bytes, check: Check::Whole });
        same("rxe_nak", 1, &b.packets(0)[0], &packets[1]);
        assert_eq!(b.endpoint.counters().access_errors, 1);
        assert!(b.bytes(b.shared).iter().all(|byte| *byte == 0));
        let _ = VA;
    }
}

/// Initial value of the kernel's word.
const WORD: u64 = 0x0123_4567_89ab_cdef;
/// The value that a compare-and-swap stores in the kernel's word.
const SWAPPED: u64 = 0xfedc_ba98_7654_3210;

#[test]
fn atomics_equal_those_of_the_kernel() {
    let packets = golden("rxe_atomic.pcap");
    let packets = &connections(&packets)[0];
    let remote = target(packets);
    let operations = |a: &mut Side, n: usize| {
        let local = a.span(0, 8);
        // Check the result of the previous operation.
        let brought = u64::from_ne_bytes(a.bytes(a.local)[..8].try_into().unwrap());
        let before = [0, WORD, WORD + 5, WORD + 4];
        assert!(n > 3 || brought == before[n], "operation {n}: {brought:#x}");
        let request = match n {
            0 => Request::FetchAdd { local, remote, add: 5 },
            1 => Request::FetchAdd { local, remote, add: u64::MAX },
            2 => Request::CompareSwap { local, remote, expected: WORD + 4, new: SWAPPED },
            3 => Request::CompareSwap { local, remote, expected: 1, new: 2 },
            _ => return false,
        };
        a.post(n as u64, request);
        true
    };
    as_requester("rxe_atomic", packets, &operations, Status::Success);
    let mut memory = vec![0; 64];
    memory[..8].copy_from_slice(&WORD.to_ne_bytes());
    let b = as_responder_on(SETUP, "rxe_atomic", packets, &[], &memory);
    assert_eq!(b.bytes(b.shared)[..8], SWAPPED.to_ne_bytes());
}

/// Message lengths in the captures that this project recorded.
const FEWER: [u32; 9] = [0, 1, 2, 3, 4, 64, 1024, 1025, 3000];
const IMM: u32 = 0xdead_beef;

#[test]
fn solicited_sends_with_immediate_equal_those_of_the_kernel() {
    let packets = golden("rxe_sendimm.pcap");
    let packets = &connections(&packets)[0];
    let operations = |a: &mut Side, n: usize| {
        let Some(bytes) = FEWER.get(n) else { return false };
        a.fill(a.local, 0, &data(*bytes));
        let request = Request::Send { data: Data::Region(a.span(0, *bytes)), imm: Some(IMM) };
        a.endpoint.post_send(a.qp, &Work { solicited: true, ..Work::signalled(n as u64, request) }).unwrap();
        true
    };
    as_requester("rxe_sendimm", packets, &operations, Status::Success);
    let every: Vec<_> = (0..packets.len()).filter(|n| is_from_a(&packets[*n])).collect();
    let mut b = as_responder("rxe_sendimm", packets, &every);
    let received: Vec<_> = b.completions().iter().map(|completion| (completion.bytes, completion.imm)).collect();
    assert_eq!(received, FEWER.map(|bytes| (bytes, Some(IMM))));
    assert!(b.endpoint.take_solicited());
}

#[test]
fn unreliable_connection_equals_that_of_the_kernel() {
    let packets = golden("rxe_uc.pcap");
    let packets = &connections(&packets)[0];
    let setup = Setup { kind: stentor_fabric::QpKind::Unreliable, ..SETUP };
    let remote = target(packets);
    let operations = |a: &mut Side, n: usize| {
        let bytes = FEWER[n % FEWER.len()];
        a.fill(a.local, 0, &data(bytes));
        let data = Data::Region(a.span(0, bytes));
        let request = match n / FEWER.len() {
            0 => Request::Send { data, imm: None },
            1 => Request::Send { data, imm: Some(IMM) },
            2 => Request::Write { data, remote, imm: None },
            3 => Request::Write { data, remote, imm: Some(IMM) },
            _ => return false,
        };
        a.post(n as u64, request);
        true
    };
    as_requester_on(setup, "rxe_uc", packets, &operations, Status::Success);
    // Returns whether a packet consumes a receive: the first packet of a SEND, or the last packet of a WRITE with
    // immediate.
    let consumes = |packet: &IpPacket<'_>| match Repr::parse(&packet.packet).unwrap().headers {
        Headers::Uc(message) => {
            matches!(
                message,
                Message::SendFirst | Message::SendOnly | Message::SendOnlyImm(_) | Message::WriteOnlyImm(..)
            ) || matches!(message, Message::WriteLastImm(_))
        }
        other => panic!("{other}"),
    };
    let receives: Vec<_> = (0..packets.len()).filter(|n| consumes(&packets[*n])).collect();
    let mut b = as_responder_on(setup, "rxe_uc", packets, &receives, &[]);
    let received: Vec<_> = b.completions().iter().map(|completion| (completion.bytes, completion.imm)).collect();
    let expected: Vec<_> = [None, Some(IMM), Some(IMM)].iter().flat_map(|imm| FEWER.map(|n| (n, *imm))).collect();
    assert_eq!(received, expected);
    assert_eq!(b.bytes(b.shared)[..3000], data(3000));
}
