//! Why a member refuses an input.

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::{Ballot, Incarnation};

/// Why an input was refused. The state did not change. It was sealed, so it is not a torn write but a peer that does not
/// keep to the protocol.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// No such client.
    #[error("client place {0} does not exist")]
    Client(u16),
    /// A stream entry whose body is not held was not made to wait.
    #[error("an entry about slot {slot} of client {client}, whose body is not held")]
    NotHeld {
        /// The client.
        client: u16,
        /// The slot.
        slot: u64,
    },
    /// A client's sequences rise.
    #[error("message {sequence} of client {client} after its message {last}")]
    Sequence {
        /// The client.
        client: u16,
        /// What came.
        sequence: u64,
        /// The last one before it.
        last: u64,
    },
    /// Beyond the client's window.
    #[error("slot {slot} of client {client} is beyond its window, which ends at {end}")]
    BeyondWindow {
        /// The client.
        client: u16,
        /// What came.
        slot: u64,
        /// First slot behind the window.
        end: u64,
    },
    /// The item names another message, or another number of groups, than what is in the slot.
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
        /// What came.
        counter: u64,
        /// What is next.
        expected: u64,
    },
    /// Another ballot than the group's.
    #[error("ballot {0} is not the group's")]
    Ballot(Ballot),
    /// The sender is not where the item says it is.
    #[error("{0} is not a member of the group at the position it names")]
    Sender(ProcessId),
    /// Only leaders take other groups' timestamps, only followers take stream entries.
    #[error("not this process's role")]
    Role,
    /// Another group's leader gave a time that is farther ahead of this group's physical time than the bound of clocks
    /// allows. Taken, it would drag this group's clock along, for good. It is said again until it is taken.
    #[error("a time of {from} that is {ahead} ns beyond the bound of clocks")]
    Clock {
        /// The other group's leader.
        from: ProcessId,
        /// How far beyond, ns.
        ahead: u64,
    },
    /// A physical time that cannot be.
    #[error("a physical time of {0} ns since 1970: it must be below 2^62 (the year 2116)")]
    Time(u64),
    /// A process without memory leads nobody.
    #[error("this process has not got its group's state yet")]
    Joining,
    /// Only a process without memory begins with nothing.
    #[error("this process has its group's state: the reset begins with that, or at a process without it")]
    Remembers,
    /// The application has taken over another member's state, and the member's own is not there yet.
    #[error("another member's state is on its way here: reset with that member's, or ask again when it has come")]
    Ahead,
    /// A reset names the incarnation that it ends.
    #[error("the group is in incarnation {known}, not {named}")]
    Incarnation {
        /// What the reset names.
        named: Incarnation,
        /// What is known here.
        known: Incarnation,
    },
    /// Nor does one that another process of this member came after.
    #[error("another process has taken this one's place")]
    Superseded,
    /// A state of another cluster, or one that contradicts itself.
    #[error("a state that is not one of this group: {0}")]
    State(&'static str),
}
