//! The end of messages that were under way to a group whose history is over, at the other groups.
//!
//! A group was reset, or founded anew: its new history (m, u) knows nothing of what other groups had under way to the one before.
//! Others may have delivered some of that, by acknowledgements of the old history. `tests/settling.rs` searches the rules.
//!
//! # At a group that begins anew
//! *Nothing that was multicast to the history before is assigned in the new one.* The new history keeps what its first state has
//! decided. All other messages to several groups are settled no-ops in that state ([`State::lose_what_is_under_way`]). A
//! process that had begun before has to begin again: it has opened here if a `Succeed` with its life is in this history. So a
//! message of a generation that has not opened, and is neither decided nor delivered here, is *lost*, for good: its process
//! multicasts nothing to this group any more. This group answers `Lost` to a leader that gives a timestamp of it. That is no
//! refusal: others may have delivered the message.
//!
//! # At the others
//! The *word* of the new history (`words.rs`) has a place in the stream. It parts the entries before it from those behind it:
//! - A message whose *vector* lies before the word has a time of the old history: it is *ended* for that group, and keeps that
//!   time. A group is exempt if the message is ended for it and its word is *in force* here; the other destination groups are
//!   the *survivors*. The message is decided when a majority of every survivor acknowledged that vector. So if somebody has
//!   delivered it, all survivors do. If one of them has no vector, or another one, it is not decided.
//! - A time of the old history without a vector is forgotten with the word: no vector behind the word has one. If the new
//!   history says that the message is lost, the leader fills its slot with a no-op, and refuses the message when that is
//!   settled. A group that has the vector hears of that like of any other refusal.
//! - A refusal counts only if it is of the history whose word is processed: another survivor may have been reset since.
//!
//! # What is left open
//! Two survivors may have different vectors of one message, if the old history changed its leader shortly before its end. Then the
//! message is decided nowhere, and they wait (`unsettled.rs` finds it, for people who look). A no-op would be safe: if anybody
//! had delivered it at V, a majority of the old history's group would have acknowledged V, every later leader of that history
//! would have given the same time, and the last vectors of both survivors before the word would be V. But nobody tells a
//! survivor which vector is another one's last: an acknowledgement does not say whether its sender had processed the word. A
//! survivor that is down is waited for.

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
    /// The word of a group is processed.
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

    /// The word of a group has come in force.
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

/// At a leader of a group that begins anew.
impl<E: Effects> Leader<'_, E> {
    /// Whether a message that is not assigned here was multicast to a history of this group that is over.
    #[inline]
    pub(super) fn is_of_ended(&self, client: ClientId, sequence: u64) -> bool {
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        ballots.follows_another()
            && !messages.is_own(client)
            && messages.client(client).is_some_and(|window| !window.heirs.has_opened(ids::generation(sequence)))
            && !mutant!(id.mutant(), EndedAssigned)
    }

    /// Another group's leader gave its timestamp of a message that was multicast to a history that is over.
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

/// At a leader of another group.
impl<E: Effects> NoOps<'_, E> {
    /// A message was under way to a history of a group that is over. Returns whether its slot was filled.
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
