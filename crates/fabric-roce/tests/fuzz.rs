//! An endpoint and an adversary on the network who knows every number: no packet makes it panic or reach memory that was
//! not granted. Runs for as long as `STENTOR_FUZZ_SECONDS` says (1 second unless told).

mod common;

use std::time::{Duration, Instant};

use common::{Flying, Random, Setup, Side, VA, address, pair};
use stentor_fabric::{Access, QpKind, RegionId};
use stentor_fabric_roce::endpoint::{Arrival, Check, ProtectionDomain};
use stentor_wire::{Aeth, AtomicEth, Bth, Envelope, Headers, Message, Opcode, Psn, Repr, Response, Reth, Syndrome};

const SETUP: Setup = Setup {
    kind: QpKind::Reliable,
    mtu: 256,
    psn_a: 0xff_fffc,
    psn_b: 3,
    window: 8,
    timeout: 8,
    retries: 7,
    rnr_retries: 7,
    rd_atomic: 2,
    rnr_code: 1,
    words: 64,
};

/// One side, and what an adversary must not touch.
struct Victim {
    side: Side,
    /// May be read, not written.
    readable: RegionId,
    readable_key: u32,
    /// Belongs to another protection domain.
    foreign_key: u32,
    guards: Vec<RegionId>,
}

const PATTERN: u8 = 0xa5;

impl Victim {
    fn new(random: &mut Random) -> Victim {
        let kind = if random.below(4) == 0 { QpKind::Unreliable } else { QpKind::Reliable };
        let (mut side, _) = pair(&Setup { kind, ..SETUP });
        let memory = side.endpoint.memory_mut();
        let (readable, foreign, nobodys) = (memory.register(64, VA), memory.register(64, VA), memory.register(64, VA));
        let readable_key = memory.grant(readable, common::DOMAIN, Access::Read, 5).unwrap();
        let foreign_key = memory.grant(foreign, ProtectionDomain(99), Access::Atomic, 5).unwrap();
        let guards = vec![readable, foreign, nobodys];
        for guard in guards.iter().chain([&side.local]) {
            side.fill(*guard, 0, &[PATTERN; 512]);
        }
        for n in 0..3 {
            let span = side.span(n * 64, 40);
            side.endpoint.post_receive(side.qp, span, n).unwrap();
        }
        let data = [1; 300];
        side.post(1, common::inline_send(&data));
        if kind == QpKind::Reliable {
            let (local, remote) = (side.span(256, 100), side.remote(0));
            side.post(2, stentor_fabric_roce::endpoint::Request::Read { local, remote });
            let local = side.span(400, 8);
            side.post(3, stentor_fabric_roce::endpoint::Request::FetchAdd { local, remote, add: 1 });
        }
        side.packets(0);
        Victim { side, readable, readable_key, foreign_key, guards }
    }

    /// Receives have bytes 0 to 40 of three lines, the READ 256 to 356, the atomic 400 to 408.
    fn check(&self, why: &dyn Fn() -> String) {
        for guard in &self.guards {
            assert!(self.side.bytes(*guard).iter().all(|byte| *byte == PATTERN), "{guard:?}: {}", why());
        }
        for (at, byte) in self.side.bytes(self.side.local).iter().enumerate() {
            let open = at < 192 && at % 64 < 40 || (256..356).contains(&at) || (400..408).contains(&at);
            assert!(open || *byte == PATTERN, "byte {at} of the local region: {}", why());
        }
    }
}

fn reth(random: &mut Random, victim: &Victim) -> Reth {
    let own = victim.side.key;
    let keys = [own, own, own, victim.readable_key, victim.foreign_key, random.next() as u32, own ^ 1];
    let addresses = [VA, VA + 256, VA + 511, VA + 512, VA - 1, u64::MAX, random.next(), VA + 8];
    let lengths = [0, 1, 8, 256, 257, 300, 512, 513, 0xffff_ffff, 1 << 31, random.next() as u32];
    Reth {
        va: addresses[random.below(8) as usize],
        rkey: keys[random.below(7) as usize],
        bytes: lengths[random.below(11) as usize],
    }
}

