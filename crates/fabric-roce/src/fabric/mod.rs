//! The contract of `stentor-fabric`, on the endpoint: regions and queue pairs by name, connections by bootstrap.
//!
//! Packets move only while the process calls the fabric: [`poll`](stentor_fabric::Fabric::poll),
//! [`wait`](stentor_fabric::Fabric::wait), [`flush`](stentor_fabric::Fabric::flush) or [`RoceFabric::drive`]. There is no
//! NIC and no thread that acknowledges for a process that does not run: one that is stopped for longer than seven
//! transport timeouts (about half a second to two) looks dead to its peers.

mod config;
mod connect;
mod control;
mod hello;
mod link;
mod message;
mod post;
mod regions;
mod wait;

use std::cell::Cell;
use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Heard, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, Span, WaitError, Wake,
    WorkRequest,
};
use stentor_wire::PATH_MTUS;

use crate::driver::{Pcap, Port, PortCounters, Pump};
use crate::endpoint::{Counters, Endpoint};
pub use config::{RoceConfig, StartError};
use connect::Connection;
use control::Control;
pub(crate) use control::nonce;
use hello::Hello;
use regions::Own;

/// The largest inline source, bytes. Copied while posting, so there is no reason for less.
const INLINE_LIMIT: u32 = 1 << 20;
/// The deepest queues.
const DEPTH_LIMIT: u32 = 1 << 16;

/// One process of a cluster on RoCEv2 over UDP sockets.
#[derive(Debug)]
pub struct RoceFabric {
    config: RoceConfig,
    capabilities: Capabilities,
    endpoint: Endpoint,
    pump: Pump,
    control: Control,
    connections: Vec<Connection>,
    regions: Vec<Own>,
    region_names: HashMap<(ProcessId, Purpose), RegionId>,
    remotes: HashMap<(ProcessId, Purpose), RemoteRegion>,
    epoll: OwnedFd,
    /// Whether something landed since [`arm`](Fabric::arm), and since [`listen`](Fabric::listen) last looked.
    rung: bool,
    heard: bool,
    /// A system call failed: said by the next [`wait`](Fabric::wait).
    failure: Option<String>,
    last_pump: Instant,
    fd_used: Cell<bool>,
}

