//! The state machine of one member of a group.
//!
//! Input comes as calls (`on_message`, `on_stream`, `on_timestamp`, `on_ack`), output goes to an [`Effects`]. One event
//! is one step of one thread: raising the clock and appending the vector entry can never come apart.
//!
//! # States of a message at a member
//! *placeholder* (timestamps or acknowledgements came before the body) → *held* (body there) → *ordered* (own group's
//! timestamp known from the stream, or assigned here) → *vector* (stream processed through the whole vector) →
//! *delivered*; and *decided* as soon as it is held and a majority of every destination group acknowledged one vector.
//!
//! # Invariants
//! - The clock is at least every time in every vector that this member has appended or processed.
//! - Times given by one leader rise with the stream's counter.
//! - A message counts in the order with its own group's tentative timestamp until it is itself decided; keys only rise.

mod acks;
mod assign;
mod deliver;
mod order;
mod slot;
mod stream;
mod vector;
mod votes;
mod window;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::item::Head;
use crate::plant::planted;
use crate::{
    Ack, Ballot, ClientId, GroupId, Header, MessageId, Place, Plant, RemoteTimestamp, StreamItem, Timestamp, Topology,
};
use order::Order;
use window::Window;

/// Which version of the notes' protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Variant {
    /// Leaders pass on each other group's timestamp as it comes and acknowledge like followers.
    V1,
    /// Leaders wait for all timestamps and pass them on at once; that entry is their vote.
    #[default]
    V2,
}

/// Who this member is and how it works.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// The cluster.
    pub topology: Arc<Topology>,
    /// This process; a member of a group.
    pub me: ProcessId,
    /// Which protocol.
    pub variant: Variant,
    /// Slots per client: messages that a client may have undelivered at one group. A power of two. A [`Member`](crate::Member)
    /// takes it from its [`Limits`](crate::Limits).
    pub window: u32,
    /// A planted bug.
    pub plant: Plant,
}

/// Where the output of a step goes.
pub trait Effects {
    /// Append to the stream of every follower of the own group, in this order.
    fn to_followers(&mut self, item: &StreamItem<'_>);
    /// Write a timestamp to another group's leader.
    fn timestamp(&mut self, to: ProcessId, item: &RemoteTimestamp);
    /// Write an acknowledgement to another destination process.
    fn acknowledge(&mut self, to: ProcessId, ack: &Ack<'_>);
    /// Hand a message to the application.
    fn deliver(&mut self, delivery: &Delivery);
}

/// A message that is due.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Delivery {
    /// The message.
    pub id: MessageId,
    /// Its slot at this group.
    pub slot: u64,
    /// Its final timestamp: its place in the order.
    pub timestamp: Timestamp,
    /// Number of this delivery at this process, from 1.
    pub number: u64,
}

/// Why an input was refused. The state did not change. It was sealed, so it is not a torn write but a peer that does not
/// keep to the protocol.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// No such client place.
    #[error("client place {0} does not exist")]
    Client(u16),
    /// A message's slot is not the next one of its ring.
    #[error("message of client {client} for slot {slot}; slot {expected} is next")]
    Slot {
        /// The client.
        client: u16,
        /// What came.
        slot: u64,
        /// What is next.
        expected: u64,
    },
    /// A client's sequences rise.
    #[error("message {sequence} of client {client} after its message {last}")]
    Sequence {
        /// The client.
        client: u16,
        /// What came.
        sequence: u64,
        /// The last one before it.
        last: u64,
    },
    /// Beyond the client's window.
    #[error("slot {slot} of client {client} is beyond its window, which ends at {end}")]
    BeyondWindow {
        /// The client.
        client: u16,
        /// What came.
        slot: u64,
        /// First slot behind the window.
        end: u64,
    },
    /// The item names another message, or another number of groups, than what is in the slot.
    #[error("slot {slot} of client {client} holds another message than sequence {sequence}")]
    OtherMessage {
        /// The client.
        client: u16,
        /// The slot.
        slot: u64,
        /// The sequence that the item names.
        sequence: u64,
    },
    /// The message is not for this group.
    #[error("a message that is not for this group")]
    NotForUs,
    /// The stream's counter is not the next one.
    #[error("stream entry {counter}; {expected} is next")]
    Counter {
        /// What came.
        counter: u64,
        /// What is next.
        expected: u64,
    },
    /// Another ballot than the group's.
    #[error("ballot {0} is not the group's")]
    Ballot(Ballot),
    /// The sender is not where the item says it is.
    #[error("{0} is not a member of the group at the position it names")]
    Sender(ProcessId),
    /// Only leaders take other groups' timestamps, only followers take stream entries.
    #[error("not this process's role")]
    Role,
}

