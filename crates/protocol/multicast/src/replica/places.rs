//! A member's knowledge of client ids, for its shell and for operators.

use super::Replica;
use super::window::Window;
use crate::ClientId;

impl Replica {
    /// Returns the largest sequence of a client that this member knows.
    #[must_use]
    pub fn last_sequence(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, Window::last_sequence)
    }

    /// Returns the sequence of the message in a slot, which is 0 if no message there is known. Returns `None` if the
    /// slot is not retained here.
    #[must_use]
    pub fn sequence_of(&self, client: ClientId, slot: u64) -> Option<u64> {
        self.window(client).filter(|window| window.is_here(slot)).map(|window| window.slot(slot).sequence)
    }

    /// Returns the first slot of a client that is not delivered here yet; 0 if there is no such client.
    #[inline]
    #[must_use]
    pub fn first_held(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, Window::first_undelivered)
    }

    /// Returns the slot after the last one that is held here and not delivered, even if slots before it are missing; 0
    /// if there is no such client.
    #[must_use]
    pub fn end_of_held(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, Window::end_of_held)
    }

    /// Returns the generation below which processes of a client have ended here.
    #[must_use]
    pub fn over_below(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, |window| window.over_below)
    }

    /// Returns the generation of a client below which messages are not assigned any more (see
    /// [`ClientState::closed`](crate::ClientState::closed)).
    #[must_use]
    pub fn closed_below(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, |window| window.closed)
    }

    /// Ends the processes of a client with generations up to this one at this member, because they were disconnected
    /// for too long.
    pub fn end_client(&mut self, client: ClientId, generation: u64) {
        if let Some(window) = self.agreement.messages.client_mut(client) {
            window.over_below = window.over_below.max(generation.saturating_add(1));
        }
    }

    /// Returns the gap that blocks a client's messages at a leader, or `None` if there is none or this member does not
    /// lead. A gap is the first unassigned slot, if it is not held although a later slot is held. The result is that
    /// slot and the generation of the process that left the gap.
    ///
    /// The gap may still be filled, by the client or by a member that holds the message.
    #[must_use]
    pub fn gap_left_by(&self, client: ClientId) -> Option<(u64, u64)> {
        let window = self.window(client).filter(|window| self.is_leader() && window.has_open())?;
        let behind = window.gap_before()?;
        Some((window.assigned, window.left_by(window.assigned, behind)))
    }
}
