//! A member of a group on a fabric.

mod absent;
mod ahead;
mod confirm;
mod credit;
mod expel;
mod histories;
mod links;
mod opening;
mod post;
mod recover;
mod replies;
mod take;
#[cfg(test)]
mod tests;
mod time;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::{Completion, Fabric, ProcessId};
use stentor_link::JoinedSets;

pub use self::absent::CLIENT_TIMEOUT;
use self::confirm::Confirmations;
use self::histories::Histories;
use self::recover::Recovery;
pub use self::replies::Query;
use self::replies::Replies;
pub use self::time::ClockCounts;
use self::time::MemberTime;
use super::NodeError;
use super::app::{Application, RestoreError};
use super::counts::{Counts, RemoteOp, Step};
use super::effects::Outputs;
use super::fanout::join_sets;
use super::heartbeats::Heartbeats;
use super::message_assembler::MessageAssembler;
use super::open::{Body, Opener, Peer};
use super::outbound::scratch;
use super::peer_links::PeerLinks;
use super::poll_gate::PollGate;
use super::records_in::RecordsIn;
use super::seals::Seals;
use super::store::Store;
use super::streams::Streams;
use super::transfer::Transfers;
use crate::{
    Ballot, ClientId, GroupId, Limits, MemoryUse, Mutant, ProcessRole, Replica, ReplicaConfig, Topology, Variant,
};

/// Records taken from one ring in one step, so that no ring starves the others.
const RECORDS_PER_STEP: usize = 64;

/// What was read last of another member's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeartbeatCell {
    /// Each word is whole; together they need not be of one moment. `None`: nothing was read yet.
    pub words: Option<[u64; HeartbeatCell::WORDS]>,
    /// Whether the link that it is read over is up.
    pub connected: bool,
}

impl HeartbeatCell {
    /// Words that a member publishes: one cache line.
    pub const WORDS: usize = 8;
}

/// Bytes that wait only when something failed.
#[derive(Clone, Copy, Default, Debug)]
struct Rare {
    /// Of messages that lie aside.
    aside: u64,
    /// Of letters that are not written yet.
    letters: u64,
    /// Of transfers.
    transfers: u64,
}

/// A member of a group: delivers messages in the global order.
#[derive(Debug)]
pub struct Member<F: Fabric> {
    fabric: F,
    replica: Replica,
    links: PeerLinks,
    seals: Seals,
    /// By client.
    bodies: Vec<Body>,
    stores: Vec<Store>,
    replies: Replies,
    queries: RecordsIn,
    /// By process; `None` at this process.
    peers: Vec<Option<Peer>>,
    assemblers: Vec<MessageAssembler>,
    letter_bytes: u64,
    transfers: Transfers,
    limits: Limits,
    streams: Streams,
    recovery: Recovery,
    confirmations: Confirmations,
    histories: Histories,
    /// The ballot that clients were told with what is held.
    told_ballot: Option<Ballot>,
    heartbeats: Heartbeats,
    outputs: Outputs,
    /// Outboxes that did not go out wholly.
    unsent: Vec<ProcessId>,
    /// Whose control rings have something, in this round.
    due: Vec<ProcessId>,
    inbox: Vec<u64>,
    scratch: Vec<u64>,
    completions: [Completion; 16],
    topology: Arc<Topology>,
    batch: bool,
    window: u32,
    mutant: Mutant,
    memory: MemoryUse,
    rare: Rare,
    gate: PollGate,
    /// Whether the last round did more than the routine: heartbeats, and ticks from which nothing followed.
    had_work: bool,
    /// Where clients' messages come as copies of the network.
    sets: JoinedSets,
    /// Whether the caller asks clients not to wait for this member.
    aside: bool,
    /// Whether clients were told so.
    told_aside: bool,
    time: MemberTime,
}

