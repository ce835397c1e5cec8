//! A queue pair that breaks before its owner has heard that it was connected.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use stentor_channel::{Endpoint, Scheme};
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, Span, WaitError, Wake, Waker,
    Word, WorkRequest,
};
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};

use crate::bed::small;

/// A fabric that reports the state of a queue pair at once, and no event. Fabrics between hosts detect a break while
/// they drive their device, and report it when they drive their control plane.
struct Silent {
    inner: SimFabric,
}

impl Fabric for Silent {
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
            connect(peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError>;
            disconnect(qp: QpId) -> Result<(), ConnectError>;
            reset(qp: QpId) -> Result<(), ConnectError>;
            resolve(peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion>;
            post(qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError>;
            post_recv(qp: QpId, local: Span, id: u64) -> Result<(), PostError>;
            post_tagged_recv(qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError>;
            cancel_tagged_recv(qp: QpId, id: u64) -> Result<(), PostError>;
            flush();
            poll(out: &mut [Completion]) -> usize;
            arm();
            wait(timeout: Duration) -> Result<Wake, WaitError>;
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        None
    }
}

/// The connection has posted receives, and is over only when all of them have been returned.
#[test]
fn connection_ends_although_no_event_reported_the_break() {
    for scheme in Scheme::ALL {
        let model = NetworkModel { tagged: scheme != Scheme::Counted, ..NetworkModel::calm() };
        let world = World::new(SimConfig::new(2, 1, model));
        let (me, peer) = (ProcessId(0), ProcessId(1));
        let mut end = Endpoint::new(Silent { inner: world.fabric(me) }, small(scheme), &[peer]).unwrap();
        let mut other = Endpoint::new(world.fabric(peer), small(scheme), &[me]).unwrap();
        let handle = end.open(peer, 0).unwrap();
        // Each endpoint has one queue pair.
        let qp = QpId(0);
        world.advance(1_000_000);
        assert_eq!(other.fabric().state(qp), QpState::Ready, "{scheme:?}");
        other.fabric_mut().disconnect(qp).unwrap();
        while end.fabric().state(qp) != QpState::Error {
            world.advance(1_000_000);
        }
        for _ in 0..100 {
            end.housekeep();
            end.step();
            world.advance(1_000_000);
        }
        assert!(!end.is_alive(handle), "{scheme:?}: the connection waits for receives of the broken queue pair");
    }
}
