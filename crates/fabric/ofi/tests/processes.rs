//! Most of these tests start a second process, which is killed and restarted. Tests with two endpoints in one process
//! do not cover this case.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Completion, Event, Fabric, ProcessId, Purpose, QpConfig, QpState, RegionSpec, RemoteSpan, Service, Source,
    Span, Status, Verb, WorkRequest,
};
use stentor_fabric_ofi::{NetConfig, OfiConfig, OfiFabric};

const PATIENCE: Duration = Duration::from_secs(20);
const SURVIVOR: ProcessId = ProcessId(0);
const MORTAL: ProcessId = ProcessId(1);
const LIVES: u64 = 4;
/// Environment variable with the second process's provider and port.
const ROLE: &str = "STENTOR_OFI_CHILD";
fn config(me: ProcessId, provider: &str, port: u16) -> (NetConfig, OfiConfig) {
    let address = |n: u8| Some(SocketAddr::from(([127, 0, 77, n], port)));
    let net = NetConfig::new("processes", me, vec![address(1), address(2)]).key(*b"a key of this test");
    (net, OfiConfig { providers: vec![provider.to_owned()], ..OfiConfig::default() })
}

fn start(me: ProcessId, provider: &str, port: u16) -> OfiFabric {
    begin(config(me, provider, port))
}

fn begin((net, config): (NetConfig, OfiConfig)) -> OfiFabric {
    OfiFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs the process that will be killed. It grants a region and stays connected until it is killed, but at most 60 s.
#[test]
#[ignore = "runs only as the second process of the other tests"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (provider, port) = role.split_once(' ').unwrap();
    let mut fabric = start(MORTAL, provider, port.parse().unwrap());
    let spec = RegionSpec { purpose: Purpose(1), writer: SURVIVOR, bytes: 1 << 16 };
    let region = fabric.register(spec).unwrap();
    fabric.grant(region, SURVIVOR, Access::Write).unwrap();
    let qp = fabric.connect(SURVIVOR, Service(1), QpConfig::reliable(64, 8)).unwrap();
    fabric.post_recv(qp, Span { region, offset: 0, bytes: 0 }, 1).unwrap();
    let start = Instant::now();
    while start.elapsed() < 3 * PATIENCE {
        let mut completions = [Completion::BLANK; 8];
        fabric.poll(&mut completions);
        while fabric.next_event().is_some() {}
        fabric.arm();
        fabric.wait(Duration::from_millis(5)).unwrap();
    }
}

