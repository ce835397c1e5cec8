//! The state of a group at one member, as members send it to each other when a leader changes or a process rejoins.

use crate::replica::is_possible;
use crate::word_reader::{PeerMessageError, Wire, WordReader};
use crate::{Ballot, Destination, GroupId, GroupSet, Incarnation, Origin, ReplicaConfig, ids};

/// The part of a group's history that a member has processed. It names bodies but does not contain them; a member
/// requests the bodies that it lacks.
///
/// In one ballot all followers process the same stream, so (`synced`, `counter`) measures how complete a state is. Of
/// two states with the same `synced`, the one with the larger `counter` contains the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// The ballot whose complete state this one is based on.
    pub synced: Ballot,
    /// The incarnation of the ballot `synced`.
    pub incarnation: Incarnation,
    /// The founding and the resets of this history, the oldest first.
    pub origins: Vec<Origin>,
    /// Number of processed entries of the stream of the ballot `synced`.
    pub counter: u64,
    /// The clock, which is at least every time of this group in this state, and every time in a processed vector of it.
    pub clock: u64,
    /// Number of delivered messages.
    pub delivered: u64,
    /// The largest known ballot of each group.
    pub known: Vec<Ballot>,
    /// The incarnation of each ballot in `known`, indexed by group.
    pub incarnations: Vec<Incarnation>,
    /// The processed word of each group.
    pub words: Vec<Word>,
    /// The last known life of each member of the group. The sender's entry is its own life.
    pub lives: Vec<u64>,
    /// The state of each client. In groups that order time entries, the states of the group's own client ids come last.
    pub clients: Vec<ClientState>,
}

/// The part of one client's messages that a member has processed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClientState {
    /// The first slot that is neither delivered nor a settled no-op.
    pub delivered: u64,
    /// The first retained slot, which is that of `entries[0]`.
    pub from: u64,
    /// Sequence of the last slot before `from`.
    pub freed: u64,
    /// Generation of the client below which messages are not assigned any more.
    pub closed: u64,
    /// Sequence of the last slot below `delivered` that is not a no-op.
    pub good: u64,
    /// The successions of the client id, the latest one last.
    pub successions: Vec<Succession>,
    /// The assigned slots, beginning with `from`.
    pub entries: Vec<AssignedSlot>,
    /// The slots whose bodies are held but not assigned, in rising order, each with its sequence.
    ///
    /// A message that a majority holds in one installed ballot is reported to its client as synced, so no leader may
    /// lose it. Therefore a member that promises another ballot reports the messages that it holds.
    pub held: Vec<(u64, u64)>,
}

/// The *word* of another group: a stream entry that names the incarnation in which that group's history began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Word {
    /// The incarnation, or [`Incarnation::NONE`] if no word of the group is processed.
    pub incarnation: Incarnation,
    /// The incarnation in which the group's history began.
    pub origin: Incarnation,
    /// `true` if a majority of the group whose stream contains the entry has processed it. It is also `true` if none is
    /// needed: for the first word of a group, and for one with the same origin as an earlier word in force.
    pub in_force: bool,
}

/// The takeover of a client id by a new process at a group, as an entry of the group's stream.
///
/// Once a majority of the group has processed the entry, certain messages are *void*, which means that no group
/// delivers them: all messages to this group that processes with smaller generations multicast after the sequence
/// `after`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Succession {
    /// Generation of the new process.
    pub generation: u64,
    /// Life of the new process. It is 0 if the group only closed the earlier generations because another group asked
    /// for that.
    pub life: u64,
    /// First slot of the new process.
    pub first: u64,
    /// Sequence of the last slot before `first` that is not a no-op.
    pub after: u64,
    /// `true` if a majority of the group has processed the entry.
    pub settled: bool,
}

impl Succession {
    /// Largest number of successions that a group keeps for one client.
    pub const MOST: usize = 64;
}

/// One assigned message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AssignedSlot {
    /// The client's number for the message.
    pub sequence: u64,
    /// Destinations of the message; empty for a no-op whose message the sender of the state has not seen.
    pub destinations: Vec<Destination>,
    /// The time of each destination group, as far as the sender of the state knows it; 0 is unknown.
    ///
    /// The time of this group is known, except for a no-op that was never assigned.
    pub times: Vec<u64>,
    /// `true` if the stream is processed through the entry with the vector.
    pub vector: bool,
    /// `true` if the message is known to be decided at the vector, or is a settled no-op.
    pub decided: bool,
    /// `true` if the slot is a no-op, which is never delivered.
    pub no_op: bool,
    /// `true` if the message is delivered although an earlier slot is still open, because that slot is an unsettled
    /// no-op.
    ///
    /// The flag is not set for slots below [`delivered`](ClientState::delivered). It may be set although `decided` is
    /// not, because a later leader may not know yet that the message is decided.
    pub delivered: bool,
    /// Destination groups whose times belong to a history that has ended.
    pub ended: GroupSet,
}

