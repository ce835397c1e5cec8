//! Why a message was not multicast.

use thiserror::Error;

/// Why a message was not multicast. Nothing was done.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// A window, a ring or a send queue is full: call [`Client::step`](super::Client::step) until there is room.
    #[error("no room at group {group} now; wait for deliveries")]
    Busy {
        /// Index of the group.
        group: u16,
    },
    /// A majority of the group's members, or of the home group of the client's place, is not connected.
    #[error("group {group} is not connected")]
    NotConnected {
        /// Index of the group.
        group: u16,
    },
    /// Too long.
    #[error("a message of {bytes} bytes; the cluster takes up to {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The message is to come after a time that no group ever has.
    #[error("no message comes after the time {0}: times are below 2^62 ns")]
    Time(u64),
    /// No groups, more than 255, an unknown group, or not in rising order.
    #[error("destinations are 1 to 255 known groups in rising order")]
    Destinations,
    /// A group keeps so much of what earlier processes of this client place left, for another group that does not answer, that
    /// no process can follow now; take another place.
    #[error(
        "group {group} keeps what many earlier processes of client place c{client} left until another group answers; take another place"
    )]
    Crowded {
        /// The place.
        client: u16,
        /// Index of the group.
        group: u16,
    },
    /// The group began anew since this process took its place: what it multicast to it and was not known to be delivered
    /// may be lost, and a new process goes on.
    #[error(
        "group {group} began anew, from another state: what was under way to it may be lost; start this client again"
    )]
    GroupReset {
        /// Index of the group.
        group: u16,
    },
    /// This process has multicast as many messages as one can.
    #[error("this process of client place c{client} has used up its sequences; start another one")]
    Exhausted {
        /// The place.
        client: u16,
    },
    /// Another process has this client's place, and this one has no part in what happens any more. What it submitted and
    /// was not known to be delivered may be lost.
    #[error("another process took the client place c{client}")]
    Superseded {
        /// The place.
        client: u16,
    },
}
