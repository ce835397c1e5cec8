//! Tests this endpoint with the Linux kernel's: WRITE, WRITE_IMM, SEND, READ and atomics in both directions. Both sides
//! verify the data. Ignored by default, because the other side is `peer/verbs.c` in a guest; see `peer/run.sh` (step
//! `roce-peer` of `cargo xtask test`).

use std::io::{Read, Write};
use std::time::Duration;

use stentor_fabric::memory::Ordering;
use stentor_fabric::{Access, Opcode, Span};
use stentor_fabric_roce::driver::Mode;
use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_fabric_roce::peer::{DOMAIN, Peer, PeerConfig, meet};

const PATIENCE: Duration = Duration::from_secs(20);
const ATOMICS: u64 = 16384;
const HALF: u64 = 32768;
/// Length of `RKEY:VA` and a zero byte.
const MEMORY_LINE: usize = 26;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test --only roce-peer`"))
}

fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|i| (length + 7 * i) as u8).collect()
}

fn store(peer: &Peer, span: Span, data: &[u8]) {
    let words = &peer.endpoint.memory().words(span.region)[span.offset as usize / 8..];
    for (word, chunk) in words.iter().zip(data.chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

fn load(peer: &Peer, span: Span) -> Vec<u8> {
    let words = &peer.endpoint.memory().words(span.region)[span.offset as usize / 8..];
    let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    bytes.take(span.bytes as usize).collect()
}

/// Checks that the guest accepted packets of runs. The host's kernel splits runs before they reach the guest, and the
/// guest's Soft-RoCE checks the ICRC with the identifications. If Soft-RoCE had dropped these packets, all packets
/// except the first of each run would have been retransmitted.
fn runs_were_taken(peer: &Peer) {
    let (in_runs, again) = (peer.pump.port().counters().in_runs, peer.endpoint.counters().retransmitted);
    println!("counters: {}; in runs: {in_runs}", peer.counters());
    assert!(in_runs >= 6 && again < in_runs / 2, "{again} of {in_runs} packets in runs were sent again");
}

#[test]
#[ignore = "needs a guest with Soft-RoCE: run by `cargo xtask test --only roce-peer`"]
fn every_operation_works_with_the_kernel() {
    let (place, own) = (variable("STENTOR_ROCE_PEER"), variable("STENTOR_ROCE_ADDRESS"));
    let (host, port) = place.rsplit_once(':').expect("HOST:PORT");
    let mut config = PeerConfig::new(own.parse().expect("an address"));
    (config.mode, config.runs) = (Some(Mode::Raw), true);
    config.pcap = std::env::var_os("STENTOR_ROCE_PCAP").map(Into::into);
    let mut peer = Peer::open(config, 32).unwrap();
    let shared = peer.endpoint.memory_mut().register(8192, 0x7000_0000);
    let local = peer.endpoint.memory_mut().register(8192, 0);
    let key = peer.endpoint.memory_mut().grant(shared, DOMAIN, Access::Atomic, 3).unwrap();
    let span = |offset, bytes| Span { region: local, offset, bytes };
    peer.endpoint.post_receive(peer.qp, span(40960, 4096), 700).unwrap();
    let mut meeting = meet(host, port.parse().unwrap(), PATIENCE).unwrap();
    let destination = peer.destination();
    meeting.exchange(&destination, |other| peer.connect(other)).unwrap();
    let mut line = [0; MEMORY_LINE];
    meeting.stream().read_exact(&mut line).unwrap();
    let text = std::str::from_utf8(&line).unwrap().trim_end_matches('\0');
    let (rkey, va) = text.split_once(':').expect("RKEY:VA");
    let (rkey, va) = (u32::from_str_radix(rkey, 16).unwrap(), u64::from_str_radix(va, 16).unwrap());
    let remote = |offset| Remote { va: va + offset, rkey };
    let mut ours = format!("{key:08x}:{:016x}", 0x7000_0000).into_bytes();
    ours.push(0);
    meeting.stream().write_all(&ours).unwrap();

    let run = |peer: &mut Peer, request: Request<'_>| {
        peer.endpoint.post_send(peer.qp, &Work::signalled(1, request)).unwrap();
        let completion = peer.completion(PATIENCE).unwrap();
        assert_eq!(completion.id, 1);
    };
    store(&peer, span(0, 3000), &pattern(3000));
    run(&mut peer, Request::Write { data: Data::Region(span(0, 3000)), remote: remote(0), imm: None });
    let data = pattern(8192);
    run(&mut peer, Request::Write { data: Data::Inline(&data), remote: remote(4096), imm: Some(0xdead_beef) });
    let data = pattern(1500);
    run(&mut peer, Request::Send { data: Data::Inline(&data), imm: Some(77) });
    run(&mut peer, Request::Read { local: span(8192, 5001), remote: remote(HALF + 3) });
    let expected: Vec<u8> = (0..5001_u32).map(|i| ((i + HALF as u32 + 3) * 13 + 7) as u8).collect();
    assert_eq!(load(&peer, span(8192, 5001)), expected, "READ");
    let old = |peer: &Peer| u64::from_ne_bytes(load(peer, span(16384, 8)).try_into().unwrap());
    let local_word = span(16384, 8);
    for (add, before) in [(5, 0), (7, 5)] {
        run(&mut peer, Request::FetchAdd { local: local_word, remote: remote(ATOMICS), add });
        assert_eq!(old(&peer), before, "fetch-and-add");
    }
    let word = remote(ATOMICS + 8);
    let new = 0x1122_3344_5566_7788;
    for (expected, new, before) in [(0, new, 0), (1, 9, new)] {
        run(&mut peer, Request::CompareSwap { local: local_word, remote: word, expected, new });
        assert_eq!(old(&peer), before, "compare-and-swap");
    }
    meeting.stream().write_all(b"check\0").unwrap();
    let answered = peer.completion(PATIENCE).unwrap();
    assert_eq!((answered.id, answered.opcode, answered.bytes, answered.imm), (700, Opcode::Recv, 2500, Some(55)));
    peer.linger(Duration::from_millis(200)).unwrap();
    let mut verdict = [0; 2];
    meeting.stream().read_exact(&mut verdict).unwrap();
    assert_eq!(&verdict, b"ok", "the guest reports an error; see its log");
    // Check the results of the kernel's operations: a WRITE of 5000 bytes at an odd address, and atomics.
    let all = load(&peer, Span { region: shared, offset: 0, bytes: 65536 });
    assert_eq!(all[1..5001], pattern(5000), "the kernel's WRITE");
    assert_eq!((all[0], all[5001]), (0, 0));
    let word = |at: usize| u64::from_ne_bytes(all[at..at + 8].try_into().unwrap());
    assert_eq!((word(16384), word(16392)), (42, 99), "the kernel's atomics");
    assert_eq!(load(&peer, span(40960, 2500)), pattern(5000)[..2500], "the kernel's SEND");
    runs_were_taken(&peer);
    if let Some(pcap) = peer.pump.pcap_mut() {
        pcap.finish().unwrap();
    }
}