const DECIDED: u64 = 1;
const NO_OP: u64 = 2;
const VECTOR: u64 = 4;
const DELIVERED: u64 = 8;
/// The bit of an encoded time that marks it as belonging to a history that has ended.
const ENDED: u32 = 63;

impl State {
    /// Drops the list of messages that are held but not assigned.
    pub(crate) fn forget_held(&mut self) {
        self.clients.iter_mut().for_each(|client| client.held.clear());
    }

    /// Prepares the state for a new history that begins with it.
    ///
    /// Messages that are held but not assigned are dropped. Messages to several groups that are assigned but not
    /// decided become settled no-ops. Client processes that opened this group in the previous history must open it
    /// again.
    pub(crate) fn lose_what_is_under_way(&mut self) {
        for client in &mut self.clients {
            client.held.clear();
            // A later process owns all slots after the assigned ones, including those in which a message of an earlier
            // process was held until now.
            let end = client.assigned();
            for heir in &mut client.successions {
                (heir.life, heir.first) = (0, heir.first.min(end));
            }
            let several = client.entries.iter_mut().filter(|entry| entry.destinations.len() > 1);
            for entry in several.filter(|entry| !entry.decided && !entry.no_op) {
                (entry.no_op, entry.decided) = (true, true);
            }
        }
    }

    /// Checks that this is a valid state of a group of this cluster: the numbers of groups, members and clients match,
    /// the destinations exist, and no client has more messages than its window holds.
    ///
    /// # Errors
    /// Returns the reason if the state is invalid.
    pub(crate) fn check(&self, config: &ReplicaConfig, group: GroupId) -> Result<(), &'static str> {
        let (topology, window) = (&*config.topology, config.window);
        let own = 2 * usize::from(config.time_entries);
        let of_one = |(ballot, incarnation): (&Ballot, &Incarnation)| ballot.incarnation() == incarnation.number;
        let rise = self.origins.is_sorted_by(|a, b| a.incarnation.number < b.incarnation.number);
        let last = self.origins.last().map_or(0, |last| last.incarnation.number);
        if self.synced.incarnation() != self.incarnation.number || !rise || last > self.incarnation.number {
            return Err("a ballot that is not of its incarnation");
        }
        if self.incarnations.len() != topology.groups() || !self.known.iter().zip(&self.incarnations).all(of_one) {
            return Err("ballots that are not of the incarnations that it names");
        }
        let begun = |word: &Word| word.origin.number <= word.incarnation.number;
        if self.words.len() != topology.groups() || !self.words.iter().all(begun) {
            return Err("words that are not of the incarnations that they name");
        }
        if self.known.len() != topology.groups() || self.clients.len() != topology.clients() + own {
            return Err("another number of groups or client ids");
        }
        if self.lives.len() != topology.size(group) {
            return Err("another number of members");
        }
        if !self.clients[topology.clients()..].iter().all(|entries| is_possible(entries, group)) {
            return Err("time or version entries of the group that are invalid");
        }
        for entry in self.clients.iter().flat_map(|client| &client.entries) {
            let known = entry.destinations.iter().all(|to| topology.has_group(to.group));
            let rising = entry.destinations.is_sorted_by(|a, b| a.group < b.group);
            let ours = entry.no_op || entry.position(group).is_some_and(|own| entry.times[own] != 0);
            if !(known && rising && ours) {
                return Err("a message that is not this group's");
            }
        }
        if self.clients.iter().any(|client| client.entries.len() + client.held.len() > window as usize) {
            return Err("more messages than a window holds");
        }
        let rising = |client: &ClientState| {
            let end = client.assigned().saturating_add(u64::from(window));
            client.successions.is_sorted_by(|a, b| a.generation < b.generation && a.first <= b.first)
                && client.successions.last().is_none_or(|last| last.first <= end)
        };
        if !self.clients.iter().all(rising) || self.clients.iter().any(|c| c.successions.len() > Succession::MOST + 1) {
            return Err("successions of a client id that are out of order");
        }
        let beyond =
            |client: &ClientState| client.held.last().is_some_and(|(slot, _)| slot - client.from >= u64::from(window));
        if self.clients.iter().any(beyond) { Err("a message beyond the window") } else { Ok(()) }
    }
}

impl Wire for State {
    fn encode(&self, out: &mut Vec<u64>) {
        out.extend_from_slice(&[self.synced.to_word(), self.incarnation.to_word()]);
        self.origins.encode(out);
        out.extend_from_slice(&[self.counter, self.clock, self.delivered]);
        self.known.encode(out);
        self.incarnations.encode(out);
        self.words.encode(out);
        self.lives.encode(out);
        self.clients.encode(out);
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        let (synced, incarnation, origins) = (Ballot::decode(words)?, Wire::decode(words)?, Wire::decode(words)?);
        let (counter, clock, delivered) = (words.next()?, words.next()?, words.next()?);
        if (clock | counter | delivered) >> 63 != 0 {
            return Err(PeerMessageError::Value("clock, counter or number of deliveries"));
        }
        let (known, incarnations, said) = (Wire::decode(words)?, Wire::decode(words)?, Wire::decode(words)?);
        let (lives, clients) = (Wire::decode(words)?, Wire::decode(words)?);
        let state = State { synced, incarnation, origins, counter, clock, delivered, words: said, ..State::default() };
        Ok(State { known, incarnations, lives, clients, ..state })
    }
}

