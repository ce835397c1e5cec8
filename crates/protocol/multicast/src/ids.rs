//! The ids of groups, clients, ballots, timestamps, incarnations and messages.

use std::fmt;

use stentor_fabric::{ProcessId, SplitMix64};

/// A group, by its index in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u16);

/// A client id, by its index in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u16);

/// The id of a message: (client, sequence). It is not a hash, because hashes collide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId {
    /// The client that multicast the message.
    pub client: ClientId,
    /// The client's number for the message, in one sequence over all destinations.
    ///
    /// The upper bits are the generation of the client's process. The bits below count its messages from 1 (see
    /// [`GENERATION_BITS`](MessageId::GENERATION_BITS)).
    pub sequence: u64,
}

impl MessageId {
    /// Number of low bits of a sequence that count a process's messages. The bits above are the generation of the
    /// process.
    pub const GENERATION_BITS: u32 = 36;

    /// Returns the generation of the process that multicast the message.
    ///
    /// Processes that follow each other under one client id have rising generations.
    #[inline]
    #[must_use]
    pub fn generation(self) -> u64 {
        generation(self.sequence)
    }
}

/// Returns the generation in a sequence; see [`MessageId::generation`].
#[inline]
pub(crate) fn generation(sequence: u64) -> u64 {
    sequence >> MessageId::GENERATION_BITS
}

/// Number of generations that fit into a sequence.
pub(crate) const GENERATIONS: u64 = 1 << (64 - MessageId::GENERATION_BITS);

/// Number of low bits of a generation that count processes. The bits above are the number of the home group's
/// incarnation minus 1, but at most 255.
const PROCESS_BITS: u32 = 20;

/// Number of bits of a sequence below those of the home group's incarnation.
pub(crate) const INCARNATION_SHIFT: u32 = MessageId::GENERATION_BITS + PROCESS_BITS;

/// Returns the first generation that a home group assigns in the incarnation with this number.
///
/// The 256th and all later incarnations share one range of generations. Generations still rise as long as some process
/// remembers the last one.
pub(crate) fn first_generation_of(incarnation: u32) -> u64 {
    u64::from(incarnation.saturating_sub(1).min(u32::from(u8::MAX))) << PROCESS_BITS
}

/// Returns whether a sequence is the last one of its generation.
#[inline]
pub(crate) fn is_last_of_generation(sequence: u64) -> bool {
    generation(sequence.wrapping_add(1)) != generation(sequence)
}

/// Returns the number just below all sequences of a generation. No message has this number as its sequence.
#[inline]
pub(crate) fn first_of_generation(generation: u64) -> u64 {
    generation << MessageId::GENERATION_BITS
}

/// Returns whether this number is just below the first sequence of a generation, so that it is no message's sequence.
#[inline]
pub(crate) fn is_nameless(sequence: u64) -> bool {
    first_of_generation(generation(sequence)) == sequence
}

/// A timestamp: the pair (time, group), compared lexicographically. Times are unique within a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Time, at least 1 and below 2^63: nanoseconds since 1970 if leaders know physical time, otherwise a count.
    pub time: u64,
    /// The group that assigned the time.
    pub group: u16,
}

/// An incarnation: one history of a group's state. Founding or resetting a group begins a new one.
///
/// Two incarnations are equal only if both number and tag are equal. Two incarnations with one number and different
/// tags are histories that began independently. No information of one is ever counted in the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation {
    /// Number of the incarnation, counted from 1; 0 if nothing is known of the group.
    pub number: u32,
    /// Tag that the process that began the incarnation derived from its life; 0 in [`FIRST`](Incarnation::FIRST).
    pub tag: u32,
}

impl Incarnation {
    /// The incarnation of a group of which nothing is known.
    pub const NONE: Incarnation = Incarnation { number: 0, tag: 0 };
    /// The incarnation of a group that has existed since the start of the cluster
    /// ([`Replica::new`](crate::Replica::new)).
    pub const FIRST: Incarnation = Incarnation { number: 1, tag: 0 };

    /// Returns the incarnation with this number and the tag that the process with this life draws.
    ///
    /// A life is a clock reading in nanoseconds, so two processes draw the same tag only by chance.
    #[must_use]
    pub(crate) fn drawn(number: u32, process: ProcessId, life: u64) -> Self {
        let mixed = SplitMix64::finish(life ^ u64::from(process.0) << 48 ^ u64::from(number) << 32);
        Incarnation { number, tag: (mixed >> 32) as u32 }
    }

