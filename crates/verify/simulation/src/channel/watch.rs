//! A fabric that observes the requests of an endpoint and their completions. It records credits, errors and the number
//! of operations lent to the fabric, so that the run does not rely on the counts of the protocol.

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

/// One life of one end of a connection: the process, its peer, the connection's number, and the life.
pub(crate) type EndLife = (ProcessId, ProcessId, u32, u32);

/// Returns the index of the receives that a kind of message consumes. Control messages consume those for lengths.
fn pool(kind: Kind) -> usize {
    if kind == Kind::Control { Kind::Length.index() } else { kind.index() }
}

/// The observations of all processes' fabrics.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The current life of each end of a connection.
    lives: HashMap<(ProcessId, ProcessId, u32), u32>,
    /// Number of sends, by end and [`pool`].
    sends: HashMap<(EndLife, usize), u64>,
    recvs: HashMap<(EndLife, usize), u64>,
    lent: HashMap<EndLife, u64>,
    /// The owner of each outstanding operation of a fabric.
    out: HashMap<(ProcessId, QpId, u64), EndLife>,
    /// Reported errors, one for each end.
    pub(crate) faults: Vec<(EndLife, Status)>,
    /// Number of entries of `faults` that are in the history.
    pub(crate) told: usize,
    /// Ends whose queue pair broke, as their receives reported, and that have neither failed nor closed yet. An end on
    /// which only the closing was pending need not fail.
    pub(crate) broken: BTreeMap<EndLife, Status>,
    /// Ends that are closed.
    closed: HashSet<EndLife>,
    /// Ends that sent more messages than the peer had posted receives for, with both numbers.
    pub(crate) beyond: Vec<(EndLife, u64, u64)>,
}

impl Ledger {
    /// Records that an end of a connection was opened.
    pub(crate) fn opened(&mut self, me: ProcessId, peer: ProcessId, number: u32, life: u32) {
        self.lives.insert((me, peer, number), life);
    }

    /// Records that an end was closed.
    pub(crate) fn closed(&mut self, end: EndLife) {
        self.closed.insert(end);
        self.broken.remove(&end);
    }

    /// Records that a receive which belongs to no connection was flushed. All connections with that peer are broken.
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

    /// Returns the number of an end's operations that the fabric has not returned.
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
        // A hello may arrive before its receive is posted.
        let free = u64::from(kind == Kind::Greeting);
        if count > granted + free {
            self.beyond.push((end, count, granted));
        }
    }

    fn back(&mut self, me: ProcessId, completion: &Completion) {
        let Some(end) = self.out.remove(&(me, completion.qp, completion.id)) else { return };
        let lent = self.lent.entry(end).or_default();
        *lent = lent.saturating_sub(1);
        // A flushed receive was not used, like a cancelled one. An end that is about to close does not treat it as an
        // error.
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

/// A fabric whose requests and completions are recorded.
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
            // The endpoint's format: 16 bits of connection, 2 bits of kind, 14 bits of slot.
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
            // Receives for WRITE_WITH_IMM belong to no connection. The simulator counts the writes that had to wait for
            // one.
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
