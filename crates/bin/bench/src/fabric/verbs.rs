//! One of the two processes: its regions and queue pairs, and the work requests of the rows.

use std::net::{IpAddr, SocketAddr};

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::seal::{HEADER_WORDS, Seal, record_words};
use stentor_fabric::{
    Access, Completion, Event, Fabric, Opcode, ProcessId, Purpose, QpConfig, QpId, QpKind, QpState, RegionId,
    RegionSpec, RemoteRegion, RemoteSpan, SendQueue, Service, Source, Span, Status, Verb, Word, WorkRequest,
};
use stentor_fabric_roce::RoceFabric;
use stentor_fabric_shm::{ShmConfig, ShmFabric};
use stentor_fabric_verbs::{NetConfig, VerbsConfig, VerbsFabric};
use stentor_support::Failure;
use zerocopy::IntoBytes;

use super::super::roce;
use super::super::worker_spec::Worker;
use super::super::workers::KEY;

/// Region that the peer writes to.
const TARGET: Purpose = Purpose(1);
/// Region for the sources of requests and for receives.
const STAGING: Purpose = Purpose(2);
/// Largest number of outstanding work requests of a queue pair.
const DEPTH: u32 = 64;
/// Number of receives that are always posted. It is the largest number of a sender's outstanding requests.
const RECEIVES: u32 = DEPTH;
/// Size of the area that a stream of writes cycles through, in bytes.
pub(super) const AREA: usize = 64 << 10;

/// Port of the first process on a device. The second one listens on the next port.
const FIRST_PORT: u16 = 7399;

/// The queue pairs of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// The queue pair for one-sided operations.
    Reliable = 0,
    /// The queue pair for one-sided operations on an unreliable connection.
    Unreliable = 1,
    /// The queue pair for SEND.
    Send = 2,
    /// The queue pair for WRITE_WITH_IMM.
    Imm = 3,
}

struct Queue {
    qp: QpId,
    sends: SendQueue,
    /// Number of completed receives that were not consumed yet.
    received: u64,
}

/// A fabric between the two processes.
pub(super) trait Pair: Fabric {
    /// `true` if packets move only while their process calls the fabric.
    const DRIVEN: bool;
}

impl Pair for ShmFabric {
    const DRIVEN: bool = false;
}

impl Pair for RoceFabric {
    const DRIVEN: bool = true;
}

impl Pair for VerbsFabric {
    const DRIVEN: bool = false;
}

/// Returns the size of the buffer for a message or a write, in bytes.
fn place_of(longest: usize) -> usize {
    record_words(longest).next_multiple_of(8) * WORD
}

/// Starts this process on shared memory.
pub(super) fn shm(worker: Worker<'_>, longest: usize) -> Result<ShmFabric, Failure> {
    let me = worker.id();
    let config = ShmConfig {
        directory: worker.spec.directory.clone(),
        message_bytes: (place_of(longest) + 64) as u32,
        populate: true,
        ..ShmConfig::new("bench", me, &format!("p{}", me.0), 2)
    };
    ShmFabric::start(config).map_err(refused)
}

/// Starts this process on RoCEv2.
pub(super) fn roce(worker: Worker<'_>, longest: usize, network: u8) -> Result<RoceFabric, Failure> {
    roce::start(network, worker.id(), 2, place_of(longest) + 64, &worker.spec.traffic)
}

/// Starts this process on the device with this address. Both processes use the same device.
pub(super) fn device(worker: Worker<'_>, address: IpAddr) -> Result<VerbsFabric, Failure> {
    let key = std::env::var(KEY).map_err(refused)?.into_bytes();
    let addresses = (0..2).map(|process| Some(SocketAddr::new(address, FIRST_PORT + process))).collect();
    let net = NetConfig::new("bench", worker.id(), addresses).key(key);
    VerbsFabric::start(net, VerbsConfig::default()).map_err(refused)
}

/// Parameters that all rows share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Longest payload, in bytes.
    pub(super) longest: usize,
    /// `true` if both processes share a processor. A process that waits then yields it.
    pub(super) yields: bool,
}

/// A process with the regions, queue pairs and buffers of all rows.
pub(super) struct Verbs<F: Pair> {
    fabric: F,
    peer: ProcessId,
    queues: Vec<Queue>,
    target: RegionId,
    staging: RegionId,
    /// Size of one buffer in staging, in bytes.
    place: u64,
    remote: Option<RemoteRegion>,
    completions: [Completion; 16],
    yields: bool,
    /// Buffer for the words of a payload or a record.
    pub(super) record: Vec<u64>,
    pub(super) private: Vec<u64>,
    pub(super) seal: (Seal, Seal),
}

/// Returns the failure of a call to the fabric.
pub(super) fn refused(error: impl std::error::Error) -> Failure {
    Failure::run(error, "bench fabric", "run `stentor doctor`; if it finds nothing, report this as a bug")
}

