//! The real node over shared memory: several fabrics in one process, each on its own thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use stentor_fabric::{Backoff, ProcessId, WaitMode};
use stentor_fabric_shm::{ShmConfig, ShmFabric};
use stentor_neb::{BroadcastError, Config, FaultModel, Mode, Node, Notice};
use stentor_testutil::TempDir;

const HOSTS: Mode = Mode::Quorum(FaultModel::LyingHosts);
const SENDER: Mode = Mode::Quorum(FaultModel::LyingSender);
const PATIENCE: Duration = Duration::from_secs(120);
/// Lock that the test of memory use takes for writing, so that no other test runs at the same time.
static MEMORY: RwLock<()> = RwLock::new(());

fn node(directory: &TempDir, config: Config, me: u16) -> Node<ShmFabric> {
    let processes = config.processes as u16;
    let shm = ShmConfig {
        directory: directory.join("sockets"),
        max_bytes: 1 << 30,
        janitor: false,
        ..ShmConfig::new("neb", ProcessId(me), &format!("p{me}"), processes)
    };
    Node::new(ShmFabric::start(shm).unwrap(), config, 7, None).unwrap()
}

/// Result of one process.
struct Done {
    delivered: Vec<u64>,
    skipped: u64,
    memory: (u64, u64),
    most_rss_growth: u64,
}

/// Returns the resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs a process: it sends its broadcasts, and continues until all processes have delivered all broadcasts.
fn run(mut node: Node<ShmFabric>, broadcasts: u64, finished: &AtomicU64, pause: &AtomicBool) -> Done {
    let n = node.config().processes;
    let (mut delivered, mut skipped, mut sent, mut told) = (vec![0_u64; n], 0, 0, false);
    let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
    let (begin, mut round) = (Instant::now(), 0_u64);
    let memory = node.fabric().memory_bytes();
    let (mut base, mut growth) = (0, 0);
    loop {
        round += 1;
        let mut worked = round.is_multiple_of(64) && node.housekeep();
        while pause.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        worked |= node.step(&mut |notice| match notice {
            Notice::Deliver(sender, value) => {
                assert_eq!(value.index(), delivered[sender.index()], "in order, without gaps");
                let payload = value.payload();
                assert_eq!(payload[..8], value.index().to_le_bytes());
                assert_eq!(value.key(), value.index() ^ 0xffff);
                delivered[sender.index()] += 1;
            }
            Notice::Skip(..) => skipped += 1,
            other => panic!("{other:?}"),
        });
        let now = begin.elapsed().as_nanos() as u64;
        while sent < broadcasts && node.is_connected() {
            let payload: [u8; 16] = std::array::from_fn(|at| if at < 8 { sent.to_le_bytes()[at] } else { at as u8 });
            match node.broadcast(now, sent ^ 0xffff, &payload) {
                Ok(index) => assert_eq!(index, sent),
                Err(BroadcastError::Full) => break,
                Err(error) => panic!("{error}"),
            }
            (sent, worked) = (sent + 1, true);
        }
        if round.is_multiple_of(5_000) {
            let now = resident_kib();
            if base == 0 && delivered[0] > broadcasts / 10 {
                base = now;
            } else if base > 0 {
                growth = growth.max(now.saturating_sub(base));
            }
        }
        let all = delivered.iter().all(|delivered| *delivered + skipped >= broadcasts);
        if all && !told {
            told = true;
            finished.fetch_add(1, Ordering::AcqRel);
        }
        if told && finished.load(Ordering::Acquire) == n as u64 {
            break;
        }
        assert!(
            begin.elapsed() < PATIENCE + Duration::from_millis(broadcasts),
            "{} is stuck: {delivered:?} of {broadcasts}",
            node.me()
        );
        if !worked {
            node.housekeep();
        }
        backoff.pause(node.fabric_mut(), worked, Duration::from_millis(5)).unwrap();
    }
    let memory = (memory, node.fabric().memory_bytes());
    Done { delivered, skipped, memory, most_rss_growth: growth }
}

fn everybody(config: Config, broadcasts: u64, stop: Option<Duration>) -> Vec<Done> {
    let directory = TempDir::new();
    let finished = AtomicU64::new(0);
    let pauses: Vec<_> = (0..config.processes).map(|_| AtomicBool::new(false)).collect();
    let over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let start = |me: u16| {
            let (directory, finished, pause) = (&directory, &finished, &pauses[usize::from(me)]);
            scope.spawn(move || run(node(directory, config, me), broadcasts, finished, pause))
        };
        let threads: Vec<_> = (0..config.processes as u16).map(start).collect();
        if let Some(stop) = stop {
            std::thread::sleep(Duration::from_millis(100));
            pauses[config.processes - 1].store(true, Ordering::Relaxed);
            std::thread::sleep(stop);
            pauses[config.processes - 1].store(false, Ordering::Relaxed);
        }
        let done = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn every_mode_delivers_everything_everywhere() {
    let _memory = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
    let configs = [
        Config::new(3, Mode::All, 0),
        Config::new(3, SENDER, 0),
        Config::new(4, SENDER, 1),
        Config { fast_path: false, ..Config::new(4, HOSTS, 1) },
        Config { window: 1, ..Config::new(4, HOSTS, 1) },
    ];
    for config in configs {
        for done in everybody(config, 300, None) {
            assert_eq!((done.delivered, done.skipped), (vec![300; config.processes], 0), "{config:?}");
        }
    }
}

/// `STENTOR_NEB_STREAM` sets the number of broadcasts of each of the three processes.
#[test]
fn endless_stream_uses_rings_of_fixed_size() {
    let _memory = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
    let broadcasts = std::env::var("STENTOR_NEB_STREAM").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let begin = Instant::now();
    let config = Config { payload_bytes: 16, ..Config::new(3, SENDER, 0) };
    let done = everybody(config, broadcasts, None);
    for done in &done {
        assert_eq!((&done.delivered, done.skipped), (&vec![broadcasts; 3], 0));
        assert_eq!(done.memory.0, done.memory.1, "registered memory is constant");
        assert!(done.most_rss_growth < 4096, "resident memory grew by {} KiB", done.most_rss_growth);
    }
    println!(
        "{} broadcasts, {} bytes registered by each process, resident growth {} KiB, {:.1} s",
        3 * broadcasts,
        done[0].memory.0,
        done.iter().map(|done| done.most_rss_growth).max().unwrap_or(0),
        begin.elapsed().as_secs_f64()
    );
}

#[test]
fn stopped_process_is_waited_for_and_misses_nothing() {
    let _memory = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
    let stop = Duration::from_millis(1_500);
    for config in [Config::new(3, Mode::All, 0), Config::new(4, SENDER, 1)] {
        for done in everybody(config, 20_000, Some(stop)) {
            assert_eq!((done.delivered, done.skipped), (vec![20_000; config.processes], 0));
        }
    }
}
