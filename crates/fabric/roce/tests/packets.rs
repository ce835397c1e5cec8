//! Checks that every packet of seeded conversations equals the recorded one.
//!
//! Two endpoints communicate in virtual time over a network with the faults of a profile. `packets.txt` has a line per
//! seed: counts, the end time, and a hash. The hash covers each packet with its headers and its time, each completion,
//! each broken queue pair, and the final memory of both sides. After an intended change of packets, record them again
//! with `STENTOR_RECORD=1 cargo test -p stentor-fabric-roce --test packets`, and give the reason in the commit.

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::network::{Faults, Network};
use common::{DOMAIN, Flying, MS, Setup, Side, SplitMix64, VA, pair};
use stentor_fabric::{Access, Completion, Opcode, QpKind, Status};
use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_wire::Envelope;
use xxhash_rust::xxh3::Xxh3Default as Hasher;

const SEEDS: u64 = 100;
/// Number of requests that each side posts.
const REQUESTS: u64 = 80;
/// Maximum number of outstanding requests of one side.
const OUTSTANDING: u64 = 12;
/// Number of words of each region.
const WORDS: usize = 4096;
const BYTES: u64 = (WORDS * 8) as u64;
const RECEIVE_BYTES: u32 = 2048;
const LENGTHS: [u64; 10] = [0, 8, 16, 255, 256, 257, 1024, 1500, 2048, 4096];
/// Length of a READ with more than 32 response packets, so that it is requested in pieces.
const LONG_READ: u32 = 10_000;
/// A network that drops every packet.
const DEAD: Faults = Faults { loss: 1, repetition: 0, damage: 0, jitter: 0, congestion: 0 };

/// The faults of a conversation.
struct Profile {
    name: &'static str,
    kind: QpKind,
    faults: Faults,
    /// On average, one request in `wrong` requests may be invalid, and one step in `wrong` steps posts no receives. 0
    /// means that all requests are valid.
    wrong: u64,
    /// On average, one step in `trouble` steps interrupts the network for a while, breaks the queue pairs, or changes a
    /// key. 0 means that no step does.
    trouble: u64,
}

const NONE: Faults = Faults { loss: 0, repetition: 0, damage: 0, jitter: 0, congestion: 0 };
const BAD: Faults = Faults { loss: 20, repetition: 10, damage: 30, jitter: 40_000, congestion: 25 };
const PROFILES: [Profile; 5] = [
    Profile { name: "good", kind: QpKind::Reliable, faults: NONE, wrong: 0, trouble: 0 },
    Profile { name: "bad", kind: QpKind::Reliable, faults: BAD, wrong: 0, trouble: 0 },
    Profile { name: "unreliable", kind: QpKind::Unreliable, faults: BAD, wrong: 40, trouble: 200 },
    Profile { name: "wrong", kind: QpKind::Reliable, faults: NONE, wrong: 12, trouble: 0 },
    Profile { name: "trouble", kind: QpKind::Reliable, faults: BAD, wrong: 60, trouble: 100 },
];

/// Recorded results of a conversation.
#[derive(Default)]
struct Record {
    hasher: Hasher,
    packets: u64,
    completions: u64,
    failures: u64,
    lives: u64,
}

impl Record {
    fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.hasher.update(&number.to_le_bytes()));
    }

    fn packet(&mut self, now: u64, side: usize, (envelope, transport): &Flying) {
        let mut around = [0; 48];
        envelope.emit(&mut around, transport.len()).unwrap();
        self.packets += 1;
        self.numbers(&[1, now, side as u64, envelope.header_bytes() as u64, transport.len() as u64]);
        self.hasher.update(&around[..envelope.header_bytes()]);
        self.hasher.update(transport);
    }

    fn completion(&mut self, now: u64, side: usize, completion: &Completion) {
        let Completion { qp, id, opcode, status, bytes, imm, tag } = *completion;
        let opcode = match opcode {
            Opcode::Write => 0,
            Opcode::Read => 1,
            Opcode::Send => 2,
            Opcode::Atomic => 3,
            Opcode::Recv => 4,
            Opcode::RecvWriteImm => 5,
            Opcode::TaggedSend => 6,
            Opcode::TaggedRecv => 7,
        };
        let imm = imm.map_or(u64::MAX, u64::from);
        self.completions += 1;
        self.failures += u64::from(status != Status::Success);
        self.numbers(&[2, now, side as u64, qp.0.into(), id, opcode, status as u64, bytes.into(), imm, tag]);
    }
}

/// One side, and its progress.
struct Actor {
    side: Side,
    /// Headers around packets to the peer.
    envelope: Envelope,
    posted: u64,
    receives: u64,
    /// Key to this side's memory that the peer uses.
    told: u32,
}

impl Actor {
    fn new(side: Side) -> Actor {
        let (envelope, told) = (side.path().envelope, side.key);
        Actor { side, envelope, posted: 0, receives: 0, told }
    }