impl<F: Pair> Verbs<F> {
    pub(super) fn new(mut fabric: F, me: ProcessId, room: Room) -> Result<Self, Failure> {
        let peer = ProcessId(1 - me.0);
        let longest = place_of(room.longest);
        let bytes = (AREA + longest) as u64;
        let target = fabric.register(RegionSpec { purpose: TARGET, writer: peer, bytes }).map_err(refused)?;
        fabric.grant(target, peer, Access::Write).map_err(refused)?;
        // One buffer for each outstanding request of a queue pair, and a single one for all receives, as in perftest:
        // their contents are ignored.
        let places = u64::from(DEPTH + 1);
        let (place, writer) = (longest as u64, me);
        let spec = RegionSpec { purpose: STAGING, writer, bytes: place * places };
        let staging = fabric.register(spec).map_err(refused)?;
        let kinds = [
            (QpKind::Reliable, 0),
            (QpKind::Unreliable, 0),
            (QpKind::Reliable, RECEIVES),
            (QpKind::Reliable, RECEIVES),
        ];
        let mut queues = Vec::new();
        for (service, (kind, recv_depth)) in kinds.into_iter().enumerate() {
            let config = QpConfig { kind, send_depth: DEPTH, recv_depth, merges: false };
            let qp = fabric.connect(peer, Service(service as u16), config).map_err(refused)?;
            queues.push(Queue { qp, sends: SendQueue::new(DEPTH), received: 0 });
            for receive in 0..recv_depth {
                let span = receive_span(staging, place);
                fabric.post_recv(qp, span, u64::from(receive)).map_err(refused)?;
            }
        }
        let words = longest / WORD;
        Ok(Verbs {
            fabric,
            peer,
            queues,
            target,
            staging,
            place,
            remote: None,
            completions: [Completion::BLANK; 16],
            yields: room.yields,
            record: vec![0; words + HEADER_WORDS],
            private: vec![0; words + HEADER_WORDS],
            seal: (Seal::new(me, 0), Seal::new(peer, 0)),
        })
    }

    /// Drives the control plane. Returns whether all queue pairs and regions are connected.
    pub(super) fn connect(&mut self) -> bool {
        while let Some(event) = self.fabric.next_event() {
            debug_assert!(!matches!(event, Event::Revoked { .. }));
        }
        self.remote = self.fabric.resolve(self.peer, TARGET);
        self.remote.is_some() && self.queues.iter().all(|queue| self.fabric.state(queue.qp) == QpState::Ready)
    }

    /// Returns the memory that the peer writes to.
    #[inline]
    pub(super) fn landed(&self) -> &[Word] {
        self.fabric.memory(self.target)
    }

    fn target(&self, offset: u64) -> RemoteSpan {
        RemoteSpan { region: self.remote.expect("rows begin when all is connected"), offset }
    }

    /// Returns the longest inline source, in bytes.
    pub(super) fn inline_limit(&self) -> u64 {
        self.fabric.capabilities().inline_bytes.into()
    }

    /// Lets packets move on fabrics that need calls for that. Yields if the other process shares this processor.
    #[inline]
    pub(super) fn drive(&mut self) -> Result<(), Failure> {
        if self.yields {
            std::thread::yield_now();
        }
        if F::DRIVEN { self.poll() } else { Ok(()) }
    }

    /// Drives the fabric until `done` returns `true`.
    pub(super) fn drive_until(&mut self, done: impl Fn() -> bool) -> Result<(), Failure> {
        while !done() {
            self.drive()?;
        }
        Ok(())
    }

