//! One member of a cluster, with its inputs and effects as values.

use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ack, Ballot, ClientId, ClientState, Delivery, Destination, Effects, GroupId, Head, Header, Incarnation, MessageId,
    Mutant, Opening, PeerMessage, ProcessRole, Rejected, RemoteTimestamp, Replica, ReplicaConfig, ShortSlot, State,
    StreamEntry, StreamItem, Times, Timestamp, Topology, Variant, Word,
};

/// An effect of a member, owned, so that a test can list it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Assign { head: Head, counter: u64, position: u8, ballot: Ballot, time: u64 },
    Vector { head: Head, counter: u64, times: Vec<u64> },
    Remote { head: Head, counter: u64, position: u8, ballot: Ballot, time: u64 },
    Timestamp { to: u16, item: RemoteTimestamp },
    Ack { to: u16, head: Head, position: u8, ballot: Ballot, times: Vec<u64> },
    Deliver(Delivery),
    Begin(Ballot),
    PeerMessage { to: u16, message: PeerMessage },
    Body { to: u16, slot: u64 },
    Restore(u64),
    BeginHistory,
    NoOp { head: Head, counter: u64, settled: bool },
    RemoteBallot { counter: u64, ballot: Ballot },
    Word { counter: u64, word: Word },
    Succeed { head: Head, counter: u64, life: u64, after: u64, settled: bool },
    Dropped { slot: u64, sequence: u64 },
}

#[derive(Default)]
pub(crate) struct Recorder(pub(crate) Vec<Effect>, bool);

impl Effects for Recorder {
    fn is_held_up(&self) -> bool {
        self.1
    }

    fn to_followers(&mut self, item: &StreamItem<'_>) {
        let (head, counter) = (item.head, item.counter);
        self.0.push(match item.entry {
            StreamEntry::Assign { position, ballot, time } => Effect::Assign { head, counter, position, ballot, time },
            StreamEntry::Vector(times) => Effect::Vector { head, counter, times: times.words().to_vec() },
            StreamEntry::Remote { position, ballot, time } => Effect::Remote { head, counter, position, ballot, time },
            StreamEntry::NoOp { settled } => Effect::NoOp { head, counter, settled },
            StreamEntry::RemoteBallot { ballot, .. } => Effect::RemoteBallot { counter, ballot },
            StreamEntry::Word { incarnation, origin, in_force, .. } => {
                Effect::Word { counter, word: Word { incarnation, origin, in_force } }
            }
            StreamEntry::Succeed { life, after, settled, .. } => {
                Effect::Succeed { head, counter, life, after, settled }
            }
        });
    }

    fn timestamp(&mut self, to: ProcessId, item: &RemoteTimestamp) {
        self.0.push(Effect::Timestamp { to: to.0, item: *item });
    }

    fn acknowledge(&mut self, to: ProcessId, ack: &Ack<'_>) {
        let Ack { head, position, ballot, times } = *ack;
        self.0.push(Effect::Ack { to: to.0, head, position, ballot, times: times.words().to_vec() });
    }

    fn deliver(&mut self, delivery: &Delivery) {
        self.0.push(Effect::Deliver(Delivery { ballot: Ballot::NONE, origin: Incarnation::NONE, ..*delivery }));
    }

    fn begin_stream(&mut self, ballot: Ballot) {
        self.0.push(Effect::Begin(ballot));
    }

    fn send(&mut self, to: ProcessId, message: &PeerMessage) {
        self.0.push(Effect::PeerMessage { to: to.0, message: message.clone() });
    }

    fn body(&mut self, to: ProcessId, _client: ClientId, slot: u64) {
        self.0.push(Effect::Body { to: to.0, slot });
    }

    fn dropped(&mut self, _client: ClientId, slot: u64, sequence: u64) {
        self.0.push(Effect::Dropped { slot, sequence });
    }

    fn restore(&mut self, number: u64) {
        self.0.push(Effect::Restore(number));
    }

    fn begin_history(&mut self) {
        self.0.push(Effect::BeginHistory);
    }
}

