//! The ballots and incarnations that a member knows.
//!
//! # Incarnations
//! A ballot carries the number of its group's incarnation. Hellos, states, campaigns, refusals and announcements carry
//! the tag as well. Timestamps and acknowledgements carry the number alone. So a member counts such an item only if the
//! number is that of the group's known incarnation, whose tag the member knows, too. A member that does not know the
//! incarnation yet drops the item, and asks the sender if the item is a timestamp. If a member learns two tags of one
//! number, it keeps the first one and *notes* the other one as a contradiction. Connections with processes that report
//! the noted tag are refused (`node/member/histories.rs`), so none of their items arrive.
//!
//! | known | received | result |
//! |---|---|---|
//! | (n, t) | (n, t) | the larger ballot counts |
//! | (n, t) | (m, u), m > n | known from now on; ballots of n do not count any more |
//! | (n, t) | (m, u), m < n | ignored; this member announces n to the sender of a timestamp |
//! | (n, t) | (n, u), u ≠ t | noted as a contradiction; nothing of it counts |

use crate::origin;
use crate::peer_message::PeerMessage;
use crate::{Ballot, GroupId, Incarnation, Origin, Topology, Word};

/// The largest known ballot of a group, and the incarnation that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Known {
    pub(super) ballot: Ballot,
    pub(super) incarnation: Incarnation,
    /// The incarnation in which the group's history began, or [`Incarnation::NONE`] if that is not known.
    pub(super) origin: Incarnation,
}

/// A contradiction between processes about a group: two histories that began independently have one number. A client
/// also reports one if a member names a smaller number than the known one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Contradiction {
    /// The group.
    pub group: GroupId,
    /// The group's incarnation, as this process knows it.
    pub known: Incarnation,
    /// The incarnation that another process reported.
    pub said: Incarnation,
}

/// The ballots that a member has promised and installed, and its knowledge of other groups.
///
/// # Invariants
/// - None of these ballots ever becomes smaller. (A process without memory drops its promise of a founding that can no
///   longer succeed: see `founding.rs`.)
/// - `installed` is at most `promised`. The member processes, acknowledges and delivers only while the two are equal.
/// - The number in a known ballot is that of the known incarnation. The same holds for `promised` and `promised_in`.
/// - A member knows the ballots of all times in vectors that it has appended or processed, because a leader relays them
///   in the stream before it appends such a vector. So once a time of another group's leader has counted here, no
///   leader accepts a time of an earlier leader of that group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ballots {
    /// The largest ballot of this group that this member has promised.
    pub(super) promised: Ballot,
    /// The incarnation of that ballot.
    pub(super) promised_in: Incarnation,
    /// The last ballot of this group whose complete state is installed here.
    pub(super) installed: Ballot,
    /// The incarnation of that ballot.
    pub(super) installed_in: Incarnation,
    /// The founding and the resets of the installed history, the oldest first.
    pub(super) origins: Vec<Origin>,
    /// The ballot of the current stream entries.
    pub(super) stream: Ballot,
    own: GroupId,
    /// The known ballot of each group.
    known: Vec<Known>,
    /// The processed word of each group, see `words.rs`.
    words: Vec<Word>,
    /// For each group, the members that the leader knows to have processed the word, and the ticks since the word was
    /// last appended.
    counts: Vec<(u64, u8)>,
    /// The largest ballot of each group that the followers know from a state or from the stream.
    relayed: Vec<Ballot>,
    contradiction: Option<Contradiction>,
}

impl Ballots {
    /// Creates the ballots of a member without memory, which knows nothing of any group.
    pub(super) fn new(topology: &Topology, own: GroupId) -> Self {
        let (ballot, incarnation) = (|group| topology.before(group, 0), Incarnation::NONE);
        let nothing = |group| Known { ballot: ballot(group), incarnation, origin: incarnation };
        let known: Vec<Known> = topology.group_ids().map(nothing).collect();
        let (none, nowhere) = (Ballot::NONE, Incarnation::NONE);
        Ballots {
            promised: none,
            promised_in: nowhere,
            installed: none,
            installed_in: nowhere,
            origins: Vec::new(),
            stream: none,
            relayed: known.iter().map(|known| known.ballot).collect(),
            own,
            words: vec![Word::default(); known.len()],
            counts: vec![(0, 0); known.len()],
            known,
            contradiction: None,
        }
    }

    /// Puts all groups into the first ballot of their first incarnation.
    pub(super) fn begin(&mut self, topology: &Topology) {
        for (group, known) in topology.group_ids().zip(&mut self.known) {
            let (ballot, first) = (topology.first_ballot(group), Incarnation::FIRST);
            *known = Known { ballot, incarnation: first, origin: first };
        }
        self.words.fill(Word { incarnation: Incarnation::FIRST, origin: Incarnation::FIRST, in_force: true });
        self.relay_all();
        let first = self.known(self.own);
        (self.promised, self.installed, self.stream) = (first, first, first);
        (self.promised_in, self.installed_in) = (Incarnation::FIRST, Incarnation::FIRST);
        self.origins = vec![Origin { incarnation: Incarnation::FIRST, kept: 0 }];
    }

