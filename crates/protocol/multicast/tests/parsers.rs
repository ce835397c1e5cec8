//! Arbitrary input from other processes is parsed and processed without panic. Each test has at least 256 cases;
//! `PROPTEST_CASES` sets another minimum. (Coverage-guided fuzzing needs a nightly compiler and is not set up.)
#![forbid(unsafe_code)]

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use stentor_fabric::ProcessId;
use stentor_fabric::memory::Word;
use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_multicast::{
    Ack, Ballot, ClientId, Delivery, Destination, Effects, GroupId, Head, Header, Item, ItemError, Mutant, PeerMessage,
    RemoteTimestamp, Replica, ReplicaConfig, ShortSlot, StreamEntry, StreamItem, Times, Topology, Variant,
};

/// An item that owns its times.
#[derive(Clone, Debug)]
struct Owned {
    kind: u8,
    head: Head,
    position: u8,
    counter: u64,
    ballot: Ballot,
    time: u64,
    times: Vec<u64>,
}

impl Owned {
    fn item(&self) -> Item<'_> {
        let Owned { head, position, counter, ballot, time, .. } = *self;
        let stream = |entry| Item::Stream(StreamItem { head, counter, entry });
        match self.kind {
            0 => stream(StreamEntry::Assign { position, ballot, time }),
            1 => stream(StreamEntry::Remote { position, ballot, time }),
            2 => stream(StreamEntry::Vector(Times::new(&self.times))),
            3 => Item::Timestamp(RemoteTimestamp { head, position, ballot, time }),
            _ => Item::Ack(Ack { head, position, ballot, times: Times::new(&self.times) }),
        }
    }

    fn encode(&self) -> Vec<u64> {
        let mut words = Vec::new();
        self.item().encode(&mut words);
        words
    }
}

/// The strategies from which the parts of an item are drawn.
#[derive(Clone)]
struct Parts {
    client: BoxedStrategy<u16>,
    sequence: BoxedStrategy<u64>,
    slot: BoxedStrategy<u64>,
    groups: BoxedStrategy<u8>,
    ballot: BoxedStrategy<u64>,
    time: BoxedStrategy<u64>,
}

impl Parts {
    fn any() -> Self {
        Parts {
            client: any::<u16>().boxed(),
            sequence: any::<u64>().boxed(),
            slot: any::<u64>().boxed(),
            groups: (1..=255_u8).boxed(),
            ballot: any::<u64>().boxed(),
            time: (1..=1_u64 << 63).boxed(),
        }
    }

    fn items(self) -> impl Strategy<Value = Owned> {
        let Parts { client, sequence, slot, groups, ballot, time } = self;
        (0..5_u8, client, sequence, slot, groups, any::<prop::sample::Index>()).prop_flat_map(
            move |(kind, client, sequence, slot, groups, position)| {
                let head = Head { client: ClientId(client), sequence, slot: ShortSlot::of(slot), groups };
                // A vector entry has no position.
                let position = if kind == 2 { 0 } else { position.index(usize::from(groups)) as u8 };
                let times = vec(time.clone(), usize::from(groups));
                (time.clone(), ballot.clone(), time.clone(), times).prop_map(move |(counter, ballot, time, times)| {
                    let ballot = Ballot::from_word(ballot);
                    Owned { kind, head, position, counter, ballot, time, times }
                })
            },
        )
    }
}

/// Decodes words, one item after the other, and checks that each decoded item encodes to the same words.
fn decode_all(words: &[u64]) {
    let mut at = 0;
    while let Ok((item, next)) = Item::decode(words, at) {
        let mut again = Vec::new();
        item.encode(&mut again);
        assert_eq!(again, words[at..next], "{item:?}");
        assert_eq!(item.words(), next - at);
        at = next;
    }
}

fn topology() -> Arc<Topology> {
    Arc::new(Topology::new(&[3, 1, 3], 2).expect("a possible cluster"))
}

