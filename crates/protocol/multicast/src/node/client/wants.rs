//! What a client asks of a message besides its delivery.

/// What a client asks of a message besides its delivery, and what it says of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Wants {
    /// Members tell at once when they have delivered it, not only when a quarter of the window is free.
    pub notify: bool,
    /// Members tell at once when they have read it; see [`Client::synced_up_to`](super::Client::synced_up_to).
    pub sync: bool,
    /// The payload begins with a session's envelope; see [`Delivered::enveloped`](crate::Delivered::enveloped).
    pub enveloped: bool,
}
