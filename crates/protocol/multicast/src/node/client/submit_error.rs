//! The errors of submissions.

use thiserror::Error;

/// The reason why a message was not multicast. The submission had no other effect than to begin to open the groups, if
/// they were not open.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// A window, a ring or a send queue is full, or an earlier copy by the network may still land in the ring. Call
    /// [`Client::step`](super::Client::step) until there is room.
    #[error("no room at group {group} now; wait for deliveries")]
    Busy {
        /// Index of the group.
        group: u16,
    },
    /// No majority of the group is connected, or the group has not agreed on this process's first slot yet. The group
    /// is the client id's home group while that has not assigned a generation to this process.
    #[error("group {group} is not connected")]
    NotConnected {
        /// Index of the group.
        group: u16,
    },
    /// The payload is too long, including 8 bytes for [`Wants::not_before`](super::Wants::not_before) if that is set.
    #[error("a message of {bytes} bytes; the cluster accepts up to {limit}")]
    TooLong {
        /// Length of the payload in bytes.
        bytes: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The message is to follow a time that no group ever reaches.
    #[error("no message can follow the time {0}: times are below 2^62 ns")]
    Time(u64),
    /// The list of groups is empty, has more than 255 entries, contains an unknown group, or is not in ascending order.
    #[error("destinations must be 1 to 255 known groups in rising order")]
    Destinations,
    /// A group still keeps the records of so many earlier processes of this client id that no further process can take
    /// over now. It keeps them until another group answers. Use another client id.
    #[error(
        "group {group} keeps records of too many earlier processes of client id c{client} until another group answers; use another client id"
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
        "group {group} began anew, from another state: messages in flight to it may be lost; start this client again"
    )]
    GroupReset {
        /// Index of the group.
        group: u16,
    },
    /// This process has used all sequences of its generation.
    #[error("this process of client id c{client} has used all its sequence numbers; start another process")]
    Exhausted {
        /// The client id.
        client: u16,
    },
    /// Another process took over this client id, or a group gave this process up, so this process can multicast nothing
    /// more. Its messages that are not known to be delivered may be lost.
    #[error("another process took over the client id c{client}")]
    Superseded {
        /// The client id.
        client: u16,
    },
}
