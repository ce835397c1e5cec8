//! Sees what an endpoint asks of its fabric and what comes back: credits, operations lent, errors. It counts for itself, so
//! the protocol's own numbers are not taken for granted.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use stentor_channel::{Kind, Tag};
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Opcode, PollHint, PostError, ProcessId,
    Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, Span, Status, Verb,
    WaitError, Wake, Waker, Word, WorkRequest,
};
use stentor_fabric_conformance::FaultInjector;
use stentor_fabric_sim::SimFabric;

/// One life of one end of a connection: whose, with whom, number, which life.
pub(crate) type EndLife = (ProcessId, ProcessId, u32, u32);

/// Which receives a message comes into: control messages come into those for lengths.
fn pool(kind: Kind) -> usize {
    if kind == Kind::Control { Kind::Length.index() } else { kind.index() }
}

/// What all processes' fabrics saw.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The life that each end of a connection is in.
    lives: HashMap<(ProcessId, ProcessId, u32), u32>,
    /// By end and [`pool`].
    sends: HashMap<(EndLife, usize), u64>,
    recvs: HashMap<(EndLife, usize), u64>,
    lent: HashMap<EndLife, u64>,
    /// Operations of each fabric: whose they are.
    out: HashMap<(ProcessId, QpId, u64), EndLife>,
    /// Errors that were reported, once for each end.
    pub(crate) faults: Vec<(EndLife, Status)>,
    /// How many of them are in the history.
    pub(crate) told: usize,
    /// Ends whose queue pair broke, as their receives told, and that neither failed nor closed yet: what was over but for the
    /// closing need not fail.
    pub(crate) broken: BTreeMap<EndLife, Status>,
    /// Ends that are closed.
    closed: HashSet<EndLife>,
    /// More sent than there were receives for.
    pub(crate) beyond: Vec<(EndLife, u64, u64)>,
}

impl Ledger {
    /// An end of a connection was opened.
    pub(crate) fn opened(&mut self, me: ProcessId, peer: ProcessId, number: u32, life: u32) {
        self.lives.insert((me, peer, number), life);
    }

    /// An end was closed.
    pub(crate) fn closed(&mut self, end: EndLife) {
        self.closed.insert(end);
        self.broken.remove(&end);
    }

    /// A receive that belongs to no connection came back unused: all connections with that peer are broken.
    fn broke(&mut self, me: ProcessId, peer: ProcessId, status: Status) {
        let lives = self.lives.iter().filter(|((of, with, _), _)| (*of, *with) == (me, peer));
        let mut ends: Vec<EndLife> = lives.map(|((.., number), life)| (me, peer, *number, *life)).collect();
        ends.sort_unstable();
        ends.retain(|end| !self.closed.contains(end) && !self.broken.contains_key(end));
        self.broken.extend(ends.into_iter().map(|end| (end, status)));
    }

    fn life(&self, me: ProcessId, peer: ProcessId, number: u32) -> EndLife {
        (me, peer, number, self.lives.get(&(me, peer, number)).copied().unwrap_or(0))
    }

    /// Operations that the fabric has of an end.
    pub(crate) fn lent(&self, end: EndLife) -> u64 {
        self.lent.get(&end).copied().unwrap_or(0)
    }

    fn lend(&mut self, end: EndLife, qp: QpId, id: u64) {
        *self.lent.entry(end).or_default() += 1;
        self.out.insert((end.0, qp, id), end);
    }

    fn sent(&mut self, end: EndLife, kind: Kind) {
        let (me, peer, number, life) = end;
        let count = self.sends.entry((end, pool(kind))).or_default();
        *count += 1;
        let count = *count;
        let granted = self.recvs.get(&((peer, me, number, life), pool(kind))).copied().unwrap_or(0);
        // A greeting may come before its receive.
        let free = u64::from(kind == Kind::Greeting);
        if count > granted + free {
            self.beyond.push((end, count, granted));
        }
    }

