//! Clusters for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric::{
    Access, Completion, Event, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RemoteRegion,
    RemoteSpan, Service, Source, Span, Status, Verb, WorkRequest,
};

use crate::{ShmConfig, ShmFabric};

pub(super) const SERVICE: Service = Service(7);
pub(super) const PURPOSE: Purpose = Purpose(3);
pub(super) const BYTES: u64 = 4096;
/// Time limit of most waits; only a hang exceeds it.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The directory of one test, which is removed with its contents when dropped.
pub(super) struct TestDirectory(pub(super) PathBuf);

impl TestDirectory {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("stentor-shm-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        TestDirectory(std::env::temp_dir().join(name))
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn config(directory: &Path, me: u16, processes: u16) -> ShmConfig {
    ShmConfig {
        directory: directory.to_owned(),
        fingerprint: 0x5e,
        ..ShmConfig::new("test", ProcessId(me), &format!("g1.{me}"), processes)
    }
}

/// Runs `step` until it returns `true`.
pub(super) fn until(what: &str, mut step: impl FnMut() -> bool) {
    let since = Instant::now();
    while !step() {
        assert!(since.elapsed() < PATIENCE, "still not: {what}");
        std::thread::yield_now();
    }
}

/// Two processes with a region and a queue pair in each direction.
pub(super) struct Pair {
    pub(super) a: ShmFabric,
    pub(super) b: ShmFabric,
    pub(super) qp_a: QpId,
    pub(super) qp_b: QpId,
    pub(super) region_b: RegionId,
    pub(super) directory: TestDirectory,
}

pub(super) fn region(fabric: &mut ShmFabric, peer: u16, access: Access) -> RegionId {
    let spec = RegionSpec { purpose: PURPOSE, writer: ProcessId(peer), bytes: BYTES };
    let region = fabric.register(spec).unwrap();
    fabric.grant(region, ProcessId(peer), access).unwrap();
    region
}

/// Registers private memory of the process.
pub(super) fn staging(fabric: &mut ShmFabric, purpose: u16) -> RegionId {
    let spec = RegionSpec { purpose: Purpose(purpose), writer: fabric.me(), bytes: BYTES };
    fabric.register(spec).unwrap()
}

impl Pair {
    pub(super) fn new(config_of: QpConfig) -> Self {
        let directory = TestDirectory::new();
        let mut a = ShmFabric::start(config(&directory.0, 0, 3)).unwrap();
        let mut b = ShmFabric::start(config(&directory.0, 1, 3)).unwrap();
        region(&mut a, 1, Access::Atomic);
        let region_b = region(&mut b, 0, Access::Atomic);
        let qp_a = a.connect(ProcessId(1), SERVICE, config_of).unwrap();
        let qp_b = b.connect(ProcessId(0), SERVICE, config_of).unwrap();
        let mut pair = Pair { a, b, qp_a, qp_b, region_b, directory };
        pair.until_ready();
        pair
    }

    pub(super) fn until_ready(&mut self) {
        let Pair { a, b, qp_a, qp_b, .. } = self;
        let mut connected = [false; 2];
        until("connected", || {
            connected[0] |= events(a).contains(&Event::Connected { qp: *qp_a, peer: ProcessId(1) });
            connected[1] |= events(b).contains(&Event::Connected { qp: *qp_b, peer: ProcessId(0) });
            connected == [true; 2]
        });
        assert_eq!((a.state(*qp_a), b.state(*qp_b)), (QpState::Ready, QpState::Ready));
    }

    /// Returns the region of `b` that `a` writes.
    pub(super) fn at_b(&mut self) -> RemoteRegion {
        self.a.resolve(ProcessId(1), PURPOSE).unwrap()
    }

    pub(super) fn write(&mut self, id: u64, offset: u64, words: &[u64], signalled: bool) {
        let region = self.at_b();
        write(&mut self.a, self.qp_a, id, RemoteSpan { region, offset }, words, signalled).unwrap();
    }

    pub(super) fn word_b(&self, word: usize) -> u64 {
        load(&self.b, self.region_b, word)
    }
}

pub(super) fn write(
    fabric: &mut ShmFabric,
    qp: QpId,
    id: u64,
    target: RemoteSpan,
    words: &[u64],
    signalled: bool,
) -> Result<(), stentor_fabric::PostError> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    fabric.post(qp, WorkRequest { id, verb: Verb::Write { source: Source::Inline(&bytes), target }, signalled })
}

pub(super) fn send(fabric: &mut ShmFabric, qp: QpId, id: u64, data: &[u8], imm: Option<u32>) {
    let verb = Verb::Send { source: Source::Inline(data), imm };
    fabric.post(qp, WorkRequest { id, verb, signalled: true }).unwrap();
}

pub(super) fn load(fabric: &ShmFabric, region: RegionId, word: usize) -> u64 {
    fabric.memory(region)[word].load(Ordering::Acquire)
}

pub(super) fn store(fabric: &ShmFabric, region: RegionId, word: usize, value: u64) {
    fabric.memory(region)[word].store(value, Ordering::Release);
}

pub(super) fn events(fabric: &mut ShmFabric) -> Vec<Event> {
    std::iter::from_fn(|| fabric.next_event()).collect()
}

pub(super) fn poll(fabric: &mut ShmFabric) -> Vec<Completion> {
    let mut out = [Completion::BLANK; 64];
    let taken = fabric.poll(&mut out);
    out[..taken].to_vec()
}

pub(super) fn ends(completions: &[Completion]) -> Vec<(u64, Status)> {
    completions.iter().map(|completion| (completion.id, completion.status)).collect()
}

pub(super) fn span(region: RegionId, offset: u64, bytes: u32) -> Span {
    Span { region, offset, bytes }
}
