//! Simulates two endpoints and a network that drops, duplicates, reorders, delays and corrupts packets. On a reliable
//! connection, all posted requests are executed exactly once and in order.
//!
//! `STENTOR_ROCE_SEEDS` is the number of runs (40 by default). A failure reports its seed, and `STENTOR_ROCE_SEED` runs
//! that seed only.

mod common;

use common::network::{Faults, Network};
use common::{MS, Setup, Side, SplitMix64, pair};
use stentor_fabric::{Opcode, QpKind, Status};
use stentor_fabric_roce::endpoint::{Counters, Data, Request};

const OPERATIONS: u64 = 60;
/// Offset of the words for atomics, in bytes. WRITEs use other offsets.
const COUNTER: u64 = 8;
/// Offset of memory that is never written, in bytes.
const CONSTANT: usize = 12 * 1024;
const RECEIVE_BYTES: u32 = 1024;

/// The requests that one side has posted, and their expected effects at the other.
#[derive(Default)]
struct Plan {
    posted: u64,
    /// Opcodes, lengths, immediates and data of the messages that the peer receives, in order.
    messages: Vec<(Opcode, u32, Option<u32>, Vec<u8>)>,
    received: usize,
    completed: u64,
    additions: u64,
    image: Vec<u8>,
    reads: std::collections::HashMap<u64, (u64, u32)>,
}

/// Returns the local offset for the data of READ `id`. No other outstanding READ uses it.
fn read_place(id: u64) -> u64 {
    (8 + id % 24) * 1024
}

fn bytes(random: &mut SplitMix64, length: u64) -> Vec<u8> {
    (0..length).map(|_| random.word() as u8).collect()
}

fn post(random: &mut SplitMix64, plan: &mut Plan, side: &mut Side, peer_key: u32, reliable: bool) {
    let id = plan.posted;
    let length = [0, 1, 7, 8, 255, 256, 257, 600, 1024][random.below(9) as usize];
    let remote = |offset: u64| stentor_fabric_roce::endpoint::Remote { va: common::VA + offset, rkey: peer_key };
    let data = bytes(random, length);
    let imm = (random.below(2) == 0).then_some(id as u32);
    match random.below(if reliable { 6 } else { 3 }) {
        0 => {
            side.post(id, Request::Send { data: Data::Inline(&data), imm });
            plan.messages.push((Opcode::Recv, length as u32, imm, data));
        }
        1 | 2 => {
            let offset = 64 + random.below(CONSTANT as u64 - 64 - length);
            plan.image[offset as usize..(offset + length) as usize].copy_from_slice(&data);
            side.post(id, Request::Write { data: Data::Inline(&data), remote: remote(offset), imm });
            if imm.is_some() {
                plan.messages.push((Opcode::RecvWriteImm, length as u32, imm, Vec::new()));
            }
        }
        3 => {
            let place = 2048 + id * 64;
            let local = side.span(place, 8);
            side.post(id, Request::FetchAdd { local, remote: remote(COUNTER), add: 1 });
            plan.reads.insert(id, (place, 0));
            plan.additions += 1;
        }
        4 => {
            let offset = CONSTANT as u64 + random.below(1000);
            let (place, length) = (read_place(id), (length as u32).max(1));
            let local = side.span(place, length);
            side.post(id, Request::Read { local, remote: remote(offset) });
            plan.reads.insert(id, (offset, length));
        }
        _ => {
            let place = 2048 + id * 64;
            let local = side.span(place, 8);
            // Compare-and-swaps increment the second word for atomics. Each of them succeeds, because they are executed
            // in order.
            let old = u64::from_ne_bytes(plan.image[16..24].try_into().unwrap());
            plan.image[16..24].copy_from_slice(&(old + 3).to_ne_bytes());
            side.post(id, Request::CompareSwap { local, remote: remote(16), expected: old, new: old + 3 });
            plan.reads.insert(id, (place, 0));
        }
    }
    plan.posted += 1;
}