    fn back(&mut self, me: ProcessId, completion: &Completion) {
        let Some(end) = self.out.remove(&(me, completion.qp, completion.id)) else { return };
        let lent = self.lent.entry(end).or_default();
        *lent = lent.saturating_sub(1);
        // A receive that is flushed came back unused, as one that was asked back: for who is about to close that is no error.
        if completion.opcode == Opcode::TaggedRecv && completion.status == Status::Flushed {
            if !self.closed.contains(&end) {
                self.broken.entry(end).or_insert(completion.status);
            }
            return;
        }
        if !matches!(completion.status, Status::Success | Status::Cancelled)
            && self.faults.iter().all(|(other, _)| *other != end)
        {
            self.faults.push((end, completion.status));
        }
    }
}

/// A fabric that is watched.
pub(crate) struct Watched {
    pub(crate) inner: FaultInjector<SimFabric>,
    ledger: Rc<RefCell<Ledger>>,
    peers: HashMap<QpId, ProcessId>,
}

impl Watched {
    pub(crate) fn new(inner: FaultInjector<SimFabric>, ledger: Rc<RefCell<Ledger>>) -> Self {
        Watched { inner, ledger, peers: HashMap::new() }
    }

    fn number(verb: &Verb<'_>) -> Option<(u32, Kind)> {
        match verb {
            Verb::TaggedSend { tag, .. } => {
                let tag = Tag::of(*tag);
                Some((tag.connection, tag.kind))
            }
            // As the endpoint has it: 16 bits connection, 2 kind, 14 place.
            Verb::WriteImm { imm, .. } => Some((imm >> 16, Kind::ALL[(imm >> 14 & 3) as usize])),
            _ => None,
        }
    }
}

impl Fabric for Watched {
    stentor_fabric_conformance::forward! {
        inner;
        &self {
            me() -> ProcessId;
            capabilities() -> &Capabilities;
            memory(region: RegionId) -> &[Word];
            state(qp: QpId) -> QpState;
            descriptor() -> Option<BorrowedFd<'_>>;
            waker() -> Waker;
        }
        &mut self {
            register(spec: RegionSpec) -> Result<RegionId, RegisterError>;
            grant(region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError>;
            revoke(region: RegionId, peer: ProcessId) -> Result<(), AccessError>;
            disconnect(qp: QpId) -> Result<(), ConnectError>;
            reset(qp: QpId) -> Result<(), ConnectError>;
            resolve(peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion>;
            post_recv(qp: QpId, local: Span, id: u64) -> Result<(), PostError>;
            cancel_tagged_recv(qp: QpId, id: u64) -> Result<(), PostError>;
            flush();
            poll_hint() -> PollHint;
            next_event() -> Option<Event>;
            arm();
            wait(timeout: Duration) -> Result<Wake, WaitError>;
        }
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        let qp = self.inner.connect(peer, service, config)?;
        self.peers.insert(qp, peer);
        Ok(qp)
    }

    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        self.inner.post(qp, request)?;
        let me = self.me();
        if let (Some((number, kind)), Some(peer)) = (Self::number(&request.verb), self.peers.get(&qp)) {
            let mut ledger = self.ledger.borrow_mut();
            let end = ledger.life(me, *peer, number);
            ledger.lend(end, qp, request.id);
            // Receives for WRITE_WITH_IMM belong to no connection: the simulator counts who had to wait for one.
            if matches!(request.verb, Verb::TaggedSend { .. }) {
                ledger.sent(end, kind);
            }
        }
        Ok(())
    }

    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        self.inner.post_tagged_recv(qp, local, tag, ignore, id)?;
        let me = self.me();
        let tag = Tag::of(tag);
        if let Some(peer) = self.peers.get(&qp) {
            let mut ledger = self.ledger.borrow_mut();
            let end = ledger.life(me, *peer, tag.connection);
            ledger.lend(end, qp, id);
            *ledger.recvs.entry((end, pool(tag.kind))).or_default() += 1;
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let count = self.inner.poll(out);
        let me = self.me();
        let mut ledger = self.ledger.borrow_mut();
        for completion in &out[..count] {
            let anybodys = matches!(completion.opcode, Opcode::RecvWriteImm | Opcode::Recv);
            match self.peers.get(&completion.qp) {
                Some(peer) if anybodys && completion.status != Status::Success => {
                    ledger.broke(me, *peer, completion.status);
                }
                _ if anybodys => {}
                _ => ledger.back(me, completion),
            }
        }
        count
    }
}
