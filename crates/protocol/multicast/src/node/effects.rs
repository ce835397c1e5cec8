//! The state machine's output on a fabric: outboxes per peer, the stream's outbox, deliveries to the application.

use std::collections::VecDeque;
use std::sync::Arc;

use stentor_fabric::ProcessId;

use super::app::{Application, Delivered, RestoreError};
use super::counts::{Counts, RemoteOp, Step};
use super::store::{HeldMessage, Store};
use super::transfer::{Backlog, StateReader};
use crate::item::Head;
use crate::mutant::mutant;
use crate::{
    Ack, Ballot, ClientId, Delivery, Destination, DestinationGroups, Effects, Item, MessageId, Mutant, PeerMessage,
    RemoteTimestamp, StreamItem, Timestamp, Topology, ids,
};

/// Items that wait to be written, and the state that belongs to the output of a member.
#[derive(Debug)]
pub(super) struct Outputs {
    /// Outbox of the stream to all followers.
    pub(super) stream: Vec<u64>,
    /// `true` if the stream's outbox could not be written completely at the last attempt.
    pub(super) held_up: bool,
    followers: u64,
    /// Outboxes, indexed by process.
    pub(super) boxes: Vec<Vec<u64>>,
    /// Processes with a non-empty outbox.
    pub(super) dirty: Vec<ProcessId>,
    /// Indexed by process: `true` if all links with the process are up and its hello has arrived. `false` for this
    /// process.
    pub(super) connected: Vec<bool>,
    /// Clients whose credit may be due.
    pub(super) touched: Vec<ClientId>,
    is_touched: Vec<bool>,
    /// Indexed by client: `true` if the client waits for a credit, which is then sent even if little is free.
    pub(super) notify: Vec<bool>,
    /// Held messages that the state machine has [dropped](Effects::dropped): client, slot, sequence.
    pub(super) dropped: Vec<(ClientId, u64, u64)>,
    /// Indexed by client: `true` if the status to report to the client's process may have changed.
    pub(super) place_changed: Vec<bool>,
    /// Peer messages and bodies to send.
    pub(super) letters: Vec<Outgoing>,
    pub(super) counts: Counts,
    pub(super) operations: Option<Vec<RemoteOp>>,
    /// Number of deliveries that the application has made, by itself or through a restored state: see `transfer.rs`.
    pub(super) applied: u64,
    /// Timestamp of the last delivery. Before the first delivery of this process, the smallest timestamp.
    pub(super) last: Timestamp,
    /// The last ballot that this member prepared, and the clock with which the ballot began.
    pub(super) recovered: (Ballot, u64),
    /// Deliveries made while another member receives the state.
    pub(super) backlog: Option<Backlog>,
    /// The reason why the application could not restore a state.
    pub(super) failure: Option<RestoreError>,
    mutant: Mutant,
    me: ProcessId,
    group: crate::GroupId,
    /// The destination of the group's own entries, as a header encodes it: this group.
    own_group: [u64; 1],
    topology: Arc<Topology>,
}

impl Outputs {
    pub(super) fn new(topology: &Arc<Topology>, me: ProcessId, group: crate::GroupId, mutant: Mutant) -> Self {
        Outputs {
            stream: Vec::with_capacity(8192),
            held_up: false,
            followers: topology.size(group) as u64 - 1,
            boxes: (0..topology.all_members()).map(|_| Vec::with_capacity(4096)).collect(),
            dirty: Vec::with_capacity(topology.all_members()),
            connected: vec![false; topology.all_members()],
            touched: Vec::with_capacity(topology.clients()),
            is_touched: vec![false; topology.clients()],
            notify: vec![false; topology.clients()],
            dropped: Vec::new(),
            place_changed: vec![false; topology.clients()],
            letters: Vec::new(),
            counts: Counts::default(),
            operations: None,
            applied: 0,
            last: Timestamp::default(),
            recovered: (Ballot::NONE, 0),
            backlog: None,
            failure: None,
            mutant,
            me,
            group,
            own_group: [Destination { group, slot: 0 }.to_word()],
            topology: topology.clone(),
        }
    }

