//! A side with outstanding operations, and memory that an adversary must not change. Records the effect of each packet.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use stentor_fabric::{Access, Completion, QpKind, RegionId};
use stentor_fabric_roce::endpoint::{Arrival, Check, Counters, ProtectionDomain, Request};
use stentor_wire::{Envelope, IpRepr, Packet};

use crate::common::{self, DOMAIN, Flying, Setup, Side, VA, address, pair};
use crate::script::{Datagram, LARGE_MTU, Script, UNRELIABLE, flags};

pub(crate) const SETUP: Setup = Setup {
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
    apart: false,
};
pub(crate) const PATTERN: u8 = 0xa5;
/// The byte that fills the payloads of the adversary.
pub(crate) const FILL: u8 = 0x77;
/// Time by which the clock advances if no deadline is set, in nanoseconds.
const LONG: u64 = 10_000_000_000;

pub(crate) struct Victim {
    pub(crate) side: Side,
    /// Key that permits reads but not writes.
    pub(crate) readable_key: u32,
    /// Key that is valid only in another protection domain.
    pub(crate) foreign_key: u32,
    guards: Vec<RegionId>,
    now: u64,
}

/// The effects of one input.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Hashes of the effects of each packet: its opcode, changed counters, packets sent, completions, and the queue
    /// pair's state. The set also has the final value of each counter (see [`is_count`]).
    pub(crate) features: BTreeSet<u64>,
    /// Opcodes of the well-formed packets.
    pub(crate) opcodes: BTreeSet<u8>,
    pub(crate) counters: Counters,
    /// Number of packets.
    pub(crate) packets: u64,
    /// `true` if the adversary wrote to the granted memory.
    pub(crate) wrote: bool,
}

impl Victim {
    pub(crate) fn new(kind: u8) -> Victim {
        let unreliable = kind & UNRELIABLE != 0;
        let mtu = if kind & LARGE_MTU != 0 { 1024 } else { SETUP.mtu };
        let kind = if unreliable { QpKind::Unreliable } else { QpKind::Reliable };
        let (mut side, _) = pair(&Setup { kind, mtu, ..SETUP });
        let memory = side.endpoint.memory_mut();
        let (readable, foreign, nobodys) = (memory.register(64, VA), memory.register(64, VA), memory.register(64, VA));
        let readable_key = memory.grant(readable, DOMAIN, Access::Read, 5).unwrap();
        let foreign_key = memory.grant(foreign, ProtectionDomain(99), Access::Atomic, 5).unwrap();
        let guards = vec![readable, foreign, nobodys];
        for guard in guards.iter().chain([&side.local]) {
            side.fill(*guard, 0, &[PATTERN; 512]);
        }
        for n in 0..3 {
            let span = side.span(n * 64, 40);
            side.endpoint.post_receive(side.qp, span, n).unwrap();
        }
        side.post(1, common::inline_send(&[1; 300]));
        if !unreliable {
            let (local, remote) = (side.span(256, 100), side.remote(0));
            side.post(2, Request::Read { local, remote });
            let local = side.span(400, 8);
            side.post(3, Request::FetchAdd { local, remote, add: 1 });
        }
        side.packets(0);
        Victim { side, readable_key, foreign_key, guards, now: 0 }
    }

    /// Checks that no protected byte has changed. In the local region, the three receives may write bytes 0 to 40 of
    /// the first three lines, the READ may write bytes 256 to 356, and the atomic may write bytes 400 to 408.
    fn check(&self) {
        for guard in &self.guards {
            assert!(self.side.bytes(*guard).iter().all(|byte| *byte == PATTERN), "{guard:?} was written to");
        }
        for (at, byte) in self.side.bytes(self.side.local).iter().enumerate() {
            let open = at < 192 && at % 64 < 40 || (256..356).contains(&at) || (400..408).contains(&at);
            assert!(open || *byte == PATTERN, "byte {at} of the local region was written to");
        }
    }

