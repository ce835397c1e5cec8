//! Generates nearly valid packets, and inputs that consist of them.

use stentor_wire::{Aeth, AtomicEth, Bth, Headers, Message, Opcode, Psn, Repr, Response, Reth, Syndrome};

use crate::common::{SplitMix64, VA};
use crate::script::{Datagram, LARGE_MTU, Script, UNRELIABLE, flags};
use crate::victim::{FILL, SETUP, Victim};

/// Knowledge of the adversary: the victim's keys and queue pair number.
pub(crate) struct Known {
    number: u32,
    keys: [u32; 3],
}

impl Known {
    pub(crate) fn new() -> Known {
        let victim = Victim::new(0);
        let keys = [victim.side.key, victim.readable_key, victim.foreign_key];
        Known { number: victim.side.number, keys }
    }

    /// Returns the knowledge about another victim.
    pub(crate) fn of(number: u32, keys: [u32; 3]) -> Known {
        Known { number, keys }
    }

    /// Returns the victim's queue pair number, and the key of the memory that it shares.
    pub(crate) fn target(&self) -> (u32, u32) {
        (self.number, self.keys[0])
    }
}

fn reth(random: &mut SplitMix64, known: &Known) -> Reth {
    let own = known.keys[0];
    let keys = [own, own, own, known.keys[1], known.keys[2], random.word() as u32, own ^ 1];
    let addresses = [VA, VA + 256, VA + 511, VA + 512, VA - 1, u64::MAX, random.word(), VA + 8];
    let lengths = [0, 1, 8, 256, 257, 300, 512, 513, 0xffff_ffff, 1 << 31, random.word() as u32];
    Reth {
        va: addresses[random.below(8) as usize],
        rkey: keys[random.below(7) as usize],
        bytes: lengths[random.below(11) as usize],
    }
}