fn headers(random: &mut Random, victim: &Victim) -> Headers {
    let reth = reth(random, victim);
    let imm = random.next() as u32;
    let messages = [
        Message::SendFirst,
        Message::SendMiddle,
        Message::SendLast,
        Message::SendLastImm(imm),
        Message::SendOnly,
        Message::SendOnlyImm(imm),
        Message::WriteFirst(reth),
        Message::WriteMiddle,
        Message::WriteLast,
        Message::WriteLastImm(imm),
        Message::WriteOnly(reth),
        Message::WriteOnlyImm(reth, imm),
    ];
    let aeth = Aeth { syndrome: Syndrome::from_byte(random.next() as u8), msn: random.next() as u32 & 0xff_ffff };
    let responses = [
        Response::ReadFirst(aeth),
        Response::ReadMiddle,
        Response::ReadLast(aeth),
        Response::ReadOnly(aeth),
        Response::Acknowledge(Aeth { syndrome: Syndrome::ACK, ..aeth }),
        Response::Acknowledge(aeth),
        Response::Atomic(aeth, random.next()),
    ];
    let atomic = AtomicEth { va: reth.va, rkey: reth.rkey, swap_add: random.next(), compare: random.next() };
    let message = messages[random.below(12) as usize];
    match random.below(10) {
        0..=3 => Headers::Rc(message),
        4 => Headers::Uc(message),
        5 => Headers::ReadRequest(reth),
        6 => Headers::CompareSwap(atomic),
        7 => Headers::FetchAdd(atomic),
        8 => Headers::Response(responses[random.below(7) as usize]),
        _ => [Headers::SendOnlyInvalidate(imm), Headers::Cnp][random.below(2) as usize],
    }
}

/// A packet that is nearly right.
fn packet(random: &mut Random, victim: &Victim) -> Flying {
    let headers = headers(random, victim);
    let is_answer = headers.opcode().is_response();
    let near = if is_answer { SETUP.psn_a } else { SETUP.psn_b };
    let psn = Psn::new(near.wrapping_add(random.below(3) as u32).wrapping_sub(u32::from(random.once_in(8))));
    let mut bth = Bth::new(victim.side.number, if random.once_in(20) { Psn::new(random.next() as u32) } else { psn });
    (bth.ack_req, bth.solicited) = (random.below(2) == 0, random.below(2) == 0);
    let lengths = [0, 1, 39, 40, 41, 44, 100, 255, 256, 257, 300, 4096];
    let payload_bytes = if headers.opcode().shape().payload { lengths[random.below(12) as usize] } else { 0 };
    let announced = match headers {
        Headers::Rc(Message::WriteOnly(reth) | Message::WriteOnlyImm(reth, _)) => Some(reth.bytes as usize),
        Headers::Rc(Message::WriteFirst(_) | Message::WriteMiddle | Message::SendFirst) => Some(256),
        _ => None,
    };
    let fitting = announced.filter(|bytes| *bytes <= 4096 && random.below(4) > 0);
    let repr = Repr { bth, headers, payload_bytes: fitting.unwrap_or(payload_bytes) };
    let mut bytes = vec![0; repr.packet_bytes()];
    repr.emit(&mut bytes).unwrap().fill(0x77);
    let from = if random.once_in(30) { address(9) } else { address(2) };
    let envelope = Envelope::plain(from, 0xc001, address(1)).unwrap();
    match random.below(10) {
        0 => {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        1 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        2 => bytes[0] = Opcode::ALL[random.below(Opcode::ALL.len() as u64) as usize].to_byte(),
        _ => {}
    }
    // An adversary can compute the ICRC.
    if !random.once_in(20) {
        envelope.seal(&mut bytes);
    }
    (envelope, bytes)
}

#[test]
fn an_adversary_reaches_only_what_was_granted() {
    let seconds = std::env::var("STENTOR_FUZZ_SECONDS").ok();
    let seconds: u64 = seconds.map_or(1, |text| text.parse().expect("STENTOR_FUZZ_SECONDS: a number of seconds"));
    let first = std::env::var("STENTOR_FUZZ_SEED").ok();
    let first: u64 = first.map_or(0, |text| text.parse().expect("STENTOR_FUZZ_SEED: a number"));
    let (since, mut seed, mut packets, mut written, mut broken) = (Instant::now(), first, 0_u64, 0_u64, 0_u64);
    while since.elapsed() < Duration::from_secs(seconds) {
        let mut random = Random(seed);
        let mut victim = Victim::new(&mut random);
        for n in 0..40 {
            let (envelope, transport) = packet(&mut random, &victim);
            let check = if random.once_in(5) { Check::UnknownId } else { Check::Whole };
            victim.side.endpoint.receive(n, &Arrival { envelope, transport: &transport, check });
            victim.side.packets(n);
            victim.side.completions();
            packets += 1;
        }
        victim.side.endpoint.tick(u64::MAX / 2);
        victim.side.packets(u64::MAX / 2);
        victim.check(&|| format!("REPRODUCE WITH: STENTOR_FUZZ_SEED={seed}"));
        written += u64::from(victim.side.bytes(victim.side.shared).contains(&0x77));
        broken += u64::from(victim.side.endpoint.counters().access_errors > 0);
        let _ = victim.readable;
        seed += 1;
    }
    println!("{packets} packets to {} victims in {seconds} s", seed - first);
    assert!(written > 0 && broken > 0, "the packets are not good enough: {written} wrote, {broken} were refused");
}
