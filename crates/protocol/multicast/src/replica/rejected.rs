//! The errors of a member that refuses an input.

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::{Ballot, Incarnation};

/// The reason why an input was refused. The state did not change.
///
/// An item or message from another process was sealed, so it is not a torn write: its sender does not follow the
/// protocol, unless the error names another cause. Some errors concern calls of this process's shell, such as a reset.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// The client id does not exist, or a correct process never names it in such an input.
    #[error("client id {0} does not exist, or cannot be named in this input")]
    Client(u16),
    /// The body of a stream entry's message is not held, so the entry must wait.
    #[error("a stream entry about slot {slot} of client {client}, whose message is not held here")]
    NotHeld {
        /// The client.
        client: u16,
        /// The slot.
        slot: u64,
    },
    /// The sequence does not exceed the previous one, but a client's sequences must rise.
    #[error("sequence {sequence} of client {client} is not above its previous sequence {last}")]
    Sequence {
        /// The client.
        client: u16,
        /// The refused sequence.
        sequence: u64,
        /// The sequence in the previous slot.
        last: u64,
    },
    /// The slot is beyond the client's window at this member. The member may have delivered less than the members that
    /// the client waits for.
    #[error("slot {slot} of client {client} is beyond its window, which ends at {end}")]
    BeyondWindow {
        /// The client.
        client: u16,
        /// The refused slot.
        slot: u64,
        /// First slot after the window.
        end: u64,
    },
    /// The item names another message, or another number of groups, than the one in the slot.
    #[error("slot {slot} of client {client} holds another message than sequence {sequence}")]
    OtherMessage {
        /// The client.
        client: u16,
        /// The slot.
        slot: u64,
        /// The sequence that the item names.
        sequence: u64,
    },
    /// The message is not for this group.
    #[error("a message that is not for this group")]
    NotForUs,
    /// The stream's counter is not the next one.
    #[error("stream entry {counter} arrived, but entry {expected} is next")]
    Counter {
        /// The refused counter.
        counter: u64,
        /// The next counter.
        expected: u64,
    },
    /// The ballot is not that of the group, or there is no larger ballot or incarnation.
    #[error("ballot {0} is not the group's, or no larger one exists")]
    Ballot(Ballot),
    /// The sender may not send this input: for example, it is not a member of the group at the position that the item
    /// names, or does not lead the ballot that it names.
    #[error("{0} may not send this: it is not a member of the named group, or does not lead the named ballot")]
    Sender(ProcessId),
    /// The sender of a stream entry is not another member of this group.
    #[error("a stream entry whose sender is not another member of this group")]
    Role,
    /// Another group's leader assigned a time that is farther ahead of this group's physical time than the bound of
    /// clocks allows. Accepting it would permanently move this group's clock ahead. The sender repeats it until it is
    /// accepted.
    #[error("{from} assigned a time that is {ahead} ns beyond the clock bound of this group")]
    Clock {
        /// The other group's leader.
        from: ProcessId,
        /// Distance beyond the bound, in nanoseconds.
        ahead: u64,
    },
    /// The physical time is invalid.
    #[error("a physical time of {0} ns since 1970: it must be below 2^62 (the year 2116)")]
    Time(u64),
    /// The process is without memory, so it cannot lead, or reset the group with its own state.
    #[error("this process does not have its group's state yet")]
    Joining,
    /// The process has memory, but only a process without memory can reset the group to an empty state.
    #[error("this process has its group's state: reset with that state, or to an empty one at a process without state")]
    Remembers,
    /// The application has adopted another member's state, and the state machine has not installed it yet.
    #[error("this process is receiving a state: reset at the member that sends it, or retry when it has arrived")]
    Ahead,
    /// The reset does not name the incarnation that it ends.
    #[error("the group is in incarnation {known}, not {named}")]
    Incarnation {
        /// The incarnation that the reset names.
        named: Incarnation,
        /// The incarnation that is known here.
        known: Incarnation,
    },
    /// The process has been replaced by a later process of this member.
    #[error("a later process of this member has replaced this one")]
    Superseded,
    /// The state belongs to another cluster, or is inconsistent.
    #[error("a state that is not one of this group: {0}")]
    State(&'static str),
}
