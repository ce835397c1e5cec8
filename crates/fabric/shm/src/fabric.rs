//! The fabric's public type.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, PollHint, PostError, ProcessId,
    Purpose, QpConfig, QpId, QpState, Refusal, RegionId, RegionSpec, RegisterError, RemoteRegion, RemoteSpan, Service,
    Span, WaitError, Wake, Waker, WorkRequest,
};
use stentor_host::{Beside, Seat, StartError, memfd, system};

use crate::config::ShmConfig;
use crate::control::{Control, DIAL_PAUSE, Peer};
use crate::data::Data;
use crate::doorbell::AWAKE;
use crate::life::{Life, LifeWord};
use crate::mapping::Mapping;
use crate::message::{FORMAT, Identity};

/// Returns the size of the wait page, in bytes. The page has the wait word, and one word for each process, which
/// changes when that process has flushed to this one.
pub(crate) fn wait_page_bytes(processes: u16) -> u64 {
    ((1 + u64::from(processes)) * WORD as u64).next_multiple_of(4096)
}

/// Limit of inline data, in bytes.
const INLINE_LIMIT: u32 = 1 << 20;
/// Number of calls of `poll_hint` after which the queues of all peers are checked.
const ROUNDS_PER_LOOK: u32 = 64;
/// Limit of the depth of a queue.
const DEPTH_LIMIT: u32 = 1 << 16;

/// One process of a cluster on this host.
///
/// Dropping it closes its connections and removes its socket. If the process is killed instead, the operating system
/// frees its memory, and the [janitor](ShmConfig::janitor), if there is one, removes the socket.
#[derive(Debug)]
pub struct ShmFabric {
    pub(crate) config: ShmConfig,
    /// The life thread. The field is dropped before `control`, so that peers see its mark before the sockets close.
    pub(crate) life: Life,
    pub(crate) data: Data,
    pub(crate) control: Control,
    pub(crate) region_names: HashMap<(ProcessId, Purpose), RegionId>,
    /// One generation for each region, which each revocation increments, followed by this process's life words. Peers
    /// can only read it.
    pub(crate) generations: Arc<Mapping>,
    /// Word 0 states how this process sleeps; word 1 + p changes when process p has flushed to this one. Peers write
    /// it.
    pub(crate) wait_page: Arc<Mapping>,
    /// The words 1 + p as [`poll_hint`](Fabric::poll_hint) last saw them.
    pub(crate) heard: Vec<u64>,
    /// Number of calls of `poll_hint`.
    listened: u32,
    /// Mode in which this process was last armed.
    pub(crate) armed: u64,
    /// `true` if the user may be waiting on the descriptor.
    pub(crate) fd_used: Cell<bool>,
}