/// One member of a group.
#[derive(Clone, Debug)]
pub struct Replica {
    config: ReplicaConfig,
    group: GroupId,
    bit: u64,
    ballot: Ballot,
    leaders: Vec<ProcessId>,
    clock: u64,
    counter: u64,
    windows: Vec<Window>,
    order: Order,
    delivered: u64,
    /// Clock raise that a planted bug put off.
    put_off: u64,
}

impl Replica {
    /// A member at the beginning of the cluster's life: every group in its first ballot.
    ///
    /// # Panics
    /// If `config.me` is not a member of a group, or the window is not a power of two.
    #[must_use]
    pub fn new(config: ReplicaConfig) -> Self {
        assert!(config.window.is_power_of_two(), "a window of {} slots is not a power of two", config.window);
        let Some(Place::Member { group, index }) = config.topology.place(config.me) else {
            panic!("{} is not a member of a group", config.me)
        };
        let topology = &config.topology;
        let leaders = topology.group_ids().map(|group| topology.first_ballot(group).leader()).collect();
        let windows = (0..topology.clients()).map(|_| Window::new(config.window)).collect();
        Replica {
            group,
            bit: 1 << index,
            ballot: topology.first_ballot(group),
            leaders,
            clock: 0,
            counter: 0,
            windows,
            order: Order::with_capacity(topology.clients() * config.window as usize),
            delivered: 0,
            put_off: 0,
            config,
        }
    }

    /// This member's group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The group's ballot.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Whether this member leads its group.
    #[inline]
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.ballot.leader() == self.config.me
    }

    /// Messages delivered so far.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The logical clock.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The first slot of a client that is not free here yet.
    ///
    /// # Panics
    /// If there is no such client place.
    #[inline]
    #[must_use]
    pub fn first_held(&self, client: ClientId) -> u64 {
        self.windows[usize::from(client.0)].base()
    }

    /// A message arrived whole in a client's ring.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_message<E: Effects>(
        &mut self,
        client: ClientId,
        header: &Header<'_>,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        let (own, slot) = self.place_of(client, header)?;
        let window = &mut self.windows[usize::from(client.0)];
        window.slot_mut(slot).hold(client, slot, own, header)?;
        window.held_one_more();
        if !self.is_leader() {
            self.decide(client, slot);
        }
        self.settle(client, effects);
        Ok(())
    }

    /// The slot of a message that [`on_message`](Replica::on_message) would take next.
    ///
    /// # Errors
    /// See [`Rejected`].
    #[inline]
    pub fn admit(&self, client: ClientId, header: &Header<'_>) -> Result<u64, Rejected> {
        self.place_of(client, header).map(|(_, slot)| slot)
    }

    /// Position of the own group among a message's destinations, and its slot here.
    fn place_of(&self, client: ClientId, header: &Header<'_>) -> Result<(usize, u64), Rejected> {
        let window = self.windows.get(usize::from(client.0)).ok_or(Rejected::Client(client.0))?;
        let (own, slot) = header
            .destinations()
            .enumerate()
            .find_map(|(position, to)| (to.group == self.group).then_some((position, to.slot)))
            .ok_or(Rejected::NotForUs)?;
        Ok((own, window.admit(client, slot, header.sequence)?))
    }

    /// What every event ends with: assign what may be assigned now, deliver what is due.
    fn settle<E: Effects>(&mut self, client: ClientId, effects: &mut E) {
        if self.is_leader() {
            self.assign_ready(client, effects);
        }
        self.deliver_due(effects);
    }

    /// Finds the slot that an item is about. `Ok(None)`: freed already, nothing to do.
    fn locate(&mut self, head: &Head) -> Result<Option<u64>, Rejected> {
        let plant = self.config.plant;
        let window = self.windows.get_mut(usize::from(head.client.0)).ok_or(Rejected::Client(head.client.0))?;
        let mut slot = window.resolve(head);
        if planted!(plant, AckWithoutIdentity) && slot.is_none() {
            let lap = u64::from(self.config.window);
            slot = Some(window.base() + (head.slot.from(window.base()) - window.base()) % lap);
        }
        if planted!(plant, IdByHash) {
            slot = window.first_with_hash(head.sequence).or(slot);
        }
        let Some(slot) = slot else { return Ok(None) };
        window.check(head.client, slot)?;
        let lenient = plant.confuses_messages();
        window.slot_mut(slot).name(head, slot, lenient)?;
        Ok(Some(slot))
    }

    /// Everything that decides what this member does next; the order is derived from it.
    fn essence(&self) -> (Ballot, u64, u64, &[Window], u64, u64) {
        (self.ballot, self.clock, self.counter, &self.windows, self.delivered, self.put_off)
    }
}

impl PartialEq for Replica {
    fn eq(&self, other: &Self) -> bool {
        self.config.me == other.config.me && self.essence() == other.essence()
    }
}

impl Eq for Replica {}

impl Hash for Replica {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.config.me.hash(state);
        self.essence().hash(state);
    }
}