    /// Number of bits of a [`mark`](Incarnation::mark).
    pub(crate) const MARK_BITS: u32 = 17;

    /// Returns a short form of the incarnation, which is 0 for [`NONE`](Incarnation::NONE) and
    /// [`FIRST`](Incarnation::FIRST).
    ///
    /// Two incarnations of a group have the same mark only by chance.
    pub(crate) fn mark(self) -> u32 {
        (self.tag ^ self.number.saturating_sub(1)) & ((1 << Self::MARK_BITS) - 1)
    }

    /// Returns whether a ballot can carry the incarnation's number. With the number 0, the tag must be 0, too.
    #[must_use]
    pub(crate) fn is_possible(self) -> bool {
        self.number <= Ballot::MAX_INCARNATION && (self.number != 0 || self.tag == 0)
    }

    /// Returns whether this is [`NONE`](Incarnation::NONE).
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Incarnation::NONE
    }

    /// Returns whether the two are different histories with one number.
    ///
    /// A process that knows one of them must not count anything of the other.
    #[must_use]
    pub fn contradicts(self, other: Incarnation) -> bool {
        self.number == other.number && self.tag != other.tag
    }

    /// Returns the 64-bit word that is sent: the number in the lower half, the tag in the upper half.
    #[must_use]
    pub fn to_word(self) -> u64 {
        u64::from(self.number) | u64::from(self.tag) << 32
    }

    /// Returns the incarnation that this word encodes.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Incarnation { number: word as u32, tag: (word >> 32) as u32 }
    }
}

/// A ballot: the triple (number of the incarnation, number, process), compared lexicographically. It is unique within a
/// group's incarnation and names the leader.
///
/// A ballot is encoded in one 64-bit word: the process in bits 0 to 15, the number in bits 16 to 47, and the number of
/// the incarnation in bits 48 to 63. Words therefore compare as ballots do. The incarnation's tag is not part of a
/// ballot.
///
/// The default is below all others: the ballot of a process that has no state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ballot(u64);

impl Ballot {
    /// The ballot below all others, which no process leads.
    pub const NONE: Ballot = Ballot(0);
    /// Largest number of an incarnation that a ballot can carry.
    pub const MAX_INCARNATION: u32 = u16::MAX as u32;

    /// Returns the ballot `number` (below 2^32) led by `leader` in the incarnation with this number (below 2^16).
    #[must_use]
    pub fn new_in(incarnation: u32, number: u64, leader: ProcessId) -> Self {
        Ballot(u64::from(incarnation) << 48 | number << 16 | u64::from(leader.0))
    }

    /// Returns the ballot `number` (below 2^32) led by `leader` in the first incarnation.
    #[must_use]
    pub fn new(number: u64, leader: ProcessId) -> Self {
        Ballot::new_in(Incarnation::FIRST.number, number, leader)
    }

    /// Returns the ballot after this one in its incarnation, led by `leader`, or `None` if there is no larger number.
    #[must_use]
    pub fn next(self, leader: ProcessId) -> Option<Self> {
        let number = self.number() + 1;
        (number <= u64::from(u32::MAX)).then(|| Ballot::new_in(self.incarnation(), number, leader))
    }

    /// Returns the process that leads in this ballot.
    #[inline]
    #[must_use]
    pub fn leader(self) -> ProcessId {
        ProcessId(self.0 as u16)
    }

    /// Returns the ballot's number, without the process and the incarnation.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 >> 16 & 0xffff_ffff
    }

    /// Returns the number of the group's incarnation.
    #[must_use]
    pub fn incarnation(self) -> u32 {
        (self.0 >> 48) as u32
    }

    /// Returns the incarnation's number and, in the 32 bits below it, the ballot's number.
    ///
    /// A larger ballot never has a smaller value. Ballots of different leaders may have the same value.
    #[must_use]
    pub fn epoch(self) -> u64 {
        self.0 >> 16
    }

    /// Returns the 64-bit word that is sent.
    #[inline]
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the ballot that this word encodes.
    #[inline]
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Ballot(word)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.number, self.tag)
    }
}

