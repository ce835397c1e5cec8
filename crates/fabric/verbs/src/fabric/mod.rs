//! The contract of `stentor-fabric`, on a device: regions and queue pairs by name, connections by bootstrap.
//!
//! The device moves data by itself, also while this process does something else or stands still.

mod config;
mod net;
mod outstanding;
mod post;
mod regions;
mod retired;
mod sets;
mod start;
mod trouble;
mod wait;

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use stentor_bootstrap::Bootstrap;
use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpKind, QpState, Refusal, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, SetSpec,
    SetWrite, Span, WaitError, Wake, WorkRequest,
};

use crate::device::Choice;
pub use config::{StartError, VerbsConfig};
use net::Net;
use outstanding::MAX_PAIRS;
use regions::Regions;
pub use trouble::Trouble;

/// One process of a cluster on an RDMA device.
#[derive(Debug)]
pub struct VerbsFabric {
    capabilities: Capabilities,
    choice: Choice,
    net: Net,
    bootstrap: Bootstrap,
    regions: Regions,
    epoll: OwnedFd,
    nap_timer: OwnedFd,
    nap: Duration,
    /// Whether somebody may write to this process without a completion here.
    watched: bool,
    /// Whether something may have happened since [`arm`](Fabric::arm).
    rung: bool,
    /// A system call failed: said by the next [`wait`](Fabric::wait).
    failure: Option<String>,
    last_pump: Instant,
}

impl VerbsFabric {
    /// The device, port and GID that are used, and why.
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The path MTU that is offered to peers, bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.net.mtu.bytes()
    }

    /// The next question of somebody who has the cluster's key and is no process, with a number for its
    /// [`answer`](Self::answer).
    pub fn next_question(&mut self) -> Option<(u64, Vec<u8>)> {
        self.bootstrap.next_question()
    }

    /// Answers a question.
    pub fn answer(&mut self, question: u64, answer: &[u8]) {
        self.bootstrap.answer(question, answer);
    }

    /// The next connection that was refused. The newest 64 are kept.
    pub fn next_refusal(&mut self) -> Option<Refusal> {
        self.bootstrap.next_refusal()
    }

    /// The next thing about the device that a person should know. The newest 64 are kept.
    pub fn next_trouble(&mut self) -> Option<Trouble> {
        self.net.troubles.pop_front()
    }

    /// The next thing about names and addresses that a person should know.
    pub fn next_name_note(&mut self) -> Option<String> {
        self.bootstrap.next_name_note()
    }

    /// Names a peer for people, with its address in the configuration.
    #[must_use]
    pub fn name_of(&self, peer: ProcessId) -> String {
        self.bootstrap.name_of(peer)
    }

    /// Why the name of a peer led to no address when it was looked up last, if it did not.
    #[must_use]
    pub fn unresolved(&self, peer: ProcessId) -> Option<&str> {
        self.bootstrap.unresolved(peer)
    }

    /// Whether a peer says that another process with this one's id is connected to it.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        self.bootstrap.is_displaced()
    }

    /// Memory of all regions, bytes. Each peer that is granted one has it registered once more, which counts against the limit
    /// of locked memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.regions.bytes()
    }

    /// Whether a peer is connected.
    #[must_use]
    pub fn is_linked(&self, peer: ProcessId) -> bool {
        self.bootstrap.is_linked(peer)
    }

    fn make_qp(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        if peer.index() >= self.bootstrap.processes() {
            return Err(ConnectError::UnknownProcess(peer));
        }
        self.check_depths(config)?;
        if config.kind == QpKind::Unreliable && !self.capabilities.unreliable {
            return Err(ConnectError::NoUnreliable);
        }
        self.bootstrap.connect(&mut self.net, (peer, service), config, |net, qp| {
            check_room(qp, peer)?;
            net.make(qp, peer, config).map_err(|error| ConnectError::System { peer, reason: error.to_string() })
        })
    }

    fn check_depths(&self, config: QpConfig) -> Result<(), ConnectError> {
        let Capabilities { max_send_depth, max_recv_depth, .. } = self.capabilities;
        let depths =
            [("send queue", config.send_depth, max_send_depth), ("receive queue", config.recv_depth, max_recv_depth)];
        let too_deep = depths.into_iter().find(|(_, asked, limit)| asked > limit);
        too_deep.map_or(Ok(()), |(what, asked, limit)| Err(ConnectError::TooDeep { what, asked, limit }))
    }

    /// One round of the control plane.
    fn pump_control(&mut self) {
        self.last_pump = Instant::now();
        self.net.hear_device();
        self.bootstrap.pump(&mut self.net);
        if let Err(error) = self.watch() {
            self.failure.get_or_insert(error.to_string());
        }
    }

    /// The state as posts see it: a queue pair may have broken a moment ago.
    #[inline]
    fn state_of(&self, qp: QpId) -> Option<QpState> {
        let known = self.bootstrap.state(qp)?;
        let alive = self.net.halves.get(qp.index()).is_some_and(|half| half.pair.is_some());
        Some(if alive { known } else { QpState::Error })
    }
}

/// Whether there is a number for another queue pair.
fn check_room(qp: QpId, peer: ProcessId) -> Result<(), ConnectError> {
    if qp.index() < MAX_PAIRS {
        return Ok(());
    }
    Err(ConnectError::System { peer, reason: format!("{MAX_PAIRS} queue pairs are made; no process has more") })
}

impl Fabric for VerbsFabric {
    fn me(&self) -> ProcessId {
        self.net.config.me
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        self.register_region(spec)
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.regions.memory(region).words()
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError> {
        self.grant_region(region, peer, access)
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        self.revoke_region(region, peer)
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        self.make_qp(peer, service, config)
    }

    fn state(&self, qp: QpId) -> QpState {
        self.state_of(qp).expect("a queue pair of this process")
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.bootstrap.reset(&mut self.net, qp)
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        self.bootstrap.remotes().resolve(peer, purpose)
    }

    #[inline]
    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        self.post_work(qp, &request)
    }

    #[inline]
    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        self.post_receive(qp, local, id)
    }

    fn post_tagged_recv(&mut self, _: QpId, _: Span, _: u64, _: u64, _: u64) -> Result<(), PostError> {
        Err(PostError::Unsupported("tagged receive"))
    }

    fn join_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        self.make_set(spec, config)
    }

    fn set_reaches(&self, set: QpId, peer: ProcessId) -> bool {
        self.state_of(set) == Some(QpState::Ready) && self.bootstrap.set_reaches(set, peer)
    }

    fn set_settled(&self, set: QpId, peer: ProcessId) -> bool {
        self.bootstrap.set_settled(set, peer)
    }

    #[inline]
    fn post_set(&mut self, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        let limits = (self.state_of(set) == Some(QpState::Ready), self.capabilities.inline_bytes);
        self.bootstrap.post_set(&mut self.net, set, &write, limits)
    }

    /// The device has what was posted.
    #[inline]
    fn flush(&mut self) {}

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.bootstrap.has_sets() { self.poll_with_sets(out) } else { self.net.poll(out) }
    }

    fn next_event(&mut self) -> Option<Event> {
        self.pump_control();
        self.bootstrap.next_event()
    }

    fn arm(&mut self) {
        self.begin_nap();
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.sleep(timeout)
    }

    fn raw_fd(&self) -> Option<i32> {
        Some(self.epoll.as_raw_fd())
    }
}