/// Decodes a header, and checks that it encodes to the same words.
fn decode_header(words: &[u64], bytes: usize) {
    let topology = topology();
    let Ok(header) = Header::decode(words, bytes, &topology) else { return };
    let to: Vec<Destination> = header.destinations().collect();
    assert_eq!(to.len(), header.groups());
    assert!(to.iter().all(|to| topology.has_group(to.group)));
    let mut again = vec![0; Header::words(to.len())];
    Header::encode(header.sequence, header.payload_bytes, header.notify, &to, &mut again);
    if header.sync {
        Header::ask_sync(&mut again);
    }
    if header.enveloped {
        Header::mark_enveloped(&mut again);
    }
    assert_eq!(again, words[..again.len()]);
    assert!(again.len() * 8 + header.payload_bytes <= bytes, "the payload is inside the record");
}

/// Draws a sound header: sequence, payload, notify, destinations by a mask of the three groups.
fn headers() -> impl Strategy<Value = (Vec<u64>, usize)> {
    (1..=u64::MAX, 0..4096_usize, any::<bool>(), 1..8_u16, [0..1_u64 << 48, 0..1 << 48, 0..1 << 48]).prop_map(
        |(sequence, payload, notify, mask, slots)| {
            let groups = (0..3_u16).filter(|group| mask >> group & 1 == 1);
            let to: Vec<Destination> =
                groups.map(|group| Destination { group: GroupId(group), slot: slots[usize::from(group)] }).collect();
            let mut words = vec![0; Header::words(to.len())];
            Header::encode(sequence, payload, notify, &to, &mut words);
            let bytes = words.len() * 8 + payload;
            (words, bytes)
        },
    )
}

/// Draws words that look like items more often than random ones do: with small versions, kinds and numbers of groups,
/// which are often valid.
fn plausible_words() -> impl Strategy<Value = Vec<u64>> {
    let first = (0..8_u64, 0..5_u64, 0..5_u64, 0..3_u64, 1..4_u64, 0..1_u64 << 24).prop_map(
        |(kind, groups, position, client, version, slot)| {
            kind | version << 4 | groups << 8 | position << 16 | client << 24 | slot << 40
        },
    );
    let word = prop_oneof![2 => first.clone(), 2 => 0..4_u64, 1 => any::<u64>()];
    (first, vec(word, 0..24)).prop_map(|(first, mut words)| {
        words.insert(0, first);
        words
    })
}