fn headers(random: &mut SplitMix64, known: &Known) -> Headers {
    let reth = reth(random, known);
    let imm = random.word() as u32;
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
    let aeth = Aeth { syndrome: Syndrome::from_byte(random.word() as u8), msn: random.word() as u32 & 0xff_ffff };
    let responses = [
        Response::ReadFirst(aeth),
        Response::ReadMiddle,
        Response::ReadLast(aeth),
        Response::ReadOnly(aeth),
        Response::Acknowledge(Aeth { syndrome: Syndrome::ACK, ..aeth }),
        Response::Acknowledge(aeth),
        Response::Atomic(aeth, random.word()),
    ];
    let atomic = AtomicEth { va: reth.va, rkey: reth.rkey, swap_add: random.word(), compare: random.word() };
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

/// Returns a nearly valid packet without a valid ICRC. Its PSN is near the one that is `ahead` packets after the first.
pub(crate) fn packet(random: &mut SplitMix64, known: &Known, ahead: u32) -> Vec<u8> {
    let headers = headers(random, known);
    let is_answer = headers.opcode().is_response();
    let near = if is_answer { SETUP.psn_a } else { SETUP.psn_b };
    let near = near.wrapping_add(ahead + random.below(3) as u32).wrapping_sub(u32::from(random.one_in(8)));
    let psn = if random.one_in(20) { random.word() as u32 } else { near };
    let mut bth = Bth::new(if random.one_in(40) { 7 } else { known.number }, Psn::new(psn));
    (bth.ack_req, bth.solicited) = (random.below(2) == 0, random.below(2) == 0);
    if random.one_in(40) {
        bth.pkey = random.word() as u16;
    }
    let lengths = [0, 1, 39, 40, 41, 44, 100, 255, 256, 257, 300, 4096];
    let longest = if random.one_in(20) { 12 } else { 11 };
    let payload_bytes = if headers.opcode().shape().payload { lengths[random.below(longest) as usize] } else { 0 };
    let announced = match headers {
        Headers::Rc(Message::WriteOnly(reth) | Message::WriteOnlyImm(reth, _)) => Some(reth.bytes as usize),
        Headers::Rc(Message::WriteFirst(_) | Message::WriteMiddle | Message::SendFirst) => Some(256),
        _ => None,
    };
    let fitting = announced.filter(|bytes| *bytes <= 4096 && random.below(4) > 0);
    let repr = Repr { bth, headers, payload_bytes: fitting.unwrap_or(payload_bytes) };
    let mut bytes = vec![0; repr.packet_bytes()];
    repr.emit(&mut bytes).unwrap().fill(FILL);
    match random.below(20) {
        0 => {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        1 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        2 => bytes[0] = Opcode::ALL[random.below(Opcode::ALL.len() as u64) as usize].to_byte(),
        _ => {}
    }
    bytes
}

/// Returns a datagram: one packet, or a run that is split correctly or incorrectly.
pub(crate) fn datagram(random: &mut SplitMix64, known: &Known, ahead: u32) -> Datagram {
    let mut what = if random.one_in(20) { 0 } else { flags::SEALED };
    what |= random.below(3) as u8;
    for (chance, flag) in
        [(30, flags::STRANGE), (20, flags::CONGESTED), (30, flags::LATE), (10, flags::MOVED), (4, flags::BURST)]
    {
        what |= if random.one_in(chance) { flag } else { 0 };
    }
    let first = packet(random, known, ahead);
    if !random.one_in(4) {
        return Datagram { flags: what, segment: 0, bytes: first };
    }
    let (length, mut bytes) = (first.len(), first);
    for n in 1..=random.below(5) as u32 {
        let mut next = packet(random, known, ahead + n);
        // The packets of a proper run have equal lengths, except for the last one. An adversary's packets may have
        // other lengths.
        if !random.one_in(6) {
            next.resize(length, FILL);
        }
        bytes.extend(next);
    }
    if random.one_in(3) {
        bytes.truncate(bytes.len() - random.below(length as u64 + 1).min(bytes.len() as u64) as usize);
    }
    let segments =
        [length as u16, length as u16, length as u16, 1, 3, length as u16 + 4, u16::MAX, random.word() as u16];
    // Very short packets are avoided: they are slow, and all of them are malformed.
    let segment = segments[random.below(8) as usize].max(if bytes.len() > 200 { 16 } else { 1 });
    let what = if random.one_in(4) { what } else { what & !flags::CHECK | 1 };
    Datagram { flags: what, segment, bytes }
}

/// Returns an input of random datagrams.
pub(crate) fn script(random: &mut SplitMix64, known: &Known) -> Script {
    let mut victim = if random.one_in(4) { UNRELIABLE } else { 0 };
    victim |= if random.one_in(4) { LARGE_MTU } else { 0 };
    let mut ahead = 0;
    let datagrams = (0..5 + random.below(36)).map(|_| {
        ahead += u32::from(random.one_in(3));
        datagram(random, known, ahead)
    });
    Script { victim, datagrams: datagrams.collect() }
}

/// Returns an input with a few changes.
pub(crate) fn mutate(random: &mut SplitMix64, known: &Known, population: &[Script]) -> Script {
    let pick = |random: &mut SplitMix64| &population[random.index(population.len())];
    let mut script = pick(random).clone();
    for _ in 0..1 + random.below(5) {
        let count = script.datagrams.len();
        if count == 0 {
            script.datagrams.push(datagram(random, known, 0));
            continue;
        }
        let at = random.below(count as u64) as usize;
        match random.below(9) {
            0 => script.datagrams.insert(at, datagram(random, known, at as u32)),
            1 => script.datagrams.push(datagram(random, known, at as u32)),
            2 => drop(script.datagrams.remove(at)),
            3 => script.datagrams.insert(at, script.datagrams[at].clone()),
            4 => script.datagrams.swap(at, random.below(count as u64) as usize),
            5 => {
                let other = pick(random);
                script.datagrams.truncate(at);
                let from = random.below(other.datagrams.len() as u64 + 1) as usize;
                script.datagrams.extend_from_slice(&other.datagrams[from..]);
            }
            _ => damage(random, &mut script.datagrams[at]),
        }
        script.datagrams.truncate(60);
    }
    script
}

fn damage(random: &mut SplitMix64, datagram: &mut Datagram) {
    let Datagram { flags: what, segment, bytes } = datagram;
    let length = bytes.len() as u64;
    match random.below(8) {
        0 => *what ^= 1 << random.below(8),
        1 => *segment = [0, 16, 32, segment.wrapping_add(1), random.word() as u16 | 15][random.below(5) as usize],
        _ if bytes.is_empty() => bytes.extend([FILL; 20]),
        2 => bytes.truncate(random.below(length) as usize),
        3 => bytes[0] = Opcode::ALL[random.below(Opcode::ALL.len() as u64) as usize].to_byte(),
        // Change the last byte of the PSN, or a byte after the first header.
        4 if length > 11 => bytes[11] = bytes[11].wrapping_add(1 + random.below(3) as u8),
        5 if length > 28 => bytes[12 + random.below(16) as usize] ^= 1 << random.below(8),
        6 => bytes[random.below(length) as usize] = [0, 0xff, 0x7f, 0x80][random.below(4) as usize],
        _ => bytes[random.below(length) as usize] ^= 1 << random.below(8),
    }
}
