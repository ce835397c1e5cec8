//! All clients' messages at one member.

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

/// A window for each client, and one for each kind of the group's own entries where there are any; and the order of what is
/// undelivered in them.
///
/// # Invariants
/// - The order follows from the windows, so two members with equal windows are equal.
/// - `delivered` counts deliveries here, and those that came with another member's state. It never becomes less.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    windows: Vec<Window>,
    /// Clients that processes have; the windows of the group's entries come behind theirs.
    clients: u16,
    /// Whose messages the group's time entries and version entries are, if it orders any.
    own: Option<[ClientId; 2]>,
    pub(super) order: Order,
    pub(super) delivered: u64,
    /// Whether a delivery was due for which the application had no room.
    pub(super) held_back: bool,
    /// States of other members that were taken over.
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

    /// All clients, those of the group's entries among them.
    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> + use<> {
        self.places().chain(self.own.into_iter().flatten())
    }

    /// The clients that processes have.
    pub(super) fn places(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..self.clients).map(ClientId)
    }

    /// Whose messages the group's time entries are, if it orders any.
    pub(super) fn time_client(&self) -> Option<ClientId> {
        self.own.map(|[time, _]| time)
    }

    /// Whose messages the group's version entries are, if it orders any.
    pub(super) fn version_client(&self) -> Option<ClientId> {
        self.own.map(|[_, version]| version)
    }

    /// Whether a client's messages are entries of the group.
    #[inline]
    pub(super) fn is_own(&self, client: ClientId) -> bool {
        client.0 >= self.clients && self.own.is_some_and(|own| own.contains(&client))
    }

    /// The place of a client's window. Whoever is no client of this group has that of another one.
    #[inline]
    fn place_of(&self, client: ClientId) -> usize {
        let is_version = client.0 > self.clients && self.version_client() == Some(client);
        usize::from(client.0.min(self.clients)) + usize::from(is_version)
    }

    /// Whether there is such a client.
    #[inline]
    fn has(&self, client: ClientId) -> bool {
        client.0 < self.clients || self.is_own(client)
    }

    /// The window of a client that an input names; `None` if there is no such client.
    #[inline]
    pub(super) fn client(&self, client: ClientId) -> Option<&Window> {
        self.has(client).then(|| self.window(client))
    }

    /// As [`client`](Messages::client).
    pub(super) fn client_mut(&mut self, client: ClientId) -> Option<&mut Window> {
        self.has(client).then(|| self.window_mut(client))
    }

    /// As [`client`](Messages::client), of a client that a process has.
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

    /// A client's slots that are assigned and not delivered.
    pub(super) fn pending(&self, client: ClientId) -> Range<u64> {
        self.window(client).pending()
    }

    /// Finds a retained message.
    pub(super) fn find(&self, message: MessageRef) -> Option<u64> {
        self.client(message.client)?.find(message.sequence)
    }

    /// Finds the slot that an item is about, and names it. `Ok(None)`: it is freed already, nothing is to be done.
    ///
    /// # Errors
    /// [`Rejected`] if the item cannot be about any slot of the window, or names another message than the one there.
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

    /// Holds the entry of the group that an assignment of the leader's stream names, if it is not held or delivered.
    ///
    /// # Errors
    /// [`Rejected`] if it names another message than the entry of its slot.
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

    /// Whether an earlier process's message is held, unassigned, where this item's message belongs: the entry by which that is void
    /// is on its way. What is missed of the later message is asked for.
    fn is_followed(&self, head: &Head) -> bool {
        let window = self.window(head.client);
        window.resolve(head).is_some_and(|slot| window.slot(slot).is_followed_by(head.sequence))
    }

    /// Refuses an item that names another message than its slot; not if that is [followed](Messages::is_followed).
    #[cold]
    pub(super) fn refuse(&self, head: &Head, rejected: Rejected) -> Result<(), Rejected> {
        match rejected {
            Rejected::OtherMessage { .. } if self.is_followed(head) => Ok(()),
            rejected => Err(rejected),
        }
    }

    /// Whether nothing is known of an item's message that settles it: no decision, no no-op, and its slot is not freed.
    pub(super) fn is_open(&self, head: &Head) -> bool {
        let Some(window) = self.client(head.client) else { return false };
        let Some(slot) = window.resolve(head) else { return false };
        let settled = |message: &Slot| message.no_op || message.decided.is_some();
        !(window.is_here(slot) && settled(window.slot(slot)))
    }

    /// Whether a state retains less than this member needs.
    pub(super) fn is_behind(&self, state: &State) -> bool {
        self.windows.iter().zip(&state.clients).any(|(window, client)| window.is_behind(client))
    }

    /// The window of each client that a process has, with what a state says of that client.
    fn beside<'a>(
        &'a self,
        state: &'a State,
    ) -> impl Iterator<Item = (ClientId, &'a Window, &'a ClientState)> + use<'a> {
        let clients = self.places().zip(&self.windows).zip(&state.clients);
        clients.map(|((client, window), state)| (client, window, state))
    }

    /// Messages that a state's process holds, unassigned, and that are missing here.
    pub(super) fn lacks_held<'a>(&'a self, state: &'a State) -> impl Iterator<Item = MessageRef> + use<'a> {
        self.beside(state).flat_map(|(client, window, state)| {
            window.lacks_held(client, state).map(move |sequence| MessageRef { client, sequence })
        })
    }

    /// Messages of a state whose bodies are needed and missing.
    pub(super) fn lacks<'a>(&'a self, state: &'a State) -> impl Iterator<Item = MessageRef> + use<'a> {
        self.beside(state).flat_map(|(client, window, state)| {
            window.lacks(state).map(move |sequence| MessageRef { client, sequence })
        })
    }

    /// What this member has processed and holds, by client.
    pub(super) fn states(&self) -> Vec<ClientState> {
        self.windows.iter().map(Window::state).collect()
    }

    /// The application took over the state that this one's process had: what that process delivered is delivered here.
    pub(super) fn jump<E: Effects>(&mut self, state: &State, group: GroupId, effects: &mut E) {
        // Also when nothing was delivered, or less than here: no-ops are passed without that, and what was delivered there
        // is the beginning of what was delivered here.
        self.states += 1;
        for (window, client) in self.windows.iter_mut().zip(&state.clients) {
            window.jump(client, group);
        }
        if state.delivered > self.delivered {
            self.delivered = state.delivered;
            effects.restore(state.delivered);
        }
    }

    /// Makes room for the bodies of a state of a ballot larger than the installed one; see [`Window::give_way`].
    pub(super) fn give_way<E: Effects>(&mut self, state: &State, effects: &mut E) {
        for ((client, window), state) in self.places().zip(&mut self.windows).zip(&state.clients) {
            for (slot, sequence) in window.give_way(state) {
                effects.dropped(client, slot, sequence);
            }
        }
    }

    /// Forgets what is held of a history that is over; see [`Window::drop_unassigned`].
    pub(super) fn drop_unassigned<E: Effects>(&mut self, effects: &mut E) {
        for (client, window) in self.clients().zip(&mut self.windows) {
            for (slot, sequence) in window.drop_unassigned() {
                effects.dropped(client, slot, sequence);
            }
        }
    }

    /// Takes a state in place of the own one; see [`Window::adopt`].
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
