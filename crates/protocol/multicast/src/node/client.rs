//! A client on a fabric: it multicasts messages, tracks their delivery by the members' credits, and exchanges queries
//! and replies.

mod expel;
mod replies;
mod submit;
mod submit_error;
mod takeover;
#[cfg(test)]
mod tests;
mod wants;

use std::sync::Arc;

use stentor_fabric::{Completion, Fabric, ProcessId};
use stentor_link::purpose::{MULTICAST_BODY, MULTICAST_CONTROL};
use stentor_link::service::MULTICAST_MAIN;

pub use self::replies::Reply;
pub use self::submit_error::SubmitError;
use self::takeover::Takeover;
pub use self::wants::Wants;
use super::NodeError;
use super::counts::{Counts, RemoteOp, Step};
use super::expelling::Expelling;
use super::fanout::FanoutSender;
use super::hello::{Hello, HelloKind};
use super::in_flight::InFlight;
use super::open::Opener;
use super::outbound::{Outbound, Shape, scratch};
use super::peer_links::{PeerEvent, PeerLinks};
use super::poll_gate::PollGate;
use super::records_in::RecordsIn;
use super::records_out::RecordsOut;
use super::seals::Seals;
use super::target::CreditCell;
use crate::limits::CREDIT_CELLS_BYTES;
use crate::{
    ClientId, Contradiction, Destination, GroupId, Incarnation, Limits, MessageId, Mutant, ProcessRole, Sender,
    Topology,
};

/// A message that was multicast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Submitted {
    /// Id of the message.
    pub id: MessageId,
}

/// A client: multicasts messages to sets of groups.
#[derive(Debug)]
pub struct Client<F: Fabric> {
    fabric: F,
    sender: Sender,
    links: PeerLinks,
    seals: Seals,
    /// The ring of this client's messages at each group, indexed by group.
    rings: Vec<Outbound>,
    /// The members' replies to this client, with one ring for each link, indexed by link.
    replies: RecordsIn,
    /// This client's queries to members, with one ring for each link, indexed by link.
    queries: RecordsOut,
    /// Indexed by group and member: life of the process that sent the last hello.
    members: Vec<Vec<Option<u64>>>,
    /// Indexed by link: group and index of the member.
    places: Vec<(usize, usize)>,
    takeover: Takeover,
    record: Vec<u64>,
    destinations: Vec<Destination>,
    in_flight: InFlight,
    /// Messages that are to be synced, and that are not yet known to be held by a majority of every destination group.
    unsynced: InFlight,
    submitted: u64,
    completions: [Completion; 16],
    counts: Counts,
    operations: Option<Vec<RemoteOp>>,
    topology: Arc<Topology>,
    message_bytes: usize,
    gate: PollGate,
    /// The fan-out set, if the network makes copies and the cluster fits into a set.
    fanout: Option<FanoutSender>,
    /// Links that are up but whose targets are not started yet, because writes of the fan-out set may still land there.
    unsettled: Vec<usize>,
    /// `true` if reports of members show that another process took over the client id, or that a group gave this
    /// process up.
    superseded: bool,
    /// Incarnation of each group, indexed by group, according to the hellos of the group's members.
    histories: Vec<Incarnation>,
    /// Indexed by group: `true` if the group was reset since this process started there.
    reset: Vec<bool>,
    /// The contradiction in the last hello that was refused: it named another history of its sender's group than the
    /// known one, with the same or a smaller number.
    contradiction: Option<Contradiction>,
    expelling: Expelling,
}

