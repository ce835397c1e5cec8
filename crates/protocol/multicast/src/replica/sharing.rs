//! The shares of clients. They prevent a client that fills its window from delaying other clients.

use super::ReplicaConfig;
use crate::mutant::mutant;
use crate::{ClientId, Mutant};

/// The limit of a leader's assignments for one client while other clients multicast, too.
///
/// Deliveries follow the order of assignment, so a new message waits for all messages that are already assigned. While
/// several clients are active, a client's messages to this group alone are assigned only as long as fewer than a share
/// of its messages are assigned and not delivered. Its further messages wait in its window, where they delay no other
/// client.
///
/// A client is *modest* if it had few messages assigned and undelivered during its last share of messages, so its messages
/// mostly wait for those of others. A client that fills its window has few in flight only for a moment, when it begins
/// and after a pause. While modest clients multicast, the others have an eighth of their shares. Clients that all have many
/// messages in flight keep whole shares: short batches would slow down all of them, for nobody's benefit.
///
/// # Invariants
/// - A client waits only for deliveries of its own messages. Messages before a held message to several groups never
///   wait, because other groups need its timestamp. So no two groups wait for each other.
/// - After each delivery of a message of a waiting client, more of its messages may be assigned: at the end of the
///   event, or at the next tick if the event is a change of leaders.
/// - If the window is not larger than a share, nothing is recorded here. If a share is one message, no client is modest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sharing {
    share: u64,
    /// The share while modest clients multicast.
    reduced: u64,
    /// Number of assignments in a row for one client after which all other clients count as idle; at 0 no client is
    /// limited.
    memory: u64,
    /// The client whose message was assigned last.
    last: Option<ClientId>,
    /// Number of further assignments for `last` after which all other clients count as idle; 0 if they are idle.
    mixed: u64,
    /// Number of further assignments for clients that are not modest after which all modest clients count as idle; 0 if
    /// they are idle.
    modest: u64,
    clients: Vec<Sharer>,
    /// Clients that waited and whose shares have room now.
    with_room: Vec<ClientId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Sharer {
    /// The slot after the last held message to several groups.
    common: u64,
    /// `true` if the next message was not assigned because a share was in use.
    waits: bool,
    /// Number of this client's last assignments at which it had at most a reduced share assigned and undelivered; at
    /// most a share. At a share, the client is modest.
    shallow: u64,
}

impl Sharing {
    /// Smallest default share, which is the number of records that a member reads from one ring in one step.
    ///
    /// A leader learns of decisions in each step. With a share of this size, it can write the next batch of entries to
    /// its stream while the previous batch is being acknowledged.
    const LEAST: u32 = 64;
    /// Number of default shares in a window. With long round trips, messages stay undecided for long. Operators then
    /// configure larger windows, and shares grow with the windows.
    const IN_A_WINDOW: u32 = 16;
    /// Number of assignments in a row for one client after which all other clients count as idle, as a multiple of the
    /// window. It spans the time in which a client waits for replies and none of its messages are assigned.
    const WINDOWS: u64 = 16;
    pub(super) fn new(clients: usize, config: &ReplicaConfig) -> Self {
        let window = config.window;
        let share = config.share.unwrap_or_else(|| Self::LEAST.max(window / Self::IN_A_WINDOW)).max(1);
        let memory = if window > share { u64::from(window) * Self::WINDOWS } else { 0 };
        let clients = if memory > 0 { vec![Sharer::default(); clients] } else { Vec::new() };
        let (share, reduced) = (u64::from(share), u64::from(share.div_ceil(8)));
        Sharing { share, reduced, memory, last: None, mixed: 0, modest: 0, clients, with_room: Vec::new() }
    }

    fn sharer(&mut self, client: ClientId) -> Option<&mut Sharer> {
        self.clients.get_mut(usize::from(client.0))
    }

    /// Records that a message is held.
    #[inline]
    pub(super) fn note_held(&mut self, client: ClientId, slot: u64, groups: usize) {
        if groups > 1
            && let Some(sharer) = self.sharer(client)
        {
            sharer.common = (slot + 1).max(sharer.common);
        }
    }

    /// Records that a message is assigned, which makes this many of the client's messages assigned and undelivered. A
    /// group's own entry does not count, so it makes no client wait.
    #[inline]
    pub(super) fn note_assigned(&mut self, client: ClientId, pending: u64) {
        let Some(sharer) = self.clients.get_mut(usize::from(client.0)) else { return };
        let is_shallow = self.reduced < self.share && pending <= self.reduced;
        sharer.shallow = if is_shallow { self.share.min(sharer.shallow + 1) } else { 0 };
        self.modest = if sharer.shallow == self.share { self.share } else { self.modest.saturating_sub(1) };
        if self.last == Some(client) {
            self.mixed = self.mixed.saturating_sub(1);
        } else {
            let first = self.last.replace(client).is_none();
            self.mixed = if first { 0 } else { self.memory };
        }
    }

    /// Records that a message is delivered.
    #[inline]
    pub(super) fn note_delivered(&mut self, client: ClientId) {
        if let Some(sharer) = self.sharer(client)
            && std::mem::take(&mut sharer.waits)
        {
            self.with_room.push(client);
        }
    }

    /// Returns whether a client's next message waits while this many of its messages are assigned and not delivered.
    #[inline]
    pub(super) fn holds_back(&mut self, client: ClientId, slot: u64, pending: u64, mutant: Mutant) -> bool {
        let share = if self.modest > 0 { self.reduced } else { self.share };
        let is_limited = self.mixed > 0 && pending >= share;
        let Some(sharer) = self.clients.get_mut(usize::from(client.0)).filter(|_| is_limited) else { return false };
        sharer.shallow = 0;
        sharer.waits = slot >= sharer.common || mutant!(mutant, ShareOfAll);
        sharer.waits
    }

    /// Returns the next client that waited and has room since, and removes it from the list.
    #[inline]
    pub(super) fn next_with_room(&mut self) -> Option<ClientId> {
        self.with_room.pop()
    }

    /// Returns whether a client's next message waits, or some client has room since the last event.
    pub(super) fn waits(&self, client: ClientId) -> bool {
        !self.with_room.is_empty() || self.clients.get(usize::from(client.0)).is_some_and(|sharer| sharer.waits)
    }
}