    /// Returns whether the history began in the installed incarnation, and keeps no deliveries of an earlier one.
    #[inline]
    pub(super) fn begins_from_nothing(&self) -> bool {
        self.origins.last().is_some_and(|last| last.incarnation == self.installed_in && last.kept == 0)
    }

    /// Returns the incarnation in which the history of a delivery began.
    #[inline]
    pub(super) fn origin_of(&self, number: u64) -> Incarnation {
        origin::of_delivery(&self.origins, number)
    }

    /// Installs the promised ballot, with a history of these origins.
    pub(super) fn install(&mut self, origins: &[Origin]) {
        (self.installed, self.installed_in) = (self.promised, self.promised_in);
        self.origins.clear();
        self.origins.extend_from_slice(origins);
        self.hear_in(self.own, self.installed, self.installed_in);
        if let Some(last) = origins.last() {
            self.hear_origin(self.own, self.installed_in, last.incarnation);
        }
    }

    /// Returns whether the promised ballot is the installed one.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.promised == self.installed
    }

    /// Returns the largest known ballot of a group, or the default one if there is no such group.
    #[inline]
    pub(super) fn known(&self, group: GroupId) -> Ballot {
        self.known.get(usize::from(group.0)).map_or(Ballot::NONE, |known| known.ballot)
    }

    /// Returns the known incarnation of a group.
    pub(super) fn incarnation(&self, group: GroupId) -> Incarnation {
        self.known.get(usize::from(group.0)).map_or(Incarnation::NONE, |known| known.incarnation)
    }

    /// Returns the largest known ballot of each group.
    pub(super) fn all_known(&self) -> impl Iterator<Item = Ballot> {
        self.known.iter().map(|known| known.ballot)
    }

    /// Returns the known incarnation of each group.
    pub(super) fn incarnations(&self) -> impl Iterator<Item = Incarnation> {
        self.known.iter().map(|known| known.incarnation)
    }

    /// Notes a ballot of the known incarnation of a group.
    #[inline]
    pub(super) fn hear_of(&mut self, group: GroupId, ballot: Ballot) {
        let known = &mut self.known[usize::from(group.0)].ballot;
        *known = (*known).max(ballot);
    }

    /// Returns whether a group's ballot in an item belongs to the known incarnation of the group. If that is another
    /// group, the word of the incarnation must be processed, too.
    #[inline]
    pub(super) fn is_known(&self, group: GroupId, ballot: Ballot) -> bool {
        let number = ballot.incarnation();
        let told = || self.words.get(usize::from(group.0)).map_or(0, |word| word.incarnation.number) == number;
        self.known(group).incarnation() == number && (group == self.own || told())
    }

    /// Returns the processed word of a group.
    #[inline]
    pub(super) fn word(&self, group: GroupId) -> Word {
        self.words.get(usize::from(group.0)).copied().unwrap_or_default()
    }

    pub(super) fn word_mut(&mut self, group: GroupId) -> &mut Word {
        &mut self.words[usize::from(group.0)]
    }

    /// Returns the processed word of each group.
    pub(super) fn words(&self) -> &[Word] {
        &self.words
    }

    /// Returns an announcement of what this member knows of a group.
    pub(super) fn announce(&self, group: GroupId) -> PeerMessage {
        let Known { ballot, incarnation, origin } = self.known[usize::from(group.0)];
        PeerMessage::Announce { group, ballot, incarnation, origin }
    }

    /// Returns whether items of an ended history of this group may still be in flight.
    #[inline]
    pub(super) fn follows_another(&self) -> bool {
        self.installed_in.number > Incarnation::FIRST.number
    }

    /// Records the origin of the known incarnation of a group.
    pub(super) fn hear_origin(&mut self, group: GroupId, incarnation: Incarnation, origin: Incarnation) {
        let known = &mut self.known[usize::from(group.0)];
        if known.incarnation == incarnation && known.origin.is_none() {
            known.origin = origin;
        }
    }

    /// Returns the word of a group according to the reported origin of its known incarnation. Returns `None` if the
    /// origin is unknown or that word is already processed.
    pub(super) fn told_word(&self, group: GroupId) -> Option<Word> {
        let Known { incarnation, origin, .. } = *self.known.get(usize::from(group.0))?;
        let before = self.word(group);
        let news = !origin.is_none() && (before.incarnation, before.origin) != (incarnation, origin);
        let in_force = before.origin.is_none() || before.origin == origin && before.in_force;
        news.then_some(Word { incarnation, origin, in_force })
    }

    /// Records that the word of a group is processed here.
    pub(super) fn take_word(&mut self, group: GroupId, word: Word, processed_by: u64) {
        let before = std::mem::replace(self.word_mut(group), word);
        if before.origin != word.origin {
            self.counts[usize::from(group.0)] = (processed_by, 0);
        }
        self.hear_origin(group, word.incarnation, word.origin);
    }

    /// Replaces the processed words by those of a state.
    pub(super) fn adopt_words(&mut self, words: &[Word], own_bit: u64) {
        self.words.copy_from_slice(words);
        self.counts.fill((own_bit, 0));
        for (group, word) in (0..).map(GroupId).zip(words) {
            self.hear_origin(group, word.incarnation, word.origin);
        }
    }

    /// Records members that have processed the word of a group, and resets the word's age to 0.
    pub(super) fn note_word(&mut self, group: GroupId, members: u64) {
        let (processed_by, age) = &mut self.counts[usize::from(group.0)];
        *processed_by |= members;
        *age = 0;
    }

    pub(super) fn word_processed_by(&self, group: GroupId) -> u64 {
        self.counts[usize::from(group.0)].0
    }

    /// Advances and returns the ticks since the word of a group was last appended.
    pub(super) fn age_word(&mut self, group: GroupId) -> u8 {
        let (_, age) = &mut self.counts[usize::from(group.0)];
        *age = age.saturating_add(1);
        *age
    }

    /// Notes a ballot of a group with its incarnation. Returns whether the ballot counts, which means that its
    /// incarnation is the known one after the call.
    pub(super) fn hear_in(&mut self, group: GroupId, ballot: Ballot, incarnation: Incarnation) -> bool {
        let known = &mut self.known[usize::from(group.0)];
        if known.incarnation.contradicts(incarnation) {
            self.contradiction = Some(Contradiction { group, known: known.incarnation, said: incarnation });
            return false;
        }
        if incarnation.number >= known.incarnation.number {
            let ballot = known.ballot.max(ballot);
            let origin = if incarnation == known.incarnation { known.origin } else { Incarnation::NONE };
            *known = Known { ballot, incarnation, origin };
            return true;
        }
        false
    }

    /// Notes the ballots and incarnations of all groups that another member knows.
    pub(super) fn hear_of_all(&mut self, known: &[Ballot], incarnations: &[Incarnation]) {
        for (group, (ballot, incarnation)) in (0..).map(GroupId).zip(known.iter().zip(incarnations)) {
            self.hear_in(group, *ballot, *incarnation);
        }
    }

    /// Returns whether this member knows another history of this group that is not smaller than the history of the
    /// promised ballot.
    pub(super) fn is_contested(&self) -> bool {
        let same = |said: &Contradiction| said.group == self.own && said.said.contradicts(self.promised_in);
        self.incarnation(self.own) != self.promised_in || self.contradiction.as_ref().is_some_and(same)
    }

    /// Returns the last contradiction that was noted.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        self.contradiction
    }

    /// Returns whether the followers do not know this ballot of a group yet.
    #[inline]
    pub(super) fn is_unrelayed(&self, group: GroupId, ballot: Ballot) -> bool {
        ballot > self.relayed[usize::from(group.0)]
    }

    /// Returns this member's knowledge of a group if the followers do not know the group's ballot, and counts the
    /// ballot as relayed.
    pub(super) fn relay(&mut self, group: GroupId) -> Option<Known> {
        let at = usize::from(group.0);
        let known = self.known[at];
        (known.ballot > std::mem::replace(&mut self.relayed[at], known.ballot)).then_some(known)
    }

    /// Counts all known ballots as relayed, because the followers receive them with a state.
    pub(super) fn relay_all(&mut self) {
        self.relayed = self.all_known().collect();
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;

    use super::*;

    fn ballots() -> Ballots {
        let topology = Topology::new(&[1, 2], 1).expect("the topology is possible");
        let mut ballots = Ballots::new(&topology, GroupId(0));
        ballots.begin(&topology);
        ballots
    }

    #[test]
    fn a_ballot_is_relayed_once_and_never_becomes_smaller() {
        let (mut ballots, first) = (ballots(), Incarnation::FIRST);
        let (group, later) = (GroupId(1), Ballot::new(2, ProcessId(2)));
        assert_eq!((ballots.relay(group), ballots.known(GroupId(9))), (None, Ballot::NONE));
        ballots.hear_of(group, later);
        ballots.hear_of_all(&[Ballot::NONE, Ballot::new(1, ProcessId(2))], &[Incarnation::NONE, first]);
        assert!(ballots.is_unrelayed(group, later) && ballots.known(group) == later);
        let known = Known { ballot: later, incarnation: first, origin: first };
        assert_eq!((ballots.relay(group), ballots.relay(group)), (Some(known), None));
    }

    #[test]
    fn a_larger_incarnation_replaces_a_smaller_one_and_another_tag_of_the_same_is_noted() {
        let (mut ballots, group) = (ballots(), GroupId(1));
        let (second, other) = (Incarnation { number: 2, tag: 5 }, Incarnation { number: 2, tag: 6 });
        let (small, large) = (Ballot::new_in(2, 1, ProcessId(1)), Ballot::new_in(2, 9, ProcessId(1)));
        assert!(!ballots.is_known(group, small) && ballots.hear_in(group, small, second));
        assert!(!ballots.hear_in(group, Ballot::new(7, ProcessId(1)), Incarnation::FIRST));
        assert_eq!(ballots.contradiction(), None);
        assert!(!ballots.hear_in(group, large, other));
        assert_eq!(ballots.contradiction(), Some(Contradiction { group, known: second, said: other }));
        assert_eq!((ballots.known(group), ballots.incarnation(group)), (small, second));
    }
}