    fn post_receives(&mut self, most: u64) {
        while self.receives < most {
            let span = self.side.span(BYTES / 2 + self.receives * u64::from(RECEIVE_BYTES), RECEIVE_BYTES);
            if self.side.endpoint.post_receive(self.side.qp, span, 1 << 32 | self.receives).is_err() {
                return;
            }
            self.receives += 1;
        }
    }

    /// Posts a random request. Returns whether it was accepted.
    fn post(&mut self, random: &mut SplitMix64, peer_key: u32, profile: &Profile) -> bool {
        let id = self.posted;
        self.posted += 1;
        let length = LENGTHS[random.index(LENGTHS.len())];
        let wrong = random.one_in(profile.wrong);
        let rkey = if wrong && random.below(2) == 0 { peer_key ^ 0x100 } else { peer_key };
        let offset = if wrong { BYTES - 8 } else { 8 * random.below((BYTES - u64::from(LONG_READ)) / 8) };
        let remote = Remote { va: VA + offset, rkey };
        let bytes: Vec<u8> = (0..length).map(|_| random.word() as u8).collect();
        let from = self.side.span(8 * random.below(512), length as u32);
        let data = if random.below(2) == 0 { Data::Inline(&bytes) } else { Data::Region(from) };
        let imm = (random.below(3) == 0).then_some(id as u32);
        let word = self.side.span(8 * random.below(512), 8);
        let kinds = if profile.kind == QpKind::Reliable { 7 } else { 3 };
        let request = match random.below(kinds) {
            0 if length > RECEIVE_BYTES.into() && !wrong => Request::Write { data, remote, imm: None },
            0 => Request::Send { data, imm },
            1 | 2 => Request::Write { data, remote, imm },
            3 => Request::FetchAdd { local: word, remote, add: id + 1 },
            4 => Request::CompareSwap { local: word, remote, expected: random.below(2), new: id },
            _ => {
                let bytes = if random.below(8) == 0 { LONG_READ } else { length as u32 };
                Request::Read { local: self.side.span(8 * random.below(256), bytes), remote }
            }
        };
        let (signalled, solicited) = (random.below(4) > 0, random.below(4) == 0);
        self.side.endpoint.post_send(self.side.qp, &Work { id, request, signalled, solicited }).is_ok()
    }

    /// Revokes the key and grants another one. The peer uses the new key only later.
    fn renew_key(&mut self) {
        let memory = self.side.endpoint.memory_mut();
        memory.revoke(self.side.key);
        self.side.key = memory.grant(self.side.shared, DOMAIN, Access::Atomic, 5).unwrap();
    }
}

/// A conversation between two sides.
struct Talk<'a> {
    profile: &'a Profile,
    setup: Setup,
    random: SplitMix64,
    network: Network,
    actors: [Actor; 2],
    record: Record,
    now: u64,
    /// End of the network's interruption, in nanoseconds.
    dead_until: u64,
}

