//! Fuzzes the switch with packets of an adversary who knows every number and every address, among packets of
//! well-behaved hosts. Nothing may panic, loops must end, a refused packet must change no register, and monotonic
//! values must not move back. The test runs for `STENTOR_FUZZ_SECONDS` (default 1 second). A failure prints the seed of
//! its run; `STENTOR_FUZZ_SEED` makes that run the first.

mod common;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use common::{BACKWARD, Bed, FIRST, FORWARD, GID, address, link, receives_from};
use stentor_switch::control::Operation;
use stentor_switch::registers::{Session, State};
use stentor_switch::{Aggregation, Bridge, Cause, Config, Switch};
use stentor_testutil::{SplitMix64, number_of_environment};
use stentor_wire::{Bth, Headers, IpPacket, Message, NakCode, Opcode, Psn, Repr, Reth, RnrTimer, Syndrome};

const HOSTS: u8 = 5;
/// Number of packets of a run.
const PACKETS: u64 = 200;
/// Causes of single passes that must not have changed a register.
const REFUSALS: [Cause; 14] = [
    Cause::Plain,
    Cause::Malformed,
    Cause::Damaged,
    Cause::UnknownSet,
    Cause::WrongSource,
    Cause::WrongOpcode,
    Cause::Expired,
    Cause::Foreign,
    Cause::BadControl,
    Cause::WrongLock,
    Cause::Busy,
    Cause::Barrier,
    Cause::Missing,
    Cause::Thinned,
];

fn draw_rank(random: &mut SplitMix64) -> u8 {
    random.index(HOSTS.into()) as u8
}

/// Returns a packet close to the expected ones: from the right host, with numbers near those in the registers.
fn plausible(random: &mut SplitMix64, bed: &Bed) -> Vec<u8> {
    let view = bed.switch.arrays().view(GID).expect("the set");
    let rank = if random.index(3) == 0 { draw_rank(random) } else { view.session.holder.min(HOSTS - 1) };
    let (done, msn) = view.done(rank);
    let psn = done.plus(random.index(4) as u32 + u32::from(random.index(8) > 0)).get();
    let reth = Reth { va: random.word() & 0xffff, rkey: 1, bytes: 4 };
    match random.index(13) {
        0 | 1 => {
            let links: Vec<_> = (0..HOSTS).filter(|_| random.index(2) == 0).map(link).collect();
            Bed::control(rank, (psn, msn), Operation::Link, &links)
        }
        2 => Bed::control(rank, (psn, msn), Operation::Release, &[]),
        3 => Bed::control(rank, (psn, msn), Operation::Query, &[]),
        4 => Bed::data(rank, psn, Message::SendFirst, &[3; 1024]),
        5 => Bed::data(rank, psn, Message::WriteOnly(reth), &[4; 4]),
        6 => Bed::data(rank, psn, Message::WriteOnlyImm(reth, 9), &[4; 4]),
        8 => {
            let (from, psn) = (draw_rank(random), Psn::new(0));
            let bth = Bth::new(Switch::vsqpn(GID, from), psn);
            common::packet(address(from), BACKWARD, &Repr { bth, headers: Headers::Cnp, payload_bytes: 0 }, &[])
        }
        7 => Bed::send(rank, view.session.top.plus(u32::from(random.index(4) == 0)).get()),
        _ => {
            let from = draw_rank(random);
            let member = &view.members[usize::from(from)];
            let syndromes = [
                Syndrome::ACK,
                Syndrome::Nak(NakCode::PsnSequence),
                Syndrome::Nak(NakCode::RemoteAccess),
                Syndrome::RnrNak(RnrTimer::from_code(3)),
            ];
            let bad = [0, 0, 0, 0, 0, 0, 1, 3, 3, 2][random.index(10)];
            let psn = member.psn_out.minus(random.index(3) as u32 + u32::from(random.index(8) > 0));
            Bed::feedback(from, psn.get(), syndromes[bad], member.msn_out)
        }
    }
}

