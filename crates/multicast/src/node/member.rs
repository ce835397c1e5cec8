//! A member of a group on a fabric.

use std::sync::Arc;

use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Completion, Event, Fabric, Opcode, ProcessId, QpId, QpState, Record, Status};

use super::NodeError;
use super::counts::{Counts, RemoteOp, Step};
use super::effects::{Delivered, Out, Outputs, Store, Stored};
use super::open::{Body, Opener, Peer, Stream};
use super::outbound::{Outbound, scratch};
use super::outbox::BoxSender;
use super::posting::{Link, Quiet};
use crate::{ClientId, Header, Item, Limits, MemoryUse, Place, Replica, ReplicaConfig, Topology, Variant};

/// Records taken from one ring in one step, so that no ring starves the others.
const RECORDS_PER_STEP: usize = 64;

/// A member of a group: delivers messages in the global order.
#[derive(Debug)]
pub struct Member<F: Fabric> {
    fabric: F,
    replica: Replica,
    links: Vec<Link>,
    /// Index into `links` by queue pair.
    by_qp: Vec<Option<usize>>,
    /// By client.
    bodies: Vec<Body>,
    stores: Vec<Store>,
    /// By process; `None` at this process.
    peers: Vec<Option<Peer>>,
    stream: Option<Stream>,
    stream_out: Outbound,
    outputs: Outputs,
    /// Outboxes that did not go out wholly.
    unsent: Vec<ProcessId>,
    inbox: Vec<u64>,
    scratch: Vec<u64>,
    completions: [Completion; 16],
    topology: Arc<Topology>,
    batch: bool,
    window: u32,
    memory: MemoryUse,
    quiet: Quiet,
}

const NO_COMPLETION: Completion =
    Completion { qp: QpId(0), id: 0, opcode: Opcode::Write, status: Status::Success, bytes: 0, imm: None, tag: 0 };

impl<F: Fabric> Member<F> {
    /// Registers the regions and begins to connect. `salt` is the cluster's.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(mut fabric: F, config: ReplicaConfig, limits: Limits, salt: u64) -> Result<Self, NodeError> {
        limits.check()?;
        let me = config.me;
        let topology = config.topology.clone();
        let Some(Place::Member { group, .. }) = topology.place(me) else {
            return Err(NodeError::Role(me, "member of a group"));
        };
        if fabric.me() != me {
            return Err(NodeError::Role(fabric.me(), "process of this configuration"));
        }
        super::check_fabric(fabric.capabilities(), &limits, &topology)?;
        let config = ReplicaConfig { window: limits.window, ..config };
        let plant = config.plant.fabric();
        let seal = |process| Seal::new(process, salt).with_plant(plant);
        let (batch, window) = (config.variant != Variant::V1, config.window);
        let replica = Replica::new(config);
        let mut opener = Opener {
            fabric: &mut fabric,
            links: Vec::new(),
            topology: &topology,
            limits: &limits,
            seal: &seal,
            registered: 0,
        };
        let peers: Vec<Option<Peer>> = (0..topology.all_members() as u16)
            .map(ProcessId)
            .map(|process| (process != me).then(|| opener.peer(process)).transpose())
            .collect::<Result<_, _>>()?;
        let (stream, stream_out) = opener.stream(group, replica.ballot().leader(), &peers)?;
        let bodies: Vec<Body> =
            (0..topology.clients() as u16).map(|client| opener.body(ClientId(client))).collect::<Result<_, _>>()?;
        let (links, registered) = (opener.links, opener.registered);
        let plan = limits.memory(&topology, topology.size(group), fabric.capabilities().inline_bytes);
        let memory =
            MemoryUse { regions: registered, region_limit: plan.registered, most_queued: 0, queue_limit: plan.queues };
        let body_ring = limits.body_ring(&topology).bytes();
        let control = limits.control_ring(&topology);
        Ok(Member {
            by_qp: by_qp(&links),
            stores: bodies.iter().map(|_| Store::new(body_ring, window)).collect(),
            outputs: Outputs::new(&topology, me, group),
            unsent: Vec::with_capacity(topology.all_members()),
            inbox: scratch(&control),
            scratch: scratch(&control),
            completions: [NO_COMPLETION; 16],
            fabric,
            replica,
            links,
            bodies,
            peers,
            stream,
            stream_out,
            topology,
            batch,
            window,
            memory,
            quiet: Quiet::default(),
        })
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

