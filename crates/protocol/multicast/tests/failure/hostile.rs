//! Peer messages with arbitrary numbers, from any other member. A member refuses or accepts them, and does not panic
//! whatever follows.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    AssignedSlot, Ballot, ClientId, ClientState, Closed, Destination, GroupId, Incarnation, Joiner, Left, MessageId,
    MessageRef, Mutant, Opening, Origin, PeerMessage, SlotRef, State, Succession, Variant, Verdict, Word, WordRef,
};

use super::cluster::Cluster;
use super::walk::Random;

/// The member under test, in a cluster of two groups, of three members and one, with two clients.
const VICTIM: u16 = 0;

impl Random {
    /// Draws a number that is small or near a limit.
    fn number(&mut self) -> u64 {
        let ends = [
            0_u64,
            1 << (64 - MessageId::GENERATION_BITS),
            1 << MessageId::GENERATION_BITS,
            1 << 47,
            1 << 48,
            1 << 62,
            1 << 63,
        ];
        match self.below(3) {
            0 => self.below(6),
            1 => ends[self.below(7) as usize].wrapping_sub(self.below(4)),
            _ => ends[self.below(7) as usize].wrapping_add(self.below(4)),
        }
    }

    fn some<T>(&mut self, most: u64, mut one: impl FnMut(&mut Random) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| one(self)).collect()
    }

    /// Draws `count` elements most of the time, otherwise any number below 5.
    fn about<T>(&mut self, count: u64, mut one: impl FnMut(&mut Random) -> T) -> Vec<T> {
        let count = if self.one_in(20) { self.below(5) } else { count };
        (0..count).map(|_| one(self)).collect()
    }

    fn member(&mut self) -> ProcessId {
        ProcessId(self.below(3) as u16)
    }

    fn ballot(&mut self) -> Ballot {
        let number = if self.one_in(2) { self.below(5) } else { self.number() };
        Ballot::new(number, self.member())
    }

    fn client(&mut self) -> ClientId {
        ClientId(self.below(3) as u16)
    }

    fn message_ref(&mut self) -> MessageRef {
        MessageRef { client: self.client(), sequence: self.number() }
    }

    fn slot_ref(&mut self) -> SlotRef {
        SlotRef { client: self.client(), slot: self.number(), ballot: self.ballot(), generation: self.number() }
    }

    fn entry(&mut self) -> AssignedSlot {
        let no_op = self.one_in(3);
        let groups = if no_op && self.one_in(2) { 0 } else { 1 + self.below(2) as u16 };
        let destinations: Vec<Destination> =
            (0..groups).map(|group| Destination { group: GroupId(group), slot: self.below(5) }).collect();
        let times = destinations.iter().map(|_| 1 + (self.number() >> 2)).collect();
        let vector = self.one_in(2);
        let ended = destinations.iter().filter(|to| to.slot == 1).map(|to| to.group).collect();
        let decided = vector && self.one_in(2);
        let sequence = self.number();
        let delivered = !no_op && sequence.is_multiple_of(2);
        AssignedSlot { sequence, destinations, times, vector, decided, no_op, delivered, ended }
    }

    fn client_state(&mut self) -> ClientState {
        let from = if self.one_in(2) { self.below(4) } else { self.number() };
        let entries = self.some(3, Random::entry);
        let delivered = from.wrapping_add(self.below(entries.len() as u64 + 1));
        let mut slot = from.wrapping_add(entries.len() as u64);
        let held = self.some(2, |random| {
            slot = slot.wrapping_add(1 + random.below(2));
            (slot.wrapping_sub(1), random.number())
        });
        let (freed, closed, good) = (self.number(), self.number(), self.number());
        let mut generation = self.below(3);
        let mut first = self.below(3);
        let successions = self.some(3, |random| {
            generation += if random.one_in(20) { random.number() >> 40 } else { 1 };
            first += random.below(3);
            let first = if random.one_in(8) { random.number() } else { from.wrapping_add(first) };
            let (life, after, settled) = (random.number(), random.number(), random.one_in(2));
            Succession { generation, life, first, after, settled }
        });
        ClientState { delivered, from, freed, closed, good, successions, entries, held }
    }

    fn left(&mut self) -> Left {
        Left { client: self.client(), below: self.number(), ballot: Ballot::new(self.below(5), ProcessId(3)) }
    }

    fn opening(&mut self) -> Opening {
        Opening { client: self.client(), life: self.number(), told: self.number(), above: self.number() }
    }

    fn closed(&mut self) -> Closed {
        Closed { about: self.slot_ref(), held: self.some(6, Random::number) }
    }

    /// Draws lives. They rarely contain another process with the victim's id, because that ends the victim.
    fn lives(&mut self) -> Vec<u64> {
        let mut lives = self.about(3, Random::number);
        if !self.one_in(20) {
            lives.iter_mut().take(1 + usize::from(VICTIM)).for_each(|life| *life = 0);
        }
        lives
    }

    /// Draws a tag, mostly that of the first incarnation.
    fn tag(&mut self) -> u32 {
        if self.one_in(4) { self.below(3) as u32 } else { 0 }
    }

    fn incarnation_of(&mut self, ballot: Ballot) -> Incarnation {
        let number = if self.one_in(20) { self.below(4) as u32 } else { ballot.incarnation() };
        Incarnation { number, tag: self.tag() }
    }

    fn state(&mut self) -> State {
        let (synced, known) = (self.ballot(), self.about(2, Random::ballot));
        let incarnations: Vec<Incarnation> = known.iter().map(|ballot| self.incarnation_of(*ballot)).collect();
        State {
            synced,
            incarnation: Incarnation { number: synced.incarnation(), tag: self.tag() },
            origins: self.some(2, |random| Origin {
                incarnation: Incarnation { number: random.below(3) as u32, tag: random.tag() },
                kept: random.number(),
            }),
            counter: self.number() >> 1,
            clock: self.number() >> 1,
            delivered: self.number(),
            known,
            words: incarnations.iter().map(|one| Word { incarnation: *one, origin: *one, in_force: true }).collect(),
            incarnations,
            lives: self.lives(),
            clients: self.about(2, Random::client_state),
        }
    }

    fn peer_message(&mut self) -> PeerMessage {
        let (ballot, incarnation) = (self.ballot(), self.number());
        match self.below(31) {
            0 => PeerMessage::Join { life: incarnation },
            1 => PeerMessage::Remembered { by: self.member(), incarnation: self.incarnation_of(ballot) },
            2 => PeerMessage::Elder { life: incarnation },
            3 => {
                let ends = self.ballot();
                let (incarnation, ends) = (self.incarnation_of(ballot), self.incarnation_of(ends));
                PeerMessage::Campaign { ballot, incarnation, ends, resets: self.one_in(4), lives: self.lives() }
            }
            4 => PeerMessage::Promise { ballot, state: self.state() },
            5 => PeerMessage::Transfer { ballot, state: self.state() },
            6 => PeerMessage::Refuse { promised: ballot, incarnation: self.incarnation_of(ballot) },
            7 => PeerMessage::Installed { ballot },
            8 => PeerMessage::Behind { ballot, snapshot: true },
            9 => {
                let incarnation = self.incarnation_of(ballot);
                let origin = if self.one_in(4) { Incarnation::NONE } else { incarnation };
                PeerMessage::Announce { group: GroupId(self.below(3) as u16), ballot, incarnation, origin }
            }
            10 => PeerMessage::WantBody(self.message_ref()),
            11 => PeerMessage::WantBodies(self.message_ref()),
            12 => PeerMessage::Gone(self.message_ref()),
            13 => PeerMessage::Ask(self.message_ref()),
            14 => PeerMessage::Decided { message: self.message_ref(), ballot, times: self.some(3, Random::number) },
            15 => PeerMessage::Forgotten(self.message_ref()),
            16 => PeerMessage::Refused(Verdict { message: self.message_ref(), ballot }),
            28 => PeerMessage::Lost(Verdict { message: self.message_ref(), ballot }),
            17 => PeerMessage::Seek(self.slot_ref()),
            18 => PeerMessage::Lacking(self.slot_ref()),
            19 => PeerMessage::NoOpProcessed(self.slot_ref()),
            20 => PeerMessage::Probe { ballot },
            21 => PeerMessage::Open(self.opening()),
            22 => PeerMessage::Close(self.slot_ref()),
            23 => PeerMessage::Closed(self.closed()),
            24 => PeerMessage::Succeeded(self.slot_ref()),
            25 => PeerMessage::Retire(self.left()),
            26 => PeerMessage::Retired(self.left()),
            27 => {
                let (group, origin) = (GroupId(self.below(3) as u16), self.incarnation_of(ballot));
                PeerMessage::WordProcessed(WordRef { group, origin, ballot })
            }
            _ => {
                let admits = self.some(2, |random| Joiner { process: random.member(), life: random.number() });
                let (state, snapshot) = (self.state(), self.one_in(2));
                PeerMessage::Install { ballot, counter: self.number(), state, admits, snapshot }
            }
        }
    }
}

