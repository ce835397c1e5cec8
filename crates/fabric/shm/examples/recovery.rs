//! Measures polling a heartbeat, fencing, reconnecting, and absent peers. All processes are in one thread, so the
//! figures are pure work, without the scheduler: `cargo run --release -p stentor-fabric-shm --example recovery`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use stentor_fabric::{
    Access, Completion, Event, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RemoteSpan,
    Service, Source, Span, Verb, WorkRequest,
};
use stentor_fabric_shm::{ShmConfig, ShmFabric};

const QP: QpId = QpId(0);
const A: ProcessId = ProcessId(5);
const B: ProcessId = ProcessId(6);

/// Starts process `me` of seven, with a region of `bytes` bytes for its peer and a private region.
fn start(directory: &Path, me: ProcessId, bytes: u64) -> ShmFabric {
    let config = ShmConfig { janitor: false, ..ShmConfig::new("recovery", me, "p", 7) };
    let mut fabric =
        ShmFabric::start(ShmConfig { directory: directory.to_owned(), ..config }).expect("the fabric starts");
    let peer = if me == A { B } else { A };
    for (purpose, writer, bytes) in [(1, peer, bytes), (2, me, 64)] {
        fabric.register(RegionSpec { purpose: Purpose(purpose), writer, bytes }).expect("there is memory");
    }
    fabric.grant(RegionId(0), peer, Access::Write).expect("the region has this peer as its writer");
    fabric
        .connect(peer, Service(1), QpConfig::reliable(16, 4))
        .expect("the peer has no queue pair of this service yet");
    fabric
}

fn drive(fabrics: [&mut ShmFabric; 2], mut done: impl FnMut(&[&mut ShmFabric; 2]) -> bool) {
    let mut fabrics = fabrics;
    while !done(&fabrics) {
        for fabric in &mut fabrics {
            let mut out = [Completion::BLANK; 16];
            while fabric.poll(&mut out) > 0 {}
            while let Some(event) = fabric.next_event() {
                if let Event::Disconnected { qp, .. } = event {
                    fabric.reset(qp).expect("the queue pair is in the error state");
                }
            }
        }
    }
}

fn ready(fabrics: &[&mut ShmFabric; 2]) -> bool {
    fabrics.iter().all(|fabric| fabric.state(QP) == QpState::Ready)
}

fn post(fabric: &mut ShmFabric, verb: Verb<'_>) {
    fabric.post(QP, WorkRequest { id: 1, verb, signalled: true }).expect("there is room");
    let mut out = [Completion::BLANK; 1];
    assert_eq!(fabric.poll(&mut out), 1);
}

/// Returns the median duration of `what`, in nanoseconds.
fn median(times: usize, mut what: impl FnMut()) -> u128 {
    let mut took: Vec<u128> = (0..times)
        .map(|_| {
            let since = Instant::now();
            what();
            since.elapsed().as_nanos()
        })
        .collect();
    took.sort_unstable();
    took[times / 2]
}

fn row(what: &str, ns: u128, per: u128) {
    println!("{what:<58} {:>10.3} us", ns as f64 / per as f64 / 1000.0);
}

fn main() {
    let directory: PathBuf = std::env::temp_dir().join(format!("stentor-recovery-{}", std::process::id()));
    for bytes in [4096, 4 << 20] {
        let (mut a, mut b) = (start(&directory, A, bytes), start(&directory, B, bytes));
        drive([&mut a, &mut b], ready);
        let target =
            RemoteSpan { region: a.resolve(B, Purpose(1)).expect("the owner has granted the region"), offset: 0 };
        println!("regions of {bytes} bytes");
        let local = Span { region: RegionId(1), offset: 0, bytes: 8 };
        let reads = || (0..1000).for_each(|_| post(&mut a, Verb::Read { local, remote: target }));
        row("READ of 8 bytes, posted and polled", median(200, reads), 1000);
        let write = Verb::Write { source: Source::Inline(&[7; 8]), target };
        let writes = || (0..1000).for_each(|_| post(&mut a, write));
        row("WRITE of 8 bytes, posted and polled", median(200, writes), 1000);
        let idle = || (0..1000).for_each(|_| assert!(b.next_event().is_none()));
        row("next_event, nothing to hear, everybody there", median(50, idle), 1000);
        let fence = median(200, || {
            b.revoke(RegionId(0), A).expect("the region was granted");
            b.grant(RegionId(0), A, Access::Write).expect("the region has this peer as its writer");
            while b.next_event().is_some() {}
            while a.next_event().is_some() {}
        });
        row("revoke, Revoked, grant, and the peer hears", fence, 1);
        let relink = median(200, || {
            let region = a.resolve(B, Purpose(1)).expect("the owner has granted the region");
            post(&mut a, Verb::Write { source: Source::Inline(&[7; 8]), target: RemoteSpan { region, offset: bytes } });
            drive([&mut a, &mut b], ready);
        });
        row("RemoteAccess, both ends reset, both Connected", relink, 1);
        let mut b = Some(b);
        let restart = median(50, || {
            b = None;
            let next = b.insert(start(&directory, B, bytes));
            drive([&mut a, next], ready);
        });
        row("the peer goes, starts again, both Connected", restart, 1);
        b = None;
        let mut out = [Completion::BLANK; 16];
        while a.state(QP) != QpState::Error {
            a.next_event();
            a.poll(&mut out);
        }
        a.reset(QP).expect("the queue pair is in the error state");
        for peer in 0..5 {
            a.connect(ProcessId(peer), Service(1), QpConfig::reliable(16, 4))
                .expect("the peer has no queue pair of this service yet");
        }
        let since = Instant::now();
        let mut calls = 0;
        while since.elapsed().as_secs() < 1 {
            assert!(a.next_event().is_none());
            calls += 1;
        }
        row("next_event, nothing to hear, six peers away", since.elapsed().as_nanos(), calls);
        drop((a, b));
    }
}
