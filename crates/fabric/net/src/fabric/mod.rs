//! The contract of `stentor-fabric` for fabrics that reach other hosts: one implementation on top of a [`Device`] that
//! moves data.
//!
//! The fabric assigns the ids of queue pairs and regions, checks arguments, grants and revokes access, connects through
//! the [`ConnectionManager`], and sleeps. The device creates queue pairs and memory, posts, and polls.

mod bell;
mod device;
mod regions;
mod sets;
mod wait;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll;
use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, PollHint, PostError, ProcessId,
    Purpose, QpConfig, QpId, QpKind, QpState, Refusal, RegionId, RegionSpec, RegisterError, RemoteRegion, Service,
    SetSpec, SetWrite, Span, Status, WaitError, Wake, Waker, WorkRequest,
};

use crate::{ConnectionManager, NetConfig, Sets, StartError};
use bell::Bell;
pub use device::{Device, Fence, Waiting};
use regions::Regions;

/// One process of a cluster on a device.
pub struct NetFabric<D: Device> {
    // The device is dropped first, because it is the first field. It holds its own reference to the epoll instance.
    device: D,
    capabilities: Capabilities,
    cm: ConnectionManager<D::Sets>,
    regions: Regions,
    epoll: Arc<OwnedFd>,
    bell: Arc<Bell>,
    /// Total number of sockets when they were last added to the epoll instance.
    watched: Option<u64>,
    last_pump: Instant,
    /// `true` if the last sleep pumped the control plane, so the next `next_event` need not do it again.
    has_pumped: bool,
    /// `true` if a socket of the control plane is readable and was not handled yet.
    is_called: bool,
    /// Error of a failed system call, which the next [`wait`](Fabric::wait) returns.
    failure: Option<String>,
}

impl<D: Device + fmt::Debug> fmt::Debug for NetFabric<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetFabric").field("device", &self.device).finish_non_exhaustive()
    }
}

impl<D: Device> NetFabric<D> {
    /// Starts a process of a cluster, so that its peers can connect.
    ///
    /// # Errors
    /// Returns the error of the device, of the [`ConnectionManager`], or of the operating system.
    pub fn start(net: NetConfig, config: D::Config) -> Result<Self, D::StartError> {
        let failed = |what| move |error: rustix::io::Errno| StartError::System { what, source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("make an epoll instance"))?;
        let bell = Bell::new(&epoll).map_err(failed("make an eventfd"))?;
        let epoll = Arc::new(epoll);
        let (device, sets) = D::open(&net, config, Arc::clone(&epoll))?;
        let capabilities = device.capabilities().clone();
        let regions = Regions::new(net.max_bytes);
        let cm = ConnectionManager::start(device.protocol(), net, sets)?;
        let mut fabric = NetFabric {
            capabilities,
            device,
            cm,
            regions,
            epoll,
            bell,
            watched: None,
            last_pump: Instant::now(),
            has_pumped: false,
            is_called: false,
            failure: None,
        };
        fabric.watch().map_err(failed("watch a socket"))?;
        Ok(fabric)
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Returns the device, for settings outside the contract.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Returns the connection manager.
    #[must_use]
    pub fn cm(&self) -> &ConnectionManager<D::Sets> {
        &self.cm
    }

    /// Returns the connection manager, to receive questions and notes, and to answer.
    pub fn cm_mut(&mut self) -> &mut ConnectionManager<D::Sets> {
        &mut self.cm
    }

    /// Makes the device process arrivals and send packets that are due. A NIC does this by itself.
    #[inline]
    pub fn drive(&mut self) {
        self.device.drive();
    }

    /// Returns the next refused connection. The newest 64 are kept.
    pub fn next_refusal(&mut self) -> Option<Refusal> {
        self.cm.next_refusal()
    }

    /// Returns the size of all regions together, in bytes. A device may register the memory once more for each peer
    /// with a grant.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.regions.bytes()
    }

    /// Returns whether a peer is connected.
    #[must_use]
    pub fn is_linked(&self, peer: ProcessId) -> bool {
        self.cm.is_linked(peer)
    }

    fn check_depths(&self, config: QpConfig) -> Result<(), ConnectError> {
        let Capabilities { max_send_depth, max_recv_depth, .. } = self.capabilities;
        let depths =
            [("send queue", config.send_depth, max_send_depth), ("receive queue", config.recv_depth, max_recv_depth)];
        let too_deep = depths.into_iter().find(|(_, asked, limit)| asked > limit);
        too_deep.map_or(Ok(()), |(what, asked, limit)| Err(ConnectError::TooDeep { what, asked, limit }))
    }