impl<F: Fabric> Member<F> {
    /// Registers the regions and begins to connect. `salt` is the cluster's. `life` tells this process from all
    /// that had its place before or will have it, and rises: the time of its start, say.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(mut fabric: F, config: ReplicaConfig, limits: Limits, salt: u64, life: u64) -> Result<Self, NodeError> {
        limits.check()?;
        let me = config.me;
        let topology = config.topology.clone();
        let group = Self::check_place(&fabric, me, &topology)?;
        super::check_fabric(fabric.capabilities(), &limits, &topology)?;
        let config = ReplicaConfig { window: limits.window, ..config };
        let seals = Seals::new(salt, config.mutant.fabric());
        let (batch, window, mutant) = (config.variant != Variant::V1, config.window, config.mutant);
        let replica = Replica::new(config);
        let mains = topology.all_members() - 1 + topology.clients();
        let links = PeerLinks::new(&mut fabric, mains, seals, life)?;
        let registered = mains as u64 * super::INBOX_BYTES;
        let (topology_, limits) = (&*topology, &limits);
        let mut opener = Opener { fabric: &mut fabric, links, topology: topology_, limits, seals, mutant, registered };
        let mut peers: Vec<Option<Peer>> = (0..topology.all_members() as u16)
            .map(ProcessId)
            .map(|process| (process != me).then(|| opener.peer(process)).transpose())
            .collect::<Result<_, _>>()?;
        let leader = replica.ballot().leader();
        let streams = opener.streams(group, leader, &mut peers)?;
        let heartbeats = Heartbeats::open(&mut opener, group, &peers)?;
        let bodies: Vec<Body> =
            (0..topology.clients() as u16).map(|client| opener.body(ClientId(client))).collect::<Result<_, _>>()?;
        let (replies, queries) = Replies::open(&mut opener, &bodies)?;
        let (links, registered) = (opener.links, opener.registered);
        let sets = join_sets(&mut fabric, &topology)?;
        let plan = limits.memory(&topology, topology.size(group), fabric.capabilities().inline_bytes);
        let memory = MemoryUse::begun(&plan, registered);
        let (body_ring, control) = (limits.body_ring(&topology).bytes(), limits.control_ring(&topology));
        Ok(Member {
            stores: bodies.iter().map(|_| Store::new(body_ring, window)).collect(),
            assemblers: peers.iter().map(|_| MessageAssembler::new()).collect(),
            letter_bytes: limits.letter_bytes(&topology),
            transfers: Transfers::new(peers.len()),
            limits: *limits,
            outputs: Outputs::new(&topology, me, group, mutant),
            unsent: Vec::with_capacity(topology.all_members()),
            due: Vec::with_capacity(topology.all_members()),
            inbox: scratch(&control),
            scratch: scratch(&control),
            completions: [Completion::BLANK; 16],
            recovery: Recovery::default(),
            confirmations: Confirmations::new(&topology, limits, (me, group)),
            histories: Histories::default(),
            told_ballot: replica.counts_in(),
            heartbeats,
            fabric,
            replica,
            links,
            seals,
            bodies,
            replies,
            queries,
            peers,
            streams,
            time: MemberTime::new(topology.all_members()),
            topology,
            batch,
            window,
            mutant,
            memory,
            rare: Rare::default(),
            gate: PollGate::default(),
            had_work: true,
            sets,
            aside: false,
            told_aside: false,
        })
    }

    /// The group of a process that is a member of one, and has this fabric.
    fn check_place(fabric: &F, me: ProcessId, topology: &Topology) -> Result<GroupId, NodeError> {
        let Some(ProcessRole::Member { group, .. }) = topology.role(me) else {
            return Err(NodeError::Role(me, "member of a group"));
        };
        if fabric.me() != me {
            return Err(NodeError::Role(fabric.me(), "process of this configuration"));
        }
        Ok(group)
    }

    /// A process that comes back without memory, or founds its group together with all the others.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn joining(fabric: F, config: ReplicaConfig, limits: Limits, salt: u64, life: u64) -> Result<Self, NodeError> {
        let mut member = Member::new(fabric, config.clone(), limits, salt, life)?;
        member.replica = Replica::joining(ReplicaConfig { window: limits.window, ..config }, life);
        member.told_ballot = None;
        Ok(member)
    }

    /// Sets the time between two ticks, at which what makes no progress is looked at; 2 ms if it is not set.
    pub fn set_tick(&mut self, tick: Duration) {
        self.recovery.set_tick(tick);
    }

    /// Returns whether the last [`step`](Member::step) did more than the routine of an idle member, which is to look at
    /// the others' heartbeats and to let time pass.
    #[inline]
    #[must_use]
    pub fn had_work(&self) -> bool {
        self.had_work
    }

    /// Returns the time of the next tick, in the time of [`step`](Member::step): before that nothing is due.
    #[must_use]
    pub fn next_tick(&self) -> Duration {
        self.recovery.next_tick()
    }

    /// Sets the time between two ticks of a member that [rests](Member::rest), if it is longer; it is 5 ms if not set.
    pub fn set_rest_tick(&mut self, tick: Duration) {
        self.recovery.set_rest_tick(tick);
    }

    /// Makes the member rest, or ends that. A member that had no [work](Member::had_work) for a while rests: its ticks
    /// are fewer. Returns the time between two of them.
    pub fn rest(&mut self, rests: bool) -> Duration {
        self.recovery.rest(rests)
    }

    /// Sets for how long a client may be away before it is given up, if it left a gap that others have waited behind for as
    /// long; [`CLIENT_TIMEOUT`] if it is not set. What others hold should be there by then: they pass it on within four times
    /// the [retry ticks](ReplicaConfig::retry_ticks). If it lives and was only cut off, it is [superseded](crate::Client::is_superseded) when it comes back.
    pub fn set_client_timeout(&mut self, timeout: Duration) {
        self.recovery.absence.set_timeout(timeout);
    }

    /// Records every remote operation by message, for checking genuineness (M7). Allocates per message.
    pub fn record_operations(&mut self) {
        self.outputs.operations.get_or_insert_default();
    }

    /// Takes the operations recorded since the last call.
    pub fn take_operations(&mut self) -> Vec<RemoteOp> {
        self.outputs.operations.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Memory in use, and what was announced (M8).
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        self.memory
    }

    /// Returns why the application could not take over another member's state, if that happened. This member does nothing
    /// any more.
    #[must_use]
    pub fn failure(&self) -> Option<&RestoreError> {
        self.outputs.failure.as_ref()
    }

    /// The cluster.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The state machine.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Returns whether deliveries wait until the application has [room](Application::has_room).
    #[inline]
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.replica.is_held_back() || self.transfers.is_held_back()
    }

    /// Remote writes so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.outputs.counts
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

    /// Whether all other members are connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.peers.iter().zip(&self.outputs.connected).all(|(peer, connected)| *connected || peer.is_none())
    }

    /// Whether another member is connected now.
    #[must_use]
    pub fn is_connected_to(&self, member: ProcessId) -> bool {
        self.outputs.is_connected(member)
    }

    /// Lets the other members of the group read these words, as a sign of life; from now on this member reads theirs at
    /// every tick. Zeros are what they read of a process that has published nothing.
    pub fn publish(&mut self, words: &[u64; HeartbeatCell::WORDS]) {
        self.heartbeats.publish(&self.fabric, words);
    }

    /// What was read last of another member of the group; `None` if it is none, or the fabric lets no two processes read
    /// one region.
    #[must_use]
    pub fn heartbeat(&self, member: ProcessId) -> Option<HeartbeatCell> {
        let (main, words) = self.heartbeats.last(member)?;
        Some(HeartbeatCell { words, connected: self.links[main].is_ready() })
    }

    /// One round: takes what came, does what follows from it, delivers what is due, writes what is to be written.
    /// Returns whether there was anything to do. `now` is the time since any fixed moment, and never goes back. `app`
    /// gets the messages in the global order. A process whose place another one has taken does nothing any more: see
    /// [`Replica::is_superseded`].
    pub fn step<A: Application>(&mut self, now: Duration, app: &mut A) -> bool {
        let skips = self.gate.skips(&mut self.fabric);
        let ticks = self.recovery.ticks(now);
        self.had_work = false;
        let goes_on = self.waits_for_room() && app.has_room();
        if skips && !ticks && !goes_on || self.replica.is_superseded() || self.outputs.failure.is_some() {
            return false;
        }
        if self.time.has_passed(now) {
            self.pass_time(now);
        }
        let mut worked = false;
        let letters = self.outputs.counts.writes(Step::PeerMessage);
        if goes_on {
            worked |= self.go_on_delivering(app);
        }
        if ticks || goes_on || !self.gate.looks_at_nothing() {
            let completed = self.poll_completions();
            self.outputs.counts.write(Step::PeerMessage, self.links.send_hellos(&mut self.fabric));
            worked |= self.take_bodies(app);
            worked |= self.take_stream(app);
            worked |= self.take_control(app);
            worked |= self.replies.hear_room(&self.fabric, &self.gate);
            worked |= self.look_for_queries();
            worked |= self.recover(now, app);
            self.had_work |= worked || self.outputs.counts.writes(Step::PeerMessage) != letters;
            worked |= completed;
        }
        if !self.outputs.dropped.is_empty() {
            self.drop_void();
        }
        // First what others wait for.
        let left_over = self.send_outboxes();
        // Whoever has taken everything tells it at once, and need not look again for that.
        let done = !worked || self.outputs.touched.is_empty() || self.gate.is_done(&mut self.fabric);
        self.send_credits(done);
        self.fabric.flush();
        self.replies.flushed();
        self.gate.after(!done, left_over || !self.outputs.touched.is_empty() || self.queries.owes());
        worked
    }
}
