//! What a member knows of the places of clients, and is told of them: for those who run it, and look.

use super::Replica;
use super::window::Window;
use crate::ClientId;

impl Replica {
    /// The largest number of a client that this member has heard of.
    #[must_use]
    pub fn last_sequence(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, Window::last_sequence)
    }

    /// The client's number for the message in a retained slot.
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

    /// Returns the position behind the last slot that is held here and not delivered, whatever is missing before it; 0
    /// if there is no such client.
    #[must_use]
    pub fn end_of_held(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, Window::end_of_held)
    }

    /// The processes of a client with generations below this are over here.
    #[must_use]
    pub fn over_below(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, |window| window.over_below)
    }

    /// The processes of a client with generations below this are over in the whole group: what they multicast and is not
    /// assigned will not be.
    #[must_use]
    pub fn closed_below(&self, client: ClientId) -> u64 {
        self.window(client).map_or(0, |window| window.closed)
    }

    /// The processes of a client with generations up to this one are given up here: they were away for too long.
    pub fn end_client(&mut self, client: ClientId, generation: u64) {
        if let Some(window) = self.agreement.messages.client_mut(client) {
            window.over_below = window.over_below.max(generation.saturating_add(1));
        }
    }

    /// The first slot that is held nowhere here before something that is, as a leader sees it, and the generation of the
    /// client's process that left this gap. It may be filled still, by the client or by a member that holds it.
    #[must_use]
    pub fn gap_left_by(&self, client: ClientId) -> Option<(u64, u64)> {
        let window = self.window(client).filter(|window| self.is_leader() && window.has_open())?;
        let behind = window.gap_before()?;
        Some((window.assigned, window.left_by(window.assigned, behind)))
    }
}
