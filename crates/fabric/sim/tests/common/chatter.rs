//! Processes that post WRITEs, WRITE_WITH_IMMs, READs and fetch-and-adds for as long as they run.

use std::time::Duration;

use stentor_fabric::memory::LINE;
use stentor_fabric::seal::Seal;
use stentor_fabric::{
    Access, Completion, Event, Fabric, Opcode, ProcessId, Purpose, QpConfig, QpId, QpKind, QpState, RegionId,
    RegionSpec, RemoteRegion, RemoteSpan, SealedSlot, SendQueue, Service, SlotReader, Source, Span, Status, Verb,
    WorkRequest,
};
use stentor_fabric_sim::{Actor, SimFabric};

const DEPTH: u32 = 16;
const WORDS: u64 = 128;
const NOTHING: Span = Span { region: RegionId(0), offset: 0, bytes: 0 };

struct Line {
    qp: QpId,
    queue: SendQueue,
}

struct Peer {
    id: ProcessId,
    lines: Vec<Line>,
    mine: RegionId,
    local: RegionId,
    remote: Option<RemoteRegion>,
    slot: SealedSlot,
    reader: SlotReader,
    sent: u64,
    received: u64,
}

/// One process of the chatter.
pub(crate) struct Chatter {
    fabric: SimFabric,
    peers: Vec<Peer>,
}

fn peer(fabric: &mut SimFabric, id: ProcessId, life: u64) -> Peer {
    let me = fabric.me();
    let spec = |writer, purpose| RegionSpec { purpose: Purpose(purpose), writer, bytes: WORDS * 8 };
    let mine = fabric.register(spec(id, 1)).unwrap();
    fabric.grant(mine, id, Access::Atomic).unwrap();
    let local = fabric.register(spec(me, 100 + id.0)).unwrap();
    let mut lines = Vec::new();
    for service in 0..3 {
        let kind = if service == 2 { QpKind::Unreliable } else { QpKind::Reliable };
        let config = QpConfig { kind, send_depth: DEPTH, recv_depth: 4, merges: false };
        let qp = fabric.connect(id, Service(service), config).unwrap();
        lines.push(Line { qp, queue: SendQueue::new(DEPTH) });
    }
    fabric.post_recv(lines[0].qp, NOTHING, 1).unwrap();
    let mut slot = SealedSlot::new(Seal::new(me, 0));
    slot.resume_after(life << 32);
    let reader = SlotReader::new(Seal::new(id, 0));
    Peer { id, lines, mine, local, remote: None, slot, reader, sent: 0, received: 0 }
}

impl Chatter {
    pub(crate) fn new(mut fabric: SimFabric, processes: u16, life: u64) -> Self {
        let others = (0..processes).map(ProcessId).filter(|p| *p != fabric.me()).collect::<Vec<_>>();
        let peers = others.into_iter().map(|p| peer(&mut fabric, p, life)).collect();
        Chatter { fabric, peers }
    }

    /// Resets the counts of received values.
    pub(crate) fn forget(&mut self) {
        for peer in &mut self.peers {
            peer.received = 0;
        }
    }

    /// Returns the number of values received from a peer.
    pub(crate) fn received(&self, from: ProcessId) -> u64 {
        self.peers.iter().find(|peer| peer.id == from).map_or(u64::MAX, |peer| peer.received)
    }

    /// Returns the index of the peer of a queue pair, and the index of the queue pair among the lines to that peer.
    fn line(&self, qp: QpId) -> (usize, usize) {
        let places = self.peers.iter().enumerate();
        let mut lines =
            places.flat_map(|(p, peer)| peer.lines.iter().enumerate().map(move |(l, line)| (p, l, line.qp)));
        lines.find(|(_, _, other)| *other == qp).map(|(p, l, _)| (p, l)).unwrap()
    }

