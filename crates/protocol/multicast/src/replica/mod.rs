//! The state machine of one member of a group.
//!
//! Input comes as calls (`on_message`, `on_stream`, `on_timestamp`, `on_ack`), output goes to an [`Effects`]. One event
//! is one step of one thread: raising the clock and appending the vector entry can never come apart.
//!
//! # States of a message at a member
//! *placeholder* (timestamps or acknowledgements came before the body) → *held* (body there) → *ordered* (own group's
//! timestamp known from the stream, or assigned here) → *vector* (stream processed through the whole vector) →
//! *delivered*; and *decided* as soon as it is held and a majority of every destination group acknowledged one vector.
//! Or *void*: never to be delivered (`void.rs`).
//! Delivered messages are retained until their places are used again.
//!
//! # States of a member
//! *joining* (no memory: promises nothing, votes for nothing) → *member*. A member has promised the largest ballot that it
//! heard of, and has synced with (installed the complete state of) a ballot that is not larger. It processes, acknowledges
//! and delivers only while the two are the same. It is idle (a follower), *campaigning* (asks for promises), *preparing*
//! (has the state, installs it at a majority), *leading*, or *installing* (waits for bodies that a state names).
//!
//! # Invariants
//! - What a member has promised and what it has synced with never become smaller. One step promises a ballot and takes the
//!   snapshot that the promise carries.
//! - What a member has processed of one ballot never becomes less: `(ballot, counter)` only rises. Its acknowledgements lean
//!   on that, and so does its stream, whose entries are read once (`install.rs`).
//! - A new leader's state contains every message that a majority acknowledged in an earlier ballot, with all its times.
//! - The clock is at least every time in every vector that this member has appended or processed.
//! - A member has heard of the ballots of all times in vectors that it has appended or processed: followers are told in the
//!   stream, before. So no leader takes a time from a leader that is older than one whose time counted here.
//! - Times given by one leader rise with the stream's counter.
//! - A message counts in the order with its own group's tentative timestamp until it is itself decided; keys only rise.

mod acks;
mod assign;
mod deliver;
mod install;
mod letters;
mod lives;
mod order;
mod outbid;
mod recover;
mod repair;
mod slot;
mod starved;
mod stream;
mod vector;
mod void;
mod votes;
mod window;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::item::Head;
use crate::peer_message::{Admitted, PeerMessage};
use crate::plant::planted;
use crate::{
    Ack, Ballot, ClientId, GroupId, Header, MessageId, Plant, ProcessRole, RemoteTimestamp, StreamItem, Timestamp,
    Topology,
};
use install::Pending;
use lives::{Asking, Lives};
use order::Order;
use outbid::Standing;
use recover::Candidacy;
use starved::Starved;
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
    /// Ticks after which something that makes no progress is asked for, or said, again.
    pub retry_ticks: u8,
    /// A planted bug.
    pub plant: Plant,
}

impl ReplicaConfig {
    /// Ticks that are patient enough for a loaded host, if they come every few milliseconds.
    pub const RETRY_TICKS: u8 = 5;
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
    /// Slots of a client are free that were not delivered: its process may wait for them.
    fn freed(&mut self, _client: ClientId) {}
    /// Whether what was appended for followers before has not gone out yet: saying it again would only add to it.
    fn is_held_up(&self) -> bool {
        false
    }
    /// Append to the stream of every follower: what follows is of this ballot. What was not yet written of an earlier
    /// ballot need not be written any more.
    fn begin_stream(&mut self, ballot: Ballot);
    /// Write a letter to a member. If it [carries a snapshot](PeerMessage::carries_snapshot), the application's state as it is
    /// now goes with it.
    fn send(&mut self, to: ProcessId, message: &PeerMessage);
    /// Forward the body that is held in a slot to a member; answer [`PeerMessage::Gone`] if it is not there any more.
    fn body(&mut self, to: ProcessId, client: ClientId, slot: u64);
    /// Forward a body as well, if it is still there.
    fn spare_body(&mut self, to: ProcessId, client: ClientId, slot: u64) {
        self.body(to, client, slot);
    }
    /// The application takes over the state that came with the letter at hand: that after `number` deliveries.
    fn restore(&mut self, number: u64);
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
    /// The own group's ballot; the message was decided under it, or was known by then to be decided.
    pub ballot: Ballot,
}