/// Groups of 3 and 3, processes 0–2 (0 leads) and 3–5 (3 leads); two clients, processes 6 and 7; windows of 2 slots.
pub(crate) const TWO_GROUPS: &[usize] = &[3, 3];
/// A message to both groups of [`TWO_GROUPS`]: slot 0 at group 0, slot 1 at group 1.
pub(crate) const BOTH: &[(u16, u64)] = &[(0, 0), (1, 1)];

/// A member.
pub(crate) struct Process {
    pub(crate) replica: Replica,
    pub(crate) topology: Arc<Topology>,
}

/// The effects of an input, or the reason for its rejection.
pub(crate) type Done = Result<Vec<Effect>, Rejected>;

impl Process {
    pub(crate) fn new(sizes: &[usize], me: u16, variant: Variant) -> Self {
        Process::made(sizes, me, variant, Replica::new)
    }

    /// Creates a V2 member with `window` slots for each client.
    pub(crate) fn with_window(sizes: &[usize], me: u16, window: u32) -> Self {
        Process::made(sizes, me, Variant::V2, |config| Replica::new(ReplicaConfig { window, ..config }))
    }

    /// Creates a V2 member with a mutant.
    pub(crate) fn planted(sizes: &[usize], me: u16, mutant: Mutant) -> Self {
        Process::made(sizes, me, Variant::V2, |config| Replica::new(ReplicaConfig { mutant, ..config }))
    }

    /// Creates a V2 member of a cluster whose groups order time entries.
    pub(crate) fn with_time_entries(sizes: &[usize], me: u16, mutant: Mutant) -> Self {
        let config = |config| ReplicaConfig { mutant, time_entries: true, ..config };
        Process::made(sizes, me, Variant::V2, |made| Replica::new(config(made)))
    }

    /// Creates a V2 member without memory.
    pub(crate) fn joining(sizes: &[usize], me: u16) -> Self {
        Process::started_at(sizes, me, 2)
    }

    /// Creates a V2 member without memory, with a mutant.
    pub(crate) fn joining_planted(sizes: &[usize], me: u16, mutant: Mutant) -> Self {
        Process::made(sizes, me, Variant::V2, |config| Replica::joining(ReplicaConfig { mutant, ..config }, 2))
    }

    /// Creates a V2 member without memory, with this life.
    pub(crate) fn started_at(sizes: &[usize], me: u16, incarnation: u64) -> Self {
        Process::made(sizes, me, Variant::V2, |config| Replica::joining(config, incarnation))
    }

    fn made(sizes: &[usize], me: u16, variant: Variant, make: impl FnOnce(ReplicaConfig) -> Replica) -> Self {
        let topology = Arc::new(Topology::new(sizes, 2).expect("a possible cluster"));
        let (me, window) = (ProcessId(me), 2);
        let config = ReplicaConfig { variant, ..ReplicaConfig::new(topology.clone(), me, window) };
        Process { replica: make(config), topology }
    }

    /// Creates the V2 member `me` of [`TWO_GROUPS`].
    pub(crate) fn of_two_groups(me: u16) -> Self {
        Process::new(TWO_GROUPS, me, Variant::V2)
    }

    pub(crate) fn step(&mut self, input: impl FnOnce(&mut Replica, &mut Recorder) -> Result<(), Rejected>) -> Done {
        let before = self.replica.clone();
        let mut recorder = Recorder::default();
        let done = input(&mut self.replica, &mut recorder);
        if let Err(rejected) = done {
            assert!(self.replica == before, "refused with {rejected:?}, but the state changed");
            assert_eq!(recorder.0, [], "refused with {rejected:?}, but there are effects");
            return Err(rejected);
        }
        Ok(recorder.0)
    }

    /// Inputs a client's message, with its slots by destination group.
    pub(crate) fn message(&mut self, client: u16, sequence: u64, to: &[(u16, u64)]) -> Done {
        self.message_after(client, sequence, to, 0)
    }

