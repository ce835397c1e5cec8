//! A client on a fabric.

use std::sync::Arc;

use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Completion, Event, Fabric, Opcode, QpId, QpState, Status};
use thiserror::Error;
use zerocopy::IntoBytes;

use super::awaited::Awaited;
use super::counts::{Counts, RemoteOp, Step};
use super::member::by_qp;
use super::open::Opener;
use super::outbound::{Outbound, Target, scratch};
use super::posting::{Link, Quiet};
use super::{BODY, CONTROL, MAIN, NodeError};
use crate::limits::CREDIT_CELLS_BYTES;
use crate::message::MAX_DESTINATIONS;
use crate::{ClientId, Destination, GroupId, Header, Limits, MessageId, Plant, Sender, Topology};

/// Why a message was not multicast. Nothing was done.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// A window, a ring or a send queue is full: call [`Client::step`] until there is room.
    #[error("no room at group {group} now; wait for deliveries")]
    Busy {
        /// Index of the group.
        group: u16,
    },
    /// Not all members (of all groups) are connected yet, or more than a minority is gone.
    #[error("group {group} is not connected")]
    NotConnected {
        /// Index of the group.
        group: u16,
    },
    /// Too long.
    #[error("a message of {bytes} bytes; the cluster takes up to {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// No groups, more than 255, an unknown group, or not in rising order.
    #[error("destinations are 1 to 255 known groups in rising order")]
    Destinations,
    /// An earlier process of this client place left messages undelivered; wait a while, or take another place.
    #[error(
        "client place c{client} has unfinished messages of an earlier process at group {group}; take another place"
    )]
    Unfinished {
        /// The place.
        client: u16,
        /// Index of the group.
        group: u16,
    },
}

/// A multicast message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Submitted {
    /// Its id.
    pub id: MessageId,
}

/// A client: multicasts messages to sets of groups.
#[derive(Debug)]
pub struct Client<F: Fabric> {
    fabric: F,
    sender: Sender,
    links: Vec<Link>,
    by_qp: Vec<Option<usize>>,
    /// By group.
    rings: Vec<Outbound>,
    /// By group: whether the ring's beginning is known.
    resumed: Vec<bool>,
    all_resumed: bool,
    record: Vec<u64>,
    destinations: Vec<Destination>,
    awaited: Awaited,
    submitted: u64,
    completions: [Completion; 16],
    counts: Counts,
    operations: Option<Vec<RemoteOp>>,
    topology: Arc<Topology>,
    message_bytes: usize,
    quiet: Quiet,
}

