//! The contract of `stentor-fabric`, on the endpoint: regions and queue pairs by name, connections by bootstrap.
//!
//! Packets move only while the process calls the fabric: [`poll`](stentor_fabric::Fabric::poll),
//! [`wait`](stentor_fabric::Fabric::wait), [`flush`](stentor_fabric::Fabric::flush) or [`RoceFabric::drive`]. There is no
//! NIC and no thread that acknowledges for a process that does not run: one that is stopped for longer than seven
//! transport timeouts (about half a second to two) looks dead to its peers.

mod config;
mod connect;
mod net;
mod post;
mod regions;
mod sets;
mod wait;

use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use stentor_bootstrap::{Bootstrap, Ends, nonce};
use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Heard, OsError, PostError, ProcessId,
    Purpose, QpConfig, QpId, QpState, Refusal, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, SetSpec,
    SetWrite, Span, WaitError, Wake, WorkRequest,
};
use stentor_wire::PATH_MTUS;

use crate::driver::{Faults, Pcap, Port, PortCounters, Pump};
use crate::endpoint::{Counters, Endpoint};
pub use config::{RoceConfig, StartError};
use net::Net;
use regions::Own;

/// What it is called.
const NAME: &str = "roce";
/// The largest inline source, bytes. Copied while posting, so there is no reason for less.
const INLINE_LIMIT: u32 = 1 << 20;
/// The deepest queues.
const DEPTH_LIMIT: u32 = 1 << 16;

/// One process of a cluster on RoCEv2 over UDP sockets.
#[derive(Debug)]
pub struct RoceFabric {
    capabilities: Capabilities,
    net: Net,
    bootstrap: Bootstrap,
    regions: Vec<Own>,
    region_names: HashMap<(ProcessId, Purpose), RegionId>,
    epoll: OwnedFd,
    /// How many sockets there were ever when they were added to the epoll instance.
    watched: Option<u64>,
    last_pump: Instant,
    /// The control plane was looked at in the sleep that has just ended: the next look at its events need not do it again.
    has_pumped: bool,
    /// Whether a socket of the control plane has something that was not looked at.
    is_called: bool,
    fd_used: Cell<bool>,
}

