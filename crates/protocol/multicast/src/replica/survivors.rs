//! The decision of the surviving groups about a message, if the history of a destination group has ended. See
//! `settling.rs`.

use super::ballots::Ballots;
use super::identity::Identity;
use super::slot::Slot;
use crate::mutant::mutant;

/// Returns whether a majority of every destination group acknowledged the vector of a message.
///
/// Groups for which the message is ended, and whose word is in force, are exempt.
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
