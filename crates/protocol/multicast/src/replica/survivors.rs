//! The decision about a message with a destination group whose history is over: the other groups make it. See `settling.rs`.

use super::ballots::Ballots;
use super::identity::Identity;
use super::slot::Slot;
use crate::mutant::mutant;

/// Whether a majority of every destination group acknowledged the vector of a message, except of groups for which it is ended
/// and whose word is in force.
#[cold]
pub(super) fn is_decided_by_survivors(id: &Identity, ballots: &Ballots, message: &Slot) -> bool {
    let at_once = mutant!(id.mutant(), WordAtOnce);
    let exempt = |position: usize| {
        message
            .destinations
            .get(position)
            .is_some_and(|to| message.is_ended(to.group) && (ballots.word(to.group).in_force || at_once))
    };
    let own = (message.own, ballots.installed);
    message.vector
        && message.votes.is_quorum_without(message.times(), &message.destinations, own, id.topology(), exempt)
}