    /// Handles completions. Fails if a request failed.
    #[inline]
    fn poll(&mut self) -> Result<(), Failure> {
        let count = self.fabric.poll(&mut self.completions);
        for at in 0..count {
            let completion = self.completions[at];
            expect_success(&completion, "bench fabric")?;
            let queue = &mut self.queues[completion.qp.index()];
            if matches!(completion.opcode, Opcode::Recv | Opcode::RecvWriteImm) {
                queue.received += 1;
                let span = receive_span(self.staging, self.place);
                self.fabric.post_recv(completion.qp, span, completion.id).map_err(refused)?;
            } else {
                queue.sends.completed(completion.id);
            }
        }
        if count == 0 && self.yields {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits for room, posts a request, and flushes if `flush` is set. Returns the number of the request.
    #[inline]
    fn post(&mut self, lane: Lane, verb: Verb<'_>, signalled: bool, flush: bool) -> Result<u64, Failure> {
        while self.queues[lane as usize].sends.free() == 0 {
            self.poll()?;
        }
        let queue = &mut self.queues[lane as usize];
        let signalled = signalled || queue.sends.signal_next();
        let request = WorkRequest { id: queue.sends.next_id(), verb, signalled };
        self.fabric.post(queue.qp, request).map_err(refused)?;
        let number = queue.sends.posted(signalled);
        if flush {
            self.fabric.flush();
        }
        Ok(number)
    }

    /// Waits for the completion of a signalled request.
    #[inline]
    pub(super) fn complete(&mut self, lane: Lane, number: u64) -> Result<(), Failure> {
        while self.queues[lane as usize].sends.done() < number {
            self.poll()?;
        }
        Ok(())
    }

    /// Posts a request with the first `words` words of `record` inline.
    #[inline]
    fn post_inline(
        &mut self,
        lane: Lane,
        words: usize,
        verb: impl FnOnce(Source<'_>) -> Verb<'_>,
        signalled: bool,
        flush: bool,
    ) -> Result<(), Failure> {
        let record = std::mem::take(&mut self.record);
        let posted = self.post(lane, verb(Source::Inline(record[..words].as_bytes())), signalled, flush);
        self.record = record;
        posted.map(|_| ())
    }

    /// Posts an inline WRITE of the first `words` words of `record`.
    #[inline]
    pub(super) fn write_inline(&mut self, lane: Lane, words: usize, offset: u64, flush: bool) -> Result<(), Failure> {
        let target = self.target(offset);
        self.post_inline(lane, words, |source| Verb::Write { source, target }, false, flush)
    }

    /// Fills a buffer in registered memory with words of one value. A queue pair reuses the buffer only after its
    /// previous request with it has completed.
    #[inline]
    fn fill(&mut self, lane: Lane, words: usize, value: u64) -> Result<Source<'static>, Failure> {
        while self.queues[lane as usize].sends.free() == 0 {
            self.poll()?;
        }
        let place = self.queues[lane as usize].sends.next_id() % u64::from(DEPTH);
        let offset = place * self.place;
        let first = offset as usize / WORD;
        for word in &self.fabric.memory(self.staging)[first..first + words] {
            word.store(value, Ordering::Relaxed);
        }
        Ok(Source::Region(Span { region: self.staging, offset, bytes: (words * WORD) as u32 }))
    }

    /// Posts a WRITE of `words` words of one value from registered memory.
    #[inline]
    pub(super) fn write_region(&mut self, words: usize, value: u64, signalled: bool) -> Result<u64, Failure> {
        let verb = Verb::Write { source: self.fill(Lane::Reliable, words, value)?, target: self.target(0) };
        self.post(Lane::Reliable, verb, signalled, true)
    }

    /// Posts a WRITE of the first `words` words of registered memory, whatever they contain, or a SEND of them if
    /// `lane` is the queue pair for SEND. Returns the number of the request.
    #[inline]
    pub(super) fn stream_region(
        &mut self,
        lane: Lane,
        words: usize,
        flush: bool,
        signalled: bool,
    ) -> Result<u64, Failure> {
        let source = Source::Region(Span { region: self.staging, offset: 0, bytes: (words * WORD) as u32 });
        let verb = match lane {
            Lane::Send => Verb::Send { source, imm: None },
            _ => Verb::Write { source, target: self.target(0) },
        };
        self.post(lane, verb, signalled, flush || signalled)
    }

    /// Posts a signalled WRITE and waits for its completion.
    #[inline]
    pub(super) fn write_to_completion(&mut self, words: usize, value: u64) -> Result<(), Failure> {
        let number = self.write_region(words, value, true)?;
        self.complete(Lane::Reliable, number)
    }

    /// Posts a READ and waits for its completion.
    #[inline]
    pub(super) fn read_to_completion(&mut self, words: usize) -> Result<(), Failure> {
        let local = Span { region: self.staging, offset: 0, bytes: (words * WORD) as u32 };
        let verb = Verb::Read { local, remote: self.target(0) };
        let number = self.post(Lane::Reliable, verb, true, true)?;
        self.complete(Lane::Reliable, number)
    }

    /// Posts a SEND of `words` words of one value, inline if possible.
    #[inline]
    pub(super) fn send(&mut self, words: usize, value: u64) -> Result<(), Failure> {
        if (words * WORD) as u64 > self.inline_limit() {
            let source = self.fill(Lane::Send, words, value)?;
            return self.post(Lane::Send, Verb::Send { source, imm: None }, false, true).map(|_| ());
        }
        self.post_inline(Lane::Send, words, |source| Verb::Send { source, imm: None }, false, true)
    }

    /// Posts a signalled inline WRITE_WITH_IMM.
    #[inline]
    pub(super) fn write_imm(&mut self, words: usize) -> Result<(), Failure> {
        let target = self.target(0);
        self.post_inline(Lane::Imm, words, |source| Verb::WriteImm { source, target, imm: 1 }, true, true)
    }

    /// Waits for one completed receive.
    #[inline]
    pub(super) fn receive(&mut self, lane: Lane) -> Result<(), Failure> {
        while self.queues[lane as usize].received == 0 {
            self.poll()?;
        }
        self.queues[lane as usize].received -= 1;
        Ok(())
    }

    /// Waits until all requests on the reliable queue pair have completed.
    pub(super) fn drain(&mut self) -> Result<(), Failure> {
        let number = self.write_region(1, 0, true)?;
        self.complete(Lane::Reliable, number)
    }
}

/// Returns an error unless the request succeeded.
#[inline]
pub(crate) fn expect_success(completion: &Completion, place: &str) -> Result<(), Failure> {
    if completion.status == Status::Success {
        return Ok(());
    }
    let what = format!("{:?} ended with {:?}", completion.opcode, completion.status);
    Err(Failure::run(what, place, "report this as a bug"))
}

fn receive_span(staging: RegionId, place: u64) -> Span {
    Span { region: staging, offset: u64::from(DEPTH) * place, bytes: place as u32 }
}
