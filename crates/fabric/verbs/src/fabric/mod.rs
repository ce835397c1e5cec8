//! Implements the contract of `stentor-fabric` on an RDMA device (a NIC or Soft-RoCE), as the device of a
//! [`NetFabric`].
//!
//! The device transfers data without help of the process, even while the process is busy or stopped. A device reports
//! its own completions but not a peer's WRITE. A sleeping process to which peers may write therefore wakes after the
//! poll interval that [`arm`](Device::arm) sets, 1–4 ms, to check its memory. The interval grows while nothing
//! completes.

mod config;
mod ends;
mod held;
mod outstanding;
mod post;
mod regions;
mod retired;
mod sets;
mod start;
mod trouble;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, Capabilities, Completion, Opcode, PostError, ProcessId, QpConfig, QpId, QpState, RegionId, RemoteSpan,
    Span, Verb, WorkRequest,
};
use stentor_fabric_net::{Device, Fence, NetConfig, NetFabric, RemoteKey, Remotes};
use stentor_switch_host::SwitchSets;

use crate::device::{Choice, Gid};
use crate::qp::{Data, Own, Work};
use crate::{CompletionChannel, Context, Domain, Limits, Mtu};
pub use config::{StartError, VerbsConfig};
use ends::{Half, Queue};
use outstanding::{MAX_PAIRS, Name, Posted};
use post::{data, own_span, remote};
use regions::Regions;
pub use trouble::Trouble;

/// Shortest and longest poll interval.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(4));
/// epoll data that identifies the completion channel.
const CHANNEL: u64 = 1;
/// epoll data that identifies the device's events.
const DEVICE: u64 = 2;
/// epoll data that identifies the poll timer.
const POLL_TIMER: u64 = 3;

/// One process of a cluster on an RDMA device.
pub type VerbsFabric = NetFabric<VerbsDevice>;

/// An open device with the objects that were created on it.
#[derive(Debug)]
pub struct VerbsDevice {
    me: ProcessId,
    config: VerbsConfig,
    capabilities: Capabilities,
    choice: Choice,
    context: Arc<Context>,
    place: Own,
    gid: Gid,
    lid: u16,
    mtu: Mtu,
    limits: Limits,
    inline_bytes: u32,
    ordered_bytes: bool,
    channel: Arc<CompletionChannel>,
    domains: Vec<Option<Arc<Domain>>>,
    queues: Vec<Queue>,
    halves: Vec<Half>,
    /// Ends that may hold a WRITE back.
    holding: Vec<QpId>,
    // The regions are dropped after the queue pairs that use their memory.
    regions: Regions,
    /// Completions that wait to be polled.
    taken: VecDeque<Completion>,
    /// Ends that are to be broken, because a request failed or the device reported a failure.
    failing: Vec<QpId>,
    /// Ends that broke because of a failure, and are not yet reported.
    broken: VecDeque<QpId>,
    troubles: VecDeque<Trouble>,
    /// Peers for which a failed registration was reported.
    unregistered: Vec<ProcessId>,
    /// Reason for the loss of the device, if it is lost.
    lost: Option<String>,
    /// `true` if the port was reported as down.
    down: bool,
    /// `true` after a failure that may mean that the port is down or the device lost.
    doubtful: bool,
    epoll: Arc<OwnedFd>,
    poll_timer: OwnedFd,
    poll_interval: Duration,
    /// `true` if a peer was granted the right to write to this process's memory. Such a write causes no completion in
    /// this process.
    watched: bool,
    /// `true` if a write may have landed, or a completion may have arrived, since [`arm`](Device::arm).
    rung: bool,
    /// First error of a system call that was not reported yet.
    failure: Option<String>,
}

impl VerbsDevice {
    /// Returns the device, port and GID in use, and the reason for the choice.
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Returns the path MTU that is offered to peers, in bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.mtu.bytes()
    }

    /// Returns the next trouble to report to the user. The newest 64 are kept.
    pub fn next_trouble(&mut self) -> Option<Trouble> {
        self.troubles.pop_front()
    }
}