impl ShmFabric {
    /// Starts a process of a cluster, so that its peers can connect.
    ///
    /// # Errors
    /// Returns a [`StartError`]. A failed start leaves nothing behind.
    pub fn start(config: ShmConfig) -> Result<ShmFabric, StartError> {
        config.check()?;
        let (seat, listener) = Seat::take(&config.seat())?;
        let wait_bytes = wait_page_bytes(config.processes);
        let wait_fd = memfd::create("stentor-wait", wait_bytes).map_err(system("make the wait page"))?;
        let wait_page = Mapping::shared(wait_fd.as_fd(), wait_bytes as usize / WORD, true);
        let wait_page = Arc::new(wait_page.map_err(system("map the wait page"))?);
        memfd::finish(&wait_fd).map_err(system("seal the wait page"))?;
        let control_words = config.max_regions + u32::from(config.processes);
        let control_fd = memfd::create("stentor-control", u64::from(control_words) * WORD as u64)
            .map_err(system("make the control page"))?;
        let generations = Mapping::shared(control_fd.as_fd(), control_words as usize, false);
        let generations = Arc::new(generations.map_err(system("map the control page"))?);
        memfd::finish_read_only(&control_fd).map_err(system("seal the control page (Linux 5.1 or later has it)"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("make an epoll instance"))?;
        Control::watch(&epoll, &listener).map_err(system("watch the listening socket"))?;
        let life = Life::begin(&generations, &wait_page, config.processes).map_err(system("make an eventfd"))?;
        Control::watch_rings(&epoll, life.event().as_fd()).map_err(system("watch an eventfd"))?;
        let now = Instant::now();
        let control = Control {
            identity: Identity {
                format: FORMAT,
                version: config.version,
                fingerprint: config.fingerprint,
                process: config.me,
                processes: config.processes,
                cluster: config.cluster.clone(),
                name: config.name.clone(),
                life: random()?,
            },
            listener,
            epoll,
            places: seat.places(),
            newcomers: Vec::new(),
            peers: (0..config.processes).map(|_| Peer::default()).collect(),
            events: VecDeque::new(),
            refusals: VecDeque::new(),
            notes: VecDeque::new(),
            shared: [Arc::new(wait_fd), Arc::new(control_fd), Arc::clone(life.event())],
            control_words,
            next_dial: now,
            dial_pause: DIAL_PAUSE.0,
            eager_until: now,
            last_pump: now,
            has_taken_ring: false,
            next_accept: now,
            next_offers: None,
            seat,
        };
        let data = Data::new(capabilities(&config), config.rnr_timeout, config.me, usize::from(config.processes));
        let (armed, fd_used, region_names) = (AWAKE, Cell::new(false), HashMap::new());
        let heard = vec![0; usize::from(config.processes)];
        Ok(ShmFabric {
            config,
            data,
            control,
            region_names,
            generations,
            life,
            wait_page,
            heard,
            listened: 0,
            armed,
            fd_used,
        })
    }

    /// Returns the next refused or failed connection, in either direction. For example, the peer had another version,
    /// cluster or configuration, or sent garbage or memory that cannot be trusted. The newest 64 are kept.
    pub fn next_refusal(&mut self) -> Option<Refusal> {
        self.control.refusals.pop_front()
    }

    /// Returns the next note for the operator other than a refusal: this process's socket was removed, and was
    /// recreated or not. Each note is returned once.
    pub fn next_note(&mut self) -> Option<String> {
        self.control.notes.pop_front()
    }

    /// Returns a path for another socket in the cluster's private directory, for operators. A socket at that path is
    /// removed when this process ends. If this process is killed, its janitor removes the socket.
    #[must_use]
    pub fn beside(&self) -> Beside {
        self.control.seat.beside()
    }

    /// Returns the processes that have flushed to this one since the last call.
    fn look_who_flushed(&mut self) -> PollHint {
        let (mut heard, mut messages) = (PollHint::NOTHING, PollHint::NOTHING);
        let counts = &self.wait_page.words()[1..=self.heard.len()];
        let mut process = ProcessId(0);
        for (count, before) in counts.iter().zip(&mut self.heard) {
            let now = count.load(Ordering::Acquire);
            let changed = std::mem::replace(before, now) ^ now;
            if changed != 0 {
                heard = heard.and(PollHint::from(process));
                if changed >> 32 != 0 {
                    messages = messages.and(PollHint::from(process));
                }
            }
            process.0 = process.0.wrapping_add(1);
        }
        self.data.listen(messages);
        heard
    }

    /// Returns the size of all memory that this process has registered, queues and control pages included, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let regions: u64 = self.data.regions.iter().map(|region| region.spec.bytes).sum();
        let queues: u64 = self.data.qps.iter().map(|qp| self.queue_bytes(qp.config)).sum();
        regions + queues + wait_page_bytes(self.config.processes) + u64::from(self.control.control_words) * WORD as u64
    }

    /// Returns whether the kernel has reported the death of a peer's process, or a peer without a life thread has
    /// closed its connection, and no other process has connected since. The connection may end a little later. Other
    /// threads of the dead process may run for some microseconds, so their stores may still land.
    #[inline]
    #[must_use]
    pub fn has_died(&self, peer: ProcessId) -> bool {
        let known = self.control.peers.get(peer.index());
        known.is_some_and(|known| known.hung_up || known.life.as_ref().is_some_and(LifeWord::is_marked))
    }

