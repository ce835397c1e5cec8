//! The errors of a member that refuses an input.

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::{Ballot, Incarnation};

/// The reason why an input was refused. The state did not change.
///
/// The input was sealed, so it is not a torn write. Its sender does not follow the protocol.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// The client does not exist.
    #[error("client place {0} does not exist")]
    Client(u16),
    /// The body of a stream entry is not held, so the entry had to wait.
    #[error("an entry about slot {slot} of client {client}, whose body is not held")]
    NotHeld {
        /// The client.
        client: u16,
        /// The slot.
        slot: u64,
    },
    /// The sequence does not exceed an earlier one, but a client's sequences rise.
    #[error("message {sequence} of client {client} after its message {last}")]
    Sequence {
        /// The client.
        client: u16,
        /// The refused sequence.
        sequence: u64,
        /// The last one before it.
        last: u64,
    },
    /// The slot is beyond the client's window.
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
    #[error("stream entry {counter}; {expected} is next")]
    Counter {
        /// The refused counter.
        counter: u64,
        /// The next counter.
        expected: u64,
    },
    /// The ballot is not that of the group.
    #[error("ballot {0} is not the group's")]
    Ballot(Ballot),
    /// The sender is not at the position that the item names.
    #[error("{0} is not a member of the group at the position it names")]
    Sender(ProcessId),
    /// The input is for another role: only leaders accept other groups' timestamps, and only followers accept stream
    /// entries.
    #[error("not this process's role")]
    Role,
    /// Another group's leader assigned a time that is farther ahead of this group's physical time than the bound of
    /// clocks allows. Accepting it would permanently move this group's clock ahead. The sender repeats it until it is
    /// accepted.
    #[error("a time of {from} that is {ahead} ns beyond the bound of clocks")]
    Clock {
        /// The other group's leader.
        from: ProcessId,
        /// Distance beyond the bound, in nanoseconds.
        ahead: u64,
    },
    /// The physical time is invalid.
    #[error("a physical time of {0} ns since 1970: it must be below 2^62 (the year 2116)")]
    Time(u64),
    /// The process is without memory, so it cannot lead.
    #[error("this process has not got its group's state yet")]
    Joining,
    /// The process has memory, but only a process without memory begins with nothing.
    #[error("this process has its group's state: the reset begins with that, or at a process without it")]
    Remembers,
    /// The application has adopted another member's state, and the member's own is not installed yet.
    #[error("another member's state is on its way here: reset with that member's, or ask again when it has come")]
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
    #[error("another process has taken this one's place")]
    Superseded,
    /// The state is of another cluster, or contradicts itself.
    #[error("a state that is not one of this group: {0}")]
    State(&'static str),
}