proptest! {
    #[test]
    fn items_survive_the_wire(items in vec(Parts::any().items(), 1..4)) {
        let words: Vec<u64> = items.iter().flat_map(Owned::encode).collect();
        let mut at = 0;
        for item in &items {
            let (decoded, next) = Item::decode(&words, at).expect("what was encoded decodes");
            prop_assert_eq!(decoded, item.item());
            at = next;
        }
        prop_assert_eq!(at, words.len());
    }

    #[test]
    fn headers_survive_the_wire((words, bytes) in headers()) {
        let topology = topology();
        prop_assert!(Header::decode(&words, bytes, &topology).is_ok());
        decode_header(&words, bytes);
        prop_assert!(Header::decode(&words, bytes - 1, &topology).is_err(), "one byte too few");
    }

    #[test]
    fn arbitrary_words_are_an_item_or_an_error(words in vec(any::<u64>(), 0..32), plausible in plausible_words()) {
        decode_all(&words);
        decode_all(&plausible);
    }

    #[test]
    fn arbitrary_words_are_a_header_or_an_error(words in vec(0..1_u64 << 50, 0..16), bytes in 0..200_usize) {
        decode_header(&words, bytes);
    }

    #[test]
    fn a_mutated_item_is_an_item_or_an_error(
        item in Parts::any().items(), at in any::<prop::sample::Index>(), flip in 0..64_u32, cut in 0..3_usize,
    ) {
        let mut words = item.encode();
        let at = at.index(words.len().min(8));
        words[at] ^= 1 << flip;
        decode_all(&words);
        words.truncate(words.len() - cut);
        decode_all(&words);
    }

    #[test]
    fn a_mutated_header_is_a_header_or_an_error(
        (mut words, bytes) in headers(), at in any::<prop::sample::Index>(), flip in 0..64_u32,
    ) {
        let at = at.index(words.len());
        words[at] ^= 1 << flip;
        decode_header(&words, bytes);
    }

    #[test]
    fn a_mutated_record_does_not_open(
        payload in vec(any::<u64>(), 0..12), lap in 1..=u64::MAX, at in any::<prop::sample::Index>(), flip in 0..64_u32,
    ) {
        let (seal, bytes) = (Seal::new(ProcessId(3), 7), payload.len() * 8);
        let mut record = vec![0; HEADER_WORDS + payload.len()];
        record[HEADER_WORDS..].copy_from_slice(&payload);
        seal.close(lap, bytes, &mut record);
        let shared = |record: &[u64]| record.iter().map(|word| Word::new(*word)).collect::<Vec<_>>();
        let mut private = vec![0; record.len()];
        prop_assert_eq!(seal.open(lap, &shared(&record), &mut private), Some(bytes));
        prop_assert_eq!(&private, &record);
        let at = at.index(record.len());
        record[at] ^= 1 << flip;
        prop_assert_eq!(seal.open(lap, &shared(&record), &mut private), None);
    }

    #[test]
    fn arbitrary_memory_does_not_open(words in vec(any::<u64>(), 0..16), lap in any::<u64>(), bytes in 0..80_u64) {
        let seal = Seal::new(ProcessId(3), 7);
        let mut words = words;
        if let [_, seen, header, ..] = words.as_mut_slice() {
            (*seen, *header) = (lap, 3 | bytes << 32);
        }
        let shared: Vec<Word> = words.iter().map(|word| Word::new(*word)).collect();
        prop_assert_eq!(seal.open(lap, &shared, &mut [0; 12]), None);
    }
}

/// A receiver of effects that checks that other members can decode every item that is sent.
struct Sink;

impl Sink {
    fn check(item: &Item<'_>) {
        let mut words = Vec::new();
        item.encode(&mut words);
        match Item::decode(&words, 0) {
            Ok(decoded) => assert_eq!(decoded, (*item, words.len())),
            // The member accepted the largest valid time from a peer and assigned a time above it. Other members refuse
            // that time.
            Err(error) => assert_eq!(error, ItemError::Count),
        }
    }
}

impl Effects for Sink {
    fn to_followers(&mut self, item: &StreamItem<'_>) {
        Sink::check(&Item::Stream(*item));
    }

    fn timestamp(&mut self, _: ProcessId, item: &RemoteTimestamp) {
        Sink::check(&Item::Timestamp(*item));
    }

    fn acknowledge(&mut self, _: ProcessId, ack: &Ack<'_>) {
        Sink::check(&Item::Ack(*ack));
    }

    fn deliver(&mut self, delivery: &Delivery) {
        assert!(delivery.number > 0);
    }

    fn begin_stream(&mut self, ballot: Ballot) {
        Sink::check(&Item::Begin(ballot));
    }

    fn send(&mut self, _: ProcessId, message: &PeerMessage) {
        let mut words = Vec::new();
        message.encode(&mut words);
        assert_eq!(PeerMessage::decode(&words).as_ref(), Ok(message));
    }

    fn body(&mut self, _: ProcessId, _: ClientId, _: u64) {}

    fn restore(&mut self, _: u64) {}
}

