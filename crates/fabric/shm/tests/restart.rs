//! Real processes that are killed at any moment and restarted. A surviving peer connects to each of them and keeps
//! nothing of the previous ones. This is the only test of its program, because it counts the program's descriptors and
//! mappings.
#![cfg(not(loom))]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Completion, Event, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RemoteSpan,
    Service, Source, Verb, WorkRequest,
};
use stentor_fabric_shm::{ShmConfig, ShmFabric};

const ROLE: &str = "STENTOR_SHM_RESTART";
/// Purpose of the regions: the survivor writes into one, and each restarted process writes its life into the other.
const LIFE: Purpose = Purpose(1);
const SERVICES: [Service; 2] = [Service(1), Service(2)];
const QP: QpConfig = QpConfig::reliable(16, 4);
fn start(directory: &Path, me: u16) -> (ShmFabric, RegionId, [QpId; 2]) {
    let config = ShmConfig::new("restart", ProcessId(me), &format!("p{me}"), 2);
    let mut fabric = ShmFabric::start(ShmConfig { directory: directory.to_owned(), ..config }).unwrap();
    let peer = ProcessId(1 - me);
    let region = fabric.register(RegionSpec { purpose: LIFE, writer: peer, bytes: 4096 }).unwrap();
    fabric.grant(region, peer, Access::Write).unwrap();
    let qps = SERVICES.map(|service| fabric.connect(peer, service, QP).unwrap());
    (fabric, region, qps)
}

fn word(fabric: &ShmFabric, region: RegionId, word: usize) -> u64 {
    fabric.memory(region)[word].load(Ordering::Acquire)
}

fn write(fabric: &mut ShmFabric, qp: QpId, peer: ProcessId, first: u64, value: u64) {
    let Some(region) = fabric.resolve(peer, LIFE) else { return };
    let verb =
        Verb::Write { source: Source::Inline(&value.to_ne_bytes()), target: RemoteSpan { region, offset: first * 8 } };
    // If the queue is full or just broke, the next round repeats the write.
    let _ = fabric.post(qp, WorkRequest { id: value, verb, signalled: true });
    let mut out = [Completion::BLANK; 16];
    while fabric.poll(&mut out) == out.len() {}
}

/// Writes this life forever on both services, and repeats what the survivor writes.
fn phoenix(directory: &Path, me: u16, life: u64) {
    let (mut fabric, region, qps) = start(directory, me);
    loop {
        while fabric.next_event().is_some() {}
        for (place, qp) in qps.into_iter().enumerate() {
            if fabric.state(qp) == QpState::Ready {
                write(&mut fabric, qp, ProcessId(1 - me), place as u64, life);
                let said = word(&fabric, region, place);
                write(&mut fabric, qp, ProcessId(1 - me), 8 + place as u64, said);
            }
        }
        std::thread::yield_now();
    }
}

/// A process that is killed when dropped.
struct Phoenix(Child);

impl Phoenix {
    fn rise(directory: &Path, me: u16, life: u64) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "survivor_of_200_kills_reconnects_and_keeps_nothing", "--test-threads=1"])
            .env(ROLE, format!("{me} {life} {}", directory.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Phoenix(child)
    }
}

impl Drop for Phoenix {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn count(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

/// Returns the resources that must not grow: descriptors, mappings of the fabric's memory, and bytes that the fabric
/// reports.
fn held(fabric: &ShmFabric) -> (usize, usize, u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:stentor")).count();
    (count("/proc/self/fd"), shared, fabric.memory_bytes())
}

struct Survivor {
    fabric: ShmFabric,
    region: RegionId,
    qps: [QpId; 2],
    peer: ProcessId,
    connected: [u64; 2],
}

impl Survivor {
    fn events(&mut self) {
        let mut out = [Completion::BLANK; 16];
        while self.fabric.poll(&mut out) == out.len() {}
        while let Some(event) = self.fabric.next_event() {
            match event {
                Event::Connected { qp, .. } => self.connected[qp.index()] += 1,
                Event::Disconnected { qp, .. } => {
                    while self.fabric.poll(&mut out) > 0 {}
                    self.fabric.reset(qp).unwrap();
                }
                Event::Revoked { .. } => {}
            }
        }
        assert_eq!(self.fabric.next_refusal(), None, "a peer that comes back is let in");
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let since = Instant::now();
        loop {
            self.events();
            if done(self) {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(30), "still not: {what}");
            std::thread::yield_now();
        }
    }

    /// Waits until this life has arrived on both services, and the survivor's writes have arrived at it.
    fn wait_for_life(&mut self, life: u64) {
        self.until(&format!("life {life} on both services"), |survivor| {
            for place in 0..2 {
                let (qp, peer) = (survivor.qps[place], survivor.peer);
                if survivor.fabric.state(qp) == QpState::Ready {
                    write(&mut survivor.fabric, qp, peer, place as u64, life);
                }
            }
            let seen = [0, 1, 8, 9].map(|at| word(&survivor.fabric, survivor.region, at));
            assert!(seen.iter().all(|seen| *seen <= life), "{seen:?} in life {life}");
            seen == [life; 4]
        });
    }
}

/// Runs the survivor `me`. The other process, which dials or is dialled, is killed again and again.
fn survive(directory: &Path, me: u16, rounds: u64) -> (u64, [u64; 2]) {
    let (fabric, region, qps) = start(directory, me);
    let mut survivor = Survivor { fabric, region, qps, peer: ProcessId(1 - me), connected: [0; 2] };
    let (mut before, mut heard) = (None, 0);
    for life in 1..=rounds {
        let phoenix = Phoenix::rise(directory, 1 - me, life);
        if life % 4 == 1 {
            survivor.wait_for_life(life);
            heard += 1;
        } else {
            // Kill the process at a varying time: while it starts, during its handshake, or shortly after.
            let until = Instant::now() + Duration::from_micros(life * 7919 % 12_000);
            while Instant::now() < until {
                survivor.events();
            }
        }
        drop(phoenix);
        if life % 20 == 0 || life == 1 {
            let idle = |survivor: &mut Survivor| survivor.fabric.peer_pid(survivor.peer).is_none();
            survivor.until("the connection is gone", idle);
            let sockets = directory.join("restart");
            survivor.until("its socket is gone", |_| std::fs::read_dir(&sockets).unwrap().count() == 1);
            survivor.until("half a connection is gone", |survivor| {
                *before.get_or_insert_with(|| held(&survivor.fabric)) == held(&survivor.fabric)
            });
        }
    }
    (heard, survivor.connected)
}

#[test]
fn survivor_of_200_kills_reconnects_and_keeps_nothing() {
    if let Ok(role) = std::env::var(ROLE) {
        let parts: Vec<&str> = role.splitn(3, ' ').collect();
        return phoenix(Path::new(parts[2]), parts[0].parse().unwrap(), parts[1].parse().unwrap());
    }
    let name = format!("stentor-shm-restart-{}", std::process::id());
    let directory: PathBuf = std::env::temp_dir().join(name);
    for me in 0..2 {
        let (heard, connected) = survive(&directory, me, 100);
        println!("p{me} survived 100 lives, heard {heard} out and was connected {connected:?} times");
        assert!(connected.iter().all(|times| *times >= heard), "{connected:?} of {heard}");
    }
    let since = Instant::now();
    while directory.exists() {
        assert!(since.elapsed() < Duration::from_secs(20), "{} is left", directory.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}
