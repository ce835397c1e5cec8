//! The queue pairs between clients and members, and what is in them.

use std::collections::HashMap;
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_multicast::{GroupId, Item, PeerMessage, ProcessRole, Topology};

use crate::network::Wire;
use crate::verdict::Entry;

/// What is written at once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Parcel {
    /// A client's message, from the client or forwarded.
    Body(u16, Vec<u64>),
    /// An item.
    Item(Vec<u64>),
    /// A message, with the application's state if it carries that.
    PeerMessage(Vec<u64>, Option<Vec<Entry>>),
}

impl Parcel {
    /// In words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Parcel::Body(client, words) => format!("body {} of client {client}", words[0]),
            Parcel::Item(words) => format!("{:?}", Item::decode(words, 0).map(|(item, _)| item)),
            Parcel::PeerMessage(words, _) => format!("{:?}", PeerMessage::decode(words)),
        }
    }

    /// Whether it is a message that says where the leader's stream goes on.
    pub(crate) fn opens_stream(&self) -> bool {
        matches!(self, Parcel::PeerMessage(words, _) if matches!(PeerMessage::decode(words), Ok(PeerMessage::Install { .. })))
    }
}

/// All queue pairs, by number.
#[derive(Debug)]
pub(crate) struct Channels {
    pub(crate) topology: Arc<Topology>,
    pub(crate) wires: Vec<Wire>,
    /// By member: the channels that it takes from.
    pub(crate) into: Vec<Vec<usize>>,
    numbers: HashMap<Wire, usize>,
}

impl Channels {
    pub(crate) fn new(topology: &Arc<Topology>) -> Self {
        let members = topology.all_members() as u16;
        let group = |process| match topology.role(ProcessId(process)) {
            Some(ProcessRole::Member { group, .. }) => group,
            _ => GroupId(u16::MAX),
        };
        let mut wires = Vec::new();
        for to in 0..members {
            wires.extend((0..topology.clients() as u16).map(|client| Wire::Body { client, to }));
            let others = (0..members).filter(|from| *from != to);
            wires.extend(others.clone().filter(|from| group(*from) == group(to)).map(|from| Wire::Stream { from, to }));
            wires.extend(others.map(|from| Wire::Control { from, to }));
        }
        let mut into = vec![Vec::new(); usize::from(members)];
        wires.iter().enumerate().for_each(|(number, wire)| into[wire.receiver()].push(number));
        let numbers = wires.iter().enumerate().map(|(number, wire)| (*wire, number)).collect();
        Channels { topology: topology.clone(), wires, into, numbers }
    }

    pub(crate) fn number(&self, wire: Wire) -> usize {
        self.numbers[&wire]
    }

    /// The member that writes to a channel; `None` for a client's.
    pub(crate) fn writer(&self, wire: usize) -> Option<u16> {
        match self.wires[wire] {
            Wire::Body { .. } => None,
            Wire::Stream { from, .. } | Wire::Control { from, .. } => Some(from),
        }
    }

    /// The streams that a member takes from: who writes them, and their numbers.
    pub(crate) fn streams_into(&self, process: u16) -> impl Iterator<Item = (u16, usize)> + '_ {
        self.into[usize::from(process)].iter().filter_map(|wire| match self.wires[*wire] {
            Wire::Stream { from, .. } => Some((from, *wire)),
            _ => None,
        })
    }

    /// Whether a channel is between these two members.
    pub(crate) fn joins(&self, wire: usize, a: u16, b: u16) -> bool {
        let to = self.wires[wire].receiver() as u16;
        self.writer(wire).is_some_and(|from| (from, to) == (a, b) || (from, to) == (b, a))
    }

    /// The other members of a member's group, and itself.
    pub(crate) fn group_of(&self, process: u16) -> Vec<u16> {
        let Some(ProcessRole::Member { group, .. }) = self.topology.role(ProcessId(process)) else { return Vec::new() };
        self.topology.members(group).map(|member| member.0).collect()
    }
}
