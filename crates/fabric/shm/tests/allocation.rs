//! Checks that the hot path does not allocate: the allocator of this program counts its calls.
#![cfg(not(loom))]
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stentor_fabric::{
    Access, Completion, Event, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RemoteSpan,
    Service, Source, Span, Status, Verb, WorkRequest,
};
use stentor_fabric_shm::{ShmConfig, ShmFabric};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system allocator does everything; counting does not touch its results.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const PURPOSE: Purpose = Purpose(1);
fn start(directory: &std::path::Path, me: u16) -> ShmFabric {
    let config = ShmConfig::new("allocation", ProcessId(me), "test", 2);
    let mut fabric = ShmFabric::start(ShmConfig { directory: directory.to_owned(), ..config }).unwrap();
    let peer = ProcessId(1 - me);
    let region = fabric.register(RegionSpec { purpose: PURPOSE, writer: peer, bytes: 4096 }).unwrap();
    fabric.grant(region, peer, Access::Atomic).unwrap();
    fabric.register(RegionSpec { purpose: Purpose(2), writer: ProcessId(me), bytes: 4096 }).unwrap();
    fabric.connect(peer, Service(0), QpConfig::reliable(32, 16)).unwrap();
    fabric
}

fn polled(fabric: &mut ShmFabric, out: &mut [Completion]) -> usize {
    let taken = fabric.poll(out);
    assert!(out[..taken].iter().all(|completion| completion.status == Status::Success));
    taken
}

/// Executes all verbs of the fabric except compare-and-swap, and the peer's part of them.
fn round(a: &mut ShmFabric, b: &mut ShmFabric, target: RemoteSpan) {
    let (qp, local) = (QpId(0), Span { region: RegionId(1), offset: 64, bytes: 8 });
    let source = Source::Inline(&[7; 64]);
    let verbs = [
        Verb::Write { source, target },
        Verb::Write { source: Source::Region(local), target },
        Verb::Read { local, remote: target },
        Verb::FetchAdd { local, remote: target, add: 1 },
        Verb::WriteImm { source, target, imm: 1 },
        Verb::Send { source, imm: None },
    ];
    let mut out = [Completion::BLANK; 16];
    for id in 0..2 {
        b.post_recv(qp, Span { region: RegionId(1), offset: 0, bytes: 64 }, id).unwrap();
    }
    for (id, verb) in verbs.into_iter().enumerate() {
        a.post(qp, WorkRequest { id: id as u64, verb, signalled: id % 2 == 1 }).unwrap();
    }
    assert_eq!(polled(a, &mut out), 3);
    assert_eq!(polled(b, &mut out), 2);
    b.arm();
    a.post(qp, WorkRequest { id: 9, verb: verbs[0], signalled: true }).unwrap();
    assert_eq!(polled(a, &mut out), 1);
    b.wait(Duration::from_millis(1)).unwrap();
}

#[test]
fn posting_polling_receiving_and_waking_do_not_allocate() {
    let directory = std::env::temp_dir().join(format!("stentor-shm-allocation-{}", std::process::id()));
    let (mut a, mut b) = (start(&directory, 0), start(&directory, 1));
    let mut events = 0;
    while events < 2 {
        for fabric in [&mut a, &mut b] {
            events += usize::from(matches!(fabric.next_event(), Some(Event::Connected { .. })));
        }
    }
    assert_eq!(a.state(QpId(0)), QpState::Ready);
    let target = RemoteSpan { region: a.resolve(ProcessId(1), PURPOSE).unwrap(), offset: 128 };
    round(&mut a, &mut b, target);
    // After a connection is made, each life thread looks at its peers, and allocates. On a busy machine it may do that
    // during a lap, so one lap without allocations suffices.
    let laps = (0..10).map(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..1000).for_each(|_| round(&mut a, &mut b, target));
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    assert_eq!(laps.min(), Some(0));
}