impl<'a> Talk<'a> {
    fn new(seed: u64, profile: &'a Profile) -> Talk<'a> {
        let mut random = SplitMix64(seed);
        let setup = Setup {
            kind: profile.kind,
            mtu: 256,
            psn_a: 0xff_ffc0,
            psn_b: 0xff_fff0,
            window: [1, 3, 16, 64][random.below(4) as usize],
            timeout: 10,
            retries: 3,
            rnr_retries: 3,
            rd_atomic: [1, 4][random.below(2) as usize],
            rnr_code: 1,
            words: WORDS,
            apart: seed.is_multiple_of(2),
        };
        let (a, b) = pair(&setup);
        let network = Network::new(profile.faults, seed ^ 0xfeed);
        let actors = [Actor::new(a), Actor::new(b)];
        Talk { profile, setup, random, network, actors, record: Record::default(), now: 0, dead_until: 0 }
    }

    fn run(mut self) -> String {
        for actor in &self.actors {
            let bytes: Vec<u8> = (0..BYTES / 4).map(|_| self.random.word() as u8).collect();
            actor.side.fill(actor.side.local, 0, &bytes);
        }
        loop {
            (0..2).for_each(|at| self.act(at));
            self.inject_trouble();
            if !self.pass_time() {
                break;
            }
        }
        for actor in &self.actors {
            let (shared, local) = (actor.side.bytes(actor.side.shared), actor.side.bytes(actor.side.local));
            self.record.hasher.update(&shared);
            self.record.hasher.update(&local);
        }
        let Record { hasher, packets, completions, failures, lives } = &self.record;
        let (name, us, hash) = (self.profile.name, self.now / 1000, hasher.digest());
        format!(
            "{name} {packets} packets {completions} completions {failures} failed {lives} broken {us} us {hash:016x}"
        )
    }

    /// Lets one side post requests, send packets, and process completions.
    fn act(&mut self, at: usize) {
        let peer_key = self.actors[1 - at].told;
        let actor = &mut self.actors[at];
        let fewer = self.profile.wrong > 0 && self.random.one_in(self.profile.wrong);
        if !fewer {
            actor.post_receives(4);
        }
        let few = actor.side.endpoint.send_queue_len(actor.side.qp) < OUTSTANDING;
        if few && self.now >= self.dead_until && actor.posted < REQUESTS && self.random.below(3) == 0 {
            let taken = actor.post(&mut self.random, peer_key, self.profile);
            self.record.numbers(&[3, self.now, at as u64, taken.into()]);
        }
        for packet in actor.side.packets(self.now) {
            self.record.packet(self.now, at, &packet);
            self.network.send(self.now, at == 0, &packet);
        }
        for completion in actor.side.completions() {
            actor.receives -= u64::from(matches!(completion.opcode, Opcode::Recv | Opcode::RecvWriteImm));
            self.record.completion(self.now, at, &completion);
        }
        let mut broken = false;
        while let Some(qp) = actor.side.endpoint.next_broken() {
            self.record.numbers(&[4, self.now, at as u64, qp.0.into()]);
            broken = true;
        }
        if broken {
            self.begin_anew();
        }
    }

    /// Breaks both queue pairs, unless they are broken already, and connects them again.
    fn begin_anew(&mut self) {
        self.record.lives += 1;
        let life = self.record.lives as u32;
        self.setup.psn_a = (self.setup.psn_a + 77_777 * life) & 0xff_ffff;
        self.setup.psn_b = (self.setup.psn_b + 33_333 * life) & 0xff_ffff;
        let numbers = [(self.setup.psn_a, self.setup.psn_b), (self.setup.psn_b, self.setup.psn_a)];
        let peers = [self.actors[1].side.number, self.actors[0].side.number];
        for (at, actor) in self.actors.iter_mut().enumerate() {
            actor.side.endpoint.break_qp(actor.side.qp, Status::RetryExceeded).unwrap();
            for completion in actor.side.completions() {
                self.record.completion(self.now, at, &completion);
            }
            actor.side.endpoint.reset(actor.side.qp).unwrap();
            actor.receives = 0;
            actor.told = actor.side.key;
            actor.side.ready(actor.envelope, peers[at], numbers[at], &self.setup);
        }
    }

    fn inject_trouble(&mut self) {
        if self.now >= self.dead_until {
            self.network.faults = self.profile.faults;
        }
        if !self.random.one_in(self.profile.trouble) {
            return;
        }
        let at = self.random.below(2) as usize;
        match self.random.below(4) {
            0 => {
                self.network.faults = DEAD;
                self.dead_until = self.now + self.random.below(80 * MS);
            }
            1 => self.begin_anew(),
            2 => self.actors[at].renew_key(),
            _ => self.actors[at].told = self.actors[at].side.key,
        }
    }

    /// Advances to the next event. Returns `false` if there is none.
    fn pass_time(&mut self) -> bool {
        let posted = self.actors.iter().all(|actor| actor.posted == REQUESTS);
        let deadlines = self.actors.iter().filter_map(|actor| actor.side.endpoint.next_deadline());
        let busy = (!posted).then_some(self.dead_until.max(self.now + 3_000));
        let unsent = self.actors.iter().any(|actor| actor.side.endpoint.has_more()).then_some(self.now + 1_000);
        let Some(next) = deadlines.chain(self.network.next()).chain(busy).chain(unsent).min() else { return false };
        self.now = self.now.max(next);
        assert!(self.now < 60_000 * MS, "the conversation has not ended after 60 s");
        while let Some((to_b, packet)) = self.network.arrived(self.now) {
            self.actors[usize::from(to_b)].side.take(self.now, &packet);
        }
        let now = self.now;
        self.actors.iter_mut().for_each(|actor| actor.side.endpoint.tick(now));
        true
    }
}

#[test]
fn packets_are_as_recorded() {
    let mut fresh = String::new();
    for seed in 0..SEEDS {
        let profile = &PROFILES[seed as usize % PROFILES.len()];
        writeln!(fresh, "{seed} {}", Talk::new(seed, profile).run()).unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packets.txt");
    if std::env::var_os("STENTOR_RECORD").is_some() {
        std::fs::write(&file, &fresh).unwrap();
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    assert_eq!(recorded.lines().count(), fresh.lines().count(), "{}", file.display());
    let differ: Vec<_> = recorded.lines().zip(fresh.lines()).filter(|(was, is)| was != is).collect();
    if let Some((was, is)) = differ.first() {
        panic!(
            "{} of {SEEDS} seeds differ, the first is\nrecorded: {was}\nnow:      {is}\nIf the change is intended, run \
             STENTOR_RECORD=1 cargo test -p stentor-fabric-roce --test packets",
            differ.len()
        );
    }
}
