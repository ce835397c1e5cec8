//! A reduction that removes parcels without effect.
//!
//! A parcel in flight that can never have an effect any more is removed at once. That is sound: whenever its receiver
//! takes it, nothing changes and nothing is sent, now and for ever. So every run is equal, step by step and property by
//! property, to one without it. "For ever" rests on values that only grow: the promised ballot, the largest known
//! ballot, and the deliveries. (A crash empties all queue pairs of its member, so lost memory does not make such
//! parcels effective again.)

use stentor_fabric::ProcessId;
use stentor_multicast::{Ack, ClientId, Header, Item, MessageRef, PeerMessage, Replica};

use super::channels::Parcel;
use super::member::{Context, Member};
use crate::network::Wire;

/// Returns whether a member can process the parcel at any later time without any effect.
pub(crate) fn is_over(context: &Context, member: &Member, wire: Wire, parcel: &Parcel) -> bool {
    let Some(replica) = &member.replica else { return true };
    if replica.is_joining() {
        return false;
    }
    match (wire, parcel) {
        (_, Parcel::Request(_)) => false,
        (_, Parcel::Body(client, words)) => {
            let header = Header::decode(words, words.len() * 8, &context.channels.topology).expect("a sound body");
            replica.admit(ClientId(*client), &header) == Ok(None)
        }
        (Wire::Stream { from, .. }, Parcel::Item(words)) => {
            match Item::decode(words, 0).expect("a sound item").0 {
                // A `Begin` of a ballot below the promised one has no effect.
                Item::Begin(ballot) => ballot < replica.promised(),
                // With this mutant, entries of smaller ballots count, too.
                #[cfg(feature = "plants")]
                _ if context.scenario.mutant == stentor_multicast::Mutant::NotFenced => false,
                // Entries belong to the ballot that was last begun on their queue pair. If another leader has begun a
                // larger one since, their ballot is smaller.
                _ => member.stream.leader() != ProcessId(from) || member.stream < replica.promised(),
            }
        }
        (_, Parcel::Item(words)) => match Item::decode(words, 0).expect("a sound item").0 {
            // Votes for a delivered message are not counted.
            Item::Ack(Ack { head, .. }) => is_delivered(context, member, head.client, head.sequence),
            _ => false,
        },
        (_, Parcel::PeerMessage(words, _)) => {
            let message = PeerMessage::decode(words).expect("a sound message");
            message_is_over(context, member, replica, &message)
        }
    }
}

fn message_is_over(context: &Context, member: &Member, replica: &Replica, message: &PeerMessage) -> bool {
    match message {
        // Only a candidate counts promises, and only before it has taken over and installed the ballot.
        PeerMessage::Promise { ballot, .. } => *ballot < replica.promised() || *ballot == replica.ballot(),
        // Only the leader of the promised ballot counts the members that have installed it.
        PeerMessage::Installed { ballot } => *ballot < replica.promised(),
        PeerMessage::Refuse { promised, .. } => *promised <= replica.known(replica.group()),
        // A member may answer an announcement of a smaller ballot than it knows. Removing the announcement has the same
        // effect as losing that answer.
        PeerMessage::Announce { group, ballot, .. } => *ballot < replica.known(*group),
        PeerMessage::Decided { message: MessageRef { client, sequence }, .. } => {
            is_delivered(context, member, *client, *sequence)
        }
        _ => false,
    }
}

fn is_delivered(context: &Context, member: &Member, client: ClientId, sequence: u64) -> bool {
    let message = context.scenario.index_of(client.0, sequence);
    message.is_some_and(|message| member.log.iter().any(|(delivered, _)| usize::from(*delivered) == message))
}
