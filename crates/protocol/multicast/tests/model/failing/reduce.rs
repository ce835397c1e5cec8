//! What need not be told apart.
//!
//! What is on its way and can never have an effect any more is taken at once, which is to say removed. That is sound:
//! whenever its receiver takes it, nothing changes and nothing is sent, now and for ever; so every run is equal, step
//! by step and property by property, to one without it. "For ever" rests on what only grows: the promised ballot, the
//! largest ballot heard of, and what is delivered. (A crash empties all queue pairs of its member, so memory that is
//! lost does not make them effective again.)

use stentor_fabric::ProcessId;
use stentor_multicast::{Ack, ClientId, Header, Item, MessageRef, PeerMessage, Replica};

use super::channels::Parcel;
use super::member::{Context, Member};
use crate::network::Wire;

/// Whether a member can take this at any time from now on without any effect.
pub(crate) fn is_over(context: &Context, member: &Member, wire: Wire, parcel: &Parcel) -> bool {
    let Some(replica) = &member.replica else { return true };
    if replica.is_joining() {
        return false;
    }
    match (wire, parcel) {
        (_, Parcel::Body(client, words)) => {
            let header = Header::decode(words, words.len() * 8, &context.channels.topology).expect("a sound body");
            replica.admit(ClientId(*client), &header) == Ok(None)
        }
        (Wire::Stream { from, .. }, Parcel::Item(words)) => {
            match Item::decode(words, 0).expect("a sound item").0 {
                // It is not processed unless it is of the promised ballot.
                Item::Begin(ballot) => ballot < replica.promised(),
                // With this bug they do count.
                #[cfg(feature = "plants")]
                _ if context.scenario.mutant == stentor_multicast::Mutant::NotFenced => false,
                // Entries are of the ballot that was last begun on their queue pair. If another leader has begun a
                // larger one since, the ballot of these is smaller.
                _ => member.stream.leader() != ProcessId(from) || member.stream < replica.promised(),
            }
        }
        (_, Parcel::Item(words)) => match Item::decode(words, 0).expect("a sound item").0 {
            // Of a message that is delivered nobody counts votes.
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
        // Only a candidate counts promises, and only before it has taken over: then the ballot is installed there.
        PeerMessage::Promise { ballot, .. } => *ballot < replica.promised() || *ballot == replica.ballot(),
        // Only the leader of the promised ballot counts who has installed it.
        PeerMessage::Installed { ballot } => *ballot < replica.promised(),
        PeerMessage::Refuse { promised, .. } => *promised <= replica.known(replica.group()),
        // Who announces a smaller one than is known is told so, which a loss of the answer makes undone.
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
