//! Tests a device that disappears while it is in use. Its processes report a [`Trouble`] that names it, and processes
//! on another device continue. Ignored by default: see `conformance.rs`.

mod processes;

use std::process::Command;
use std::time::{Duration, Instant};

use processes::start;
use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Completion, ConnectError, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec,
    RemoteSpan, Service, Source, Status, Verb, WorkRequest,
};
use stentor_fabric_verbs::{NetConfig, StartError, Trouble, VerbsConfig, VerbsFabric, device};

const PATIENCE: Duration = Duration::from_secs(20);

struct Half {
    fabric: VerbsFabric,
    peer: ProcessId,
    qp: QpId,
    region: RegionId,
    troubles: Vec<Trouble>,
    failures: Vec<Status>,
    written: u64,
}

impl Half {
    fn new(me: u16, peer: u16, addresses: &[Option<std::net::SocketAddr>]) -> Half {
        let (me, peer) = (ProcessId(me), ProcessId(peer));
        let mut fabric = start(me, addresses, |_, _| {});
        let region = fabric.register(RegionSpec { purpose: Purpose(1), writer: peer, bytes: 64 }).unwrap();
        fabric.grant(region, peer, Access::Write).unwrap();
        let qp = fabric.connect(peer, Service(1), QpConfig::reliable(8, 2)).unwrap();
        Half { fabric, peer, qp, region, troubles: Vec::new(), failures: Vec::new(), written: 0 }
    }

    fn pump(&mut self) {
        let mut out = [Completion::BLANK; 8];
        let count = self.fabric.poll(&mut out);
        self.failures.extend(out[..count].iter().map(|done| done.status).filter(|s| *s != Status::Success));
        while self.fabric.next_event().is_some() {}
        self.troubles.extend(std::iter::from_fn(|| self.fabric.device_mut().next_trouble()));
    }

    /// Writes the next value, if the request can be posted.
    fn write(&mut self) {
        let Some(region) = self.fabric.resolve(self.peer, Purpose(1)) else { return };
        let value = self.written + 1;
        let verb =
            Verb::Write { source: Source::Inline(&value.to_ne_bytes()), target: RemoteSpan { region, offset: 0 } };
        if self.fabric.post(self.qp, WorkRequest { id: value, verb, signalled: true }).is_ok() {
            self.written = value;
        }
    }

    fn seen(&self) -> u64 {
        self.fabric.memory(self.region)[0].load(Ordering::Acquire)
    }
}

