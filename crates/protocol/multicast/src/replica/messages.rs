//! The messages of all clients at one member.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use super::identity::Identity;
use super::order::Order;
use super::slot::Slot;
use super::time_entry;
use super::window::Window;
use super::{CatchUps, Effects, Rejected, Settlements};
use crate::item::Head;
use crate::mutant::mutant;
use crate::peer_message::MessageRef;
use crate::state::{ClientState, State};
use crate::{ClientId, GroupId};

/// The windows of all clients and of the group's own entries, and the order of their undelivered messages.
///
/// # Invariants
/// - The order follows from the windows, so comparisons leave it out.
/// - `delivered` counts deliveries here, and those that came with another member's state. It never decreases.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    windows: Vec<Window>,
    /// Number of clients. The windows of the group's own entries follow theirs.
    clients: u16,
    /// The client ids of the group's time entries and version entries, if the group orders any.
    own: Option<[ClientId; 2]>,
    pub(super) order: Order,
    pub(super) delivered: u64,
    /// `true` if a delivery was due for which the application had no room.
    pub(super) held_back: bool,
    /// A number that rises each time that this member adopts a state.
    pub(super) states: u64,
    pub(super) catch_ups: CatchUps,
    pub(super) settlements: Settlements,
}

impl Messages {
    pub(super) fn new(id: &Identity) -> Self {
        let (clients, window) = (id.topology().clients(), id.config.window);
        let (topology, group) = (id.topology(), id.group);
        let own = id.config.time_entries.then(|| [topology.time_client(group), topology.version_client(group)]);
        let windows = clients + own.map_or(0, |own| own.len());
        Messages {
            windows: (0..windows).map(|_| Window::new(window)).collect(),
            clients: clients as u16,
            own,
            order: Order::with_capacity(windows * window as usize),
            delivered: 0,
            held_back: false,
            states: 0,
            catch_ups: CatchUps::default(),
            settlements: Settlements::default(),
        }
    }

    /// Returns all client ids, including those of the group's own entries.
    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> + use<> {
        self.places().chain(self.own.into_iter().flatten())
    }