    /// Delivers a message to the application, unless a restored state already contains it.
    #[inline]
    pub(super) fn apply<A: Application>(&mut self, message: &Delivered<'_>, app: &mut A) {
        if message.number <= self.applied && !mutant!(self.mutant, AppliedAgain) {
            return;
        }
        let follows = message.number == self.applied + 1 || self.failure.is_some();
        debug_assert!(follows || !matches!(self.mutant, Mutant::None), "a delivery is missing");
        self.applied = message.number;
        if self.failure.is_some() {
            return;
        }
        app.deliver(message);
        if let Some(backlog) = &mut self.backlog {
            backlog.push(message);
        }
    }

    /// Makes the application restore the state after `number` deliveries.
    pub(super) fn restore<A: Application>(&mut self, number: u64, mut state: StateReader<'_>, app: &mut A) {
        self.applied = number;
        if self.failure.is_none() {
            self.failure = app.restore_from(number, &mut state).err();
        }
    }

    /// Resets the application to the empty state if it has a state, which belongs to a history of the group that has
    /// ended.
    pub(super) fn begin_application<A: Application>(&mut self, app: &mut A) {
        if self.applied != 0 {
            self.restore(0, StateReader::new(&mut VecDeque::new()), app);
        }
    }

    /// Returns whether a queued message to `member` carries the application's state.
    pub(super) fn sends_state(&self, member: ProcessId) -> bool {
        self.letters.iter().any(|outgoing| match outgoing {
            Outgoing::PeerMessage { to, letter } => *to == member && letter.carries_snapshot(),
            Outgoing::Body { .. } => false,
        })
    }

    /// Returns whether another member is connected.
    pub(super) fn is_connected(&self, to: ProcessId) -> bool {
        self.connected.get(to.index()).is_some_and(|connected| *connected)
    }

    /// Notes that this client's credit may be due.
    pub(super) fn touch(&mut self, client: ClientId) {
        if !std::mem::replace(&mut self.is_touched[usize::from(client.0)], true) {
            self.touched.push(client);
        }
    }

    /// Removes a client from the list of [`touch`](Outputs::touch).
    pub(super) fn untouch(&mut self, client: ClientId) {
        self.is_touched[usize::from(client.0)] = false;
    }

    #[inline]
    fn record(&mut self, head: Option<&Head>, step: Step, to: ProcessId) {
        if self.operations.is_none() {
            return;
        }
        // The message of a no-op slot may be unknown, and then has no id.
        let named = head.filter(|head| !ids::is_nameless(head.sequence));
        if let (Some(operations), Some(head)) = (&mut self.operations, named) {
            let message = MessageId { client: head.client, sequence: head.sequence };
            operations.push(RemoteOp { message, step, to });
        }
    }

    /// Counts an item of this step, and returns the outbox of a process, to which the caller adds the item.
    #[inline]
    fn box_of(&mut self, to: ProcessId, step: Step) -> &mut Vec<u64> {
        let outbox = &mut self.boxes[to.index()];
        if outbox.is_empty() {
            self.dirty.push(to);
        }
        self.counts.item(step, 1);
        outbox
    }
}

/// The receiver of the effects of one input.
pub(super) struct Out<'a, A> {
    pub(super) outputs: &'a mut Outputs,
    pub(super) stores: &'a [Store],
    pub(super) app: &'a mut A,
}

/// A message to another member.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A peer message of the state machine.
    PeerMessage { to: ProcessId, letter: Box<PeerMessage> },
    /// A body that is held here. If it is no longer held when it is sent, the receiver is notified, unless `spare` is
    /// set.
    Body { to: ProcessId, client: ClientId, slot: u64, spare: bool },
}

impl<A: Application> Out<'_, A> {
    /// Delivers one of the group's own entries to the application, as an empty message to this group.
    #[cold]
    fn deliver_own_entry(&mut self, delivery: &Delivery) {
        let Delivery { id, timestamp, number, ballot, origin, .. } = *delivery;
        let own_group = self.outputs.own_group;
        let groups = DestinationGroups::from_words(&own_group);
        let message = Delivered { id, timestamp, number, ballot, origin, groups, enveloped: false, payload: &[] };
        self.outputs.apply(&message, self.app);
    }
}

