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

/// Maximum number of records that a step reads from one ring, so that no ring starves the others. There is no limit
/// when a client's ring restarts or a fence is completed.
const RECORDS_PER_STEP: usize = 64;

/// The words that this member last read from another member's heartbeat region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeartbeatCell {
    /// The words; `None` before the first read. Each word is read atomically, but the words may come from different
    /// moments.
    pub words: Option<[u64; HeartbeatCell::WORDS]>,
    /// `true` if the link over which the words are read is up.
    pub connected: bool,
}

impl HeartbeatCell {
    /// Number of words that a member publishes: one cache line.
    pub const WORDS: usize = 8;
}

/// Bytes of the queues that are rarely used.
#[derive(Clone, Copy, Default, Debug)]
struct Rare {
    /// Bytes of messages in the side stores.
    aside: u64,
    /// Bytes of peer messages that are queued or partly received.
    letters: u64,
    /// Bytes of state transfers, including the backlog.
    transfers: u64,
}

/// A member of a group: delivers messages in the global order.
#[derive(Debug)]
pub struct Member<F: Fabric> {
    fabric: F,
    replica: Replica,
    links: PeerLinks,
    seals: Seals,
    /// The body ring of each client, indexed by client.
    bodies: Vec<Body>,
    stores: Vec<Store>,
    replies: Replies,
    queries: RecordsIn,
    /// The control rings and links shared with each other member, indexed by process; `None` at this process.
    peers: Vec<Option<Peer>>,
    assemblers: Vec<MessageAssembler>,
    letter_bytes: u64,
    transfers: Transfers,
    limits: Limits,
    streams: Streams,
    recovery: Recovery,
    confirmations: Confirmations,
    histories: Histories,
    /// The last ballot for which [`tell_ballot`](Member::tell_ballot) requested credits: they inform the clients that
    /// held messages now count in it.
    told_ballot: Option<Ballot>,
    heartbeats: Heartbeats,
    outputs: Outputs,
    /// Peers whose outboxes could not be sent completely, while [`send_outboxes`](Member::send_outboxes) runs;
    /// otherwise empty.
    unsent: Vec<ProcessId>,
    /// Peers whose control rings seem to have a record to read in this round.
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
    /// `true` if the last round did more than the routine, which is heartbeats and ticks without consequences.
    had_work: bool,
    /// The clients' fan-out sets in which this member receives copies.
    sets: JoinedSets,
    /// `true` if the caller asked that clients do not wait for this member.
    aside: bool,
    /// `true` if credits ask all clients not to wait for this member: at the caller's request, or because it is
    /// receiving another member's state.
    told_aside: bool,
    time: MemberTime,
}

impl<F: Fabric> Member<F> {
    /// Creates a member at the start of the cluster, as [`Replica::new`] does. Registers the regions and starts to
    /// connect. All processes of a cluster use one `salt`. `life` must be larger than the life of every earlier process
    /// with this process id, for example the time at which the process starts.
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

    /// Returns the group of this process, after checking that it is a member and that the fabric belongs to it.
    fn check_place(fabric: &F, me: ProcessId, topology: &Topology) -> Result<GroupId, NodeError> {
        let Some(ProcessRole::Member { group, .. }) = topology.role(me) else {
            return Err(NodeError::Role(me, "member of a group"));
        };
        if fabric.me() != me {
            return Err(NodeError::Role(fabric.me(), "process of this configuration"));
        }
        Ok(group)
    }