/// Returns a valid packet with arbitrary headers.
fn strange(random: &mut SplitMix64) -> Vec<u8> {
    let places = [FORWARD, BACKWARD, address(draw_rank(random)), Ipv4Addr::from(random.word() as u32)];
    let from = [address(draw_rank(random)), FORWARD, Ipv4Addr::from(random.word() as u32)][random.index(3)];
    let qpn = random.word() as u32 & [0xff_ffff, 0x3ff, 0x307][random.index(3)];
    let bth = Bth::new(qpn, Psn::new(FIRST.wrapping_add(random.index(300) as u32)));
    let reth = Reth { va: random.word(), rkey: random.word() as u32, bytes: random.word() as u32 };
    let headers = [
        Headers::Rc(Message::SendOnly),
        Headers::Rc(Message::WriteOnly(reth)),
        Headers::ReadRequest(reth),
        Headers::SendOnlyInvalidate(7),
        Headers::Uc(Message::SendOnly),
        Headers::Cnp,
    ][random.index(6)];
    let payload = vec![0x5a; [0, 4, 64][random.index(3)] * usize::from(!matches!(headers, Headers::ReadRequest(_)))];
    let payload = if headers == Headers::Cnp { Vec::new() } else { payload };
    common::packet(from, places[random.index(4)], &Repr { bth, headers, payload_bytes: payload.len() }, &payload)
}

fn mutate(random: &mut SplitMix64, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.index(4) {
        let at = random.index(bytes.len().max(1));
        match random.index(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.index(8),
            1 if !bytes.is_empty() => bytes[at] = random.word() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at.min(bytes.len()), random.word() as u8),
            4 if bytes.len() > 28 => bytes[28] = Opcode::ALL[random.index(Opcode::ALL.len())].to_byte(),
            // Changes a byte of the control packet's own payload.
            _ if bytes.len() > 60 => {
                let at = 56 + random.index(bytes.len() - 60);
                bytes[at] = [0, 1, 0xff, random.word() as u8][random.index(4)];
            }
            _ => {}
        }
    }
    if random.index(4) > 0 {
        common::reseal(bytes);
    }
}

/// Returns whether a packet is from a host of the set, in its own rank. No other packet may change a register.
fn is_of_a_host(bytes: &[u8]) -> bool {
    (0..HOSTS).any(|rank| is_of(bytes, rank))
}

fn is_of(bytes: &[u8], host: u8) -> bool {
    let Ok(packet) = IpPacket::new_checked(bytes) else { return false };
    let (source, to, qpn) =
        (packet.envelope.ip.source(), packet.envelope.ip.destination(), packet.packet.bth().dest_qp);
    let (gid, rank) = (qpn >> 8, qpn & 0xff);
    (to == FORWARD || to == BACKWARD) && gid == u32::from(GID) && rank == host.into() && source == address(host)
}

/// A packet, and the header with which its next pass begins.
type Pass<'a> = (&'a [u8], Option<Bridge>);