impl std::str::FromStr for Incarnation {
    type Err = &'static str;

    /// Parses the output of [`Display`](fmt::Display).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('-');
        let read = |(number, tag): (&str, &str)| {
            let digits = tag.len() == 8 && tag.bytes().all(|digit| digit.is_ascii_hexdigit());
            let number = number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.parse().ok()).flatten()?;
            Some(Incarnation { number, tag: u32::from_str_radix(tag, 16).ok().filter(|_| digits)? })
        };
        parts.and_then(read).ok_or("an incarnation is a number, `-` and a tag of eight hexadecimal digits")
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.incarnation() {
            0 | 1 => write!(f, "({}, {})", self.number(), self.leader()),
            incarnation => write!(f, "({incarnation}.{}, {})", self.number(), self.leader()),
        }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}:{}", self.client.0, self.sequence)
    }
}

/// A set of groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupSet([u64; 4]);

impl GroupSet {
    /// Number of groups that fit into a set.
    pub const CAPACITY: usize = 256;

    /// Adds a group below [`CAPACITY`](GroupSet::CAPACITY). A larger group is ignored; no [`Topology`](crate::Topology)
    /// contains one.
    #[inline]
    pub fn insert(&mut self, group: GroupId) {
        if let Some(word) = self.0.get_mut(usize::from(group.0) / 64) {
            *word |= 1 << (group.0 % 64);
        }
    }

    /// Removes a group.
    pub fn remove(&mut self, group: GroupId) {
        if let Some(word) = self.0.get_mut(usize::from(group.0) / 64) {
            *word &= !(1 << (group.0 % 64));
        }
    }

    /// Returns whether a group is in this set.
    #[inline]
    #[must_use]
    pub fn contains(&self, group: GroupId) -> bool {
        self.0.get(usize::from(group.0) / 64).is_some_and(|word| word >> (group.0 % 64) & 1 == 1)
    }

    /// Returns whether every group of this set is in the other one.
    #[inline]
    #[must_use]
    pub fn is_subset(&self, other: &GroupSet) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }
}

impl FromIterator<GroupId> for GroupSet {
    fn from_iter<I: IntoIterator<Item = GroupId>>(groups: I) -> Self {
        let mut set = GroupSet::default();
        for group in groups {
            set.insert(group);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_compare_by_number_then_process_and_name_the_leader() {
        let low = Ballot::new(1, ProcessId(9));
        let high = Ballot::new(2, ProcessId(0));
        assert!(low < high && Ballot::new(2, ProcessId(1)) > high);
        assert_eq!((low.leader(), low.number()), (ProcessId(9), 1));
        assert_eq!(Ballot::from_word(low.to_word()), low);
        let next = Ballot::new_in(2, 1, ProcessId(0));
        assert!(next > high && next > Ballot::new(u64::from(u32::MAX), ProcessId(9)));
        assert_eq!((next.incarnation(), next.number(), next.epoch()), (2, 1, 2 << 32 | 1));
        assert_eq!(next.next(ProcessId(7)), Some(Ballot::new_in(2, 2, ProcessId(7))));
        assert_eq!(Ballot::new_in(1, u64::from(u32::MAX), ProcessId(0)).next(ProcessId(1)), None);
        let incarnation = Incarnation { number: 3, tag: 7 };
        assert_eq!(Incarnation::from_word(incarnation.to_word()), incarnation);
        assert_eq!((incarnation.to_string().as_str(), "3-00000007".parse()), ("3-00000007", Ok(incarnation)));
        for wrong in ["", "3", "-00000007", "3-7", "+3-00000007", "3-0000000g", "4294967296-00000007"] {
            assert!(wrong.parse::<Incarnation>().is_err(), "{wrong}");
        }
        assert!(incarnation.contradicts(Incarnation { number: 3, tag: 8 }) && !incarnation.contradicts(incarnation));
        let drawn = |life| Incarnation::drawn(1, ProcessId(0), life);
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn subsets_over_all_words_of_the_set() {
        let small: GroupSet = [GroupId(3), GroupId(200)].into_iter().collect();
        let large: GroupSet = [GroupId(3), GroupId(64), GroupId(200)].into_iter().collect();
        assert!(small.is_subset(&large) && !large.is_subset(&small) && small.is_subset(&small));
    }
}