    /// The state machine.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
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

    /// Whether all other members are connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let members = self.topology.all_members();
        self.links.iter().filter(|link| link.peer.index() < members).all(|link| link.ready)
    }

    /// Connections that came and went. Makes system calls on some fabrics: call it while connecting, when idle and
    /// every few milliseconds. Returns whether there was anything.
    pub fn housekeep(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.fabric.next_event() {
            any = true;
            self.quiet.disturb();
            match event {
                Event::Connected { qp, .. } => self.connected(qp),
                Event::Disconnected { qp, .. } => self.disconnected(qp),
                Event::Revoked { .. } => {}
            }
        }
        any
    }

    fn link_of(&self, qp: QpId) -> Option<usize> {
        self.by_qp.get(qp.index()).copied().flatten()
    }

    fn client_of(&self, link: usize) -> Option<ClientId> {
        match self.topology.place(self.links[link].peer) {
            Some(Place::Client(client)) => Some(client),
            _ => None,
        }
    }

    fn connected(&mut self, qp: QpId) {
        let Some(link) = self.link_of(qp) else { return };
        self.links[link].connected();
        if let Some(client) = self.client_of(link) {
            // The client learns where its ring stands, whoever wrote it before.
            self.outputs.notify[usize::from(client.0)] = true;
            self.bodies[usize::from(client.0)].settling = true;
            self.outputs.touch(client);
        }
    }

    fn disconnected(&mut self, qp: QpId) {
        let Some(link) = self.link_of(qp) else { return };
        self.links[link].broke();
        if let Some(client) = self.client_of(link) {
            // The place may be taken by another process; its ring goes on where it stands.
            self.links[link].broken = false;
            self.bodies[usize::from(client.0)].ring.credit.forget();
            // Refused only if the queue pair is not broken, and then there is nothing to reset.
            let _ = self.fabric.reset(qp);
            return;
        }
        self.stream_out.expel_broken(&self.links);
        for peer in self.peers.iter_mut().flatten() {
            peer.outbound.expel_broken(&self.links);
        }
    }

    /// One round: takes what came, does what follows from it, delivers what is due, writes what is to be written.
    /// Returns whether there was anything to do. `deliver` is called in the global order.
    pub fn step<D: FnMut(&Delivered<'_>)>(&mut self, deliver: &mut D) -> bool {
        if self.quiet.skips(&mut self.fabric) {
            return false;
        }
        let mut worked = self.poll_completions();
        worked |= self.take_bodies(deliver);
        worked |= self.take_stream(deliver);
        worked |= self.take_control(deliver);
        self.send_credits(!worked);
        self.send_outboxes();
        self.fabric.flush();
        let left_over =
            !(self.outputs.dirty.is_empty() && self.outputs.stream.is_empty() && self.outputs.touched.is_empty());
        self.quiet.after(worked, left_over);
        worked
    }

    fn poll_completions(&mut self) -> bool {
        let count = self.fabric.poll(&mut self.completions);
        for at in 0..count {
            let Completion { qp, id, status, .. } = self.completions[at];
            let Some(link) = self.link_of(qp) else { continue };
            if status == Status::Success {
                self.links[link].queue.completed(id);
            } else if self.fabric.state(qp) == QpState::Error {
                // Else it was reset already, and this is flushed work of the time before.
                // A suspicion, not a crash: this peer no longer counts for flow control, quorums stay what they are.
                self.disconnected(qp);
            }
        }
        count > 0
    }

    fn take_bodies<D: FnMut(&Delivered<'_>)>(&mut self, deliver: &mut D) -> bool {
        let mut worked = false;
        for at in 0..self.bodies.len() {
            self.bodies[at].drained = false;
            for _ in 0..RECORDS_PER_STEP {
                let ring = &mut self.bodies[at].ring;
                let memory = self.fabric.memory(ring.region);
                let Some(record) = ring.reader.peek_mirrored(memory, &mut self.stores[at].mirror) else {
                    self.bodies[at].drained = true;
                    break;
                };
                ring.reader.advance(&record);
                worked = true;
                if self.take_body(ClientId(at as u16), record, deliver).is_none() {
                    self.outputs.counts.rejected += 1;
                }
            }
        }
        worked
    }

    /// `None` if the record was refused.
    fn take_body<D: FnMut(&Delivered<'_>)>(&mut self, client: ClientId, record: Record, deliver: &mut D) -> Option<()> {
        let at = usize::from(client.0);
        let (first, last) = (record.word + HEADER_WORDS, record.word + HEADER_WORDS + record.bytes.div_ceil(8));
        let header = Header::decode(&self.stores[at].mirror[first..last], record.bytes, &self.topology).ok()?;
        let stored = Stored {
            word: first + Header::words(header.groups()),
            bytes: header.payload_bytes,
            end: record.end,
            notify: header.notify,
        };
        // Refused before it takes the place of another message in the store.
        let Some(slot) = self.replica.admit(client, &header).ok()? else { return Some(()) };
        let body = &mut self.bodies[at];
        body.last_sequence = body.last_sequence.max(header.sequence);
        self.stores[at].put(slot, stored);
        // Again, because the effects read the stores too.
        let header = Header::decode(&self.stores[at].mirror[first..last], record.bytes, &self.topology).ok()?;
        let mut out = Out { outputs: &mut self.outputs, stores: &self.stores, deliver };
        self.replica.on_message(client, &header, &mut out).ok()
    }

    fn take_stream<D: FnMut(&Delivered<'_>)>(&mut self, deliver: &mut D) -> bool {
        let Member { fabric, replica, stream, outputs, stores, .. } = self;
        let Some(stream) = stream else { return false };
        let mut worked = false;
        for _ in 0..RECORDS_PER_STEP {
            if stream.held.is_none() {
                let memory = fabric.memory(stream.ring.region);
                let Some(record) = stream.ring.reader.peek(memory, &mut stream.record) else { break };
                stream.held = Some((record, HEADER_WORDS + record.bytes / 8, HEADER_WORDS));
            }
            let Some((record, end, at)) = &mut stream.held else { break };
            while at < end {
                let from = replica.ballot().leader();
                let (item, next) = match Item::decode(&stream.record[..*end], *at) {
                    Ok((Item::Stream(item), next)) => (item, next),
                    Ok((Item::Begin(ballot), next)) => {
                        outputs.counts.rejected += u64::from(replica.on_begin(from, ballot).is_err());
                        *at = next;
                        continue;
                    }
                    _ => {
                        outputs.counts.rejected += 1;
                        break;
                    }
                };
                if replica.stream_waits(from, &item) {
                    return worked;
                }
                worked = true;
                *at = next;
                let mut out = Out { outputs, stores, deliver };
                if replica.on_stream(from, &item, &mut out).is_err() {
                    outputs.counts.rejected += 1;
                }
            }
            stream.ring.reader.advance(record);
            stream.held = None;
        }
        worked
    }

    fn take_control<D: FnMut(&Delivered<'_>)>(&mut self, deliver: &mut D) -> bool {
        let mut worked = false;
        for process in 0..self.peers.len() {
            for _ in 0..RECORDS_PER_STEP {
                let Some(peer) = &mut self.peers[process] else { break };
                let memory = self.fabric.memory(peer.inbound.region);
                let Some(record) = peer.inbound.reader.peek(memory, &mut self.inbox) else { break };
                peer.inbound.reader.advance(&record);
                worked = true;
                self.take_items(ProcessId(process as u16), HEADER_WORDS + record.bytes / 8, deliver);
            }
        }
        worked
    }

    /// The items of the record in `inbox`.
    fn take_items<D: FnMut(&Delivered<'_>)>(&mut self, from: ProcessId, end: usize, deliver: &mut D) {
        let Member { replica, outputs, stores, inbox, .. } = self;
        let mut at = HEADER_WORDS;
        while at < end {
            let Ok((item, next)) = Item::decode(&inbox[..end], at) else {
                outputs.counts.rejected += 1;
                return;
            };
            at = next;
            let mut out = Out { outputs, stores, deliver };
            let taken = match item {
                Item::Timestamp(item) => replica.on_timestamp(from, &item, &mut out).is_ok(),
                Item::Ack(ack) => replica.on_ack(from, &ack, &mut out).is_ok(),
                Item::Stream(_) | Item::Begin(_) => false,
            };
            outputs.counts.rejected += u64::from(!taken);
        }
    }

    /// `idle`: there is nothing else to do, so also small credits go.
    fn send_credits(&mut self, idle: bool) {
        let mut touched = std::mem::take(&mut self.outputs.touched);
        touched.retain(|client| {
            let waits = self.send_client_credit(*client, idle);
            if !waits {
                self.outputs.untouch(*client);
            }
            waits
        });
        self.outputs.touched = touched;
        let Member { fabric, links, peers, stream, outputs, .. } = self;
        let streams = stream.iter_mut().map(|stream| &mut stream.ring);
        for ring in peers.iter_mut().flatten().map(|peer| &mut peer.inbound).chain(streams) {
            outputs.counts.write(Step::Credit, ring.send_credit(fabric, links));
        }
    }

    /// Tells a client what is free again, if it is much, if there is nothing else to do, or if the client waits for it: a
    /// new one until it knows that the ring is empty. Returns whether that must be tried again.
    fn send_client_credit(&mut self, client: ClientId, idle: bool) -> bool {
        let at = usize::from(client.0);
        let Member { fabric, replica, links, bodies, stores, outputs, window, .. } = self;
        let body = &mut bodies[at];
        let freed = replica.first_held(client);
        if freed > body.freed_slots {
            body.freed_position = stores[at].get(freed - 1).end;
            body.freed_slots = freed;
        }
        let slots = (freed - body.credited_slots) * 4 >= u64::from(*window);
        let cells = body.ring.reader.uncredited(body.freed_position) * 4 >= body.ring.reader.geometry().lap_cells();
        let read = body.ring.reader.position();
        let settled = body.settling && body.drained && read == body.freed_position;
        let small = freed > body.credited_slots;
        if !(slots || cells || settled || outputs.notify[at] || (idle && small)) {
            return body.settling || small;
        }
        if !links[body.ring.credit.link].ready {
            // Nobody is there to be told; who comes next is told when it connects.
            return false;
        }
        // Who takes over a ring must hear of everything that lies in it.
        if (body.settling && !body.drained) || !body.ring.credit.ready(fabric, links) {
            return true;
        }
        let position = body.ring.reader.credit(body.freed_position);
        let values = [position, body.freed_slots, body.last_sequence, read];
        outputs.counts.write(Step::Credit, u64::from(body.ring.credit.send(fabric, links, values)));
        body.credited_slots = freed;
        body.settling &= !settled;
        outputs.notify[at] = false;
        body.settling
    }

    fn send_outboxes(&mut self) {
        let Member { fabric, links, peers, outputs, unsent, scratch, batch, stream_out, memory, .. } = self;
        let Outputs { stream, boxes, dirty, counts, .. } = outputs;
        let waiting: usize = dirty.iter().map(|process| boxes[process.index()].len()).sum();
        memory.most_queued = memory.most_queued.max(((waiting + stream.len()) * 8) as u64);
        let mut sender = BoxSender { fabric, links, scratch, counts, batch: *batch };
        sender.send(stream_out, stream);
        unsent.clear();
        for process in dirty.drain(..) {
            if let Some(peer) = &mut peers[process.index()]
                && !sender.send(&mut peer.outbound, &mut boxes[process.index()])
            {
                unsent.push(process);
            }
        }
        std::mem::swap(dirty, unsent);
    }
}

/// The index of each link by its queue pair.
pub(super) fn by_qp(links: &[Link]) -> Vec<Option<usize>> {
    let last = links.iter().map(|link| link.qp.index() + 1).max().unwrap_or(0);
    let mut by_qp = vec![None; last];
    for (index, link) in links.iter().enumerate() {
        by_qp[link.qp.index()] = Some(index);
    }
    by_qp
}