/// Runs all passes of a packet, or the first `passes`. Returns the header that is left in the loop.
fn one(
    bed: &mut Bed,
    (bytes, mut bridge): Pass<'_>,
    passes: usize,
    seen: &mut BTreeMap<&'static str, u64>,
) -> Option<Bridge> {
    let input_intact = IpPacket::new_checked(bytes).is_ok_and(|packet| packet.is_intact());
    let before = bed.switch.arrays().clone();
    let (mut causes, mut copies, first) = (Vec::new(), Vec::new(), bridge.is_none());
    loop {
        let departure = bed.pass(bytes, bridge);
        causes.push(departure.cause);
        *seen.entry(departure.cause.name()).or_default() += 1;
        if let Some(emission) = departure.emission {
            let left = emission.to_vec(bytes);
            let packet = IpPacket::new_checked(&left).expect("the emission is a packet");
            assert!(packet.is_intact() || !input_intact, "an intact packet became a damaged one");
            let is_copy = departure.cause == Cause::Copied;
            assert!(!is_copy || !packet.is_intact() || input_intact, "a copy of a damaged packet must be damaged");
            assert!((0..HOSTS).any(|rank| address(rank) == emission.to()), "to {}", emission.to());
            copies.extend((departure.cause == Cause::Copied).then_some(emission.to()));
        }
        bridge = departure.mirror;
        if bridge.is_none() || causes.len() == passes {
            break;
        }
        assert!(causes.len() <= 35, "the loop does not end: {causes:?}");
    }
    let (old, new) = (before.view(GID).unwrap(), bed.switch.arrays().view(GID).unwrap());
    let same = before == *bed.switch.arrays();
    assert!(is_of_a_host(bytes) || same, "a packet from outside the set changed a register: {causes:?}");
    assert!(!(first && causes.len() == 1 && REFUSALS.contains(&causes[0])) || same, "{causes:?} changed a register");
    assert!(copies.len() <= usize::from(HOSTS), "{causes:?}");
    for rank in 0..HOSTS {
        let (was, is) = (&old.members[usize::from(rank)], &new.members[usize::from(rank)]);
        let moved = is.psn_out.distance(was.psn_out);
        assert!(
            moved == 0 || moved == 1 && copies.contains(&address(rank)),
            "rank {rank} moved by {moved}: {causes:?}"
        );
        // If a holder uses one PSN for two packets and the loop holds one of them back, the holder's own done PSN may
        // move back. No other done PSN may.
        let goes_back = new.done(rank).0.distance(old.done(rank).0) < 0;
        assert!(!goes_back || !first && is_of(bytes, rank), "a done PSN moved back: {causes:?}");
        assert_eq!((was.ip, was.qpn), (is.ip, is.qpn), "a packet changed the address of a host");
    }
    let in_session = |session: &Session| (session.state == State::Active).then_some(session.epoch);
    if in_session(old.session).is_some() && in_session(old.session) == in_session(new.session) {
        assert!(new.progress.last.distance(old.progress.last) >= 0, "{causes:?}");
    }
    bridge
}

fn run(seed: u64, seen: &mut BTreeMap<&'static str, u64>) {
    let mut random = SplitMix64(seed);
    let aggregation = [Aggregation::ExactMin, Aggregation::RoundBitmap][random.index(2)];
    let config = Config { aggregation, check_data: random.index(2) == 0, ..Config::new(FORWARD, BACKWARD) };
    // Some runs do not check the ICRC of data in the switch. In these runs, only the receivers' ICRC check would detect
    // some damage.
    let mut bed = Bed::with(HOSTS, config).linked(&[1, 2, 3]);
    assert_eq!(receives_from(1), bed.switch.arrays().view(GID).unwrap().members[1].psn_out.get());
    let mut held: Option<(Vec<u8>, Bridge)> = None;
    for _ in 0..PACKETS {
        if let Some((bytes, bridge)) = held.take_if(|_| random.index(4) == 0) {
            one(&mut bed, (&bytes, Some(bridge)), usize::MAX, seen);
        }
        bed.now_ns += random.word() % 3_000_000;
        let mut bytes = if random.index(4) == 0 { strange(&mut random) } else { plausible(&mut random, &bed) };
        if random.index(3) == 0 {
            mutate(&mut random, &mut bytes);
        }
        // Some packets arrive several times in succession, as in a flood.
        for _ in 0..[1, 1, 1, 1, 2, 20][random.index(6)] {
            // Now and then the loop holds a packet back, and loses the one that it held before.
            let passes = if random.index(10) == 0 { 1 + random.index(4) } else { usize::MAX };
            if let Some(bridge) = one(&mut bed, (&bytes, None), passes, seen) {
                held = Some((bytes.clone(), bridge));
            }
        }
    }
}

#[test]
fn adversary_changes_no_foreign_register_and_moves_nothing_back() {
    let (time, first) = (
        Duration::from_secs(number_of_environment("STENTOR_FUZZ_SECONDS", 1)),
        number_of_environment("STENTOR_FUZZ_SEED", 0),
    );
    let (since, mut seen, mut runs) = (Instant::now(), BTreeMap::new(), 0);
    while since.elapsed() < time || runs < 100 {
        let seed = first.wrapping_add(runs);
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| run(seed, &mut seen))) {
            eprintln!("REPRODUCE WITH: STENTOR_FUZZ_SEED={seed}");
            std::panic::resume_unwind(cause);
        }
        runs += 1;
    }
    println!("switch: {runs} runs, passes by cause: {seen:?}");
    // Every cause must have occurred.
    for cause in Cause::ALL {
        assert!(seen.contains_key(cause.name()), "no packet ended as {}", cause.name());
    }
}
