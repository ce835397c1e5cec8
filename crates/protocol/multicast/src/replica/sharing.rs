//! What keeps a client that fills its window from holding up the others.

use super::ReplicaConfig;
use crate::mutant::mutant;
use crate::{ClientId, Mutant};

/// How far a leader goes on with one client while others multicast, too.
///
/// Deliveries follow the order of assignment, so whoever multicasts next waits behind everything that is assigned. While several
/// clients are active, a client's messages to this group alone are assigned only as long as fewer than a share of its messages are
/// assigned and not delivered. The rest waits in its window, where nobody waits behind it.
///
/// # Invariants
/// - A client waits for deliveries of its own messages. What is before a held message to several groups never waits: other groups need
///   its timestamp. So no two groups wait for each other.
/// - After each delivery of a message of a client that waits, more of it is assigned: at the end of the event, or at the next tick where
///   the event is a change of leaders.
/// - Where a window has room for no more than a share nothing is noted here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sharing {
    share: u64,
    /// Assignments for which a client counts as active after its last one; 0: nothing is limited.
    memory: u64,
    /// Whose message was assigned last.
    last: Option<ClientId>,
    /// Assignments until all clients but the last one count as idle.
    mixed: u64,
    clients: Vec<Sharer>,
    /// Clients that had waited, and have room since.
    with_room: Vec<ClientId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Sharer {
    /// Behind the last held slot with a message to several groups.
    common: u64,
    /// The next message was not assigned because a share was under way.
    waits: bool,
}

impl Sharing {
    /// The least share: what a member takes of one ring in one step. A leader that hears of decisions in each step has the
    /// next batch for its stream while the last one is acknowledged.
    const LEAST: u32 = 64;
    /// Shares in a window. Where messages stay undecided for long, because round trips are long, windows are made larger, and
    /// shares grow with them.
    const IN_A_WINDOW: u32 = 16;
    /// Windows of messages for which a client counts as active. One that waits for its answers before it goes on is not seen
    /// meanwhile.
    const WINDOWS: u64 = 16;

    pub(super) fn new(clients: usize, config: &ReplicaConfig) -> Self {
        let window = config.window;
        let share = config.share.unwrap_or_else(|| Self::LEAST.max(window / Self::IN_A_WINDOW)).max(1);
        let memory = if window > share { u64::from(window) * Self::WINDOWS } else { 0 };
        let clients = if memory > 0 { vec![Sharer::default(); clients] } else { Vec::new() };
        Sharing { share: share.into(), memory, last: None, mixed: 0, clients, with_room: Vec::new() }
    }

    fn sharer(&mut self, client: ClientId) -> Option<&mut Sharer> {
        self.clients.get_mut(usize::from(client.0))
    }

    /// A message is held.
    #[inline]
    pub(super) fn note_held(&mut self, client: ClientId, slot: u64, groups: usize) {
        if groups > 1
            && let Some(sharer) = self.sharer(client)
        {
            sharer.common = (slot + 1).max(sharer.common);
        }
    }

    /// A message is assigned. A time entry does not count: it makes no client wait.
    #[inline]
    pub(super) fn note_assigned(&mut self, client: ClientId) {
        if usize::from(client.0) >= self.clients.len() {
            return;
        }
        if self.last == Some(client) {
            self.mixed = self.mixed.saturating_sub(1);
        } else if self.memory > 0 {
            let first = self.last.replace(client).is_none();
            self.mixed = if first { 0 } else { self.memory };
        }
    }

    /// A message is delivered.
    #[inline]
    pub(super) fn note_delivered(&mut self, client: ClientId) {
        if let Some(sharer) = self.sharer(client)
            && std::mem::take(&mut sharer.waits)
        {
            self.with_room.push(client);
        }
    }

    /// Whether a client's next message waits while so many of its messages are assigned and not delivered.
    #[inline]
    pub(super) fn holds_back(&mut self, client: ClientId, slot: u64, pending: u64, mutant: Mutant) -> bool {
        let is_limited = self.mixed > 0 && pending >= self.share;
        let Some(sharer) = self.clients.get_mut(usize::from(client.0)).filter(|_| is_limited) else { return false };
        sharer.waits = slot >= sharer.common || mutant!(mutant, ShareOfAll);
        sharer.waits
    }

    /// The next client that had waited, and has room since. It is forgotten.
    #[inline]
    pub(super) fn next_with_room(&mut self) -> Option<ClientId> {
        self.with_room.pop()
    }

    /// Whether a client's next message waits, or some client has room since the last event.
    pub(super) fn waits(&self, client: ClientId) -> bool {
        !self.with_room.is_empty() || self.clients.get(usize::from(client.0)).is_some_and(|sharer| sharer.waits)
    }
}