    fn events(&mut self) {
        while let Some(event) = self.fabric.next_event() {
            match event {
                Event::Connected { qp, peer } => {
                    let (p, _) = self.line(qp);
                    self.peers[p].remote = self.fabric.resolve(peer, Purpose(1));
                }
                Event::Disconnected { qp, .. } => {
                    let (p, l) = self.line(qp);
                    self.peers[p].lines[l].queue.reset();
                    self.fabric.reset(qp).unwrap();
                    if l == 0 {
                        self.fabric.post_recv(qp, NOTHING, 1).unwrap();
                    }
                }
                Event::Revoked { region, peer } => self.fabric.grant(region, peer, Access::Atomic).unwrap(),
            }
        }
    }

    fn completions(&mut self) -> bool {
        let mut out = [Completion::BLANK; 8];
        let count = self.fabric.poll(&mut out);
        for done in &out[..count] {
            let (p, l) = self.line(done.qp);
            match (done.opcode, done.status) {
                // A receive is sometimes not posted again, so that the peer finds none.
                (Opcode::RecvWriteImm, Status::Success) if !self.peers[p].received.is_multiple_of(7) => {
                    let _ = self.fabric.post_recv(done.qp, NOTHING, 1);
                }
                (Opcode::RecvWriteImm | Opcode::Recv, _) => {}
                (_, Status::Success) => self.peers[p].lines[l].queue.completed(done.id),
                _ => {}
            }
        }
        count > 0
    }

    fn read(&mut self) -> bool {
        let mut any = false;
        for peer in &mut self.peers {
            if let Some([value, inverse]) = peer.reader.read(self.fabric.memory(peer.mine)) {
                assert_eq!(inverse, !value, "a torn value of {}", peer.id);
                peer.received += 1;
                any = true;
                if value % 60 == 59 {
                    self.fabric.revoke(peer.mine, peer.id).unwrap();
                }
            }
        }
        any
    }

    fn write(&mut self, p: usize) {
        let peer = &mut self.peers[p];
        peer.remote = self.fabric.resolve(peer.id, Purpose(1)).or(peer.remote);
        let Some(region) = peer.remote else { return };
        let n = peer.sent;
        let l = if n.is_multiple_of(10) { 2 } else { (n % 3 == 1) as usize };
        let Line { qp, queue } = &mut peer.lines[l];
        if self.fabric.state(*qp) != QpState::Ready || queue.free() == 0 {
            return;
        }
        let mut record = [0; 8];
        let data: Vec<u8> = peer.slot.seal(&[n, !n], &mut record).iter().flat_map(|word| word.to_ne_bytes()).collect();
        let at = |line: u64| RemoteSpan { region, offset: line * LINE as u64 };
        let local = |bytes| Span { region: peer.local, offset: 0, bytes };
        let small = Verb::Write { source: Source::Inline(&data), target: at(0) };
        let verb = match n % 20 {
            2 | 3 | 7 | 8 | 13 | 18 => Verb::Write { source: Source::Region(local(512)), target: at(4) },
            6 => Verb::Read { local: local(512), remote: at(4) },
            9 => Verb::FetchAdd { local: local(8), remote: at(2), add: 1 },
            12 => Verb::WriteImm { source: Source::Inline(&data), target: at(0), imm: n as u32 },
            _ => small,
        };
        let verb = if l == 2 || (n % 20 == 12 && l != 0) { small } else { verb };
        let signalled = queue.signal_next();
        self.fabric.post(*qp, WorkRequest { id: queue.next_id(), verb, signalled }).unwrap();
        queue.posted(signalled);
        peer.sent += 1;
    }
}

impl Actor for Chatter {
    fn step(&mut self, _now_ns: u64) -> bool {
        self.events();
        let worked = self.completions() | self.read();
        for p in 0..self.peers.len() {
            self.write(p);
        }
        self.fabric.flush();
        self.fabric.wait(Duration::from_micros(1)).unwrap();
        worked
    }
}