fn span(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

/// Checks that another queue pair can be numbered.
fn check_room(qp: QpId) -> Result<(), String> {
    if qp.index() < MAX_PAIRS {
        return Ok(());
    }
    Err(format!("the maximum of {MAX_PAIRS} queue pairs per process is reached"))
}

impl Device for VerbsDevice {
    type Config = VerbsConfig;
    type Sets = SwitchSets<Self>;
    type StartError = StartError;

    fn open(net: &NetConfig, config: VerbsConfig, epoll: Arc<OwnedFd>) -> Result<(Self, SwitchSets<Self>), StartError> {
        Self::start(net, config, epoll)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn make(&mut self, qp: QpId, peer: ProcessId, config: QpConfig) -> Result<(), String> {
        check_room(qp)?;
        self.make_end(qp, peer, config).map_err(|error| error.to_string())
    }

    fn make_set(&mut self, qp: QpId, sender: ProcessId, config: QpConfig, members: usize) -> Result<(), String> {
        check_room(qp)?;
        self.make_set_end(qp, sender, config, members).map_err(|error| error.to_string())
    }

    #[inline]
    fn is_alive(&self, qp: QpId) -> bool {
        self.halves.get(qp.index()).is_some_and(|half| half.pair.is_some())
    }

    fn register(&mut self, _: RegionId, bytes: u64) -> Result<(), String> {
        self.make_region(bytes)
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.regions.memory(region).words()
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<RemoteKey, String> {
        self.grant_key(region, peer, access)
    }

    fn fence(&mut self, region: RegionId, peer: ProcessId) -> Result<Fence, String> {
        self.take_key(region, peer)
    }

    #[inline]
    fn post(&mut self, remotes: &Remotes, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let half = &self.halves[qp.index()];
        if half.sends.is_full() {
            return Err(PostError::SendQueueFull { qp, depth: half.config.send_depth });
        }
        let peer = half.peer;
        let own = own_span(&request.verb).filter(|span| span.bytes > 0);
        if let Some(span) = own {
            self.register_for_use(qp, peer, span.region)?;
        }
        if self.halves[qp.index()].holder.is_some() && self.hold(remotes, qp, request)? {
            return Ok(());
        }
        let local = |span: Span| self.regions.local(peer, span);
        let at = |span: &RemoteSpan| remote(remotes, span);
        let work = match &request.verb {
            // A READ of 0 bytes is posted as a WRITE of 0 bytes, which likewise accesses no memory and is acknowledged.
            Verb::Read { local: Span { bytes: 0, .. }, remote } => {
                Work::Write { data: Data::Inline(&[]), remote: at(remote), imm: None }
            }
            verb => verb.operation(|source| data(source, local), local, at)?,
        };
        let half = &self.halves[qp.index()];
        let name = Name { receive: false, qp, life: half.life, sequence: half.sends.next() };
        let Some(pair) = &half.pair else { return Err(PostError::NotReady { qp, state: QpState::Error }) };
        if let Err(error) = pair.post(name.encode(), &work, request.signalled) {
            return Err(self.not_posted(qp, &error));
        }
        self.halves[qp.index()].push(request);
        Ok(())
    }

    #[inline]
    fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError> {
        let half = &self.halves[qp.index()];
        if half.receives.is_full() {
            return Err(PostError::RecvQueueFull { qp, depth: half.config.recv_depth });
        }
        let peer = half.peer;
        if span.bytes > 0 {
            self.register_for_use(qp, peer, span.region)?;
        }
        let local = (span.bytes > 0).then(|| self.regions.local(peer, span));
        let half = &self.halves[qp.index()];
        let name = Name { receive: true, qp, life: half.life, sequence: half.receives.next() };
        let Some(pair) = &half.pair else { return Err(PostError::NotReady { qp, state: QpState::Error }) };
        if let Err(error) = pair.post_recv(name.encode(), local) {
            return Err(self.not_posted(qp, &error));
        }
        self.halves[qp.index()].receives.push(Posted::new(id, Opcode::Recv, true, 0));
        Ok(())
    }

    #[inline]
    fn flush(&mut self) {
        self.post_all_held();
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.poll_queues(out)
    }

    fn begin_wait(&mut self) {
        self.post_all_held();
    }

    fn handle_events(&mut self) {
        self.handle_device_events();
    }

    /// Requests notifications of completions, and starts a poll interval.
    fn arm(&mut self) {
        self.rung = false;
        for queue in self.queues.iter().filter(|_| self.lost.is_none()) {
            if let Err(errno) = queue.queue.request_notification() {
                self.failure.get_or_insert(format!("a notification of completions cannot be requested: {errno}"));
            }
        }
        // If no peer may write, no data can land without a completion, so no poll interval is necessary.
        let poll_interval = if self.watched { self.poll_interval } else { Duration::ZERO };
        let times = Itimerspec { it_interval: span(Duration::ZERO), it_value: span(poll_interval) };
        if let Err(error) = timerfd_settime(&self.poll_timer, TimerfdTimerFlags::empty(), &times) {
            self.failure.get_or_insert(error.to_string());
        }
    }

    fn has_news(&self) -> bool {
        self.rung || !self.taken.is_empty()
    }

    fn woken(&mut self, which: &[u64], complete: bool) {
        let has = |what: u64| !complete || which.contains(&what);
        if has(CHANNEL) {
            self.rung |= self.channel.take() > 0;
            self.poll_interval = POLL_INTERVALS.0;
        }
        if has(POLL_TIMER) {
            let mut count = [0; 8];
            self.rung |= rustix::io::read(&self.poll_timer, &mut count) == Ok(count.len());
            self.poll_interval = (2 * self.poll_interval).min(POLL_INTERVALS.1);
        }
        if has(DEVICE) {
            self.handle_device_events();
        }
    }

    fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }
}
