//! The *word* of another group: a stream entry that names the incarnation in which that group's history began.
//!
//! A history *begins anew* when a group is founded or reset: the incarnation in which it does so is its *origin*. An
//! incarnation into which a leader moved with its own state (`Recovery::move_above`) has the origin of the previous
//! one.
//!
//! # States of the word of a group
//! *unknown* → *told* (the group's leader, or another process, reported the group's incarnation and its origin) →
//! *processed* (the entry `Word` of this group's stream names them; at a leader: appended) → *in force* (a majority of
//! this group has processed the entry in one ballot). The first word of a group is in force at once, and so is a word
//! with the same origin as a previous one in force: no message was in flight to another history.
//!
//! # Invariants
//! 1. *Nothing of an incarnation counts here before its word is processed*: no timestamp, no acknowledgement
//!    ([`Ballots::is_known`](super::ballots::Ballots::is_known)). So in the stream a vector before the word has a time
//!    of the previous history, and a vector after it has none.
//! 2. *Nothing of an incarnation counts once a larger one is known*, whether its word is processed or not.
//! 3. *A word in force is in the state of every later leader*, because a majority processed it, like a settled no-op.
//!    All members process words and other entries in the same order, because there is one stream. Words that a leader
//!    has processed when it begins are part of its state.
//!
//! # Loss
//! A leader repeats a word until it is in force. A member that installs a state with a word that is not in force
//! reports that it has processed the word. If a timestamp of an incarnation arrives whose origin is not known, the
//! member asks the sender by an `Announce` without an origin.

use stentor_fabric::ProcessId;

use super::Effects;
use super::agreement::Agreement;
use crate::item::{Head, StreamEntry, StreamItem};
use crate::peer_message::{PeerMessage, WordRef};
use crate::{GroupId, Word};

/// The part of a member that brings words into force.
pub(super) struct Words<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    pub(super) effects: &'a mut E,
}

/// The part at a leader.
impl<E: Effects> Words<'_, E> {
    /// Appends each word that became known since the last call. Returns whether this brought one of them into force.
    pub(super) fn relay(&mut self) -> bool {
        let mut in_force = false;
        for group in self.agreement.id.others_groups() {
            if let Some(now) = self.begin(group) {
                in_force |= now;
                self.append(group);
            }
        }
        in_force
    }

    /// Processes the known word of a group, if it differs from the last processed one. Returns whether this brought the
    /// word into force, or `None` if the word is unchanged.
    pub(super) fn begin(&mut self, group: GroupId) -> Option<bool> {
        let Agreement { id, ballots, .. } = &mut *self.agreement;
        let (word, bit) = (ballots.told_word(group)?, id.bit);
        self.agreement.process_word(group, word, bit);
        Some(self.count(group))
    }

    fn append(&mut self, group: GroupId) {
        let Agreement { ballots, counter, .. } = &mut *self.agreement;
        let (ballot, Word { incarnation, origin, in_force }) = (ballots.known(group), ballots.word(group));
        if ballot.incarnation() != incarnation.number {
            // A larger incarnation is known, but its origin is not known.
            return;
        }
        *counter += 1;
        let entry = StreamEntry::Word { ballot, incarnation, origin, in_force };
        self.effects.to_followers(&StreamItem { head: Head::NONE, counter: *counter, entry });
    }

    /// Handles the report that a follower has processed a word. Returns whether this brought the word into force.
    pub(super) fn on_processed(&mut self, from: ProcessId, processed: WordRef) -> bool {
        let Agreement { id, ballots, .. } = &mut *self.agreement;
        let WordRef { group, origin, ballot } = processed;
        if ballot != ballots.installed || !id.topology().has_group(group) || ballots.word(group).origin != origin {
            return false;
        }
        ballots.note_word(group, id.bit_of(from));
        let in_force = self.count(group);
        if in_force {
            self.append(group);
        }
        in_force
    }

    /// Counts the members that have processed a word. Returns whether this brought the word into force.
    fn count(&mut self, group: GroupId) -> bool {
        let Agreement { id, ballots, .. } = &mut *self.agreement;
        let enough = id.is_majority(ballots.word_processed_by(group));
        let news = enough && !std::mem::replace(&mut ballots.word_mut(group).in_force, true);
        if news {
            self.agreement.decide_ended(group, self.effects);
        }
        news
    }

    /// Advances time by one tick.
    pub(super) fn tick(&mut self) {
        let retry = self.agreement.id.config.retry_ticks;
        for group in self.agreement.id.others_groups() {
            let word = self.agreement.ballots.word(group);
            if !word.origin.is_none() && !word.in_force && self.agreement.ballots.age_word(group) >= retry {
                self.agreement.ballots.note_word(group, 0);
                self.append(group);
            }
        }
    }
}

/// The part at a follower.
impl<E: Effects> Words<'_, E> {
    /// Processes a word in the leader's stream.
    pub(super) fn on_entry(&mut self, group: GroupId, word: Word) {
        let known = self.agreement.ballots.word(group);
        if known.incarnation.number <= word.incarnation.number {
            let in_force = word.in_force || known.origin == word.origin && known.in_force;
            self.agreement.process_word(group, Word { in_force, ..word }, 0);
            if in_force && !(known.in_force && known.origin == word.origin) {
                self.agreement.decide_ended(group, self.effects);
            }
        }
        self.say_processed(group);
    }

    /// Reports to the leader that the word of a group is processed here, if it is not in force.
    pub(super) fn say_processed(&mut self, group: GroupId) {
        let (ballot, Word { origin, in_force, .. }) =
            (self.agreement.ballots.installed, self.agreement.ballots.word(group));
        if !origin.is_none() && !in_force {
            let processed = PeerMessage::WordProcessed(WordRef { group, origin, ballot });
            self.effects.send(ballot.leader(), &processed);
        }
    }

    /// Reports the words of an installed state that are not in force as processed.
    pub(super) fn say_all_processed(&mut self) {
        self.agreement.id.others_groups().for_each(|group| self.say_processed(group));
    }
}