    fn take(&mut self, datagram: &Datagram, outcome: &mut Outcome) {
        if datagram.flags & flags::LATE != 0 {
            let next = self.side.endpoint.next_deadline();
            self.now = next.unwrap_or(self.now + LONG).max(self.now);
            self.side.endpoint.tick(self.now);
            let sent = self.side.packets(self.now);
            self.note(0x1_0000, &sent, &[0; 3], outcome);
        }
        let from = address(if datagram.flags & flags::STRANGE != 0 { 9 } else { 2 });
        let mut envelope = Envelope::plain(from, 0xc001, address(1)).unwrap();
        if datagram.flags & flags::CONGESTED != 0
            && let IpRepr::V4(ip) = &mut envelope.ip
        {
            ip.tos = 3;
        }
        let check =
            [Check::Whole, Check::RunId, Check::UnknownId, Check::Whole][usize::from(datagram.flags & flags::CHECK)];
        let packets = datagram.packets();
        let last = packets.len() - 1;
        for (n, mut transport) in packets.into_iter().enumerate() {
            if datagram.flags & flags::SEALED != 0 && transport.len() >= 4 {
                let mut sent = envelope;
                if let IpRepr::V4(ip) = &mut sent.ip {
                    // The kernel numbers the packets of a run when it splits the run.
                    let moved = datagram.flags & flags::MOVED != 0;
                    ip.id = if check == Check::Whole || moved { 0 } else { n as u16 };
                }
                sent.seal(&mut transport);
            }
            let mut known = envelope;
            if let (Check::RunId, IpRepr::V4(ip)) = (check, &mut known.ip) {
                // The driver derives the identification from the position alone.
                ip.id = n as u16;
            }
            self.now += 1;
            let before = self.side.endpoint.counters().list();
            self.side.endpoint.receive(self.now, &Arrival { envelope: known, transport: &transport, check });
            let opcode = Packet::new_checked(&transport[..]).ok().map(|packet| packet.opcode().to_byte());
            outcome.opcodes.extend(opcode);
            outcome.packets += 1;
            let waits = datagram.flags & flags::BURST != 0 && n < last;
            let sent = if waits { Vec::new() } else { self.side.packets(self.now) };
            let counted = changes(&before, &self.side.endpoint.counters().list());
            self.note(opcode.map_or(0xff00, u32::from), &sent, &counted, outcome);
        }
    }

    /// Records the effects of one packet or of a timer.
    fn note(&mut self, cause: u32, sent: &[Flying], counted: &[u64], outcome: &mut Outcome) {
        let mut hasher = DefaultHasher::new();
        (cause, counted, format!("{:?}", self.side.endpoint.state(self.side.qp))).hash(&mut hasher);
        for (_, bytes) in sent {
            let packet = Packet::new_checked(&bytes[..]).expect("the endpoint sends valid packets");
            (packet.opcode().to_byte(), packet.aeth().map(|aeth| aeth.syndrome.to_byte())).hash(&mut hasher);
        }
        for Completion { opcode, status, imm, .. } in self.side.completions() {
            (format!("{opcode:?} {status:?}"), imm.is_some()).hash(&mut hasher);
        }
        outcome.features.insert(hasher.finish());
    }
}

/// Returns for each counter whether it has grown. Omits the first two, packets sent and received, because they are not
/// effects.
fn changes(before: &[(&'static str, u64)], after: &[(&'static str, u64)]) -> Vec<u64> {
    let grown = before.iter().zip(after).map(|((_, before), (_, after))| (after - before).min(1));
    grown.skip(2).collect()
}

/// Returns whether a feature represents the final value of a counter (0, 1 or more), and not the effect of one packet.
pub(crate) fn is_count(feature: u64) -> bool {
    feature > u64::MAX - 1000
}

/// Sends an input to a new victim. Panics if it reaches protected memory.
pub(crate) fn run(script: &Script) -> Outcome {
    let mut victim = Victim::new(script.victim);
    let mut outcome = Outcome::default();
    for datagram in &script.datagrams {
        victim.take(datagram, &mut outcome);
    }
    victim.side.endpoint.tick(u64::MAX / 2);
    victim.side.packets(u64::MAX / 2);
    victim.check();
    outcome.counters = *victim.side.endpoint.counters();
    for (n, (_, count)) in outcome.counters.list().iter().enumerate() {
        // Distinguish the values 0, 1 and more.
        outcome.features.insert(u64::MAX - (n as u64 * 4 + count.min(&2)));
    }
    outcome.wrote = victim.side.bytes(victim.side.shared).contains(&FILL);
    outcome
}