impl RoceFabric {
    /// Starts a process of a cluster: from here on its peers can connect.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: RoceConfig) -> Result<RoceFabric, StartError> {
        let address = config.addresses.get(config.me.index()).copied().flatten();
        let address = address.ok_or(StartError::NoAddress(config.me, config.addresses.len()))?;
        if !PATH_MTUS.contains(&config.mtu) {
            return Err(StartError::Mtu(config.mtu));
        }
        if config.cluster.is_empty() || config.cluster.len() > 64 {
            return Err(StartError::Name(config.cluster));
        }
        let mut port = Port::open(address.ip(), config.mode, u16::from_be_bytes(nonce()))?;
        if config.runs && !config.chances.is_any() {
            port.enable_runs();
        }
        let mut pump = Pump::new(port);
        if let Some(path) = &config.pcap {
            let failed = |source| StartError::Pcap { path: path.clone(), source };
            pump.capture(Pcap::create(path).map_err(failed)?);
        }
        pump.inject(config.chances, config.seed);
        let listen = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let me = Hello {
            version: config.version,
            fingerprint: config.fingerprint,
            process: config.me,
            processes: config.addresses.len() as u16,
            address: address.ip(),
            nonce: [0; 32],
            life: u64::from_be_bytes(nonce()),
            cluster: config.cluster.clone(),
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| StartError::System { what: "make an epoll instance", source: error.into() })?;
        let control = Control::new(me, config.one_life, config.key.clone(), config.addresses.clone(), listener);
        let mut fabric = RoceFabric {
            capabilities: capabilities(&config),
            endpoint: Endpoint::new(),
            pump,
            control,
            connections: Vec::new(),
            regions: Vec::new(),
            region_names: HashMap::new(),
            remotes: HashMap::new(),
            epoll,
            rung: false,
            heard: true,
            failure: None,
            last_pump: Instant::now(),
            fd_used: Cell::new(false),
            config,
        };
        fabric.watch().map_err(|error| StartError::System { what: "watch a socket", source: error.into() })?;
        Ok(fabric)
    }

    /// Takes in what came, lets time pass, sends what is due: what a NIC does by itself.
    pub fn drive(&mut self) {
        if let Err(error) = self.pump.receive(&mut self.endpoint) {
            self.failure.get_or_insert(error.to_string());
        }
        self.pump.send(&mut self.endpoint);
        let landed = self.endpoint.take_landed();
        self.rung |= landed;
        self.heard |= landed;
    }

    /// What happened to packets, by cause.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }

    /// What the kernel did with packets.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        self.pump.port().counters()
    }

    /// The next thing about sending that a person should know: runs or packets that the kernel did not take. Told once of
    /// each place.
    pub fn next_note(&mut self) -> Option<String> {
        self.pump.port_mut().next_note()
    }

    /// Packets that the injectors lost, repeated, reordered and damaged.
    #[must_use]
    pub fn injected(&self) -> [u64; 4] {
        self.pump.injected()
    }

    /// The next connection that was refused, in words. The newest 64 are kept.
    pub fn next_refusal(&mut self) -> Option<String> {
        self.control.refusals.pop_front()
    }

    /// Whether a peer says that another process with this one's id is connected to it.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        self.control.peers.iter().any(|peer| peer.taken)
    }

    /// What became of the capture: an error after which nothing is written to it any more. Told once.
    pub fn next_capture_error(&mut self) -> Option<String> {
        let error = self.pump.pcap_mut()?.next_error()?;
        Some(self.capture_failed(&error))
    }

    /// Writes out what the capture holds back.
    ///
    /// # Errors
    /// What was not told yet, in words.
    pub fn finish_capture(&mut self) -> Result<(), String> {
        let finished = self.pump.pcap_mut().map_or(Ok(()), Pcap::finish);
        finished.map_err(|error| self.capture_failed(&error))
    }

    fn capture_failed(&self, error: &std::io::Error) -> String {
        let path = self.config.pcap.as_deref().unwrap_or(std::path::Path::new(""));
        format!("cannot write the capture {}: {error}; it is incomplete", path.display())
    }

    /// All memory that is registered, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.endpoint.memory().bytes()
    }

    /// Whether a peer is connected.
    #[must_use]
    pub fn is_linked(&self, peer: ProcessId) -> bool {
        peer == self.config.me || peer.index() < self.control.peers.len() && self.control.is_linked(peer)
    }
}

fn capabilities(config: &RoceConfig) -> Capabilities {
    Capabilities {
        name: "roce",
        ordered_writes: true,
        ordered_bytes: true,
        inline_bytes: INLINE_LIMIT.min(config.message_bytes),
        max_send_depth: DEPTH_LIMIT,
        max_recv_depth: DEPTH_LIMIT,
        max_message_bytes: config.message_bytes.into(),
        atomics: true,
        unreliable: true,
        tagged: false,
        loopback: true,
        many_readers: true,
        max_completions: u32::MAX,
        hardware_multicast: false,
        revokes_in_hardware: true,
    }
}

impl Fabric for RoceFabric {
    fn me(&self) -> ProcessId {
        self.config.me
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        self.register_region(spec)
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.endpoint.memory().words(region)
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
        self.reset_qp(qp)
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        self.remotes.get(&(peer, purpose)).copied()
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

    #[inline]
    fn flush(&mut self) {
        self.pump.send(&mut self.endpoint);
    }

    #[inline]
    fn listen(&mut self) -> Heard {
        self.drive();
        if std::mem::take(&mut self.heard) { Heard::ANYBODY } else { Heard::NOTHING }
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.drive();
        let mut count = 0;
        while count < out.len()
            && let Some(completion) = self.endpoint.poll()
        {
            out[count] = completion;
            count += 1;
        }
        count
    }

    fn next_event(&mut self) -> Option<Event> {
        self.pump_control();
        self.control.events.pop_front()
    }

    fn arm(&mut self) {
        self.rung = false;
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.sleep(timeout)
    }

    fn raw_fd(&self) -> Option<i32> {
        self.fd_used.set(true);
        Some(self.epoll.as_raw_fd())
    }
}