    /// Returns the state of a queue pair for a post. The device may have detected a break that the connection manager
    /// has not recorded yet.
    #[inline]
    fn state_of(&self, qp: QpId) -> Option<QpState> {
        let known = self.cm.state(qp)?;
        Some(if self.device.is_alive(qp) { known } else { QpState::Error })
    }

    #[inline]
    fn check_receive(&self, qp: QpId, span: Span) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state == QpState::Error {
            return Err(PostError::NotReady { qp, state });
        }
        span.check(self.capabilities.max_message_bytes, |span| self.regions.contain(span))
    }
}

impl<D: Device> Fabric for NetFabric<D> {
    fn me(&self) -> ProcessId {
        self.cm.me
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        self.register_region(spec)
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.device.memory(region)
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError> {
        self.grant_region(region, peer, access)
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        self.revoke_region(region, peer)
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        if peer.index() >= self.cm.processes() {
            return Err(ConnectError::UnknownProcess(peer));
        }
        self.check_depths(config)?;
        if config.kind == QpKind::Unreliable && !self.capabilities.unreliable {
            return Err(ConnectError::NoUnreliable);
        }
        self.cm.connect(&mut self.device, (peer, service), config, |device, qp| {
            device.make(qp, peer, config).map_err(|reason| ConnectError::System { peer, reason })
        })
    }

    fn state(&self, qp: QpId) -> QpState {
        self.state_of(qp).expect("a queue pair of this process")
    }

    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError> {
        if self.state_of(qp).ok_or(ConnectError::UnknownQp(qp))? == QpState::Ready {
            self.cm.break_one(&mut self.device, qp, Status::Flushed);
        }
        Ok(())
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.cm.reset(&mut self.device, qp)
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        self.cm.remotes().resolve(peer, purpose)
    }

    #[inline]
    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state != QpState::Ready {
            return Err(PostError::NotReady { qp, state });
        }
        let is_unreliable = || self.cm.config(qp).is_some_and(|config| config.kind == QpKind::Unreliable);
        request.verb.check(&self.capabilities, is_unreliable, |span| self.regions.contain(span))?;
        self.device.post(self.cm.remotes(), qp, &request)
    }

    #[inline]
    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        self.check_receive(qp, local)?;
        self.device.post_receive(qp, local, id)
    }

    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receive"));
        }
        self.check_receive(qp, local)?;
        self.device.post_tagged_receive(qp, local, (tag, ignore), id)
    }

    fn cancel_tagged_recv(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receive"));
        }
        self.cm.state(qp).ok_or(PostError::UnknownQp(qp))?;
        self.device.cancel_tagged_receive(qp, id);
        Ok(())
    }

    fn join_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        self.make_set(spec, config)
    }

    fn set_reaches(&self, set: QpId, peer: ProcessId) -> bool {
        self.state_of(set) == Some(QpState::Ready) && D::Sets::reaches(&self.cm, set, peer)
    }

    fn set_settled(&self, set: QpId, peer: ProcessId) -> bool {
        D::Sets::is_settled(&self.cm, set, peer)
    }

    #[inline]
    fn post_set(&mut self, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        let limits = (self.state_of(set) == Some(QpState::Ready), self.capabilities.inline_bytes);
        D::Sets::post(&mut self.cm, &mut self.device, set, &write, limits)
    }

    #[inline]
    fn flush(&mut self) {
        self.device.flush();
    }

    #[inline]
    fn poll_hint(&mut self) -> PollHint {
        self.device.poll_hint()
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.cm.sets.is_empty() { self.device.poll(out) } else { self.poll_with_sets(out) }
    }

    fn next_event(&mut self) -> Option<Event> {
        if !self.cm.has_events() && !std::mem::take(&mut self.has_pumped) {
            self.pump();
        }
        self.cm.next_event()
    }

    fn arm(&mut self) {
        self.bell.arm();
        self.device.arm();
    }

    fn wait(&mut self, timeout: std::time::Duration) -> Result<Wake, WaitError> {
        self.sleep(timeout)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // Without descriptors of the device, a caller could not wait for landing data.
        self.device.has_descriptors().then(|| self.epoll.as_fd())
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }
}
