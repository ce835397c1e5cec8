//! The errors of submissions.

use thiserror::Error;

/// The reason why a message was not multicast. The submission had no effect.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// A window, a ring or a send queue is full. Call [`Client::step`](super::Client::step) until there is room.
    #[error("no room at group {group} now; wait for deliveries")]
    Busy {
        /// Index of the group.
        group: u16,
    },
    /// No majority of the group, or of the home group of the client id, is connected.
    #[error("group {group} is not connected")]
    NotConnected {
        /// Index of the group.
        group: u16,
    },
    /// The payload is too long.
    #[error("a message of {bytes} bytes; the cluster takes up to {limit}")]
    TooLong {
        /// Length of the payload in bytes.
        bytes: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The message is to follow a time that no group ever reaches.
    #[error("no message comes after the time {0}: times are below 2^62 ns")]
    Time(u64),
    /// The list of groups is empty, has more than 255 entries, contains an unknown group, or is not in ascending order.
    #[error("destinations are 1 to 255 known groups in rising order")]
    Destinations,
    /// A group keeps so many records of this client id's earlier processes, for another group that does not answer,
    /// that no process can follow now. Use another client id.
    #[error(
        "group {group} keeps what many earlier processes of client place c{client} left until another group answers; take another place"
    )]
    Crowded {
        /// The client id.
        client: u16,
        /// Index of the group.
        group: u16,
    },
    /// The group was reset since this process started there. Messages to it that are not known to be delivered may be
    /// lost. A new process can continue.
    #[error(
        "group {group} began anew, from another state: what was under way to it may be lost; start this client again"
    )]
    GroupReset {
        /// Index of the group.
        group: u16,
    },
    /// This process has used all sequences of its generation.
    #[error("this process of client place c{client} has used up its sequences; start another one")]
    Exhausted {
        /// The client id.
        client: u16,
    },
    /// Another process took over this client id, so this one can do nothing more. Its messages that are not known to be
    /// delivered may be lost.
    #[error("another process took the client place c{client}")]
    Superseded {
        /// The client id.
        client: u16,
    },
}
