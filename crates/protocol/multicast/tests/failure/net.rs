//! Everything in flight: one FIFO per sender, receiver and queue pair.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ack, Ballot, ClientId, Delivery, Effects, GroupId, Item, MessageId, PeerMessage, RemoteTimestamp, StreamItem,
    Timestamp, Topology,
};

/// The deliveries of one process, in order.
pub(crate) type Log = Vec<(MessageId, Timestamp)>;

/// The content of one write.
#[derive(Clone, Debug)]
pub(crate) enum Parcel {
    /// A client's message, written by its client or forwarded by a member.
    Body(ClientId, Vec<u64>),
    /// A client's message in this slot, which a member forwards in the present step. A [`Body`](Parcel::Body) replaces
    /// it at the end of the step.
    Held(ClientId, u64),
    /// An item.
    Item(Vec<u64>),
    /// A peer message, with the application's state if it carries one.
    PeerMessage(Vec<u64>, Option<Log>),
}

/// A queue pair, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Wire {
    Body { client: u16, to: u16 },
    Stream { from: u16, to: u16 },
    Control { from: u16, to: u16 },
}

impl Wire {
    pub(crate) fn receiver(self) -> u16 {
        match self {
            Wire::Body { to, .. } | Wire::Stream { to, .. } | Wire::Control { to, .. } => to,
        }
    }

    /// Returns whether this queue pair connects these two members.
    pub(crate) fn joins(self, a: u16, b: u16) -> bool {
        match self {
            Wire::Body { .. } => false,
            Wire::Stream { from, to } | Wire::Control { from, to } => (from, to) == (a, b) || (from, to) == (b, a),
        }
    }

    pub(crate) fn touches(self, process: u16) -> bool {
        match self {
            Wire::Body { to, .. } => to == process,
            Wire::Stream { from, to } | Wire::Control { from, to } => from == process || to == process,
        }
    }
}

/// All queue pairs.
#[derive(Default, Debug)]
pub(crate) struct Net {
    pub(crate) queues: HashMap<Wire, VecDeque<Parcel>>,
    /// Indexed by sender and receiver: `true` if entries of the stream are sent. After a reconnection, they are sent
    /// only when a state has named the stream's start.
    pub(crate) streams: HashMap<(u16, u16), bool>,
}

impl Net {
    pub(crate) fn push(&mut self, wire: Wire, parcel: Parcel) {
        self.queues.entry(wire).or_default().push_back(parcel);
    }

    /// Returns the queue pairs with contents, in a fixed order.
    pub(crate) fn filled(&self) -> Vec<Wire> {
        let mut filled: Vec<Wire> = self.queues.iter().filter(|(_, q)| !q.is_empty()).map(|(wire, _)| *wire).collect();
        filled.sort_unstable();
        filled
    }
}

/// The output of one step, in order.
pub(crate) struct Recorder<'a> {
    pub(crate) topology: Arc<Topology>,
    pub(crate) me: u16,
    pub(crate) group: GroupId,
    /// The deliveries of this process.
    pub(crate) log: &'a mut Log,
    /// The application's state that arrived with the present message.
    pub(crate) came: Option<Log>,
    pub(crate) sends: Vec<(Wire, Parcel)>,
    pub(crate) deliveries: usize,
    pub(crate) flaw: Option<String>,
}

impl Recorder<'_> {
    fn control(&mut self, to: ProcessId, item: &Item<'_>) {
        let mut words = Vec::new();
        item.encode(&mut words);
        self.sends.push((Wire::Control { from: self.me, to: to.0 }, Parcel::Item(words)));
    }

    fn stream(&mut self, item: &Item<'_>) {
        let mut words = Vec::new();
        item.encode(&mut words);
        let (me, group) = (self.me, self.group);
        for to in self.topology.clone().members(group).filter(|to| to.0 != me) {
            self.sends.push((Wire::Stream { from: me, to: to.0 }, Parcel::Item(words.clone())));
        }
    }
}

impl Effects for Recorder<'_> {
    fn to_followers(&mut self, item: &StreamItem<'_>) {
        self.stream(&Item::Stream(*item));
    }

    fn timestamp(&mut self, to: ProcessId, item: &RemoteTimestamp) {
        self.control(to, &Item::Timestamp(*item));
    }

    fn acknowledge(&mut self, to: ProcessId, ack: &Ack<'_>) {
        self.control(to, &Item::Ack(*ack));
    }

    fn deliver(&mut self, delivery: &Delivery) {
        self.log.push((delivery.id, delivery.timestamp));
        self.deliveries += 1;
        if delivery.number != self.log.len() as u64 {
            self.flaw = Some(format!("delivery {} is the {}th", delivery.number, self.log.len()));
        }
    }

    fn begin_stream(&mut self, ballot: Ballot) {
        self.stream(&Item::Begin(ballot));
    }

    fn send(&mut self, to: ProcessId, message: &PeerMessage) {
        let mut words = Vec::new();
        message.encode(&mut words);
        let state = message.carries_snapshot().then(|| self.log.clone());
        self.sends.push((Wire::Control { from: self.me, to: to.0 }, Parcel::PeerMessage(words, state)));
    }

    fn body(&mut self, to: ProcessId, client: ClientId, slot: u64) {
        self.sends.push((Wire::Control { from: self.me, to: to.0 }, Parcel::Held(client, slot)));
    }

    fn restore(&mut self, number: u64) {
        match self.came.take() {
            Some(log) if log.len() as u64 == number => *self.log = log,
            other => self.flaw = Some(format!("restored {number} deliveries from {:?}", other.map(|log| log.len()))),
        }
    }
}