/// One input of a member. It concerns one of the next messages, and is valid except for `junk`.
#[derive(Clone, Debug)]
struct Input {
    /// 0: a client's message; 1 to 5: an item; 6: the member orders a time entry.
    kind: u8,
    /// The client. Clients with the number 2 and above are those of groups, whose messages are time entries.
    client: u16,
    /// Offset from the first slot that is not free.
    ahead: u64,
    /// The destination group and its member from which the input comes.
    group: prop::sample::Index,
    member: u16,
    /// The part that is replaced (see [`Input::spoil`]), and its new value.
    junk: Option<(u8, u64)>,
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let value = prop_oneof![6 => 0..8_u64, 1 => Just(1_u64 << 63), 1 => Just(u64::MAX), 1 => any::<u64>()];
    let junk = prop_oneof![5 => Just(None), 1 => (0..8_u8, value).prop_map(Some)];
    let ahead = prop_oneof![6 => Just(0_u64), 3 => Just(1_u64), 1 => 2..4_u64];
    let client = prop_oneof![4 => 0..2_u16, 1 => 2..5_u16];
    let input = (0..7_u8, client, ahead, any::<prop::sample::Index>(), 0..3_u16, junk)
        .prop_map(|(kind, client, ahead, group, member, junk)| Input { kind, client, ahead, group, member, junk });
    vec(input, 1..160)
}

/// A member whose peers send arbitrary input.
struct Victim {
    replica: Replica,
    topology: Arc<Topology>,
    /// Indexed by client: the destination groups of its messages, as masks that repeat.
    masks: [[u16; 4]; 2],
    /// Indexed by client: the slot of its next message.
    received: [u64; 2],
    counter: u64,
}

impl Victim {
    fn new(me: u16, variant: Variant, mut masks: [[u16; 4]; 2]) -> Self {
        let (topology, window, mutant) = (topology(), 2, Mutant::None);
        let config = ReplicaConfig::new(topology.clone(), ProcessId(me), window);
        let config = ReplicaConfig { variant, mutant, time_entries: true, ..config };
        let replica = Replica::new(config);
        masks.iter_mut().flatten().for_each(|mask| *mask |= 1 << replica.group().0);
        Victim { replica, topology, masks, received: [0; 2], counter: 0 }
    }

    fn groups(&self, client: u16, slot: u64) -> Vec<GroupId> {
        let Some(masks) = self.masks.get(usize::from(client)) else { return vec![self.replica.group()] };
        let mask = masks[(slot % 4) as usize];
        self.topology.group_ids().filter(|group| mask >> group.0 & 1 == 1).collect()
    }

    /// Returns an input, mostly one that a correct peer might send, and its sender.
    fn sound(&self, input: &Input) -> (u16, Owned) {
        let slot = self.replica.first_held(ClientId(input.client)) + input.ahead;
        let groups = self.groups(input.client, slot);
        // Assignments are those of the member's own group.
        let own = groups.iter().position(|group| *group == self.replica.group()).unwrap_or(0);
        let position = if input.kind == 1 { own } else { input.group.index(groups.len()) };
        let group = groups[position];
        let member = if input.kind == 5 { input.member % self.topology.size(group) as u16 } else { 0 };
        let from = self.topology.first_ballot(group).leader().0 + member;
        let time = slot + 1;
        let ballot = self.topology.first_ballot(group);
        let times = vec![time; groups.len()];
        let (client, groups) = (ClientId(input.client), groups.len() as u8);
        let head = Head { client, sequence: slot + 1, slot: ShortSlot::of(slot), groups };
        let position = if input.kind == 3 { 0 } else { position as u8 };
        (from, Owned { kind: input.kind - 1, head, position, counter: self.counter + 1, ballot, time, times })
    }

    /// Passes an input to the member as a node would: decoded, and a stream entry only if its body is held. Returns
    /// `None` if the input did not reach the state machine, otherwise whether it was accepted.
    fn give(&mut self, input: &Input) -> Option<bool> {
        if input.kind == 0 {
            return self.message(input);
        }
        if input.kind == 6 {
            let not_before = input.junk.map_or(input.ahead, |(_, value)| value);
            return Some(self.replica.order_time(not_before, &mut Sink).is_some());
        }
        let (mut from, mut item) = self.sound(input);
        input.spoil(&mut from, &mut item);
        let words = item.encode();
        let replica = &mut self.replica;
        match Item::decode(&words, 0).ok()?.0 {
            Item::Stream(item) if !replica.stream_waits(ProcessId(from), &item) => {
                let next = item.counter == self.counter + 1 && ProcessId(from) == replica.ballot().leader();
                let taken = replica.on_stream(ProcessId(from), &item, &mut Sink).is_ok();
                self.counter += u64::from(taken && next);
                Some(taken)
            }
            Item::Begin(ballot) => Some(replica.on_begin(ProcessId(from), ballot).is_ok()),
            Item::Stream(_) => None,
            Item::Timestamp(item) => Some(replica.on_timestamp(ProcessId(from), &item, &mut Sink).is_ok()),
            Item::Ack(ack) => Some(replica.on_ack(ProcessId(from), &ack, &mut Sink).is_ok()),
        }
    }