impl Wire for ClientState {
    fn encode(&self, out: &mut Vec<u64>) {
        out.extend_from_slice(&[self.delivered, self.from, self.freed, self.closed, self.good]);
        self.successions.encode(out);
        self.entries.encode(out);
        out.push(self.held.len() as u64);
        out.extend(self.held.iter().flat_map(|(slot, sequence)| [slot, sequence]));
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        let (delivered, from, freed) = (words.next()?, words.next()?, words.next()?);
        let (closed, good, successions) = (words.next()?, words.next()?, Wire::decode(words)?);
        // Counting slots never reaches the upper half of the range. A slot one window later must be representable, too.
        if from >> 63 != 0 {
            return Err(PeerMessageError::Value("slot"));
        }
        if closed > ids::GENERATIONS {
            return Err(PeerMessageError::Value("generation"));
        }
        let (entries, held) = (Wire::decode(words)?, Vec::new());
        let mut client = ClientState { delivered, from, freed, closed, good, successions, entries, held };
        let assigned = client.assigned();
        if delivered < from || delivered > assigned {
            return Err(PeerMessageError::Value("number of delivered slots"));
        }
        for _ in 0..words.length()? {
            let (slot, sequence) = (words.next()?, words.next()?);
            if slot < client.held.last().map_or(assigned, |(last, _)| last + 1) || slot == u64::MAX {
                return Err(PeerMessageError::Value("held slot"));
            }
            client.held.push((slot, sequence));
        }
        Ok(client)
    }
}

impl ClientState {
    /// Returns the first slot that is not assigned.
    #[must_use]
    pub fn assigned(&self) -> u64 {
        self.from + self.entries.len() as u64
    }
}

impl Wire for Word {
    fn encode(&self, out: &mut Vec<u64>) {
        self.incarnation.encode(out);
        self.origin.encode(out);
        self.in_force.encode(out);
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        let (incarnation, origin) = (Wire::decode(words)?, Wire::decode(words)?);
        Ok(Word { incarnation, origin, in_force: Wire::decode(words)? })
    }
}

impl Wire for Succession {
    fn encode(&self, out: &mut Vec<u64>) {
        let first = self.generation << 1 | u64::from(self.settled);
        out.extend_from_slice(&[first, self.life, self.first, self.after]);
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        let (word, life, first, after) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let (generation, settled) = (word >> 1, word & 1 == 1);
        if generation >= ids::GENERATIONS {
            return Err(PeerMessageError::Value("generation"));
        }
        if first >> 63 != 0 {
            return Err(PeerMessageError::Value("slot"));
        }
        Ok(Succession { generation, life, first, after, settled })
    }
}

impl Wire for AssignedSlot {
    fn encode(&self, out: &mut Vec<u64>) {
        let flags = if self.decided { DECIDED } else { 0 }
            | if self.no_op { NO_OP } else { 0 }
            | if self.vector { VECTOR } else { 0 }
            | if self.delivered { DELIVERED } else { 0 };
        out.extend_from_slice(&[self.sequence, flags, self.destinations.len() as u64]);
        out.extend(self.destinations.iter().map(|to| to.to_word()));
        let times = self.times.iter().enumerate();
        out.extend(times.map(|(position, time)| {
            let ended = self.destinations.get(position).is_some_and(|to| self.ended.contains(to.group));
            time | u64::from(ended) << ENDED
        }));
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        let (sequence, flags) = (words.next()?, words.next()?);
        if flags & !(DECIDED | NO_OP | VECTOR | DELIVERED) != 0 {
            return Err(PeerMessageError::Value("flag"));
        }
        let groups = words.length()?;
        let destinations: Vec<Destination> =
            words.take(groups)?.iter().map(|word| Destination::from_word(*word)).collect();
        let said = words.take(groups)?;
        let ended =
            destinations.iter().zip(said).filter(|(_, time)| **time >> ENDED == 1).map(|(to, _)| to.group).collect();
        let times: Vec<u64> = said.iter().map(|time| time & !(1 << ENDED)).collect();
        let (decided, no_op, vector) = (flags & DECIDED != 0, flags & NO_OP != 0, flags & VECTOR != 0);
        if (vector && times.contains(&0)) || (decided && !vector && !no_op) {
            return Err(PeerMessageError::Value("time"));
        }
        let delivered = flags & DELIVERED != 0;
        if !no_op && (groups == 0 || sequence == 0) || delivered && no_op {
            return Err(PeerMessageError::Value("entry"));
        }
        Ok(AssignedSlot { sequence, destinations, times, vector, decided, no_op, delivered, ended })
    }
}

impl AssignedSlot {
    /// Returns the position of a group among the destinations.
    #[must_use]
    pub fn position(&self, group: GroupId) -> Option<usize> {
        self.destinations.iter().position(|to| to.group == group)
    }
}
