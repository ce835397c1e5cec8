//! Options of a message.

/// Options of a message: the reports that the client wants, and properties of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Wants {
    /// `true` if members report at once when they have delivered the message. Otherwise they may wait until a quarter
    /// of the window or of the ring is free, or until they are idle.
    pub notify: bool,
    /// `true` if members report at once when they have read the message; see
    /// [`Client::synced_up_to`](super::Client::synced_up_to).
    pub sync: bool,
    /// `true` if the payload begins with a session's envelope; see
    /// [`Delivered::enveloped`](crate::Delivered::enveloped).
    pub enveloped: bool,
    /// The message is ordered after all messages whose final time is at most this one, in any group; 0 sets no
    /// condition. If this time is more than the clock bound ahead of a leader's physical time, the leader orders
    /// neither the message nor later messages of this client until its physical time has advanced.
    pub not_before: u64,
}
