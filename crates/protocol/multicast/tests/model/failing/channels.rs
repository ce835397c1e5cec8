//! The queue pairs between clients and members, and their contents.

use std::collections::HashMap;
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_multicast::{GroupId, Item, PeerMessage, ProcessRole, Topology};

use crate::network::Wire;
use crate::scenario::{Request, Scenario};
use crate::verdict::Entry;

/// The content of one write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Parcel {
    /// A client's message, written by the client or forwarded by a member.
    Body(u16, Vec<u64>),
    /// An item.
    Item(Vec<u64>),
    /// A peer message, with the application's state if it carries one.
    PeerMessage(Vec<u64>, Option<Vec<Entry>>),
    /// A request of the member's own shell.
    Request(Request),
}

impl Parcel {
    /// Describes the parcel in words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Parcel::Body(client, words) => format!("body {} of client {client}", words[0]),
            Parcel::Item(words) => format!("{:?}", Item::decode(words, 0).map(|(item, _)| item)),
            Parcel::PeerMessage(words, _) => format!("{:?}", PeerMessage::decode(words)),
            Parcel::Request(request) => format!("{request:?}"),
        }
    }

    /// Returns whether this is a peer message that names where the leader's stream resumes.
    pub(crate) fn opens_stream(&self) -> bool {
        matches!(self, Parcel::PeerMessage(words, _) if matches!(PeerMessage::decode(words), Ok(PeerMessage::Install { .. })))
    }
}

/// All queue pairs, numbered.
#[derive(Debug)]
pub(crate) struct Channels {
    pub(crate) topology: Arc<Topology>,
    pub(crate) wires: Vec<Wire>,
    /// Indexed by member: the channels into it.
    pub(crate) into: Vec<Vec<usize>>,
    numbers: HashMap<Wire, usize>,
}

impl Channels {
    pub(crate) fn new(topology: &Arc<Topology>, scenario: &Scenario) -> Self {
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
            let is_asked = scenario.requests.iter().any(|(member, _)| *member == to);
            wires.extend(is_asked.then_some(Wire::Requests { to }));
        }
        let mut into = vec![Vec::new(); usize::from(members)];
        wires.iter().enumerate().for_each(|(number, wire)| into[wire.receiver()].push(number));
        let numbers = wires.iter().enumerate().map(|(number, wire)| (*wire, number)).collect();
        Channels { topology: topology.clone(), wires, into, numbers }
    }

    pub(crate) fn number(&self, wire: Wire) -> usize {
        self.numbers[&wire]
    }

    /// Returns the member that writes to a channel; `None` for a channel of a client or of requests.
    pub(crate) fn writer(&self, wire: usize) -> Option<u16> {
        match self.wires[wire] {
            Wire::Body { .. } | Wire::Requests { .. } => None,
            Wire::Stream { from, .. } | Wire::Control { from, .. } => Some(from),
        }
    }

    /// Returns the streams into a member: their writers and numbers.
    pub(crate) fn streams_into(&self, process: u16) -> impl Iterator<Item = (u16, usize)> + '_ {
        self.into[usize::from(process)].iter().filter_map(|wire| match self.wires[*wire] {
            Wire::Stream { from, .. } => Some((from, *wire)),
            _ => None,
        })
    }

    /// Returns whether a channel connects these two members.
    pub(crate) fn joins(&self, wire: usize, a: u16, b: u16) -> bool {
        let to = self.wires[wire].receiver() as u16;
        self.writer(wire).is_some_and(|from| (from, to) == (a, b) || (from, to) == (b, a))
    }

    /// Returns all members of a member's group, itself included.
    pub(crate) fn group_of(&self, process: u16) -> Vec<u16> {
        let Some(ProcessRole::Member { group, .. }) = self.topology.role(ProcessId(process)) else { return Vec::new() };
        self.topology.members(group).map(|member| member.0).collect()
    }
}