fn until(what: &str, halves: &mut [Half], mut happened: impl FnMut(&mut [Half]) -> bool) {
    let since = Instant::now();
    while !happened(halves) {
        halves.iter_mut().for_each(Half::pump);
        let told =
            |half: &Half| (half.fabric.state(half.qp), half.troubles.clone(), half.failures.clone(), half.written);
        assert!(since.elapsed() < PATIENCE, "still not: {what}; {:?}", halves.iter().map(told).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Checks that both ends write to each other and see the values.
fn works(pair: &mut [Half]) {
    for _ in 0..20 {
        let target: Vec<u64> = pair.iter().map(|half| half.written + 1).collect();
        pair.iter_mut().for_each(Half::pump);
        pair.iter_mut().for_each(Half::write);
        until("all writes have landed", pair, |pair| pair[0].seen() >= target[1] && pair[1].seen() >= target[0]);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).status().unwrap();
    assert!(done.success(), "{program} {arguments:?}: {done}");
}

/// Starts four processes: two on the device that disappears, two on the other one.
fn cluster(first_port: u16) -> [Half; 4] {
    let address = |n: u16| {
        let ip = if n < 2 { processes::SECOND } else { processes::ADDRESS };
        Some(std::net::SocketAddr::new(ip.parse().unwrap(), first_port + n))
    };
    let addresses: Vec<_> = (0..4).map(address).collect();
    let mut all = [(0, 1), (1, 0), (2, 3), (3, 2)].map(|(me, peer)| Half::new(me, peer, &addresses));
    until("connected", &mut all, |all| all.iter().all(|half| half.fabric.state(half.qp) == QpState::Ready));
    works(&mut all[..2]);
    works(&mut all[2..]);
    all
}

/// A second device, created for one test.
struct SecondDevice;

impl SecondDevice {
    fn new() -> SecondDevice {
        run("ip", &["link", "add", "d1", "type", "dummy"]);
        run("ip", &["addr", "add", &format!("{}/24", processes::SECOND), "dev", "d1"]);
        run("ip", &["link", "set", "d1", "up"]);
        run("rdma", &["link", "add", "rxe1", "type", "rxe", "netdev", "d1"]);
        SecondDevice
    }
}

impl Drop for SecondDevice {
    fn drop(&mut self) {
        // The test may have deleted the device already.
        let _ = Command::new("rdma").args(["link", "delete", "rxe1"]).status();
        let _ = Command::new("ip").args(["link", "delete", "d1"]).status();
    }
}

/// Checks that processes on the other device are not affected.
fn check_others_are_unaffected(all: &mut [Half]) {
    works(&mut all[2..]);
    assert!(all[2..].iter().all(|half| half.troubles.is_empty() && half.failures.is_empty()));
}

fn has_reported(half: &Half, is_it: fn(&Trouble) -> bool) -> bool {
    half.troubles.iter().any(is_it)
}

fn is_down(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::PortDown { device, .. } if device == "rxe1")
}

fn is_lost(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::DeviceLost { device, .. } if device == "rxe1")
}

fn is_up(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::PortUp { device, .. } if device == "rxe1")
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn port_down_is_reported_and_other_devices_keep_working() {
    let _device = SecondDevice::new();
    let mut all = cluster(6100);
    run("ip", &["link", "set", "d1", "down"]);
    until("the port is down", &mut all, |all| all[..2].iter().all(|half| has_reported(half, is_down)));
    println!("{}", all[0].troubles[0]);
    check_others_are_unaffected(&mut all);
    run("ip", &["link", "set", "d1", "up"]);
    until("the port is up", &mut all, |all| all[..2].iter().all(|half| has_reported(half, is_up)));
    check_others_are_unaffected(&mut all);
}

/// Deletes the interface under the device, which also deletes the device's addresses.
#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn deleted_interface_is_reported_by_name_and_other_devices_keep_working() {
    let device = SecondDevice::new();
    let mut all = cluster(6300);
    let mut delete = Command::new("ip").args(["link", "delete", "d1"]).spawn().unwrap();
    until("both processes have reported it", &mut all, |all| {
        all[..2].iter_mut().for_each(Half::write);
        all[..2].iter().all(|half| half.fabric.state(half.qp) == QpState::Error && has_reported(half, is_lost))
    });
    all[0].troubles.iter().for_each(|trouble| println!("{trouble}"));
    assert!(all[..2].iter().all(|half| !half.failures.is_empty()), "posted requests have failed");
    let qp = all[0].qp;
    let refused = all[0].fabric.reset(qp).unwrap_err();
    println!("{refused}");
    assert!(matches!(&refused, ConnectError::System { reason, .. } if reason.contains("rxe1 was lost")), "{refused}");
    check_others_are_unaffected(&mut all);
    drop(all);
    assert!(delete.wait().unwrap().success());
    drop(device);
}

/// Soft-RoCE removes a device only when no process has it open any more. Until then, the processes that have it open
/// continue, and no other process can find it.
#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn device_deleted_in_use_is_hidden_and_removed_with_its_last_process() {
    let device = SecondDevice::new();
    let mut all = cluster(6200);
    let mut delete = Command::new("rdma").args(["link", "delete", "rxe1"]).spawn().unwrap();
    let gone = || {
        let found = device::devices(device::ROOT.as_ref());
        !found.iter().any(|device| device.name == "rxe1" && device.file.is_some())
    };
    until("the device is no longer listed", &mut all, |_| gone());
    let address = Some(std::net::SocketAddr::new(processes::SECOND.parse().unwrap(), 6299));
    let refused =
        VerbsFabric::start(NetConfig::new("test", ProcessId(0), vec![address]), VerbsConfig::default()).unwrap_err();
    println!("{refused}");
    assert!(matches!(refused, StartError::Choose(_)), "{refused}");
    works(&mut all[..2]);
    check_others_are_unaffected(&mut all);
    assert!(delete.try_wait().unwrap().is_none(), "the device is still in use");
    let mut all = Vec::from(all);
    drop(all.drain(..2));
    assert!(delete.wait().unwrap().success());
    works(&mut all);
    drop(device);
}
