//! A client on a fabric.

use std::sync::Arc;

use stentor_fabric::seal::HEADER_WORDS;
use stentor_fabric::{Completion, Fabric, ProcessId};
use thiserror::Error;
use zerocopy::IntoBytes;

use super::awaited::Awaited;
use super::counts::{Counts, RemoteOp, Step};
use super::fan::{self, Fan};
use super::greeting::{About, Greeting, Seals};
use super::links::{Links, News};
use super::member::NO_COMPLETION;
use super::open::Opener;
use super::outbound::{Outbound, Shape, scratch};
use super::posting::Quiet;
use super::{BODY, CONTROL, MAIN, NodeError};
use crate::limits::CREDIT_CELLS_BYTES;
use crate::message::MAX_DESTINATIONS;
use crate::{ClientId, Destination, GroupId, Header, Limits, MessageId, Plant, ProcessRole, Sender, Topology, ids};

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
    /// Another process has this client's place, and this one has no part in what happens any more. What it submitted and
    /// was not known to be delivered may be lost.
    #[error("another process took the client place c{client}")]
    Superseded {
        /// The place.
        client: u16,
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
    links: Links,
    seals: Seals,
    /// By group.
    rings: Vec<Outbound>,
    /// By group and member: the incarnation that greeted last.
    members: Vec<Vec<Option<u64>>>,
    /// By link: group and member.
    places: Vec<(usize, usize)>,
    /// Whether it is known where an earlier process of this place ended.
    resumed: bool,
    /// What members said the first time that they all were settled; they must say it again.
    once: Vec<(ProcessId, u64, u64)>,
    /// The beginning of this process's generation; 0 if it is the first of its place, or does not know yet.
    first: u64,
    record: Vec<u64>,
    destinations: Vec<Destination>,
    awaited: Awaited,
    /// Of the messages that asked for it: those that no majority of some group is known to hold.
    unsynced: Awaited,
    submitted: u64,
    completions: [Completion; 16],
    counts: Counts,
    operations: Option<Vec<RemoteOp>>,
    topology: Arc<Topology>,
    message_bytes: usize,
    quiet: Quiet,
    /// Where the network makes copies.
    fan: Option<Fan>,
    /// Links that are up, and whose members are started when nothing of the set can land there any more.
    unsettled: Vec<usize>,
    /// A member said that another process has the place.
    superseded: bool,
}