/// Returns a cluster in the middle of a run.
fn cluster(random: &mut Random) -> Cluster {
    let mut cluster = Cluster::new(&[3, 1], 2, (Variant::V2, 4, Mutant::None));
    if random.one_in(3) {
        cluster.crash(VICTIM);
        cluster.restart(VICTIM).expect("the processes accept the input");
    }
    if random.one_in(3) {
        cluster.campaign(VICTIM, None).expect("the processes accept the input");
    }
    cluster.submit(0, &[0], None);
    cluster.submit(1, &[0, 1], None);
    for _ in 0..random.below(40) {
        let filled = cluster.net.filled();
        if let Some(wire) = filled.get(random.below(filled.len() as u64) as usize) {
            cluster.take(*wire, None).expect("the processes accept the input");
        }
    }
    cluster
}

#[test]
fn hostile_peer_messages_never_panic_a_member() {
    let [mut undecodable, mut refused, mut taken] = [0_u64; 3];
    for seed in 0..15_000 {
        let mut random = Random::new(seed);
        let mut cluster = cluster(&mut random);
        for _ in 0..12 {
            let (from, mut words) = (1 + random.below(3) as u16, Vec::new());
            random.peer_message().encode(&mut words);
            let Ok(message) = PeerMessage::decode(&words) else {
                undecodable += 1;
                continue;
            };
            let step = cluster.step(VICTIM, Some(Vec::new()), None, |replica, recorder| {
                let (joining, promised) = (replica.is_joining(), replica.promised());
                let done = replica.on_peer_message(ProcessId(from), &message, recorder);
                if random.one_in(3) {
                    replica.on_tick(recorder);
                }
                if random.one_in(8) {
                    let _ = replica.campaign(recorder);
                }
                // A process without memory may withdraw its promise to found its group.
                assert!(
                    joining || replica.promised() >= promised,
                    "seed {seed}: {message:?} {promised} {}",
                    replica.promised()
                );
                done.map_err(|rejected| rejected.to_string())
            });
            *(if step.is_ok() { &mut taken } else { &mut refused }) += 1;
            for wire in cluster.net.filled() {
                if wire.receiver() == VICTIM && random.one_in(3) {
                    // The messages of other members may not fit the victim's state any more.
                    let _ = cluster.take(wire, None);
                }
            }
        }
    }
    eprintln!("messages: {taken} taken, {refused} refused, {undecodable} not read");
    assert!(taken.min(refused).min(undecodable) > 10_000, "{taken} taken, {refused} refused, {undecodable} not read");
}