    /// Returns the client ids that processes use.
    pub(super) fn places(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..self.clients).map(ClientId)
    }

    /// Returns the client id of the group's time entries, if it orders any.
    pub(super) fn time_client(&self) -> Option<ClientId> {
        self.own.map(|[time, _]| time)
    }

    /// Returns the client id of the group's version entries, if it orders any.
    pub(super) fn version_client(&self) -> Option<ClientId> {
        self.own.map(|[_, version]| version)
    }

    /// Returns whether a client's messages are entries of the group itself.
    #[inline]
    pub(super) fn is_own(&self, client: ClientId) -> bool {
        client.0 >= self.clients && self.own.is_some_and(|own| own.contains(&client))
    }

    /// Returns the index of a client's window. For an id that this group has no window for, the index is that of
    /// another window, or of none.
    #[inline]
    fn place_of(&self, client: ClientId) -> usize {
        let is_version = client.0 > self.clients && self.version_client() == Some(client);
        usize::from(client.0.min(self.clients)) + usize::from(is_version)
    }

    /// Returns whether this group has a window for the client.
    #[inline]
    fn has(&self, client: ClientId) -> bool {
        client.0 < self.clients || self.is_own(client)
    }

    /// Returns the window of a client that an input names, or `None` if there is no such client.
    #[inline]
    pub(super) fn client(&self, client: ClientId) -> Option<&Window> {
        self.has(client).then(|| self.window(client))
    }

    /// Returns the window for writing; see [`client`](Messages::client).
    pub(super) fn client_mut(&mut self, client: ClientId) -> Option<&mut Window> {
        self.has(client).then(|| self.window_mut(client))
    }

    /// Returns the window of a client id that processes use, or `None` for any other id.
    #[inline]
    pub(super) fn place(&self, client: ClientId) -> Option<&Window> {
        (client.0 < self.clients).then(|| self.window(client))
    }

    #[inline]
    pub(super) fn window(&self, client: ClientId) -> &Window {
        &self.windows[self.place_of(client)]
    }

    #[inline]
    pub(super) fn window_mut(&mut self, client: ClientId) -> &mut Window {
        let place = self.place_of(client);
        &mut self.windows[place]
    }

    #[inline]
    pub(super) fn get(&self, client: ClientId, slot: u64) -> &Slot {
        self.window(client).slot(slot)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, client: ClientId, slot: u64) -> &mut Slot {
        self.window_mut(client).slot_mut(slot)
    }

    /// Returns a client's slots that are assigned and not delivered.
    pub(super) fn pending(&self, client: ClientId) -> Range<u64> {
        self.window(client).pending()
    }

    /// Finds the slot of a retained message.
    pub(super) fn find(&self, message: MessageRef) -> Option<u64> {
        self.client(message.client)?.find(message.sequence)
    }

    /// Finds the slot that an item is about, and names the slot after the item's message. Returns `None` if nothing is
    /// to be done, because the slot is freed already or the message is void.
    ///
    /// # Errors
    /// Returns [`Rejected`] if the item cannot be about any slot of the window, or names another message than the slot
    /// holds.
    #[inline]
    pub(super) fn locate(&mut self, id: &Identity, head: &Head) -> Result<Option<u64>, Rejected> {
        let window = self.client_mut(head.client).ok_or(Rejected::Client(head.client.0))?;
        let mut slot = window.resolve(head);
        if mutant!(id.mutant(), AckWithoutIdentity) && slot.is_none() {
            let lap = u64::from(id.config.window);
            slot = Some(window.base() + (head.slot.from(window.base()) - window.base()) % lap);
        }
        if mutant!(id.mutant(), IdByHash) {
            slot = window.first_with_hash(head.sequence).or(slot);
        }
        let Some(slot) = slot else { return Ok(None) };
        window.check(head.client, slot)?;
        if head.client.0 >= self.clients {
            time_entry::check(head, slot)?;
        }
        let window = self.window_mut(head.client);
        window.make_room(slot);
        window.slot_mut(slot).name(head, slot, id.mutant().confuses_messages())?;
        Ok(Some(slot))
    }

    /// Holds the group's own entry that an assignment in the leader's stream names, unless it is held or delivered.
    ///
    /// # Errors
    /// Returns [`Rejected`] if the assignment names another message than the entry of its slot.
    pub(super) fn hold_own_entry(&mut self, head: &Head, group: GroupId) -> Result<(), Rejected> {
        let window = self.window_mut(head.client);
        let Some(slot) = window.resolve(head) else { return Ok(()) };
        window.check(head.client, slot)?;
        if window.holds(slot) {
            return Ok(());
        }
        time_entry::check(head, slot)?;
        window.make_room(slot);
        window.slot_mut(slot).hold_empty(head, slot, group)
    }

    /// Returns whether an earlier process's unassigned message is held in the slot of this item's message.
    ///
    /// In that case, the entry that makes the earlier message void is still in flight. The item is ignored, and this
    /// member requests the missing items of the later message when they are needed.
    fn is_followed(&self, head: &Head) -> bool {
        let window = self.window(head.client);
        window.resolve(head).is_some_and(|slot| window.slot(slot).is_followed_by(head.sequence))
    }

    /// Refuses an item that names another message than its slot holds, unless the held message is
    /// [followed](Messages::is_followed) by the item's.
    #[cold]
    pub(super) fn refuse(&self, head: &Head, rejected: Rejected) -> Result<(), Rejected> {
        match rejected {
            Rejected::OtherMessage { .. } if self.is_followed(head) => Ok(()),
            rejected => Err(rejected),
        }
    }

    /// Returns whether the item's message is open: its slot is not freed, and it is neither decided nor a no-op here.
    pub(super) fn is_open(&self, head: &Head) -> bool {
        let Some(window) = self.client(head.client) else { return false };
        let Some(slot) = window.resolve(head) else { return false };
        let settled = |message: &Slot| message.no_op || message.decided.is_some();
        !(window.is_here(slot) && settled(window.slot(slot)))
    }

    /// Returns whether a state retains less than this member needs.
    pub(super) fn is_behind(&self, state: &State) -> bool {
        self.windows.iter().zip(&state.clients).any(|(window, client)| window.is_behind(client))
    }

    /// Pairs the window of each client id that processes use with that client's part of a state.
    fn beside<'a>(
        &'a self,
        state: &'a State,
    ) -> impl Iterator<Item = (ClientId, &'a Window, &'a ClientState)> + use<'a> {
        let clients = self.places().zip(&self.windows).zip(&state.clients);
        clients.map(|((client, window), state)| (client, window, state))
    }

    /// Returns the messages that a state's process holds unassigned, and that are missing here.
    pub(super) fn lacks_held<'a>(&'a self, state: &'a State) -> impl Iterator<Item = MessageRef> + use<'a> {
        self.beside(state).flat_map(|(client, window, state)| {
            window.lacks_held(client, state).map(move |sequence| MessageRef { client, sequence })
        })
    }

    /// Returns the messages of a state whose bodies are needed and missing.
    pub(super) fn lacks<'a>(&'a self, state: &'a State) -> impl Iterator<Item = MessageRef> + use<'a> {
        self.beside(state).flat_map(|(client, window, state)| {
            window.lacks(state).map(move |sequence| MessageRef { client, sequence })
        })
    }

    /// Returns the processed and held messages of this member, by client.
    pub(super) fn states(&self) -> Vec<ClientState> {
        self.windows.iter().map(Window::state).collect()
    }

    /// Records that the application adopted the state of this state's process: every delivery of that process is a
    /// delivery here.
    pub(super) fn jump<E: Effects>(&mut self, state: &State, group: GroupId, effects: &mut E) {
        // The windows jump even if that process delivered nothing, or less than this one: it may have passed no-ops,
        // which are not deliveries. If it delivered less, its deliveries are a prefix of this member's.
        self.states += 1;
        for (window, client) in self.windows.iter_mut().zip(&state.clients) {
            window.jump(client, group);
        }
        if state.delivered > self.delivered {
            self.delivered = state.delivered;
            effects.restore(state.delivered);
        }
    }

    /// Frees slots for the bodies of a state of a ballot larger than the installed one; see [`Window::give_way`].
    pub(super) fn give_way<E: Effects>(&mut self, state: &State, effects: &mut E) {
        for ((client, window), state) in self.places().zip(&mut self.windows).zip(&state.clients) {
            for (slot, sequence) in window.give_way(state) {
                effects.dropped(client, slot, sequence);
            }
        }
    }

    /// Forgets messages held for an ended history; see [`Window::drop_unassigned`].
    pub(super) fn drop_unassigned<E: Effects>(&mut self, effects: &mut E) {
        for (client, window) in self.clients().zip(&mut self.windows) {
            for (slot, sequence) in window.drop_unassigned() {
                effects.dropped(client, slot, sequence);
            }
        }
    }

    /// Replaces all assignments by those of a state; see [`Window::adopt`].
    pub(super) fn adopt(&mut self, state: &State, id: &Identity, leads: bool) {
        self.states += 1;
        for (window, client) in self.windows.iter_mut().zip(&state.clients) {
            window.adopt(client, id.group, leads);
        }
        for client in self.own.into_iter().flatten() {
            self.window_mut(client).hold_assigned(id.mutant());
        }
    }
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        (&self.windows, self.delivered) == (&other.windows, other.delivered)
    }
}

impl Eq for Messages {}

impl Hash for Messages {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.windows, self.delivered).hash(state);
    }
}
