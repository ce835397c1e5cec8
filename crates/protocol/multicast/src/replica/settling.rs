//! Settling: how the other groups end messages that were in flight to a group whose history has ended.
//!
//! A group was reset, or founded anew. Its new history (m, u) does not contain the messages that other groups had in
//! flight to the previous one. Some members may have delivered some of these messages, by acknowledgements of the old
//! history. `tests/settling.rs` explores the rules.
//!
//! # At a group that begins anew
//! *No message that was multicast to the previous history is assigned in the new one.* The new history keeps the
//! messages that its first state has decided, and those to this group alone that are assigned. All other messages to
//! several groups are settled no-ops in that state ([`State::lose_what_is_under_way`]). A process that had begun before
//! has to begin again: it has opened here if a `Succeed` with its life is in this history. So a message of a generation
//! that has not opened, and that is neither decided nor delivered here, is *lost* for good: its process multicasts
//! nothing to this group any more. This group answers `Lost` to a leader that sends a timestamp of the message. That is
//! not a refusal, because members of other groups may have delivered the message.
//!
//! # At the other groups
//! The *word* of the new history (`words.rs`) has a position in the stream. It separates the entries before it from
//! those after it:
//! - A message whose *vector* is before the word has a time of the old history: it is *ended* for the word's group, and
//!   keeps that time. A group is exempt if the message is ended for it and its word is *in force* here; the other
//!   destination groups are the *survivors*. The message is decided when a majority of every survivor acknowledged that
//!   vector. So if some member has delivered the message, all survivors deliver it. If a survivor has no vector of the
//!   message, or a different one, the message is not decided.
//! - A time of the old history without a vector is forgotten with the word: no vector after the word contains one. If
//!   the new history reports that the message is lost, the leader fills its slot with a no-op, and refuses the message
//!   when that is settled. A group that has the vector learns of that as of any other refusal.
//! - A refusal counts only if it belongs to the history whose word is processed: another survivor may have been reset
//!   since.
//!
//! # Limitations
//! Two survivors may have different vectors of one message, if the old history changed its leader shortly before its
//! end. Then the message is decided nowhere, and they wait (`unsettled.rs` reports it to operators). A no-op would be
//! safe: if any member had delivered the message with a vector V, a majority of the old history's group would have
//! acknowledged V, every later leader of that history would have assigned the same time, and the last vectors of both
//! survivors before the word would be V. But a survivor cannot learn which vector is another survivor's last: an
//! acknowledgement does not say whether its sender had processed the word. The survivors also wait for a survivor that
//! is down.

use stentor_fabric::ProcessId;

use super::Effects;
use super::agreement::Agreement;
use super::leader::Leader;
use super::no_op::NoOps;
use crate::item::RemoteTimestamp;
use crate::mutant::mutant;
use crate::peer_message::{MessageRef, PeerMessage, Verdict};
use crate::{ClientId, GroupId, Word, ids};

impl Agreement {
    /// Records that the word of a group is processed.
    pub(super) fn process_word(&mut self, group: GroupId, word: Word, processed_by: u64) {
        let before = self.ballots.word(group).origin;
        self.ballots.take_word(group, word, processed_by);
        if before.is_none() || before == word.origin {
            return;
        }
        for client in self.messages.clients() {
            for slot in self.messages.window(client).open() {
                let window = self.messages.window_mut(client);
                if window.is_here(slot) && !window.slot(slot).delivered && !window.slot(slot).no_op {
                    window.slot_mut(slot).end(group, self.id.topology());
                }
            }
        }
    }

    /// Decides messages that are ended for a group whose word has come into force.
    pub(super) fn decide_ended<E: Effects>(&mut self, group: GroupId, effects: &mut E) {
        for client in self.messages.clients() {
            for slot in self.messages.pending(client) {
                if self.messages.get(client, slot).is_ended(group) {
                    self.decide(client, slot);
                }
            }
        }
        self.deliver_due(effects);
    }
}

/// The part at a leader of a group that begins anew.
impl<E: Effects> Leader<'_, E> {
    /// Returns whether an unassigned message was multicast to an ended history of this group.
    #[inline]
    pub(super) fn is_of_ended(&self, client: ClientId, sequence: u64) -> bool {
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        ballots.follows_another()
            && !messages.is_own(client)
            && messages.client(client).is_some_and(|window| !window.heirs.has_opened(ids::generation(sequence)))
            && !mutant!(id.mutant(), EndedAssigned)
    }

    /// Answers another group's leader that sent its timestamp of a message to an ended history.
    #[cold]
    pub(super) fn tell_lost(&mut self, from: ProcessId, group: GroupId, item: &RemoteTimestamp) {
        let (client, sequence) = (item.head.client, item.head.sequence);
        let subject = MessageRef { client, sequence };
        let Agreement { ballots, messages, .. } = &*self.agreement;
        if let Some(slot) = messages.find(subject) {
            let message = messages.get(client, slot);
            if message.decided.is_some() && !message.no_op {
                return self.agreement.tell_outcome(from, group, client, slot, self.effects);
            }
        } else if messages.window(client).has_kept(&item.head) {
            return self.effects.send(from, &PeerMessage::Forgotten(subject));
        }
        let ballot = ballots.installed;
        self.effects.send(from, &PeerMessage::Lost(Verdict { message: subject, ballot }));
    }
}

/// The part at a leader of another group.
impl<E: Effects> NoOps<'_, E> {
    /// Handles the report that a message was in flight to an ended history of another group. Returns whether its slot
    /// was filled.
    pub(super) fn on_lost(&mut self, group: GroupId, verdict: Verdict) -> bool {
        let Agreement { ballots, messages, .. } = &*self.agreement;
        let lost = verdict.message;
        if !ballots.is_known(group, verdict.ballot) {
            return false;
        }
        let Some(slot) = messages.find(lost) else { return false };
        let message = messages.get(lost.client, slot);
        let open = message.ordered && message.decided.is_none() && !message.no_op && !message.delivered;
        if !open || message.vector || message.replaced {
            return false;
        }
        self.fill(lost.client, slot, ids::generation(lost.sequence));
        self.agreement.messages.settlements.lost += 1;
        true
    }
}
