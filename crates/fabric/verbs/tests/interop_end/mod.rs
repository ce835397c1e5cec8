//! A process on either of the two RoCEv2 fabrics.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, PollHint, PostError, ProcessId,
    Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, Span, WaitError,
    Wake, Waker, WorkRequest,
};
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};
use stentor_fabric_verbs::VerbsFabric;

use crate::processes::start;

/// Network namespace of the user-space processes. In the first namespace, Soft-RoCE occupies the UDP port of RoCEv2.
const NAMESPACE: &str = "/run/netns/far";

/// Code for a timeout of 268 ms.
const TIMEOUT_268_MS: u8 = 16;

/// Runs a function in the other network namespace. Sockets belong to the namespace in which they were opened.
fn in_other_namespace<R>(run: impl FnOnce() -> R) -> R {
    static NAMESPACES: OnceLock<[File; 2]> = OnceLock::new();
    let open = |path| File::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let [near, far] = NAMESPACES.get_or_init(|| [open("/proc/thread-self/ns/net"), open(NAMESPACE)]);
    let enter = |namespace: &File| {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("the process changes its namespace as root");
    };
    enter(far);
    let result = run();
    enter(near);
    result
}

pub(crate) enum End {
    Verbs(Box<VerbsFabric>),
    Roce(Box<RoceFabric>),
}

impl End {
    pub(crate) fn verbs(me: ProcessId, addresses: &[Option<SocketAddr>]) -> End {
        // This thread also polls the user-space fabric, which may therefore answer late on a slow machine.
        End::Verbs(Box::new(start(me, addresses, |_, config| config.tuning.timeout = TIMEOUT_268_MS)))
    }

    pub(crate) fn roce(net: NetConfig, config: RoceConfig) -> End {
        let started = in_other_namespace(|| RoceFabric::start(net, config));
        End::Roce(Box::new(started.unwrap_or_else(|error| panic!("{error}"))))
    }

    /// Drives the user-space fabric. A fabric on a device need not be driven.
    pub(crate) fn drive(&mut self) {
        if let End::Roce(fabric) = self {
            fabric.drive();
        }
    }
}

/// Evaluates an expression on the fabric of an end, whichever it is.
macro_rules! either {
    ($end:expr, $fabric:ident => $call:expr) => {
        match $end {
            End::Verbs($fabric) => $call,
            End::Roce($fabric) => $call,
        }
    };
}

impl Fabric for End {
    fn me(&self) -> ProcessId {
        either!(self, fabric => fabric.me())
    }

    fn capabilities(&self) -> &Capabilities {
        either!(self, fabric => fabric.capabilities())
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        either!(self, fabric => fabric.register(spec))
    }

    fn memory(&self, region: RegionId) -> &[Word] {
        either!(self, fabric => fabric.memory(region))
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError> {
        either!(self, fabric => fabric.grant(region, peer, access))
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        either!(self, fabric => fabric.revoke(region, peer))
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        either!(self, fabric => fabric.connect(peer, service, config))
    }

    fn state(&self, qp: QpId) -> QpState {
        either!(self, fabric => fabric.state(qp))
    }

    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError> {
        either!(self, fabric => fabric.disconnect(qp))
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        either!(self, fabric => fabric.reset(qp))
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        either!(self, fabric => fabric.resolve(peer, purpose))
    }

    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        either!(self, fabric => fabric.post(qp, request))
    }

    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        either!(self, fabric => fabric.post_recv(qp, local, id))
    }

    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        either!(self, fabric => fabric.post_tagged_recv(qp, local, tag, ignore, id))
    }

    fn flush(&mut self) {
        either!(self, fabric => fabric.flush());
    }

    fn poll_hint(&mut self) -> PollHint {
        either!(self, fabric => fabric.poll_hint())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        either!(self, fabric => fabric.poll(out))
    }

    /// Polls for an event. While peers with smaller ids are not connected, the user-space fabric opens sockets to them
    /// in this call, so the call then runs in the other namespace.
    fn next_event(&mut self) -> Option<Event> {
        match self {
            End::Verbs(fabric) => fabric.next_event(),
            End::Roce(fabric) if (0..fabric.me().0).all(|peer| fabric.is_linked(ProcessId(peer))) => {
                fabric.next_event()
            }
            End::Roce(fabric) => in_other_namespace(|| fabric.next_event()),
        }
    }

    fn arm(&mut self) {
        either!(self, fabric => fabric.arm());
    }

    /// Waits. The user-space fabric may open sockets meanwhile, so it waits in the other namespace.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        match self {
            End::Verbs(fabric) => fabric.wait(timeout),
            End::Roce(fabric) => in_other_namespace(|| fabric.wait(timeout)),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(self, fabric => fabric.descriptor())
    }

    fn waker(&self) -> Waker {
        either!(self, fabric => fabric.waker())
    }
}