/// Processes the completions of one side. Checks that received messages are those that the other side posted.
fn collect(own: &mut Plan, other: &mut Plan, side: &mut Side, constant: &[u8], reliable: bool) {
    for completion in side.completions() {
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        match completion.opcode {
            Opcode::Recv | Opcode::RecvWriteImm => {
                let slot = completion.id;
                let data = &side.bytes(side.local)[(slot * 1024) as usize..][..completion.bytes as usize];
                let at = if reliable {
                    other.received
                } else {
                    // Messages may be lost, but those that arrive are complete and in order.
                    let same = |message: &(Opcode, u32, Option<u32>, Vec<u8>)| {
                        (message.0, message.1, message.2) == (completion.opcode, completion.bytes, completion.imm)
                            && (completion.opcode == Opcode::RecvWriteImm || message.3 == data)
                    };
                    other.received
                        + other.messages[other.received..]
                            .iter()
                            .position(same)
                            .expect("the other side sent this message")
                };
                let (opcode, length, imm, sent) = &other.messages[at];
                assert_eq!((completion.opcode, completion.bytes, completion.imm), (*opcode, *length, *imm));
                if *opcode == Opcode::Recv {
                    assert_eq!(data, sent, "message {at}");
                }
                other.received = at + 1;
                let span = stentor_fabric::Span { region: side.local, offset: slot * 1024, bytes: RECEIVE_BYTES };
                side.endpoint.post_receive(side.qp, span, slot).unwrap();
            }
            _ => {
                assert_eq!(completion.id, own.completed, "requests complete in the order of posting");
                own.completed += 1;
                if let Some((from, length)) = own.reads.get(&completion.id)
                    && *length > 0
                {
                    let got = &side.bytes(side.local)[read_place(completion.id) as usize..][..*length as usize];
                    let from = *from as usize - CONSTANT;
                    assert_eq!(got, &constant[from..from + *length as usize], "READ {}", completion.id);
                }
            }
        }
    }
}

fn counters(a: &Side, b: &Side) -> (Counters, Counters) {
    (*a.endpoint.counters(), *b.endpoint.counters())
}

/// Runs one simulation. Returns the counters of both sides.
fn run(seed: u64, faults: Faults, setup: &Setup) -> (Counters, Counters) {
    let mut random = SplitMix64(seed);
    let reliable = setup.kind == QpKind::Reliable;
    let (a, b) = pair(setup);
    let mut sides = [a, b];
    let keys = [sides[1].key, sides[0].key];
    let constant: Vec<u8> = bytes(&mut random, 4096);
    let mut plans = [Plan::default(), Plan::default()];
    for (side, plan) in sides.iter_mut().zip(&mut plans) {
        side.fill(side.shared, CONSTANT, &constant);
        plan.image = vec![0; CONSTANT];
        for slot in 0..2 {
            let span = side.span(slot * 1024, RECEIVE_BYTES);
            side.endpoint.post_receive(side.qp, span, slot).unwrap();
        }
    }
    let mut network = Network::new(faults, seed ^ 0xfeed);
    let mut now = 0;
    loop {
        for at in 0..2 {
            if plans[at].posted < OPERATIONS && random.below(3) == 0 && plans[at].posted - plans[at].completed < 20 {
                post(&mut random, &mut plans[at], &mut sides[at], keys[at], reliable);
            }
            for packet in sides[at].packets(now) {
                network.send(now, at == 0, &packet);
            }
            let [first, second] = &mut plans;
            let (own, other) = if at == 0 { (first, second) } else { (second, first) };
            collect(own, other, &mut sides[at], &constant, reliable);
        }
        let posted = plans.iter().all(|plan| plan.posted == OPERATIONS);
        if posted && plans.iter().all(|plan| plan.completed == OPERATIONS) && network.is_empty() {
            break;
        }
        let deadlines = sides.iter().filter_map(|side| side.endpoint.next_deadline());
        let busy = (!posted).then_some(now + 3_000);
        let Some(next) = deadlines.chain(network.next()).chain(busy).min() else {
            panic!("neither a packet is in flight nor a timer runs: {:?}", counters(&sides[0], &sides[1]));
        };
        now = now.max(next);
        assert!(now < 60_000 * MS, "the run has not ended after 60 s: {:?}", counters(&sides[0], &sides[1]));
        while let Some((to_b, packet)) = network.arrived(now) {
            sides[usize::from(to_b)].take(now, &packet);
        }
        sides.iter_mut().for_each(|side| side.endpoint.tick(now));
    }
    if reliable {
        verify(&plans, &sides);
    }
    counters(&sides[0], &sides[1])
}