    /// Inputs a message whose time must exceed `time`, or a message without this condition if `time` is 0.
    pub(crate) fn message_after(&mut self, client: u16, sequence: u64, to: &[(u16, u64)], time: u64) -> Done {
        let to: Vec<Destination> =
            to.iter().map(|(group, slot)| Destination { group: GroupId(*group), slot: *slot }).collect();
        let mut words = vec![0; Header::words(to.len())];
        Header::encode(sequence, if time > 0 { 8 } else { 0 }, false, &to, &mut words);
        if time > 0 {
            Header::mark_not_before(&mut words);
            words.push(time);
        }
        let topology = self.topology.clone();
        let header = Header::decode(&words, words.len() * 8, &topology).expect("a sound header");
        self.step(|replica, recorder| replica.on_message(ClientId(client), &header, recorder))
    }

    pub(crate) fn timestamp(&mut self, from: u16, head: Head, position: u8, ballot: Ballot, time: u64) -> Done {
        let item = RemoteTimestamp { head, position, ballot, time };
        self.step(|replica, recorder| replica.on_timestamp(ProcessId(from), &item, recorder))
    }

    /// Inputs an acknowledgement in the first ballot of the sender's group.
    pub(crate) fn ack(&mut self, from: u16, head: Head, position: u8, times: &[u64]) -> Done {
        let ballot = match self.topology.role(ProcessId(from)) {
            Some(ProcessRole::Member { group, .. }) => self.topology.first_ballot(group),
            _ => led_by(from),
        };
        self.ack_in(ballot, from, head, position, times)
    }

    pub(crate) fn ack_in(&mut self, ballot: Ballot, from: u16, head: Head, position: u8, times: &[u64]) -> Done {
        let ack = Ack { head, position, ballot, times: Times::new(times) };
        self.step(|replica, recorder| replica.on_ack(ProcessId(from), &ack, recorder))
    }

    pub(crate) fn assign(&mut self, head: Head, counter: u64, position: u8, ballot: Ballot, time: u64) -> Done {
        self.entry(head, counter, StreamEntry::Assign { position, ballot, time })
    }

    pub(crate) fn vector(&mut self, head: Head, counter: u64, times: &[u64]) -> Done {
        self.entry(head, counter, StreamEntry::Vector(Times::new(times)))
    }

    pub(crate) fn remote(&mut self, head: Head, counter: u64, position: u8, ballot: Ballot, time: u64) -> Done {
        self.entry(head, counter, StreamEntry::Remote { position, ballot, time })
    }

    pub(crate) fn no_op(&mut self, head: Head, counter: u64, settled: bool) -> Done {
        self.entry(head, counter, StreamEntry::NoOp { settled })
    }

    /// Inputs a stream entry: a process took over client id 0.
    pub(crate) fn succeed(&mut self, generation: u64, first: u64, counter: u64, settled: bool) -> Done {
        let sequence = generation << MessageId::GENERATION_BITS;
        let entry = StreamEntry::Succeed { life: 9, after: first, retired: 0, settled };
        self.entry(head(sequence, first, 1), counter, entry)
    }

    /// Inputs the request of a process that wants to begin with client id 0.
    pub(crate) fn open(&mut self, life: u64, told: Option<u64>, above: u64) -> Vec<Effect> {
        let told = told.map_or(0, |told| told + 1);
        let mut recorder = Recorder::default();
        self.replica.open(Opening { client: ClientId(0), life, told, above }, &mut recorder);
        recorder.0
    }

    pub(crate) fn heard(&mut self, counter: u64, ballot: Ballot) -> Done {
        let none = Head { client: ClientId(0), sequence: 0, slot: ShortSlot::of(0), groups: 1 };
        self.entry(none, counter, StreamEntry::RemoteBallot { ballot, incarnation: Incarnation::FIRST })
    }

    /// Runs ticks. Returns their effects.
    pub(crate) fn ticks(&mut self, ticks: u32) -> Vec<Effect> {
        self.ticks_while(ticks, false)
    }

    /// Runs ticks, and returns their effects. With `held_up`, entries appended for followers cannot be sent.
    pub(crate) fn ticks_while(&mut self, ticks: u32, held_up: bool) -> Vec<Effect> {
        let mut recorder = Recorder(Vec::new(), held_up);
        (0..ticks).for_each(|_| self.replica.on_tick(&mut recorder));
        recorder.0
    }

    pub(crate) fn entry(&mut self, head: Head, counter: u64, entry: StreamEntry<'_>) -> Done {
        let item = StreamItem { head, counter, entry };
        let leader = self.replica.ballot().leader();
        self.step(|replica, recorder| replica.on_stream(leader, &item, recorder))
    }