impl<F: Fabric> Client<F> {
    /// Registers the regions and starts to connect to every member of the cluster. All processes of a cluster use one
    /// `salt`. `life` distinguishes this process from all other processes with this client id, for example by the time
    /// at which it starts.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(
        fabric: F,
        topology: Arc<Topology>,
        client: ClientId,
        limits: Limits,
        salt: u64,
        life: u64,
    ) -> Result<Self, NodeError> {
        Self::with_mutant(fabric, topology, client, limits, (salt, life), Mutant::None)
    }

    /// Creates a client as [`new`](Self::new) does, with a mutant enabled.
    ///
    /// # Errors
    /// See [`NodeError`].
    #[doc(hidden)]
    pub fn with_mutant(
        mut fabric: F,
        topology: Arc<Topology>,
        client: ClientId,
        limits: Limits,
        (salt, life): (u64, u64),
        mutant: Mutant,
    ) -> Result<Self, NodeError> {
        limits.check()?;
        let me = topology.client_process(client);
        if usize::from(client.0) >= topology.clients() || fabric.me() != me {
            return Err(NodeError::Role(fabric.me(), "client of this configuration"));
        }
        super::check_fabric(fabric.capabilities(), &limits, &topology)?;
        let seals = Seals::new(salt, mutant.fabric());
        let geometry = limits.body_ring(&topology);
        let links = PeerLinks::new(&mut fabric, topology.all_members(), seals, life)?;
        let (topology_, limits_) = (&*topology, &limits);
        let mut opener =
            Opener { fabric: &mut fabric, links, topology: topology_, limits: limits_, seals, mutant, registered: 0 };
        let (mut rings, mut places, mut replies, mut queries) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for group in topology.group_ids() {
            let keeps = topology.majority(group) as usize;
            let shape = Shape { geometry, serial: group.0, patient: false, catches_up: false, keeps };
            let mut ring = opener.outbound(shape)?;
            for (at, member) in topology.members(group).enumerate() {
                let link = opener.link(member, MULTICAST_MAIN)?;
                let region = opener.region(MULTICAST_CONTROL, member, CREDIT_CELLS_BYTES)?;
                ring.add_target(member, link, MULTICAST_BODY, CreditCell { region, offset: 0 });
                if limits.has_replies() {
                    replies.push(opener.replies_of(member, link)?);
                    queries.push(opener.queries_to(member, link)?);
                }
                places.push((usize::from(group.0), at));
            }
            rings.push(ring);
        }
        let links = opener.links;
        let fanout = FanoutSender::join(&mut fabric, &topology, client, mutant)?;
        let mut sender = Sender::new(&topology, client, limits.window).with_mutant(mutant);
        // No member counts before its group is opened.
        topology.group_ids().for_each(|group| sender.resume_slots(group, 0));
        Ok(Client {
            fanout,
            unsettled: Vec::new(),
            sender,
            members: topology.group_ids().map(|group| vec![None; topology.size(group)]).collect(),
            places,
            replies: RecordsIn::new(replies),
            queries: RecordsOut::new(queries, &limits.query_ring(), limits.message_bytes, mutant),
            takeover: Takeover::new(topology.home(client), topology.groups()),
            record: scratch(&geometry),
            destinations: Vec::with_capacity(topology.groups()),
            in_flight: InFlight::new(topology.groups()),
            unsynced: InFlight::new(topology.groups()),
            submitted: 0,
            completions: [Completion::BLANK; 16],
            counts: Counts::default(),
            operations: None,
            message_bytes: limits.message_bytes,
            gate: PollGate::default(),
            superseded: false,
            histories: vec![Incarnation::NONE; topology.groups()],
            reset: vec![false; topology.groups()],
            contradiction: None,
            expelling: Expelling::default(),
            fabric,
            links,
            seals,
            rings,
            topology,
        })
    }

    /// Starts to record the writes of messages, each with its message and receiver. Checks of genuineness (property M7
    /// in `docs/guarantees.md`) read them. Recording allocates memory for each message.
    pub fn record_operations(&mut self) {
        self.operations.get_or_insert_default();
    }

    /// Returns the operations recorded since the last call.
    pub fn take_operations(&mut self) -> Vec<RemoteOp> {
        self.operations.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns this client's id.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.sender.client()
    }

    /// Returns this client's counters.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the fabric.
    #[must_use]
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// Returns the fabric mutably, so that the caller can wait on it.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Returns whether messages may be sent to these groups. A majority of the members of each group must
    /// [count](Client::counts_on), and the group must have agreed on this process's first slot. For that, the client
    /// id's [home group](Topology::home) must have assigned a generation to this process. No other group matters.
    #[must_use]
    pub fn is_connected(&self, to: &[GroupId]) -> bool {
        let is_ready = |group: &GroupId| self.takeover.is_opened(*group) && self.sender.has_majority(*group);
        to.iter().all(|group| self.topology.has_group(*group) && is_ready(group))
    }

    /// Returns whether all members of these groups count. While they do, messages are written to each of them, and flow
    /// control waits for each of them. A client may start [earlier](Client::is_connected), but a benchmark should wait
    /// until this is true.
    #[must_use]
    pub fn reaches_all(&self, to: &[GroupId]) -> bool {
        let counts = |group: &GroupId| (0..self.topology.size(*group)).all(|member| self.sender.counts(*group, member));
        self.is_connected(to) && to.iter().all(counts)
    }

    /// Returns whether the network now copies messages for these groups to all of their members. Messages that do not
    /// fit inline are never copied.
    #[must_use]
    pub fn is_copied(&self, to: &[GroupId]) -> bool {
        let Some(fanout) = self.fanout.as_ref().filter(|fanout| fanout.set.can_post()) else { return false };
        let meant = |link: &usize| to.contains(&GroupId(self.places[*link].0 as u16));
        (0..self.links.len())
            .filter(meant)
            .all(|link| self.links[link].is_ready() && fanout.set.reaches(self.links[link].peer()))
    }

    /// Returns whether a group keeps so many records of this client id's earlier processes that this one must wait
    /// until another group answers; see [`SubmitError::Crowded`].
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let unopened = |group: &GroupId| !self.takeover.is_opened(*group);
        self.topology
            .group_ids()
            .filter(unopened)
            .any(|group| matches!(self.unopened(group), SubmitError::Crowded { .. }))
    }

    /// Returns whether this member counts for flow control. A member counts once it is connected, has reported that its
    /// group agreed on this process's first slot, and has freed all slots that are already free. While it counts, a
    /// slot becomes free only after this member has freed it. Deliveries do not depend on this: a message counts as
    /// delivered when a majority of each destination group has delivered it.
    #[must_use]
    pub fn counts_on(&self, member: ProcessId) -> bool {
        counts(&self.sender, &self.topology, member)
    }

    /// Returns the topology of the cluster.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the number of messages that this process submitted.
    #[must_use]
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Returns whether reports of members show that another process took over this client id, or that a group gave this
    /// process up. Nothing can be submitted any more, and outstanding messages may be lost.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// Returns the last contradiction that a member reported: the member knows another history of its group than this
    /// client, with the same or a smaller number. Such a member does not count.
    #[must_use]
    pub fn contradiction(&self) -> Option<Contradiction> {
        self.contradiction
    }

    /// Returns the largest incarnation of a group that its members' hellos named; [`Incarnation::NONE`] if there was no
    /// such hello.
    #[must_use]
    pub fn incarnation(&self, group: GroupId) -> Incarnation {
        self.histories.get(usize::from(group.0)).copied().unwrap_or_default()
    }

    /// Returns the sequence up to which all messages are delivered by a majority of each of their destination groups.
    /// No failure that the groups survive undoes that.
    #[must_use]
    pub fn delivered_up_to(&self) -> u64 {
        self.in_flight.delivered_up_to()
    }

    /// Returns whether the message with this sequence, sent to the groups `to`, is delivered by a majority of each of
    /// them. Earlier messages to other groups do not matter.
    #[must_use]
    pub fn is_delivered(&self, sequence: u64, to: &[GroupId]) -> bool {
        self.in_flight.is_delivered(sequence, to)
    }

    /// Returns the number of messages that are not known to be delivered by a majority of each destination group.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.in_flight.messages()
    }

    /// Returns the sequence up to which all messages that were [submitted to be synced](Client::submit_synced) are held
    /// by a majority of every destination group. They will be delivered even if this client dies.
    #[must_use]
    pub fn synced_up_to(&self) -> u64 {
        self.unsynced.delivered_up_to()
    }

    /// Returns the slot that the next message to this group will get.
    #[must_use]
    pub fn next_slot(&self, group: GroupId) -> u64 {
        self.sender.next(group)
    }

    /// Returns the number of slots of this client id at `group` that a majority of its members reports as freed, which
    /// means that each message in them is delivered or has become a no-op. The number may decrease when a member loses
    /// its connection, and is 0 if there is no such group.
    #[must_use]
    pub fn delivered_by_majority(&self, group: GroupId) -> u64 {
        let Some(ring) = self.rings.get(usize::from(group.0)) else { return 0 };
        self.of_majority(group, ring.reports().map(|report| report.freed))
    }

    /// Returns whether every member reports that it has delivered all that this client multicast to its group. The
    /// client itself needs only a majority. Returns `false` while a member is not connected.
    #[must_use]
    pub fn is_delivered_everywhere(&self) -> bool {
        self.topology.group_ids().zip(&self.rings).all(|(group, ring)| {
            let end = self.sender.next(group);
            let mut reports = ring.targets.iter().map(|target| target.report.filter(|_| target.is_started()));
            reports.all(|report| report.is_some_and(|report| report.freed >= end))
        })
    }

    /// Returns the largest value that a majority of the group has reached, given the values that its members report.
    fn of_majority(&self, group: GroupId, reported: impl Iterator<Item = u64>) -> u64 {
        let mut all = [0_u64; Topology::MAX_MEMBERS];
        for (at, reported) in all.iter_mut().zip(reported) {
            *at = reported;
        }
        let all = &mut all[..self.topology.size(group)];
        all.sort_unstable_by(|a, b| b.cmp(a));
        all[self.topology.majority(group) as usize - 1]
    }

    /// Returns the slot below which all slots are free, or are held or freed by a majority of the group in one ballot
    /// that is installed at that majority.
    fn held(&self, group: GroupId) -> u64 {
        let held = || self.rings[usize::from(group.0)].reports().map(|report| report.held);
        let in_ballot = |ballot| {
            let held = held().filter(|held| held.ballot == ballot);
            self.of_majority(group, held.map(|held| held.slots))
        };
        let counts = held().filter(|held| held.ballot != 0);
        let held = counts.map(|held| in_ballot(held.ballot)).max().unwrap_or(0);
        held.max(self.sender.freed(group))
    }

    /// Sends a hello that restarts the ring at a member. Earlier reports of that member no longer count.
    fn greet(&mut self, link: usize) {
        let (group, member) = self.places[link];
        let start = self.rings[group].start(member, &self.links);
        let yours = self.histories[group];
        let queries = self.queries.greet(link, &self.links);
        let hello = Hello { yours, queries, ..Hello::new(HelloKind::Connection, self.links.life, start) };
        let hello = self.takeover.fill(hello, GroupId(group as u16));
        let sent = self.links.greet(&mut self.fabric, link, hello);
        self.counts.write(Step::PeerMessage, sent);
        self.gate.disturb();
    }

    /// Evaluates the last reports of a group's members: they freed slots, count again, or hold messages.
    fn count_members(&mut self, group: GroupId) {
        let ring = &self.rings[usize::from(group.0)];
        // A group that was reset does not know this process, so its report does not prove that a later process exists.
        let told = !self.reset[usize::from(group.0)];
        for (member, target) in ring.targets.iter().enumerate() {
            let Some(report) = target.report else { continue };
            // A freed slot that this process has not used was used by another process. A message that this process puts
            // into the slot would be lost.
            self.superseded |= told && report.freed > self.sender.next(group);
            if self.sender.counts(group, member) {
                self.sender.on_freed(group, member, report.freed);
            } else if report.place.opened && self.takeover.generation == Some(report.place.generation) {
                self.sender.admit(group, member, report.freed);
            } else {
                self.superseded |= told && self.takeover.is_followed_by(report.place.generation);
            }
        }
        if self.unsynced.messages() > 0 {
            self.unsynced.freed(group, self.held(group));
        }
    }

    /// Checks the incarnation in the hello of a group's member. Returns whether the hello is accepted.
    fn accepts(&mut self, group: usize, own: Incarnation) -> bool {
        let known = self.histories[group];
        if own.is_none() || own == known {
            return true;
        }
        if own.number <= known.number {
            self.contradiction = Some(Contradiction { group: GroupId(group as u16), known, said: own });
            return false;
        }
        self.histories[group] = own;
        self.rings[group].know(own);
        // Messages of this process in flight to the group belong to a history that has ended, and its slots in the new
        // one are unknown.
        self.reset[group] |= !known.is_none() && self.takeover.is_opened(GroupId(group as u16));
        true
    }

    /// Stops writing to members that asked not to be waited for, and restarts members that have withdrawn that request.
    fn heed_aside(&mut self, group: usize) {
        for member in 0..self.rings[group].targets.len() {
            let target = &self.rings[group].targets[member];
            let link = target.link;
            if target.report.is_some_and(|report| report.aside) {
                self.rings[group].set_aside(member);
                self.sender.expel(GroupId(group as u16), member);
            } else if target.is_back() && self.links[link].is_ready() && !self.unsettled.contains(&link) {
                self.start(link);
            }
        }
    }

    /// Runs one round: completions, credits, replies. Returns whether there was anything to do.
    pub fn step(&mut self) -> bool {
        if self.gate.skips(&mut self.fabric) {
            return false;
        }
        let mut worked = self.poll_completions();
        for group in 0..self.rings.len() {
            if self.takeover.is_opened(GroupId(group as u16)) && self.rings[group].take_news(&self.fabric) {
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
        let replies = self.look_for_replies() | self.queries.hear_room(&self.fabric, &self.gate);
        let late = self.rings.iter().any(Outbound::is_late) && self.catch_up();
        self.fabric.flush();
        self.queries.flushed();
        self.gate.after(worked | replies, late || self.owes_replies());
        worked | replies
    }

    /// Writes the records that reconnected members may lack. Returns whether any are left.
    fn catch_up(&mut self) -> bool {
        let Client { fabric, links, rings, record, counts, .. } = self;
        for ring in rings.iter_mut().filter(|ring| ring.is_late()) {
            counts.write(Step::PeerMessage, ring.catch_up(fabric, links, record));
        }
        rings.iter().any(Outbound::is_late)
    }

    fn retire_delivered(&mut self) {
        if self.superseded {
            // Slots that are freed later may belong to another process, or be no-ops.
            return;
        }
        for group in (0..self.rings.len() as u16).map(GroupId) {
            let freed = self.sender.freed(group);
            while let Some(oldest) = self.in_flight.oldest(group)
                && (oldest < freed || self.is_delivered_by_majority(group, oldest))
            {
                self.in_flight.freed(group, oldest + 1);
            }
        }
    }

    /// Returns whether [`delivered_by_majority`](Client::delivered_by_majority) exceeds this slot, without sorting.
    #[inline]
    fn is_delivered_by_majority(&self, group: GroupId, slot: u64) -> bool {
        let ring = &self.rings[usize::from(group.0)];
        ring.reports().filter(|report| report.freed > slot).count() >= self.topology.majority(group) as usize
    }

    fn poll_completions(&mut self) -> bool {
        let count = self.fabric.poll(&mut self.completions);
        for at in 0..count {
            let completion = self.completions[at];
            if self.fanout.as_mut().is_some_and(|fanout| fanout.set.completed(&completion)) {
                continue;
            }
            if let Some(event) = self.links.completed(&mut self.fabric, &completion) {
                self.on_peer_event(event);
            }
        }
        if count > 0 {
            // A hello may have waited for one of these completions.
            self.counts.write(Step::PeerMessage, self.links.send_hellos(&mut self.fabric));
        }
        count > 0
    }

    /// Handles connections that were established or lost, and checks whether groups have opened. Returns whether
    /// anything has changed. This makes system calls on some fabrics, so call it only while connecting, when idle, and
    /// every few milliseconds.
    pub fn housekeep(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.fabric.next_event() {
            any = true;
            if self.fanout.as_mut().is_some_and(|fanout| fanout.set.happened(&self.fabric, &event)) {
                continue;
            }
            if let Some(event) = self.links.happened(&mut self.fabric, &event) {
                self.on_peer_event(event);
            }
        }
        for link in 0..self.links.len() {
            if let Some(event) = self.links.check_down(&mut self.fabric, link) {
                any = true;
                self.on_peer_event(event);
            }
        }
        any |= self.look_after_set();
        any |= self.look_for_openings();
        if any {
            self.gate.disturb();
        }
        any
    }

    /// Rejoins the fan-out set if it broke, and starts targets at which late copies have become impossible. Returns
    /// whether anything was done.
    fn look_after_set(&mut self) -> bool {
        let broke = self.fanout.as_ref().is_some_and(|fanout| fanout.set.is_broken(&self.fabric));
        if broke {
            // The completions are polled first, because they report which writes arrived.
            while self.poll_completions() {}
            if let Some(fanout) = &mut self.fanout {
                fanout.mend(&mut self.fabric, &mut self.rings);
            }
        }
        let mut any = broke;
        for link in std::mem::take(&mut self.unsettled) {
            any |= self.start(link);
        }
        any
    }

    /// Sends a hello to a member whose link is up, as soon as no write of the fan-out set can land there any more. The
    /// ring is then written again from the first record that is kept. Returns whether the hello was sent.
    fn start(&mut self, link: usize) -> bool {
        let (group, member) = self.places[link];
        if !self.takeover.greets(GroupId(group as u16)) {
            return false;
        }
        let ring = &mut self.rings[group];
        let clear =
            self.fanout.as_ref().is_none_or(|fanout| ring.is_clear_of(member, &fanout.completed_writes(&self.fabric)));
        if clear {
            self.greet(link);
        } else {
            self.unsettled.push(link);
        }
        clear
    }

    fn on_peer_event(&mut self, event: PeerEvent) {
        match event {
            PeerEvent::Up(link) => {
                self.start(link);
            }
            PeerEvent::Down(link) => {
                self.unsettled.retain(|unsettled| *unsettled != link);
                let (group, member) = self.places[link];
                self.rings[group].stop(member);
                self.queries.stop(link);
                self.sender.expel(GroupId(group as u16), member);
                self.reopen_if_unused(GroupId(group as u16));
                self.retire_delivered();
            }
            PeerEvent::Greeted(link, hello) if hello.kind == HelloKind::Connection => {
                let (group, member) = self.places[link];
                if !self.accepts(group, hello.own) {
                    self.counts.rejected += 1;
                    self.links[link].greeted = None;
                    return;
                }
                self.links[link].greeted = Some(hello.life);
                let seal = self.seals.of(self.links[link].peer(), hello.life);
                self.replies.restart(link, hello.life, hello.start, seal);
                if self.members[group][member].replace(hello.life) != Some(hello.life) {
                    self.rings[group].hear_credits(member, seal);
                    self.queries.hear_credits(link, seal);
                }
            }
            PeerEvent::Greeted(_, hello) if hello.kind == HelloKind::Superseded => self.superseded = true,
            PeerEvent::Greeted(..) | PeerEvent::Refused => self.counts.rejected += 1,
        }
    }
}

/// Returns whether a process is a member that counts.
fn counts(sender: &Sender, topology: &Topology, member: ProcessId) -> bool {
    match topology.role(member) {
        Some(ProcessRole::Member { group, index }) => sender.counts(group, usize::from(index)),
        _ => false,
    }
}
