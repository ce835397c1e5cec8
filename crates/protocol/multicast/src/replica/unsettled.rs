//! A report, for operators, of messages and words that are unsettled since another group's history began anew. See
//! `settling.rs`.

use super::agreement::Agreement;
use super::slot::Slot;
use crate::{ClientId, GroupId, MessageId};

/// The conditions that a member waits for since the history of another group began anew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settling {
    /// `true` if the word of that history is not in force yet, because no majority of this member's group is known to
    /// have processed it.
    pub without_force: bool,
    /// Number of messages whose vector has a time of the previous history, and that are not decided here.
    pub messages: u64,
    /// Groups in which a majority's acknowledgement of at least one of these messages, with this member's vector, is
    /// missing.
    pub awaited: Vec<GroupId>,
    /// One of these messages for which a majority of another destination group acknowledged another vector. No group
    /// decides it.
    pub disagreed: Option<MessageId>,
}

impl Agreement {
    /// Returns a report of the unsettled conditions since a group's history ended, or `None` if there are none.
    pub(super) fn settling(&self, group: GroupId) -> Option<Settling> {
        let word = self.ballots.word(group);
        let without_force = !word.origin.is_none() && !word.in_force;
        let mut settling = Settling { without_force, ..Settling::default() };
        for client in self.messages.clients() {
            for slot in self.messages.pending(client) {
                let message = self.messages.get(client, slot);
                if message.is_ended(group) && message.decided.is_none() && !message.no_op {
                    self.add_unsettled(&mut settling, client, message);
                }
            }
        }
        settling.awaited.sort_unstable();
        settling.awaited.dedup();
        (settling.without_force || settling.messages > 0).then_some(settling)
    }

    fn add_unsettled(&self, settling: &mut Settling, client: ClientId, message: &Slot) {
        settling.messages += 1;
        for (position, to) in message.destinations.iter().enumerate().filter(|(_, to)| !message.is_ended(to.group)) {
            let majority = self.id.topology().majority(to.group);
            let counts = message.votes.counts(position, message.times());
            if counts.same < majority {
                settling.awaited.push(to.group);
            }
            if counts.other >= majority {
                settling.disagreed.get_or_insert(MessageId { client, sequence: message.sequence });
            }
        }
    }
}