    /// Creates a process that rejoins its group without memory, or that founds its group together with all other
    /// members.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn joining(fabric: F, config: ReplicaConfig, limits: Limits, salt: u64, life: u64) -> Result<Self, NodeError> {
        let mut member = Member::new(fabric, config.clone(), limits, salt, life)?;
        member.replica = Replica::joining(ReplicaConfig { window: limits.window, ..config }, life);
        member.told_ballot = None;
        Ok(member)
    }

    /// Sets the time between two ticks; 2 ms by default. At ticks the member repeats requests and messages that have
    /// had no effect for [`retry_ticks`](ReplicaConfig::retry_ticks) ticks.
    pub fn set_tick(&mut self, tick: Duration) {
        self.recovery.set_tick(tick);
    }

    /// Returns whether the last [`step`](Member::step) did more than the routine of an idle member, which is to read
    /// the other members' heartbeats and to advance time.
    #[inline]
    #[must_use]
    pub fn had_work(&self) -> bool {
        self.had_work
    }

    /// Returns the time of the next tick, on the clock of [`step`](Member::step). No timer of this member requires an
    /// earlier step.
    #[must_use]
    pub fn next_tick(&self) -> Duration {
        self.recovery.next_tick()
    }

    /// Sets the time between two ticks of a member that [rests](Member::rest), if it is longer than the usual one; 5 ms
    /// by default.
    pub fn set_rest_tick(&mut self, tick: Duration) {
        self.recovery.set_rest_tick(tick);
    }

    /// Puts the member to rest, or ends its rest. Returns the new time between ticks. The next tick is due that long
    /// after the last one. A member should rest when it had no [work](Member::had_work) for a while: its ticks are then
    /// less frequent.
    pub fn rest(&mut self, rests: bool) -> Duration {
        self.recovery.rest(rests)
    }

    /// Sets how long a client may be disconnected before it is given up, provided that it left a gap on which other
    /// messages have waited for the same time; [`CLIENT_TIMEOUT`] by default. The timeout should exceed four times the
    /// [retry ticks](ReplicaConfig::retry_ticks), within which members forward the messages that they hold. A client
    /// that was given up although it was only partitioned is [superseded](crate::Client::is_superseded) when it
    /// reconnects.
    pub fn set_client_timeout(&mut self, timeout: Duration) {
        self.recovery.absence.set_timeout(timeout);
    }

    /// Starts to record the writes of steps 2 to 4, each with its message and receiver. Checks of genuineness (property
    /// M7 in `docs/guarantees.md`) read them. Recording allocates memory for each message.
    pub fn record_operations(&mut self) {
        self.outputs.operations.get_or_insert_default();
    }

    /// Returns the operations recorded since the last call.
    pub fn take_operations(&mut self) -> Vec<RemoteOp> {
        self.outputs.operations.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the memory in use and the announced maximum (property M8 in `docs/guarantees.md`).
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        self.memory
    }

    /// Returns the reason why the application could not restore another member's state, if that happened. From then on
    /// each [`step`](Member::step) does nothing.
    #[must_use]
    pub fn failure(&self) -> Option<&RestoreError> {
        self.outputs.failure.as_ref()
    }

    /// Returns the topology of the cluster.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the state machine of this member.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Returns whether deliveries are held back until the application has [room](Application::has_room).
    #[inline]
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.replica.is_held_back() || self.transfers.is_held_back()
    }

    /// Returns this member's counters.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.outputs.counts
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

    /// Returns whether all other members of the cluster are connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.peers.iter().zip(&self.outputs.connected).all(|(peer, connected)| *connected || peer.is_none())
    }

    /// Returns whether another member is connected.
    #[must_use]
    pub fn is_connected_to(&self, member: ProcessId) -> bool {
        self.outputs.is_connected(member)
    }

    /// Publishes these words as a heartbeat that the other members of the group can read. After the first call, this
    /// member reads the other members' words at its ticks. The words of a process that has published nothing are 0.
    pub fn publish(&mut self, words: &[u64; HeartbeatCell::WORDS]) {
        self.heartbeats.publish(&self.fabric, words);
    }

    /// Returns the words last read from another member of the group. Returns `None` if `member` is not another member
    /// of the group, or if the fabric allows only one process to read a region.
    #[must_use]
    pub fn heartbeat(&self, member: ProcessId) -> Option<HeartbeatCell> {
        let (main, words) = self.heartbeats.last(member)?;
        Some(HeartbeatCell { words, connected: self.links[main].is_ready() })
    }

    /// Runs one round: receives input, processes it, delivers what is due and sends the results. Returns whether there
    /// was anything to do.
    ///
    /// `now` is the time since an arbitrary fixed moment and never decreases. `app` receives the messages in the global
    /// order. A process that was [superseded](Replica::is_superseded), or has a [failure](Member::failure), does
    /// nothing.
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
        app.end_deliveries();
        // Peers may be waiting for these items, so the items precede the credits.
        let left_over = self.send_outboxes();
        // If all input was consumed, small credits are sent, too, so that no later round has to check for them.
        let done = !worked || self.outputs.touched.is_empty() || self.gate.is_done(&mut self.fabric);
        self.send_credits(done);
        self.fabric.flush();
        self.replies.flushed();
        self.gate.after(!done, left_over || !self.outputs.touched.is_empty() || self.queries.owes());
        worked
    }
}