    fn message(&mut self, input: &Input) -> Option<bool> {
        let (mut client, mut slot) = (input.client, *self.received.get(usize::from(input.client)).unwrap_or(&0));
        let to = |slot| self.groups(client, slot).into_iter().map(|group| Destination { group, slot }).collect();
        let mut to: Vec<Destination> = to(slot);
        match input.junk {
            Some((0, value)) => client = value as u16,
            Some((1, value)) => slot = value,
            Some((2, value)) => to[0].slot = value,
            Some((3, _)) => to.truncate(1),
            _ => {}
        }
        let mut words = vec![0; Header::words(to.len())];
        Header::encode(slot.wrapping_add(1), 0, false, &to, &mut words);
        let header = Header::decode(&words, words.len() * 8, &self.topology).ok()?;
        let taken = self.replica.on_message(ClientId(client), &header, &mut Sink).is_ok();
        if let Some(received) = self.received.get_mut(usize::from(client)) {
            *received += u64::from(taken);
        }
        Some(taken)
    }
}

impl Input {
    fn spoil(&self, from: &mut u16, item: &mut Owned) {
        let Some((what, value)) = self.junk else { return };
        match what {
            0 => *from = value as u16,
            1 => item.head.client = ClientId(value as u16),
            2 => item.head.sequence = value,
            3 => item.head.slot = ShortSlot::of(value),
            4 => {
                item.head.groups = value as u8;
                item.times.resize(usize::from(item.head.groups), 1);
            }
            5 => item.position = value as u8,
            6 => {
                item.time = value;
                item.times[0] = value;
            }
            _ => {
                item.ballot = Ballot::from_word(value);
                item.counter = value;
            }
        }
    }
}

/// Passes valid and invalid input from any process to a member: the member does not panic, and refused input changes
/// nothing. Enough of the input must be accepted, refused and delivered, otherwise the test proves nothing.
#[test]
fn garbage_never_panics_a_member() {
    let members = prop_oneof![Just(0_u16), Just(1), Just(3), Just(4), Just(6)];
    let strategy = (members, any::<bool>(), any::<[[u16; 4]; 2]>(), inputs());
    let cases = 8 * ProptestConfig::default().cases;
    let seen = std::cell::Cell::new([0_u64; 3]);
    let config = ProptestConfig { cases, source_file: Some(file!()), ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&strategy, |(me, v1, masks, inputs)| {
        let mut victim = Victim::new(me, if v1 { Variant::V1 } else { Variant::V2 }, masks);
        let [mut taken, mut refused, delivered] = seen.get();
        for input in &inputs {
            let before = victim.replica.clone();
            let done = victim.give(input);
            taken += u64::from(done == Some(true));
            refused += u64::from(done == Some(false));
            if done != Some(true) {
                prop_assert!(victim.replica == before, "{input:?} was refused and changed the state");
            }
        }
        seen.set([taken, refused, delivered + victim.replica.delivered()]);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let (seen, cases) = (seen.get(), u64::from(cases));
    eprintln!("{cases} cases: {} inputs taken, {} refused, {} deliveries", seen[0], seen[1], seen[2]);
    assert!(seen[0] >= 5 * cases && seen[1] >= cases && seen[2] >= cases / 2, "{cases} cases, but only {seen:?}");
}