fn spawn(provider: &str, port: u16) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--include-ignored", "--exact", "child"])
        .env(ROLE, format!("{provider} {port}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Drives the fabric until `happened` returns a value.
fn until<R>(fabric: &mut OfiFabric, what: &str, mut happened: impl FnMut(&mut OfiFabric) -> Option<R>) -> R {
    let start = Instant::now();
    loop {
        if let Some(result) = happened(fabric) {
            return result;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
        fabric.arm();
        fabric.wait(Duration::from_millis(1)).unwrap();
    }
}

fn completion(fabric: &mut OfiFabric, id: u64) -> Completion {
    until(fabric, "a completion", |fabric| {
        let mut one = [Completion::BLANK];
        (fabric.poll(&mut one) == 1 && one[0].id == id).then(|| one[0])
    })
}

fn event(fabric: &mut OfiFabric, expected: Event) {
    until(fabric, "an event", |fabric| fabric.next_event().filter(|event| *event == expected));
}

/// Kills and restarts the peer repeatedly. Returns the process ids of the killed processes.
fn lives(provider: &str, port: u16) -> Vec<u32> {
    let mut killed = Vec::new();
    let mut fabric = start(SURVIVOR, provider, port);
    let own = fabric.register(RegionSpec { purpose: Purpose(2), writer: SURVIVOR, bytes: 1 << 16 }).unwrap();
    let qp = fabric.connect(MORTAL, Service(1), QpConfig::reliable(64, 8)).unwrap();
    for life in 1..=LIVES {
        let mut child = spawn(provider, port);
        event(&mut fabric, Event::Connected { qp, peer: MORTAL });
        let region = fabric.resolve(MORTAL, Purpose(1)).expect("the region was granted before the peer connected");
        for word in fabric.memory(own) {
            word.store(life, Ordering::Release);
        }
        // Post a short and a long write, then a read.
        for (id, bytes) in [(1, 8), (2, 1 << 16)] {
            let source = Source::Region(Span { region: own, offset: 0, bytes });
            let verb = Verb::Write { source, target: RemoteSpan { region, offset: 0 } };
            fabric.post(qp, WorkRequest { id, verb, signalled: true }).unwrap();
            assert_eq!(completion(&mut fabric, id).status, Status::Success, "{provider}");
        }
        fabric.memory(own).iter().for_each(|word| word.store(0, Ordering::Release));
        let local = Span { region: own, offset: 0, bytes: 1 << 16 };
        let verb = Verb::Read { local, remote: RemoteSpan { region, offset: 0 } };
        fabric.post(qp, WorkRequest { id: 3, verb, signalled: true }).unwrap();
        assert_eq!(completion(&mut fabric, 3).status, Status::Success, "{provider}");
        assert!(fabric.memory(own).iter().all(|word| word.load(Ordering::Acquire) == life), "{provider}");
        killed.push(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        event(&mut fabric, Event::Disconnected { qp, peer: MORTAL });
        let mut rest = [Completion::BLANK; 16];
        while fabric.poll(&mut rest) > 0 {}
        fabric.reset(qp).unwrap();
    }
    killed
}

/// Processes with another provider or another version do not connect. Both ends report which process they refused, and
/// why.
#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn peer_with_another_provider_or_version_is_refused_by_name() {
    let (net, newer) = config(MORTAL, "tcp;ofi_rxm", 4706);
    let apart: [(u16, (NetConfig, OfiConfig), &[&str]); 2] = [
        (4705, config(MORTAL, "sockets", 4705), &["ofi tcp;ofi_rxm", "ofi sockets"]),
        (4706, (net.version(2), newer), &["version"]),
    ];
    for (port, other, words) in apart {
        let mut fabric = start(SURVIVOR, "tcp;ofi_rxm", port);
        let qp = fabric.connect(MORTAL, Service(1), QpConfig::reliable(8, 8)).unwrap();
        let mut other = begin(other);
        let back = other.connect(SURVIVOR, Service(1), QpConfig::reliable(8, 8)).unwrap();
        let refusals = [
            until(&mut fabric, "a refusal at this end", |fabric| {
                _ = other.next_event();
                assert_eq!(fabric.next_event(), None);
                fabric.next_refusal()
            }),
            until(&mut other, "a refusal at the other end", |other| {
                _ = fabric.next_event();
                assert_eq!(other.next_event(), None);
                other.next_refusal()
            }),
        ];
        for refusal in refusals {
            let said = refusal.to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        assert!(fabric.state(qp) != QpState::Ready && other.state(back) != QpState::Ready);
    }
}

/// A send queue may be deeper than the provider's queue (256 on `sockets`). The requests that do not fit there wait in
/// the fabric, and all of them complete.
#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn posts_never_exceed_the_providers_queue() {
    const DEPTH: u32 = 1024;
    let (mut fabric, mut other) = (start(SURVIVOR, "sockets", 4707), start(MORTAL, "sockets", 4707));
    assert!(fabric.device().provider().send_depth() < DEPTH, "this test needs a provider with a shorter queue");
    let target = other.register(RegionSpec { purpose: Purpose(1), writer: SURVIVOR, bytes: 64 }).unwrap();
    other.grant(target, SURVIVOR, Access::Write).unwrap();
    let qp = fabric.connect(MORTAL, Service(1), QpConfig::reliable(DEPTH, 8)).unwrap();
    other.connect(SURVIVOR, Service(1), QpConfig::reliable(8, 8)).unwrap();
    let region = until(&mut fabric, "the peer's region", |fabric| {
        other.drive();
        _ = other.next_event();
        while fabric.next_event().is_some() {}
        fabric.resolve(MORTAL, Purpose(1)).filter(|_| fabric.state(qp) == QpState::Ready)
    });
    for id in 0..u64::from(DEPTH) {
        let bytes = id.to_ne_bytes();
        let verb = Verb::Write { source: Source::Inline(&bytes), target: RemoteSpan { region, offset: 0 } };
        fabric.post(qp, WorkRequest { id, verb, signalled: true }).unwrap();
    }
    for id in 0..u64::from(DEPTH) {
        let completion = until(&mut fabric, "a completion", |fabric| {
            other.drive();
            let mut one = [Completion::BLANK];
            (fabric.poll(&mut one) == 1).then(|| one[0])
        });
        assert_eq!((completion.id, completion.status), (id, Status::Success));
    }
    assert_eq!(other.memory(target)[0].load(Ordering::Acquire), u64::from(DEPTH) - 1);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn killed_process_reconnects_on_tcp() {
    lives("tcp;ofi_rxm", 4701);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn killed_process_reconnects_on_shm() {
    let killed = lives("shm", 4702);
    let left = || std::fs::read_dir("/dev/shm").unwrap().flatten().map(|file| file.file_name().into_string().unwrap());
    // The survivor removes the names of the killed processes' segments. Processes of other users may have left other
    // names.
    let ours: Vec<_> = killed.into_iter().chain([std::process::id()]).map(|process| format!("{process}:")).collect();
    assert_eq!(left().find(|name| ours.iter().any(|ours| name.starts_with(ours))), None);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn killed_process_reconnects_on_udp() {
    lives("udp;ofi_rxd", 4703);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn killed_process_reconnects_on_sockets() {
    lives("sockets", 4704);
}