impl RoceFabric {
    /// Starts a process of a cluster: from here on its peers can connect.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: RoceConfig) -> Result<RoceFabric, StartError> {
        if !PATH_MTUS.contains(&config.mtu) {
            return Err(StartError::Mtu(config.mtu));
        }
        let no_address = stentor_bootstrap::StartError::NoAddress(config.me, config.addresses.len());
        let address = config.addresses.get(config.me.index()).copied().flatten().ok_or(no_address)?;
        let mut port = Port::open(address.ip(), config.mode, u16::from_be_bytes(nonce()))?;
        if config.runs && !config.chances.is_any() && !config.faults {
            port.enable_runs();
        }
        let mut pump = Pump::new(port);
        if let Some(path) = &config.pcap {
            let failed = |source| StartError::Pcap { path: path.clone(), source };
            pump.capture(Pcap::create(path).map_err(failed)?);
        }
        pump.inject(config.chances, config.seed);
        let bootstrap = Bootstrap::start(stentor_bootstrap::Config {
            fabric: NAME.to_owned(),
            cluster: config.cluster.clone(),
            key: config.key.clone(),
            fingerprint: config.fingerprint,
            version: config.version,
            me: config.me,
            addresses: config.addresses.clone(),
            names: config.names.clone(),
            one_life: config.one_life,
            switch: config.switch.clone(),
        })?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| StartError::System { what: "make an epoll instance", source: error.into() })?;
        let capabilities = capabilities(&config);
        let endpoint = Endpoint::new();
        let mut fabric = RoceFabric {
            capabilities,
            net: Net { config, endpoint, pump, rung: false, heard: true, failure: None, spared: 0, waits: false },
            bootstrap,
            regions: Vec::new(),
            region_names: HashMap::new(),
            epoll,
            watched: None,
            last_pump: Instant::now(),
            has_pumped: false,
            is_called: false,
            fd_used: Cell::new(false),
        };
        fabric.watch().map_err(|error| StartError::System { what: "watch a socket", source: error.into() })?;
        Ok(fabric)
    }

    /// Takes in what came, lets time pass, sends what is due: what a NIC does by itself.
    pub fn drive(&mut self) {
        self.net.drive();
    }

    /// What happened to packets, by cause.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.net.endpoint.counters()
    }

    /// What the kernel did with packets.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        self.net.pump.port().counters()
    }

    /// The next thing about sending that a person should know: runs or packets that the kernel did not take. Told once of
    /// each place.
    pub fn next_note(&mut self) -> Option<String> {
        self.net.pump.port_mut().next_note()
    }

    /// The next thing about the switch that a person should know: that it can be used, or why not. Told once.
    pub fn next_switch_note(&mut self) -> Option<String> {
        self.bootstrap.next_switch_note()
    }

    /// Replaces the network's faults, if the configuration allows it. Returns false, and does nothing, where the
    /// configuration does not allow it.
    pub fn set_faults(&mut self, faults: &Faults) -> bool {
        let Net { config, pump, .. } = &mut self.net;
        if config.faults {
            pump.set_faults(faults.clone(), config.seed);
        }
        config.faults
    }

    /// Packets that the injectors lost, repeated, reordered and damaged.
    #[must_use]
    pub fn injected(&self) -> [u64; 4] {
        self.net.pump.injected()
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

    /// The next thing about names and addresses that a person should know.
    pub fn next_name_note(&mut self) -> Option<String> {
        self.bootstrap.next_name_note()
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

    /// What became of the capture: an error after which nothing is written to it any more. Told once.
    pub fn next_capture_error(&mut self) -> Option<String> {
        let error = self.net.pump.pcap_mut()?.next_error()?;
        Some(self.capture_failed(&error))
    }

    /// Writes out what the capture holds back.
    ///
    /// # Errors
    /// What was not told yet, in words.
    pub fn finish_capture(&mut self) -> Result<(), String> {
        let finished = self.net.pump.pcap_mut().map_or(Ok(()), Pcap::finish);
        finished.map_err(|error| self.capture_failed(&error))
    }

    fn capture_failed(&self, error: &std::io::Error) -> String {
        let path = self.net.config.pcap.as_deref().unwrap_or(std::path::Path::new(""));
        let remedy = OsError::remedy_for(error).map_or(String::new(), |remedy| format!("; {remedy}"));
        format!("cannot write the capture {}: {error}; it is incomplete{remedy}", path.display())
    }

    /// All memory that is registered, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.net.endpoint.memory().bytes()
    }

    /// Whether a peer is connected.
    #[must_use]
    pub fn is_linked(&self, peer: ProcessId) -> bool {
        self.bootstrap.is_linked(peer)
    }
}

fn capabilities(config: &RoceConfig) -> Capabilities {
    Capabilities {
        name: NAME,
        ordered_writes: true,
        ordered_bytes: true,
        inline_bytes: INLINE_LIMIT.min(config.message_bytes),
        max_send_depth: DEPTH_LIMIT,
        max_recv_depth: DEPTH_LIMIT,
        max_message_bytes: config.message_bytes.into(),
        atomics: true,
        unreliable: true,
        tagged: false,
        masks_find_early: false,
        loopback: true,
        many_readers: true,
        max_completions: u32::MAX,
        hardware_multicast: config.switch.is_some(),
        revokes_in_hardware: true,
    }
}

impl Fabric for RoceFabric {
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
        self.net.endpoint.memory().words(region)
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

    #[inline]
    fn flush(&mut self) {
        self.net.pump.send(&mut self.net.endpoint);
    }

    #[inline]
    fn listen(&mut self) -> Heard {
        self.drive();
        if std::mem::take(&mut self.net.heard) { Heard::ANYBODY } else { Heard::NOTHING }
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.drive();
        if self.bootstrap.has_sets() {
            return self.poll_with_sets(out);
        }
        let mut count = 0;
        while count < out.len()
            && let Some(completion) = self.net.endpoint.poll()
        {
            out[count] = completion;
            count += 1;
        }
        count
    }

    fn next_event(&mut self) -> Option<Event> {
        if !std::mem::take(&mut self.has_pumped) {
            self.pump_control();
        }
        self.bootstrap.next_event()
    }

    fn arm(&mut self) {
        self.net.rung = false;
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.sleep(timeout)
    }

    fn raw_fd(&self) -> Option<i32> {
        self.fd_used.set(true);
        Some(self.epoll.as_raw_fd())
    }
}