    pub(crate) fn campaign(&mut self) -> Ballot {
        self.try_campaign().expect("a member with memory can campaign")
    }

    pub(crate) fn try_campaign(&mut self) -> Result<Ballot, Rejected> {
        self.replica.campaign(&mut Recorder::default())
    }

    pub(crate) fn tick(&mut self) -> Done {
        self.step(|replica, recorder| {
            replica.on_tick(recorder);
            Ok(())
        })
    }

    pub(crate) fn peer_message(&mut self, from: u16, message: &PeerMessage) -> Done {
        self.step(|replica, recorder| replica.on_peer_message(ProcessId(from), message, recorder))
    }

    /// Reports for some ticks that an entry waits at the head of the stream. Returns the effects.
    pub(crate) fn stalled(&mut self, head: Head, counter: u64, ticks: u32) -> Vec<Effect> {
        let entry = StreamEntry::Assign { position: 0, ballot: self.replica.ballot(), time: 1 };
        let mut recorder = Recorder::default();
        for _ in 0..ticks {
            self.replica.on_stalled(&StreamItem { head, counter, entry }, &mut recorder);
            self.replica.on_tick(&mut recorder);
        }
        recorder.0
    }

    /// Returns whether an entry about this message would have to wait.
    pub(crate) fn waits(&self, head: Head, counter: u64) -> bool {
        let entry = StreamEntry::Assign { position: 0, ballot: self.replica.ballot(), time: 1 };
        self.replica.stream_waits(self.replica.ballot().leader(), &StreamItem { head, counter, entry })
    }
}

/// Returns the word of a group whose history began with the cluster.
pub(crate) fn first_word() -> Word {
    Word { incarnation: Incarnation::FIRST, origin: Incarnation::FIRST, in_force: true }
}

/// Returns an empty state of a member of group 0 of two groups that has installed no state. Member 3 leads the other
/// group first.
pub(crate) fn nothing(lives: [u64; 3]) -> State {
    State {
        known: vec![Ballot::new_in(0, 0, ProcessId(0)), Ballot::new_in(0, 0, ProcessId(3))],
        incarnations: vec![Incarnation::NONE; 2],
        words: vec![Word::default(); 2],
        lives: lives.to_vec(),
        clients: vec![ClientState::default(); 2],
        ..State::default()
    }
}

/// Returns the 1A of a ballot of the first incarnation.
pub(crate) fn first_campaign(ballot: Ballot, lives: &[u64]) -> PeerMessage {
    let first = Incarnation::FIRST;
    PeerMessage::Campaign { ballot, incarnation: first, ends: first, resets: false, lives: lives.to_vec() }
}

/// Returns the first ballot of the group that this process leads.
pub(crate) fn led_by(process: u16) -> Ballot {
    Ballot::new(1, ProcessId(process))
}

/// Returns a head of a message of client 0.
pub(crate) fn head(sequence: u64, slot: u64, groups: u8) -> Head {
    Head { client: ClientId(0), sequence, slot: ShortSlot::of(slot), groups }
}

pub(crate) fn delivery(sequence: u64, slot: u64, time: u64, group: u16, number: u64) -> Effect {
    let id = MessageId { client: ClientId(0), sequence };
    let (ballot, origin) = (Ballot::NONE, Incarnation::NONE);
    Effect::Deliver(Delivery { id, slot, timestamp: Timestamp { time, group }, number, ballot, origin })
}

/// Returns the acknowledgements of member `me` of [`TWO_GROUPS`] for client 0's message to [`BOTH`]. Each names the
/// slot at its receiver's group.
pub(crate) fn acks(me: u16, sequence: u64, times: &[u64]) -> Vec<Effect> {
    let position = u8::from(me >= 3);
    let ballot = led_by(u16::from(position) * 3);
    let others = (0..6).filter(|to| *to != me);
    let ack = |to| {
        let slot = u64::from(to >= 3);
        Effect::Ack { to, head: head(sequence, slot, 2), position, ballot, times: times.to_vec() }
    };
    others.map(ack).collect()
}