impl<F: Fabric> Client<F> {
    /// Registers the regions and begins to connect to every member of the cluster. `salt` is the cluster's. `incarnation`
    /// tells this process from all that had its place before or will have it: the time of its start, say.
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
        incarnation: u64,
    ) -> Result<Self, NodeError> {
        limits.check()?;
        let me = topology.client_process(client);
        if usize::from(client.0) >= topology.clients() || fabric.me() != me {
            return Err(NodeError::Role(fabric.me(), "client place of this configuration"));
        }
        super::check_fabric(fabric.capabilities(), &limits, &topology)?;
        let seals = Seals::new(salt, plant.fabric());
        let geometry = limits.body_ring(&topology);
        let links = Links::new(&mut fabric, topology.all_members(), seals, incarnation)?;
        let (topology_, limits_) = (&*topology, &limits);
        let mut opener =
            Opener { fabric: &mut fabric, links, topology: topology_, limits: limits_, seals, plant, registered: 0 };
        let (mut rings, mut places) = (Vec::new(), Vec::new());
        for group in topology.group_ids() {
            let keeps = topology.majority(group) as usize;
            let shape = Shape { geometry, serial: group.0, patient: false, catches_up: false, keeps };
            let mut ring = opener.outbound(shape)?;
            for (at, member) in topology.members(group).enumerate() {
                let link = opener.link(member, MAIN)?;
                let region = opener.region(CONTROL, member, CREDIT_CELLS_BYTES)?;
                ring.add_target(member, link, BODY, (region, 0));
                places.push((usize::from(group.0), at));
            }
            rings.push(ring);
        }
        let links = opener.links;
        let set = fan::join(&mut fabric, &topology, client, super::SEND_DEPTH)?;
        Ok(Client {
            fan: set.map(|set| Fan::new(&fabric, set, links.len(), plant)),
            unsettled: Vec::new(),
            sender: Sender::new(&topology, client, limits.window).with_mutant(plant),
            members: topology.group_ids().map(|group| vec![None; topology.size(group)]).collect(),
            places,
            resumed: false,
            once: Vec::new(),
            first: 0,
            record: scratch(&geometry),
            destinations: Vec::with_capacity(topology.groups()),
            awaited: Awaited::new(topology.groups()),
            unsynced: Awaited::new(topology.groups()),
            submitted: 0,
            completions: [NO_COMPLETION; 16],
            counts: Counts::default(),
            operations: None,
            message_bytes: limits.message_bytes,
            quiet: Quiet::default(),
            superseded: false,
            fabric,
            links,
            seals,
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

    /// Whether messages may go to these groups: a majority of each is connected, and it is known where an earlier process
    /// of this place ended. For that, all members of *all* groups must have said that they hold nothing undelivered of
    /// it: one that was not heard could pass on later what an earlier process left, into the slots of this one.
    #[must_use]
    pub fn is_connected(&self, to: &[GroupId]) -> bool {
        self.resumed && to.iter().all(|group| self.topology.has_group(*group) && self.sender.has_majority(*group))
    }

    /// Whether the network makes the copies of what goes to these groups now, for all of their members.
    #[must_use]
    pub fn is_copied(&self, to: &[GroupId]) -> bool {
        let Some(fan) = self.fan.as_ref().filter(|fan| fan.is_ready()) else { return false };
        let meant = |link: &usize| to.contains(&GroupId(self.places[*link].0 as u16));
        (0..self.links.len()).filter(meant).all(|link| self.links[link].ready && fan.reaches(link))
    }

    /// Whether an earlier process of this place left messages undelivered at some group. They may become delivered, or
    /// never, if it died while it wrote: wait a while, or take another place.
    pub fn is_unfinished(&mut self) -> bool {
        !self.resumed
            && self.topology.group_ids().any(|group| matches!(self.settled(group), Err(SubmitError::Unfinished { .. })))
    }

    /// Whether this member counts: it has all that was delivered when it came (back), and messages are not regarded as
    /// delivered before they are at it.
    #[must_use]
    pub fn counts_on(&self, member: ProcessId) -> bool {
        match self.topology.role(member) {
            Some(ProcessRole::Member { group, index }) => self.sender.counts(group, usize::from(index)),
            _ => false,
        }
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

    /// Whether a member said that another process has this client's place: nothing can be submitted any more, and what is
    /// outstanding may be lost.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.superseded
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

    /// All messages up to this sequence that were [submitted to be synced](Client::submit_synced) are held by a majority
    /// of every destination group: they will be delivered even if this client dies.
    #[must_use]
    pub fn synced_up_to(&self) -> u64 {
        self.unsynced.delivered_up_to()
    }

    /// Returns the slot that the next message to this group gets there.
    #[must_use]
    pub fn next_slot(&self, group: GroupId) -> u64 {
        self.sender.next(group)
    }

    /// Returns the number of this client's slots at `group` whose messages a majority of its members says it has delivered:
    /// less than before when a member loses its connection; 0 if there is no such group.
    #[must_use]
    pub fn delivered_by_majority(&self, group: GroupId) -> u64 {
        let Some(ring) = self.rings.get(usize::from(group.0)) else { return 0 };
        let mut freed = [0_u64; Topology::MAX_MEMBERS];
        let told = ring.targets.iter().filter_map(|target| target.told);
        for (freed, told) in freed.iter_mut().zip(told) {
            *freed = told.freed;
        }
        freed.sort_unstable_by(|a, b| b.cmp(a));
        freed[self.topology.majority(group) as usize - 1]
    }

    /// Multicasts a message to groups, in rising order. `notify`: members tell at once when they delivered it, not only
    /// when a quarter of the window is free.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing was done then.
    #[inline]
    pub fn submit(&mut self, to: &[GroupId], payload: &[u8], notify: bool) -> Result<Submitted, SubmitError> {
        self.submit_as(to, payload, notify, false)
    }

    /// The same; members tell at once when they have read it, see [`synced_up_to`](Client::synced_up_to). It is synced when
    /// all that was submitted before it is held by majorities, too, to whatever groups: what is multicast after something
    /// that is lost with its client is lost with it, because each client's messages are delivered without holes.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing was done then.
    pub fn submit_synced(&mut self, to: &[GroupId], payload: &[u8], notify: bool) -> Result<Submitted, SubmitError> {
        let submitted = self.submit_as(to, payload, notify, true)?;
        self.destinations.clear();
        for group in self.topology.group_ids() {
            let next = self.sender.next(group);
            if next > self.held(group) {
                self.destinations.push(Destination { group, slot: next - 1 });
            }
        }
        self.unsynced.submitted(submitted.id.sequence, &self.destinations);
        Ok(submitted)
    }

    /// Slots below this are held or freed by a majority of the group, in one ballot that is installed there.
    fn held(&self, group: GroupId) -> u64 {
        let told = || self.rings[usize::from(group.0)].targets.iter().filter_map(|target| target.told);
        let in_ballot = |ballot| {
            let mut held = [0_u64; Topology::MAX_MEMBERS];
            for (held, told) in held.iter_mut().zip(told().filter(|told| told.held.ballot == ballot)) {
                *held = told.held.slots;
            }
            held.sort_unstable_by(|a, b| b.cmp(a));
            held[self.topology.majority(group) as usize - 1]
        };
        let counts = told().filter(|told| told.held.ballot != 0);
        let held = counts.map(|told| in_ballot(told.held.ballot)).max().unwrap_or(0);
        held.max(self.sender.freed(group))
    }

    #[inline]
    /// The id that this message gets if it is submitted next, before another [`step`](Client::step): for who writes down
    /// what it multicasts before it does.
    ///
    /// # Errors
    /// See [`SubmitError`]: those with which it would be refused now.
    pub fn next_id(&mut self, to: &[GroupId], payload: &[u8]) -> Result<MessageId, SubmitError> {
        self.check(to, payload)?;
        Ok(MessageId { client: self.sender.client(), sequence: self.sender.next_sequence() })
    }

    fn submit_as(
        &mut self,
        to: &[GroupId],
        payload: &[u8],
        notify: bool,
        sync: bool,
    ) -> Result<Submitted, SubmitError> {
        self.check(to, payload)?;
        let sequence = self.sender.number(to, &mut self.destinations);
        let id = MessageId { client: self.sender.client(), sequence };
        let header = Header::words(to.len());
        let bytes = header * 8 + payload.len();
        let fans = self.fan.as_ref().is_some_and(Fan::is_ready);
        let mut writes = 0;
        for group in to {
            let lap = self.rings[usize::from(group.0)].writer.lap();
            if self.fan.as_ref().is_some_and(|fan| fan.is_other(lap)) {
                writes += self.fan_out();
            }
            // Sealing fills in the head and leaves the rest, but each group's ring has its own lap.
            let body = &mut self.record[HEADER_WORDS..HEADER_WORDS + bytes.div_ceil(8)];
            Header::encode(sequence, payload.len(), notify, &self.destinations, body);
            if sync {
                Header::ask_sync(body);
            }
            if let Some(last) = body.last_mut().filter(|_| !payload.len().is_multiple_of(8)) {
                *last = 0;
            }
            body[header..].as_mut_bytes()[..payload.len()].copy_from_slice(payload);
            let ring = &mut self.rings[usize::from(group.0)];
            let fan = self.fan.as_mut().filter(|_| fans).map(|fan| (fan, usize::from(group.0)));
            writes += ring.send_with(&mut self.fabric, &mut self.links, bytes, &mut self.record, fan);
            self.counts.item(Step::Body, self.topology.size(*group) as u64);
            if let Some(operations) = &mut self.operations {
                let step = Step::Body;
                operations.extend(self.topology.members(*group).map(|to| RemoteOp { message: id, step, to }));
            }
        }
        writes += self.fan_out();
        self.counts.write(Step::Body, writes);
        self.submitted += 1;
        self.awaited.submitted(sequence, &self.destinations);
        self.quiet.disturb();
        Ok(Submitted { id })
    }

    /// Writes the record in work to those whom the set reaches. Returns the number of posts.
    fn fan_out(&mut self) -> u64 {
        let Some(fan) = &mut self.fan else { return 0 };
        let before = fan.copies();
        let writes = fan.write(&mut self.fabric, &mut self.links, &mut self.rings, &self.record);
        self.counts.copy(fan.copies() - before);
        writes
    }

    fn check(&mut self, to: &[GroupId], payload: &[u8]) -> Result<(), SubmitError> {
        if payload.len() > self.message_bytes {
            return Err(SubmitError::TooLong { bytes: payload.len(), limit: self.message_bytes });
        }
        if self.superseded {
            return Err(SubmitError::Superseded { client: self.sender.client().0 });
        }
        let known = to.iter().all(|group| self.topology.has_group(*group));
        if to.is_empty() || to.len() > MAX_DESTINATIONS || !known || !to.is_sorted_by(|a, b| a < b) {
            return Err(SubmitError::Destinations);
        }
        if !self.resumed {
            self.resume()?;
        }
        if let Some(lost) = to.iter().find(|group| !self.sender.has_majority(**group)) {
            return Err(SubmitError::NotConnected { group: lost.0 });
        }
        if let Err(full) = self.sender.check(to) {
            return Err(SubmitError::Busy { group: full.group });
        }
        let bytes = Header::words(to.len()) * 8 + payload.len();
        let full = |group: &&GroupId| {
            let ring = &mut self.rings[usize::from(group.0)];
            let clear = self.fan.as_ref().is_none_or(|fan| ring.is_clear(&fan.past(&self.fabric), bytes));
            !(clear && ring.ready(&mut self.fabric, &self.links, bytes))
        };
        let Some(group) = to.iter().find(full) else { return Ok(()) };
        self.counts.ring_waits += 1;
        Err(SubmitError::Busy { group: group.0 })
    }

    /// Takes over where an earlier process of this place ended. Whoever the first message is for, all groups must have
    /// delivered everything that they hold: each knows only the sequences that it has seen, and a message that one group
    /// holds undelivered names slots at others.
    ///
    /// Members speak at different times. What one of them says may be over before another one says that nothing is left:
    /// this one may have passed a message on to the first in between. So they are asked twice; what they say only grows, and
    /// if all say the same again, all were settled at the moment at which they were asked the second time.
    ///
    /// No id is used twice: each process has a generation of its own, above all that members have seen or heard of. When they are
    /// asked the second time they hear which it is, so the next process will not use it, whatever comes of this one.
    ///
    /// And they hear it before all are settled: a member that was met before it had its group's state knows of no generation, and
    /// would take what an earlier process left half-written for this one's.
    fn resume(&mut self) -> Result<(), SubmitError> {
        let seen = self.seen();
        if seen > self.first {
            self.first = ids::first_of_generation(ids::generation(seen) + 1);
            self.ask_again();
        }
        for group in self.topology.group_ids() {
            self.settled(group)?;
        }
        let targets = self.rings.iter().flat_map(|ring| &ring.targets);
        let said = targets.filter_map(|target| target.told.map(|told| (target.peer, told.freed, told.held.slots)));
        let all: Vec<_> = said.collect();
        if seen > 0 {
            if self.once != all {
                self.once = all;
                self.ask_again();
                return Err(SubmitError::NotConnected { group: 0 });
            }
            self.sender.resume_sequence(self.first);
        }
        for group in self.topology.group_ids() {
            let slots = self.settled(group)?;
            self.sender.resume_slots(group, slots);
            self.count_members(group);
        }
        self.resumed = true;
        Ok(())
    }

    /// The highest sequence that a member has seen of this place.
    fn seen(&mut self) -> u64 {
        for ring in &mut self.rings {
            ring.read_credits(&self.fabric);
        }
        let told = self.rings.iter().flat_map(|ring| &ring.targets).filter_map(|target| target.told);
        told.map(|told| told.sequence).max().unwrap_or(0)
    }

    /// Has all members say anew what they hold.
    fn ask_again(&mut self) {
        for link in 0..self.links.len() {
            if self.links[link].ready && !self.unsettled.contains(&link) {
                self.greet(link);
            }
        }
    }

    /// Says where the ring at a member begins; what that member said before does not count any more.
    fn greet(&mut self, link: usize) {
        let (group, member) = self.places[link];
        let start = self.rings[group].start(member, &self.links);
        let (incarnation, begun, first) = (self.links.incarnation, self.resumed, self.first);
        let greeting = Greeting { about: About::Hello, incarnation, start, begun, first };
        let sent = self.links.greet(&mut self.fabric, link, greeting);
        self.counts.write(Step::PeerMessage, sent);
        self.quiet.disturb();
    }

    /// The first slot that no earlier process of this place used at a group, if its members agree.
    fn settled(&mut self, group: GroupId) -> Result<u64, SubmitError> {
        let ring = &mut self.rings[usize::from(group.0)];
        ring.read_credits(&self.fabric);
        let told = ring.targets.iter().filter_map(|target| target.told);
        if told.clone().count() < ring.targets.len() {
            return Err(SubmitError::NotConnected { group: group.0 });
        }
        let slots = told.clone().map(|told| told.freed).max().unwrap_or(0);
        if told.clone().any(|told| told.freed != slots || told.held.slots != told.freed) {
            return Err(SubmitError::Unfinished { client: self.sender.client().0, group: group.0 });
        }
        Ok(slots)
    }

    /// What a group's members said last: they freed slots, or count again, or hold messages.
    fn count_members(&mut self, group: GroupId) {
        let ring = &self.rings[usize::from(group.0)];
        for (member, target) in ring.targets.iter().enumerate() {
            let Some(told) = target.told else { continue };
            // What is free and was not used by this process was used by another one: what it would put there is lost.
            self.superseded |= told.freed > self.sender.next(group);
            if self.sender.counts(group, member) {
                self.sender.on_freed(group, member, told.freed);
            } else {
                self.sender.admit(group, member, told.freed);
            }
        }
        if self.unsynced.messages() > 0 {
            self.unsynced.freed(group, self.held(group));
        }
    }

    /// Members that are cut off from their leader ask not to be waited for, and tell when they are back.
    fn heed_aside(&mut self, group: usize) {
        for member in 0..self.rings[group].targets.len() {
            let target = &self.rings[group].targets[member];
            let link = target.link;
            if target.told.is_some_and(|told| told.aside) {
                self.rings[group].set_aside(member);
                self.sender.expel(GroupId(group as u16), member);
            } else if target.is_back() && self.links[link].ready && !self.unsettled.contains(&link) {
                self.start(link);
            }
        }
    }

    /// One round: completions, credits, connections. Returns whether there was anything.
    pub fn step(&mut self) -> bool {
        if self.quiet.skips(&mut self.fabric) {
            return false;
        }
        let mut worked = self.poll_completions();
        for group in 0..self.rings.len() {
            if self.resumed && self.rings[group].take_news(&self.fabric) {
                worked = true;
                if self.rings[group].take_asides() {
                    self.heed_aside(group);
                }
                self.count_members(GroupId(group as u16));
            }
        }
        if worked {
            self.retire_delivered();
        }
        let late = self.rings.iter().any(Outbound::is_late) && self.catch_up();
        self.fabric.flush();
        self.quiet.after(worked, late);
        worked
    }

    /// Writes to members that came back what they may not have got. Returns whether more is left.
    fn catch_up(&mut self) -> bool {
        let Client { fabric, links, rings, record, counts, .. } = self;
        for ring in rings.iter_mut().filter(|ring| ring.is_late()) {
            counts.write(Step::PeerMessage, ring.catch_up(fabric, links, record));
        }
        rings.iter().any(Outbound::is_late)
    }

    fn retire_delivered(&mut self) {
        if self.superseded {
            // What is freed from now on may be another process's, or void.
            return;
        }
        for group in 0..self.rings.len() as u16 {
            self.awaited.freed(GroupId(group), self.sender.freed(GroupId(group)));
        }
    }

    fn poll_completions(&mut self) -> bool {
        let count = self.fabric.poll(&mut self.completions);
        for at in 0..count {
            let completion = self.completions[at];
            if self.fan.as_mut().is_some_and(|fan| fan.completed(&completion)) {
                continue;
            }
            if let Some(news) = self.links.completed(&mut self.fabric, &completion) {
                self.hear(news);
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
            if self.fan.as_mut().is_some_and(|fan| fan.happened(&mut self.fabric, &event, &self.links)) {
                continue;
            }
            if let Some(news) = self.links.happened(&mut self.fabric, &event) {
                self.hear(news);
            }
        }
        for link in 0..self.links.len() {
            if !self.links[link].ready
                && let Some(news) = self.links.check(&mut self.fabric, link)
            {
                any = true;
                self.hear(news);
            }
        }
        any |= self.look_after_set();
        if !self.resumed {
            any |= self.resume().is_ok();
        }
        if any {
            self.quiet.disturb();
        }
        any
    }

    /// Joins again what broke, and starts who waited for late copies to be over. Whether there was anything.
    fn look_after_set(&mut self) -> bool {
        let broke = self.fan.as_ref().is_some_and(|fan| fan.is_broken(&self.fabric));
        if broke {
            // Its completions first: they say what arrived.
            while self.poll_completions() {}
            if let Some(fan) = &mut self.fan {
                fan.mend(&mut self.fabric, &mut self.rings);
            }
        }
        let mut any = broke;
        for link in std::mem::take(&mut self.unsettled) {
            any |= self.start(link);
        }
        any
    }

    /// Greets a member whose link is up, as soon as no copy of the set can land there any more: its ring is written again
    /// from the beginning of what is kept. Whether it was greeted.
    fn start(&mut self, link: usize) -> bool {
        let (group, member) = self.places[link];
        let ring = &mut self.rings[group];
        let clear = self.fan.as_ref().is_none_or(|fan| ring.is_clear_of(member, &fan.past(&self.fabric)));
        if clear {
            self.greet(link);
        } else {
            self.unsettled.push(link);
        }
        clear
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Up(link) => {
                self.start(link);
            }
            News::Down(link) => {
                self.unsettled.retain(|unsettled| *unsettled != link);
                let (group, member) = self.places[link];
                self.rings[group].stop(member);
                self.sender.expel(GroupId(group as u16), member);
                self.retire_delivered();
            }
            News::Greeted(link, greeting) if greeting.about == About::Hello => {
                let (group, member) = self.places[link];
                self.links[link].heard = Some(greeting.incarnation);
                if self.members[group][member].replace(greeting.incarnation) != Some(greeting.incarnation) {
                    let seal = self.seals.of(self.links[link].peer, greeting.incarnation);
                    self.rings[group].hear_credits(member, seal);
                }
            }
            News::Greeted(_, greeting) if greeting.about == About::Superseded => self.superseded = true,
            News::Greeted(..) | News::Refused => self.counts.rejected += 1,
        }
    }
}