    /// Returns the process id of a connected peer, or 0 if it is in a PID namespace that this process cannot see.
    #[must_use]
    pub fn peer_pid(&self, peer: ProcessId) -> Option<i32> {
        self.control.peers.get(peer.index())?.link.as_ref().map(|link| link.pid)
    }
}

impl Drop for ShmFabric {
    fn drop(&mut self) {
        self.data.flush();
    }
}

/// Returns a random number that identifies this start of the process.
fn random() -> Result<u64, StartError> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(system("get a random number"))?;
    Ok(u64::from_le_bytes(random))
}

fn capabilities(config: &ShmConfig) -> Capabilities {
    Capabilities {
        name: "shm",
        ordered_writes: true,
        ordered_bytes: false,
        inline_bytes: INLINE_LIMIT.min(config.message_bytes),
        max_send_depth: DEPTH_LIMIT,
        max_recv_depth: DEPTH_LIMIT,
        max_message_bytes: u64::from(config.message_bytes),
        atomics: true,
        unreliable: true,
        tagged: false,
        masks_find_early: false,
        merges_writes: false,
        loopback: true,
        many_readers: true,
        max_completions: u32::MAX,
        hardware_multicast: false,
        revokes_in_hardware: false,
    }
}

impl Fabric for ShmFabric {
    fn me(&self) -> ProcessId {
        self.config.me
    }

    fn capabilities(&self) -> &Capabilities {
        &self.data.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        self.register_region(spec)
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.data.regions[region.index()].words()
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
        self.data.qps[qp.index()].state
    }

    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.disconnect_qp(qp)
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.reset_qp(qp)
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        self.data.remotes.resolve(peer, purpose)
    }

    #[inline]
    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        self.data.post(qp, request)
    }

    #[inline]
    fn write_inline(
        &mut self,
        qp: QpId,
        id: u64,
        data: &[u8],
        target: RemoteSpan,
        signalled: bool,
    ) -> Result<(), PostError> {
        self.data.write_inline::<false>(qp, id, data, target, signalled)
    }

    #[inline]
    fn write_quietly(
        &mut self,
        qp: QpId,
        id: u64,
        data: &[u8],
        target: RemoteSpan,
        signalled: bool,
    ) -> Result<(), PostError> {
        self.data.write_inline::<true>(qp, id, data, target, signalled)
    }

    #[inline]
    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        self.data.post_recv(qp, local, id)
    }

    fn post_tagged_recv(&mut self, _: QpId, _: Span, _: u64, _: u64, _: u64) -> Result<(), PostError> {
        Err(PostError::Unsupported("tagged receive"))
    }

    #[inline]
    fn flush(&mut self) {
        self.data.flush();
    }

    #[inline]
    fn poll_hint(&mut self) -> PollHint {
        let heard = if self.data.is_quiet() { PollHint::NOTHING } else { PollHint::COMPLETIONS };
        self.listened = self.listened.wrapping_add(1);
        // All queues are checked now and then, so that messages that a peer fails to announce are only delayed.
        let late = self.listened.is_multiple_of(ROUNDS_PER_LOOK);
        self.data.listen(if late { PollHint::ANYBODY } else { PollHint::NOTHING });
        // Most calls find no change. Only if there is one, the changed words are identified.
        let (counts, mut changed) = (&self.wait_page.words()[1..=self.heard.len()], 0);
        for (count, before) in counts.iter().zip(&self.heard) {
            changed |= count.load(Ordering::Acquire) ^ before;
        }
        if changed == 0 { heard } else { heard.and(self.look_who_flushed()) }
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.data.poll(out)
    }

    fn next_event(&mut self) -> Option<Event> {
        self.pump();
        self.control.events.pop_front()
    }

    fn arm(&mut self) {
        self.prepare_sleep();
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.sleep(timeout)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.fd_used.set(true);
        Some(self.control.epoll.as_fd())
    }

    fn waker(&self) -> Waker {
        self.life.waker()
    }
}