impl<A: Application> Effects for Out<'_, A> {
    fn is_held_up(&self) -> bool {
        self.outputs.held_up
    }

    fn reaches(&self, to: ProcessId) -> bool {
        self.outputs.is_connected(to)
    }

    #[inline]
    fn to_followers(&mut self, item: &StreamItem<'_>) {
        let outputs = &mut *self.outputs;
        if outputs.followers == 0 {
            return;
        }
        item.encode(&mut outputs.stream);
        let step = Step::from(item.kind());
        outputs.counts.item(step, outputs.followers);
        if outputs.operations.is_some() {
            let me = outputs.me;
            for follower in outputs.topology.members(outputs.group).filter(|process| *process != me) {
                outputs.record(item.message(), step, follower);
            }
        }
    }

    #[inline]
    fn timestamp(&mut self, to: ProcessId, item: &RemoteTimestamp) {
        item.encode(self.outputs.box_of(to, Step::Timestamp));
        self.outputs.record(Some(&item.head), Step::Timestamp, to);
    }

    #[inline]
    fn acknowledge(&mut self, to: ProcessId, ack: &Ack<'_>) {
        ack.encode(self.outputs.box_of(to, Step::Ack));
        self.outputs.record(Some(&ack.head), Step::Ack, to);
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.app.has_room()
    }

    #[inline]
    fn deliver(&mut self, delivery: &Delivery) {
        let client = delivery.id.client;
        self.outputs.last = delivery.timestamp;
        let Some(store) = self.stores.get(usize::from(client.0)) else { return self.deliver_own_entry(delivery) };
        let HeldMessage { payload, groups, enveloped, notify } = store.held(delivery.slot);
        let message = Delivered {
            id: delivery.id,
            timestamp: delivery.timestamp,
            number: delivery.number,
            ballot: delivery.ballot,
            origin: delivery.origin,
            groups,
            enveloped,
            payload,
        };
        self.outputs.apply(&message, self.app);
        self.outputs.notify[usize::from(client.0)] |= notify;
        self.outputs.touch(client);
    }

    fn freed(&mut self, client: ClientId) {
        self.outputs.touch(client);
    }

    fn dropped(&mut self, client: ClientId, slot: u64, sequence: u64) {
        self.outputs.dropped.push((client, slot, sequence));
    }

    fn place_changed(&mut self, client: ClientId) {
        self.outputs.place_changed[usize::from(client.0)] = true;
        self.outputs.notify[usize::from(client.0)] = true;
        self.outputs.touch(client);
    }

    fn begin_stream(&mut self, ballot: Ballot) {
        let outputs = &mut *self.outputs;
        if outputs.followers != 0 {
            Item::Begin(ballot).encode(&mut outputs.stream);
        }
    }

    fn recovered(&mut self, ballot: Ballot, clock: u64) {
        self.outputs.recovered = (ballot, clock);
    }

    fn send(&mut self, to: ProcessId, message: &PeerMessage) {
        self.outputs.letters.push(Outgoing::PeerMessage { to, letter: Box::new(message.clone()) });
    }

    fn body(&mut self, to: ProcessId, client: ClientId, slot: u64) {
        self.outputs.letters.push(Outgoing::Body { to, client, slot, spare: false });
    }

    fn spare_body(&mut self, to: ProcessId, client: ClientId, slot: u64) {
        self.outputs.letters.push(Outgoing::Body { to, client, slot, spare: true });
    }

    fn restore(&mut self, number: u64) {
        // The application restored the state before the message with it was passed to the state machine.
        let is_there = number <= self.outputs.applied || !matches!(self.outputs.mutant, Mutant::None);
        debug_assert!(is_there, "the state counts deliveries that the application has not made");
    }

    fn begin_history(&mut self) {
        self.outputs.begin_application(self.app);
    }
}