impl<F: Fabric> Client<F> {
    /// Registers the regions and begins to connect to every member of the cluster. `salt` is the cluster's.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(
        mut fabric: F,
        topology: Arc<Topology>,
        client: ClientId,
        limits: Limits,
        salt: u64,
        plant: Plant,
    ) -> Result<Self, NodeError> {
        limits.check()?;
        let me = topology.client_process(client);
        if usize::from(client.0) >= topology.clients() || fabric.me() != me {
            return Err(NodeError::Role(fabric.me(), "client place of this configuration"));
        }
        super::check_fabric(fabric.capabilities(), &limits, &topology)?;
        let seal = |process| Seal::new(process, salt).with_plant(plant.fabric());
        let geometry = limits.body_ring(&topology);
        let mut opener = Opener {
            fabric: &mut fabric,
            links: Vec::new(),
            topology: &topology,
            limits: &limits,
            seal: &seal,
            registered: 0,
        };
        let mut rings = Vec::new();
        for group in topology.group_ids() {
            let mut ring = Outbound::new(opener.fabric, geometry, seal(me), group.0)?;
            for member in topology.members(group) {
                let link = opener.link(member, MAIN)?;
                let region = opener.region(CONTROL, member, CREDIT_CELLS_BYTES)?;
                ring.add_target(member, link, BODY, (region, 0), seal(member));
            }
            rings.push(ring);
        }
        let links = opener.links;
        Ok(Client {
            by_qp: by_qp(&links),
            sender: Sender::new(&topology, client, limits.window, plant),
            resumed: vec![false; rings.len()],
            all_resumed: false,
            record: scratch(&geometry),
            destinations: Vec::with_capacity(topology.groups()),
            awaited: Awaited::new(topology.groups()),
            submitted: 0,
            completions: [Completion {
                qp: QpId(0),
                id: 0,
                opcode: Opcode::Write,
                status: Status::Success,
                bytes: 0,
                imm: None,
                tag: 0,
            }; 16],
            counts: Counts::default(),
            operations: None,
            message_bytes: limits.message_bytes,
            quiet: Quiet::default(),
            fabric,
            links,
            rings,
            topology,
        })
    }

    /// Records every remote operation by message, for checking genuineness (M7). Allocates per message.
    pub fn record_operations(&mut self) {
        self.operations.get_or_insert_default();
    }

    /// Takes the operations recorded since the last call.
    pub fn take_operations(&mut self) -> Vec<RemoteOp> {
        self.operations.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// This client's place.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.sender.client()
    }

    /// Remote writes so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The fabric.
    #[must_use]
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// The fabric, for waiting.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Whether messages may go to these groups: the members of *all* groups have said where their rings stand and that
    /// nothing of an earlier process of this place is left, and these groups have a majority.
    #[must_use]
    pub fn is_connected(&self, to: &[GroupId]) -> bool {
        self.all_resumed && to.iter().all(|group| self.topology.has_group(*group) && self.sender.has_majority(*group))
    }

    /// Whether an earlier process of this place left messages undelivered at some group. They may become delivered, or
    /// never, if it died while it wrote: wait a while, or take another place.
    pub fn is_unfinished(&mut self) -> bool {
        self.topology.group_ids().any(|group| {
            !self.resumed[usize::from(group.0)] && matches!(self.resume(group), Err(SubmitError::Unfinished { .. }))
        })
    }

    /// The cluster.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Messages submitted by this process.
    #[must_use]
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// All messages up to this sequence are delivered at every destination process that counts.
    #[must_use]
    pub fn delivered_up_to(&self) -> u64 {
        self.awaited.delivered_up_to()
    }

    /// Messages that are not known to be delivered everywhere.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.awaited.messages()
    }

    /// Multicasts a message to groups, in rising order. `notify`: members tell at once when they delivered it, not only
    /// when a quarter of the window is free.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing was done then.
    #[inline]
    pub fn submit(&mut self, to: &[GroupId], payload: &[u8], notify: bool) -> Result<Submitted, SubmitError> {
        self.check(to, payload)?;
        let sequence = self.sender.number(to, &mut self.destinations);
        let id = MessageId { client: self.sender.client(), sequence };
        let header = Header::words(to.len());
        let bytes = header * 8 + payload.len();
        for group in to {
            // Sealing fills in the head and leaves the rest, but each group's ring has its own lap.
            let body = &mut self.record[HEADER_WORDS..HEADER_WORDS + bytes.div_ceil(8)];
            Header::encode(sequence, payload.len(), notify, &self.destinations, body);
            if let Some(last) = body.last_mut().filter(|_| !payload.len().is_multiple_of(8)) {
                *last = 0;
            }
            body[header..].as_mut_bytes()[..payload.len()].copy_from_slice(payload);
            let ring = &mut self.rings[usize::from(group.0)];
            let writes = ring.send(&mut self.fabric, &mut self.links, bytes, &mut self.record);
            self.counts.write(Step::Body, writes);
            self.counts.item(Step::Body, self.topology.size(*group) as u64);
            if let Some(operations) = &mut self.operations {
                let step = Step::Body;
                operations.extend(self.topology.members(*group).map(|to| RemoteOp { message: id, step, to }));
            }
        }
        self.submitted += 1;
        self.awaited.submitted(sequence, &self.destinations);
        self.quiet.disturb();
        Ok(Submitted { id })
    }

    fn check(&mut self, to: &[GroupId], payload: &[u8]) -> Result<(), SubmitError> {
        if payload.len() > self.message_bytes {
            return Err(SubmitError::TooLong { bytes: payload.len(), limit: self.message_bytes });
        }
        let known = to.iter().all(|group| self.topology.has_group(*group));
        if to.is_empty() || to.len() > MAX_DESTINATIONS || !known || !to.is_sorted_by(|a, b| a < b) {
            return Err(SubmitError::Destinations);
        }
        if let Some(lost) = to.iter().find(|group| !self.sender.has_majority(**group)) {
            return Err(SubmitError::NotConnected { group: lost.0 });
        }
        if let Err(full) = self.sender.check(to) {
            return Err(SubmitError::Busy { group: full.group });
        }
        if !self.all_resumed {
            self.resume_all()?;
        }
        let bytes = Header::words(to.len()) * 8 + payload.len();
        let full = |group: &&GroupId| !self.rings[usize::from(group.0)].ready(&mut self.fabric, &self.links, bytes);
        to.iter().find(full).map_or(Ok(()), |group| Err(SubmitError::Busy { group: group.0 }))
    }

    /// Takes over the rings where an earlier process of this place left them. Whoever the first message is for, all groups
    /// must have delivered everything: each knows only the sequences that it has seen, and a message that one group holds
    /// undelivered names slots at others.
    fn resume_all(&mut self) -> Result<(), SubmitError> {
        for group in self.topology.group_ids() {
            if !self.resumed[usize::from(group.0)] {
                self.resume(group)?;
            }
        }
        self.all_resumed = true;
        Ok(())
    }

    /// Takes over the ring of one group: all members must have freed everything, and the same.
    fn resume(&mut self, group: GroupId) -> Result<(), SubmitError> {
        let ring = &mut self.rings[usize::from(group.0)];
        ring.read_credits(&self.fabric);
        let counted = ring.targets.iter().filter(|target| !target.expelled);
        if counted.clone().count() < self.topology.majority(group) as usize
            || counted.clone().any(|target| !target.credited)
        {
            return Err(SubmitError::NotConnected { group: group.0 });
        }
        let places = counted.clone().map(|target| (target.freed_position(), target.freed_slots));
        let Some(first) = places.clone().next() else { return Err(SubmitError::NotConnected { group: group.0 }) };
        if places.clone().any(|place| place != first) || counted.clone().any(Target::holds_messages) {
            return Err(SubmitError::Unfinished { client: self.sender.client().0, group: group.0 });
        }
        let sequence = counted.map(|target| target.last_sequence).max().unwrap_or(0);
        ring.writer.resume(first.0);
        self.sender.resume_slots(group, first.1);
        self.sender.resume_sequence(sequence);
        self.resumed[usize::from(group.0)] = true;
        Ok(())
    }

    /// One round: completions, credits, connections. Returns whether there was anything.
    pub fn step(&mut self) -> bool {
        if self.quiet.skips(&mut self.fabric) {
            return false;
        }
        let mut worked = self.poll_completions();
        for (group, ring) in self.rings.iter_mut().enumerate() {
            if self.resumed[group] && ring.take_news(&self.fabric) {
                worked = true;
                for (member, target) in ring.targets.iter().enumerate().filter(|(_, target)| !target.expelled) {
                    self.sender.on_freed(GroupId(group as u16), member, target.freed_slots);
                }
            }
        }
        if worked {
            self.retire_delivered();
        }
        self.fabric.flush();
        self.quiet.after(worked, false);
        worked
    }

    fn retire_delivered(&mut self) {
        for group in 0..self.rings.len() as u16 {
            self.awaited.freed(GroupId(group), self.sender.freed(GroupId(group)));
        }
    }

    fn poll_completions(&mut self) -> bool {
        let count = self.fabric.poll(&mut self.completions);
        for at in 0..count {
            let Completion { qp, id, status, .. } = self.completions[at];
            let Some(link) = self.by_qp.get(qp.index()).copied().flatten() else { continue };
            if status == Status::Success {
                self.links[link].queue.completed(id);
            } else if self.fabric.state(qp) == QpState::Error {
                self.disconnected(link);
            }
        }
        count > 0
    }

    /// Connections that came and went. Makes system calls on some fabrics: call it while connecting, when idle and
    /// every few milliseconds. Returns whether there was anything.
    pub fn housekeep(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.fabric.next_event() {
            any = true;
            self.quiet.disturb();
            let (Event::Connected { qp, .. } | Event::Disconnected { qp, .. }) = event else { continue };
            let Some(link) = self.by_qp.get(qp.index()).copied().flatten() else { continue };
            match event {
                Event::Connected { .. } => self.links[link].connected(),
                _ => self.disconnected(link),
            }
        }
        if !self.all_resumed {
            any |= self.resume_all().is_ok();
        }
        any
    }

    fn disconnected(&mut self, link: usize) {
        self.links[link].broke();
        for (group, ring) in self.rings.iter_mut().enumerate() {
            if ring.expel_broken(&self.links) {
                for (member, _) in ring.targets.iter().enumerate().filter(|(_, target)| target.expelled) {
                    self.sender.expel(GroupId(group as u16), member);
                }
            }
        }
        self.retire_delivered();
    }
}