/// Why an input was refused. The state did not change. It was sealed, so it is not a torn write but a peer that does not
/// keep to the protocol.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// No such client place.
    #[error("client place {0} does not exist")]
    Client(u16),
    /// A stream entry whose body is not held was not made to wait.
    #[error("an entry about slot {slot} of client {client}, whose body is not held")]
    NotHeld {
        /// The client.
        client: u16,
        /// The slot.
        slot: u64,
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
    /// A process without memory leads nobody.
    #[error("this process has not got its group's state yet")]
    Joining,
    /// Nor does one whose place another process has taken.
    #[error("another process has taken this one's place")]
    Superseded,
    /// A state of another cluster, or one that contradicts itself.
    #[error("a state that is not one of this group: {0}")]
    State(&'static str),
}

/// What a member is doing besides processing messages.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// Nothing: it follows.
    Idle,
    /// Asks for promises.
    Campaigning(Box<Candidacy>),
    /// Leads as soon as a majority has its state.
    Preparing,
    /// Leads.
    Leading,
    /// Waits for what a leader's state needs.
    Installing(Box<Pending>),
}

/// Counts of the rare ways in which a member caught up with its leader. A simulation counts them, to tell whether it
/// comes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CatchUps {
    /// States of the installed ballot that were not as far as what was processed here, but ahead in what was delivered.
    pub overtaken: u64,
    /// Requests for the leader's state because the stream did not bring what the leader has.
    pub starved: u64,
}

