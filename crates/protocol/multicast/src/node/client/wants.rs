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
    /// The message comes after everything with a final time up to this one, in whatever groups; 0 asks for nothing. A leader whose
    /// physical time is more than the bound of clocks behind it gives the message no place before that has changed, nor any later message
    /// of this client.
    pub not_before: u64,
}