/// Checks the memory at the end, and that all messages were received.
fn verify(plans: &[Plan; 2], sides: &[Side; 2]) {
    for at in 0..2 {
        let (plan, peer) = (&plans[at], &sides[1 - at]);
        assert_eq!(plan.received, plan.messages.len(), "messages");
        let memory = peer.bytes(peer.shared);
        let word = |at: usize| u64::from_ne_bytes(memory[at..at + 8].try_into().unwrap());
        assert_eq!(word(COUNTER as usize), plan.additions, "each addition is executed once");
        assert!(memory[16..CONSTANT] == plan.image[16..], "written data");
    }
}

fn many(name: &str, faults: Faults, setup: &Setup) -> Counters {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("STENTOR_ROCE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STENTOR_ROCE_SEEDS").unwrap_or(40),
    };
    let mut total = Counters::default();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| run(seed, faults, setup));
        let Ok((a, b)) = run else { panic!("{name}: REPRODUCE WITH: STENTOR_ROCE_SEED={seed}") };
        for one in [a, b] {
            total.duplicates += one.duplicates;
            total.out_of_order += one.out_of_order;
            total.bad_icrc += one.bad_icrc;
            total.retransmitted += one.retransmitted;
            total.rnr_sent += one.rnr_sent;
            total.timeouts += one.timeouts;
            total.probes += one.probes;
        }
    }
    total
}

const WRAPS: Setup = Setup {
    kind: QpKind::Reliable,
    mtu: 256,
    psn_a: 0xff_ffe0,
    psn_b: 0xff_fff0,
    window: 16,
    timeout: 10,
    retries: 7,
    rnr_retries: 7,
    rd_atomic: 4,
    rnr_code: 1,
    words: 4096,
    apart: true,
};

#[test]
fn good_network_causes_no_retransmission() {
    let counters = many("good", Faults::default(), &WRAPS);
    assert_eq!((counters.timeouts, counters.bad_icrc, counters.retransmitted), (0, 0, 0), "{counters:?}");
}

#[test]
fn loss() {
    let counters = many("loss", Faults { loss: 10, ..Faults::default() }, &WRAPS);
    assert!(counters.retransmitted > 0 && counters.probes > 0, "{counters:?}");
}

#[test]
fn repetition() {
    let counters = many("repetition", Faults { repetition: 4, ..Faults::default() }, &WRAPS);
    assert!(counters.duplicates > 0, "{counters:?}");
}

#[test]
fn reordering() {
    let counters = many("reordering", Faults { jitter: 30_000, ..Faults::default() }, &WRAPS);
    assert!(counters.out_of_order > 0, "{counters:?}");
}

#[test]
fn damage() {
    let counters = many("damage", Faults { damage: 10, ..Faults::default() }, &WRAPS);
    assert!(counters.bad_icrc > 0, "{counters:?}");
}

#[test]
fn all_faults_together_lose_nothing() {
    let faults = Faults { loss: 20, repetition: 10, damage: 30, jitter: 40_000, congestion: 0 };
    many("everything", faults, &WRAPS);
    many("window of one", faults, &Setup { window: 1, rd_atomic: 1, ..WRAPS });
    many("window of three", faults, &Setup { window: 3, ..WRAPS });
    many("whole writes", faults, &Setup { apart: false, ..WRAPS });
}

#[test]
fn unreliable_connections_lose_only_whole_messages() {
    let setup = Setup { kind: QpKind::Unreliable, ..WRAPS };
    many("unreliable", Faults { loss: 10, repetition: 10, damage: 10, jitter: 20_000, congestion: 0 }, &setup);
}