/// One member of a group.
#[derive(Clone, Debug)]
pub struct Replica {
    config: ReplicaConfig,
    group: GroupId,
    bit: u64,
    /// Without memory: its life.
    joining: Option<u64>,
    /// The members' lives; its own, too.
    lives: Lives,
    /// Another process of this place was heard of, which came later.
    superseded: bool,
    /// Members that said they are without memory too, while this one is.
    fresh: u64,
    /// Who they are: they begin the group's life with this one, if they have not yet.
    genesis: Vec<Admitted>,
    asking: Asking,
    promised: Ballot,
    /// The last ballot whose complete state is installed here.
    ballot: Ballot,
    /// The ballot of the stream's entries that come now.
    stream_ballot: Ballot,
    leads: bool,
    stage: Stage,
    /// By group, the largest ballot that was heard of.
    known: Vec<Ballot>,
    /// Of those, what the followers were told: with the state, or in the stream.
    said: Vec<Ballot>,
    /// Processes that want to be taken in.
    joiners: Vec<Admitted>,
    /// Processes that the ballot led from here takes in.
    admitted: Vec<Admitted>,
    /// Members that have installed the ballot led from here.
    installed: u64,
    /// Of those, who stands by it although a larger one was heard of.
    standing: Standing,
    clock: u64,
    counter: u64,
    windows: Vec<Window>,
    order: Order,
    delivered: u64,
    /// Ticks since letters were repeated.
    age: u8,
    starved: Starved,
    catch_ups: CatchUps,
    /// States of other members that were taken over.
    states: u64,
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
        let mut replica = Replica::joining(config, 0);
        replica.begin_life();
        replica
    }

    /// A process that has no memory of its group: it was never there, or crashed. It asks its group to take it in. If all
    /// members are in this state, the group begins its life.
    ///
    /// # Panics
    /// As [`new`](Replica::new).
    #[must_use]
    pub fn joining(config: ReplicaConfig, life: u64) -> Self {
        assert!(config.window.is_power_of_two(), "a window of {} slots is not a power of two", config.window);
        let Some(ProcessRole::Member { group, index }) = config.topology.role(config.me) else {
            panic!("{} is not a member of a group", config.me)
        };
        let topology = &config.topology;
        let known: Vec<Ballot> = topology.group_ids().map(|group| topology.first_ballot(group)).collect();
        let windows = (0..topology.clients()).map(|_| Window::new(config.window)).collect();
        let mut replica = Replica {
            group,
            bit: 1 << index,
            joining: Some(life),
            lives: Lives::new(topology, group, usize::from(index)),
            superseded: false,
            fresh: 0,
            genesis: Vec::new(),
            asking: Asking::default(),
            promised: Ballot::NONE,
            ballot: Ballot::NONE,
            stream_ballot: Ballot::NONE,
            leads: false,
            stage: Stage::Idle,
            said: known.clone(),
            known,
            joiners: Vec::new(),
            admitted: Vec::new(),
            installed: 0,
            standing: Standing::default(),
            clock: 0,
            counter: 0,
            windows,
            order: Order::with_capacity(topology.clients() * config.window as usize),
            delivered: 0,
            age: 0,
            starved: Starved::default(),
            catch_ups: CatchUps::default(),
            states: 0,
            put_off: 0,
            config,
        };
        replica.lives.be(life);
        if replica.config.topology.size(group) == 1 {
            replica.begin_life();
        }
        replica
    }

    /// The group's first ballot, with nothing in it.
    fn begin_life(&mut self) {
        let first = self.config.topology.first_ballot(self.group);
        (self.promised, self.ballot, self.stream_ballot, self.joining) = (first, first, first, None);
        for (process, life) in &self.genesis {
            self.lives.hear_of(*process, *life);
        }
        if first.leader() == self.config.me {
            (self.leads, self.stage, self.installed) = (true, Stage::Leading, self.bit);
        }
    }

    /// Returns the bytes of a place of a client's window: a slot and an entry in the order.
    pub(crate) fn place_bytes() -> u64 {
        (size_of::<slot::Slot>() + size_of::<order::Entry>()) as u64
    }

    /// Returns the bytes that such a place keeps besides, once a message to so many groups was in it.
    pub(crate) fn named_bytes(groups: usize) -> u64 {
        slot::Slot::heap_bytes(groups)
    }

    /// This member's group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The group's ballot: the last one whose state is installed here.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// The largest ballot that this member has promised.
    #[must_use]
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// Whether this process has no memory of its group yet.
    #[must_use]
    pub fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// While this process has no memory of its group: other members that asked lately to be taken in, because they have none
    /// either. If a majority of the group has none, nobody is taken in until all have none.
    pub fn also_without_memory(&self) -> impl Iterator<Item = ProcessId> {
        let asking = if self.is_joining() { self.asking.now | self.asking.before } else { 0 };
        let bit = |process: &ProcessId| self.config.topology.member_bit(self.group, *process).unwrap_or(0);
        self.others().filter(move |process| asking & bit(process) != 0)
    }

    /// Returns the largest ballot of a group that this member has heard of; the default one, in which no group ever is,
    /// if there is no such group.
    #[must_use]
    pub fn known(&self, group: GroupId) -> Ballot {
        self.known.get(usize::from(group.0)).copied().unwrap_or_default()
    }

    /// Whether this member leads its group, and a majority has its state.
    #[inline]
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads
    }

    /// Whether this member asks for promises or installs its state.
    #[must_use]
    pub fn is_candidate(&self) -> bool {
        matches!(self.stage, Stage::Campaigning(_) | Stage::Preparing)
    }

    /// The largest number of a client that this member has heard of.
    #[must_use]
    pub fn last_sequence(&self, client: ClientId) -> u64 {
        self.windows.get(usize::from(client.0)).map_or(0, Window::last_sequence)
    }

    /// The client's number for the message in a retained slot.
    #[must_use]
    pub fn sequence_of(&self, client: ClientId, slot: u64) -> Option<u64> {
        let window = self.windows.get(usize::from(client.0))?;
        window.is_here(slot).then(|| window.slot(slot).sequence)
    }

    /// Messages that have this group's timestamp and are not delivered here.
    pub fn undelivered(&self) -> impl Iterator<Item = MessageId> + '_ {
        self.windows.iter().zip(0..).flat_map(|(window, client)| {
            let here = window.open().filter(|slot| window.is_here(*slot)).map(|slot| window.slot(slot));
            let open = here.filter(|message| message.ordered && !message.delivered && !message.void);
            open.map(move |message| MessageId { client: ClientId(client), sequence: message.sequence })
        })
    }

    /// Messages delivered so far.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns how often this member caught up in a rare way.
    #[must_use]
    pub fn catch_ups(&self) -> CatchUps {
        self.catch_ups
    }

    /// Returns how many states of other members were taken over here. After each of them slots may be free that this
    /// member did not deliver, and sequences taken that it has not seen.
    #[inline]
    #[must_use]
    pub fn states(&self) -> u64 {
        self.states
    }

    /// The logical clock.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns the first slot of a client that is not delivered here yet; 0 if there is no such client place.
    #[inline]
    #[must_use]
    pub fn first_held(&self, client: ClientId) -> u64 {
        self.windows.get(usize::from(client.0)).map_or(0, Window::first_undelivered)
    }

    /// A message arrived whole, from its client or forwarded. One that is held or delivered already changes nothing.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_message<E: Effects>(
        &mut self,
        client: ClientId,
        header: &Header<'_>,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        let (own, Some(slot)) = self.place_of(client, header)? else { return Ok(()) };
        let window = &mut self.windows[usize::from(client.0)];
        window.make_room(slot);
        window.slot_mut(slot).hold(client, slot, own, header)?;
        if !self.leads {
            self.decide(client, slot);
            self.body_came(effects);
        }
        self.settle(client, effects);
        Ok(())
    }

    /// The slot in which [`on_message`](Replica::on_message) would put a message; `None` if it is held there already, or
    /// delivered.
    ///
    /// # Errors
    /// See [`Rejected`].
    #[inline]
    pub fn admit(&self, client: ClientId, header: &Header<'_>) -> Result<Option<u64>, Rejected> {
        self.place_of(client, header).map(|(_, slot)| slot)
    }

    /// Position of the own group among a message's destinations, and its slot here.
    #[inline]
    fn place_of(&self, client: ClientId, header: &Header<'_>) -> Result<(usize, Option<u64>), Rejected> {
        let window = self.windows.get(usize::from(client.0)).ok_or(Rejected::Client(client.0))?;
        let (own, slot) = header
            .destinations()
            .enumerate()
            .find_map(|(position, to)| (to.group == self.group).then_some((position, to.slot)))
            .ok_or(Rejected::NotForUs)?;
        match window.admit(client, slot, header.sequence) {
            // Without memory nobody knows where a client's window is: what matters of this is forwarded later.
            Err(Rejected::BeyondWindow { .. }) if self.is_joining() => Ok((own, None)),
            admitted => Ok((own, admitted?)),
        }
    }

    /// What every event ends with: assign what may be assigned now, deliver what is due.
    fn settle<E: Effects>(&mut self, client: ClientId, effects: &mut E) {
        if self.leads {
            self.assign_ready(client, effects);
        }
        self.deliver_due(effects);
    }

    /// Finds the slot that an item is about. `Ok(None)`: freed already, nothing to do.
    #[inline]
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
        window.make_room(slot);
        let lenient = plant.confuses_messages();
        window.slot_mut(slot).name(head, slot, lenient)?;
        Ok(Some(slot))
    }

    /// Everything that decides what this member does next; the order is derived from it.
    fn essence(&self) -> impl Hash + PartialEq + '_ {
        let ballots =
            (self.joining, self.fresh, self.promised, self.ballot, self.stream_ballot, &self.known, &self.said);
        let roles = (&self.lives, self.superseded, &self.stage, &self.joiners, &self.admitted, self.installed);
        let roles = (roles, self.standing, self.starved);
        (ballots, roles, self.clock, self.counter, &self.windows, self.delivered, self.age, self.put_off)
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
