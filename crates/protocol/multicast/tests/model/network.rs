//! The channels of a run, and one step of one member: take the head of one channel.
//!
//! There is one FIFO per sender, receiver and queue pair, and no order between two of them (rule 1 of the fabric's
//! contract). A channel contains encoded words, so that every step passes through the real codec, too.

use std::collections::HashMap;
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ack, Ballot, ClientId, Delivery, Effects, Header, Item, PeerMessage, ProcessRole, RemoteTimestamp, Replica,
    StreamItem, Topology,
};

/// A FIFO from one process to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Wire {
    /// A client's messages.
    Body { client: u16, to: u16 },
    /// The leader's dense stream.
    Stream { from: u16, to: u16 },
    /// Timestamps and acknowledgements; with failures, also peer messages and forwarded bodies.
    Control { from: u16, to: u16 },
    /// Requests of the member's shell for entries of its group. They exist only in searches with failures.
    Requests { to: u16 },
}

impl Wire {
    pub(crate) fn receiver(self) -> usize {
        match self {
            Wire::Body { to, .. } | Wire::Stream { to, .. } | Wire::Control { to, .. } | Wire::Requests { to } => {
                usize::from(to)
            }
        }
    }
}

/// All channels of a cluster, numbered.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) topology: Arc<Topology>,
    pub(crate) wires: Vec<Wire>,
    numbers: HashMap<Wire, usize>,
    followers: Vec<Vec<u16>>,
}

impl Network {
    pub(crate) fn new(topology: &Arc<Topology>) -> Self {
        let members = topology.all_members() as u16;
        let (mut wires, mut followers) = (Vec::new(), vec![Vec::new(); usize::from(members)]);
        for to in 0..members {
            wires.extend((0..topology.clients() as u16).map(|client| Wire::Body { client, to }));
            let Some(ProcessRole::Member { group, .. }) = topology.role(ProcessId(to)) else { continue };
            let leader = topology.first_ballot(group).leader().0;
            if leader != to {
                wires.push(Wire::Stream { from: leader, to });
                followers[usize::from(leader)].push(to);
            }
            wires.extend((0..members).filter(|from| *from != to).map(|from| Wire::Control { from, to }));
        }
        let numbers = wires.iter().enumerate().map(|(number, wire)| (*wire, number)).collect();
        Network { topology: topology.clone(), wires, numbers, followers }
    }

    pub(crate) fn number(&self, wire: Wire) -> usize {
        self.numbers[&wire]
    }

    /// Returns the channels into which a client's message is written.
    pub(crate) fn body_wires(&self, client: u16, to: &[u16]) -> Vec<usize> {
        let members = to.iter().flat_map(|group| self.topology.members(stentor_multicast::GroupId(*group)));
        members.map(|to| self.number(Wire::Body { client, to: to.0 })).collect()
    }
}

/// The result of one step.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Channels and words, in posting order.
    pub(crate) sends: Vec<(usize, Vec<u64>)>,
    pub(crate) deliveries: Vec<Delivery>,
    /// The reason why the input was refused, or a peer message that the member sent without a failure.
    pub(crate) rejected: Option<String>,
}

struct Recorder<'a> {
    network: &'a Network,
    me: u16,
    step: Step,
}

impl Recorder<'_> {
    fn send(&mut self, wire: Wire, item: &Item<'_>) {
        let mut words = Vec::new();
        item.encode(&mut words);
        self.step.sends.push((self.network.number(wire), words));
    }
}

impl Effects for Recorder<'_> {
    fn to_followers(&mut self, item: &StreamItem<'_>) {
        let network = self.network;
        for &to in &network.followers[usize::from(self.me)] {
            self.send(Wire::Stream { from: self.me, to }, &Item::Stream(*item));
        }
    }

    fn timestamp(&mut self, to: ProcessId, item: &RemoteTimestamp) {
        self.send(Wire::Control { from: self.me, to: to.0 }, &Item::Timestamp(*item));
    }

    fn acknowledge(&mut self, to: ProcessId, ack: &Ack<'_>) {
        self.send(Wire::Control { from: self.me, to: to.0 }, &Item::Ack(*ack));
    }

    fn deliver(&mut self, delivery: &Delivery) {
        self.step.deliveries.push(*delivery);
    }

    fn begin_stream(&mut self, _ballot: Ballot) {}

    fn send(&mut self, _to: ProcessId, message: &PeerMessage) {
        self.step.rejected = Some(format!("a message without a failure: {message:?}"));
    }

    fn body(&mut self, _to: ProcessId, _client: ClientId, _slot: u64) {}

    fn restore(&mut self, _number: u64) {}
}

/// Returns whether a write of a member goes to a destination of its message. `about` are the message's destination
/// groups.
pub(crate) fn is_genuine(network: &Network, wire: usize, about: &[u16]) -> bool {
    let receiver = ProcessId(network.wires[wire].receiver() as u16);
    matches!(network.topology.role(receiver), Some(ProcessRole::Member { group, .. }) if about.contains(&group.0))
}

/// Returns the client and sequence of the message that an item is about.
pub(crate) fn about(words: &[u64]) -> (u16, u64) {
    let (item, _) = Item::decode(words, 0).expect("a member sent an item that does not decode");
    let head = item.head().expect("an item about a message");
    (head.client.0, head.sequence)
}

/// Passes the words at the head of a channel to its receiver. Returns `None` for a stream entry that waits for its
/// body.
pub(crate) fn take(network: &Network, replica: &mut Replica, wire: Wire, words: &[u64]) -> Option<Step> {
    let mut out = Recorder { network, me: wire.receiver() as u16, step: Step::default() };
    let taken = match wire {
        Wire::Body { client, .. } => {
            let header = Header::decode(words, words.len() * 8, &network.topology).map_err(|e| e.to_string());
            header.and_then(|h| replica.on_message(ClientId(client), &h, &mut out).map_err(|e| e.to_string()))
        }
        Wire::Stream { from, .. } | Wire::Control { from, .. } => match Item::decode(words, 0) {
            Ok((Item::Stream(item), _)) if matches!(wire, Wire::Stream { .. }) => {
                if replica.stream_waits(ProcessId(from), &item) {
                    return None;
                }
                replica.on_stream(ProcessId(from), &item, &mut out).map_err(|e| e.to_string())
            }
            Ok((Item::Timestamp(item), _)) => {
                replica.on_timestamp(ProcessId(from), &item, &mut out).map_err(|e| e.to_string())
            }
            Ok((Item::Ack(ack), _)) => replica.on_ack(ProcessId(from), &ack, &mut out).map_err(|e| e.to_string()),
            other => Err(format!("{other:?} in {wire:?}")),
        },
        Wire::Requests { .. } => Err("a request for an entry".to_owned()),
    };
    out.step.rejected = out.step.rejected.or(taken.err());
    Some(out.step)
}
