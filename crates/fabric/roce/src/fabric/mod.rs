//! Implements the contract of `stentor-fabric` over UDP sockets: an endpoint and its sockets are the device of a
//! [`NetFabric`].
//!
//! The device has no thread: [`poll`](stentor_fabric::Fabric::poll) and [`wait`](stentor_fabric::Fabric::wait) receive
//! and send packets, and [`flush`](stentor_fabric::Fabric::flush) sends packets. Virtual addresses are offsets: every
//! region begins at 0.

mod config;
mod ends;
mod path_mtu;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;
use stentor_fabric::memory::{WORD, Word};
use stentor_fabric::{
    Access, Capabilities, Completion, OsError, PollHint, PostError, ProcessId, QpConfig, QpId, RegionId, RemoteSpan,
    Span, WorkRequest,
};
use stentor_fabric_net::{Device, Fence, NetConfig, NetFabric, RemoteKey, Remotes, Transport, nonce};
use stentor_switch_host::SwitchSets;
use stentor_wire::PATH_MTUS;

use crate::driver::{Faults, Pcap, Port, PortCounters, Pump, Sharing};
use crate::endpoint::{Counters, Endpoint, ProtectionDomain, Remote, State, Work};
pub use config::{RoceConfig, StartError};
use ends::fresh_qp;
use path_mtu::PathMtus;

/// Name of the fabric.
const NAME: &str = "roce";
/// Maximum length of inline data, in bytes. Inline data is copied when a request is posted, so a smaller limit has no
/// advantage.
const INLINE_LIMIT: u32 = 1 << 20;
/// Maximum depth of queues.
const DEPTH_LIMIT: u32 = 1 << 16;
/// epoll data that identifies the packet socket.
const PACKETS: u64 = 1;
/// Number of rounds (calls of [`take_in`](RoceDevice::take_in)) that follow a sleep and do not read the socket. If the
/// kernel reported packets, the first of these rounds reads the socket nevertheless. A polling loop that finds nothing
/// sleeps again after about this number of rounds. A loop that stays awake notices a packet later, by less than the
/// time of one read.
const SPARED: u32 = 8;
/// Maximum number of attempts to draw a queue pair number that is not in use.
const TRIES: usize = 1000;

/// One process of a cluster on RoCEv2 over UDP sockets.
pub type RoceFabric = NetFabric<RoceDevice>;

/// The endpoint and its sockets.
#[derive(Debug)]
pub struct RoceDevice {
    config: RoceConfig,
    capabilities: Capabilities,
    endpoint: Endpoint,
    pump: Pump,
    /// Keys of the grants, by region and peer.
    keys: HashMap<(RegionId, ProcessId), u32>,
    /// `true` if a write may have landed or a request may have completed since the last call of [`arm`](Device::arm).
    rung: bool,
    /// `true` if a write may have landed or a request may have completed since the last call of
    /// [`poll_hint`](Device::poll_hint).
    heard: bool,
    /// First error of a system call that was not reported yet.
    failure: Option<String>,
    paths: PathMtus,
    /// Number of rounds that still skip the socket read; see [`SPARED`].
    spared: u32,
    /// `true` if packets may wait according to the kernel's last report.
    waits: bool,
}

impl RoceDevice {
    /// Returns the endpoint's counters of packets, by cause.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }

    /// Returns the counters of the kernel's handling of packets.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        self.pump.port().counters()
    }

    /// Returns the next message for the operator. Messages report runs and packets that the kernel refused (each once
    /// per destination), and long packets that a path drops.
    pub fn next_note(&mut self) -> Option<String> {
        self.pump.port_mut().next_note().or_else(|| self.paths.next_note())
    }

    /// Replaces the network's faults, if the configuration permits faults. Otherwise returns `false` and has no effect.
    pub fn set_faults(&mut self, faults: &Faults) -> bool {
        if self.config.faults {
            self.pump.set_faults(faults.clone(), self.config.seed);
        }
        self.config.faults
    }

    /// Returns the numbers of packets that the injectors lost, duplicated, reordered and corrupted.
    #[must_use]
    pub fn injected(&self) -> [u64; 4] {
        self.pump.injected()
    }

    /// Returns the error that stopped the capture, unless it was already returned.
    pub fn next_capture_error(&mut self) -> Option<String> {
        let error = self.pump.pcap_mut()?.next_error()?;
        Some(self.capture_failed(&error))
    }

    /// Writes buffered packets to the capture.
    ///
    /// # Errors
    /// Returns a message for an error of the capture that was not reported yet.
    pub fn finish_capture(&mut self) -> Result<(), String> {
        let finished = self.pump.pcap_mut().map_or(Ok(()), Pcap::finish);
        finished.map_err(|error| self.capture_failed(&error))
    }

    fn capture_failed(&self, error: &std::io::Error) -> String {
        let path = self.config.pcap.as_deref().unwrap_or(std::path::Path::new(""));
        let remedy = OsError::remedy_for(error).map_or(String::new(), |remedy| format!("; {remedy}"));
        format!("cannot write the capture {}: {error}; it is incomplete{remedy}", path.display())
    }

    /// Receives packets. Skips the socket read for some rounds after a sleep; see [`SPARED`].
    fn take_in(&mut self) {
        let waits = std::mem::take(&mut self.waits);
        if self.spared > 0 {
            self.spared -= 1;
            if !waits {
                return;
            }
        }
        if let Err(error) = self.pump.receive(&mut self.endpoint) {
            self.failure.get_or_insert(error.to_string());
        }
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
        merges_writes: true,
        loopback: true,
        many_readers: true,
        max_completions: u32::MAX,
        hardware_multicast: config.switch.is_some(),
        revokes_in_hardware: true,
    }
}

/// Returns the protection domain of a peer's queue pairs and keys.
fn domain(peer: ProcessId) -> ProtectionDomain {
    ProtectionDomain(peer.0.into())
}

impl Device for RoceDevice {
    type Config = RoceConfig;
    type Sets = SwitchSets<Self>;
    type StartError = StartError;

    fn open(net: &NetConfig, config: RoceConfig, epoll: Arc<OwnedFd>) -> Result<(Self, SwitchSets<Self>), StartError> {
        if let Some(mtu) = config.mtu.filter(|mtu| !PATH_MTUS.contains(mtu)) {
            return Err(StartError::Mtu(mtu));
        }
        let entropy = u16::from_be_bytes(nonce());
        let mut port = match &config.sharing {
            Sharing::Beside(junction) => Port::beside(junction, entropy)?,
            Sharing::Alone | Sharing::Main(_) => Port::open(net.own_address()?.ip(), config.mode, entropy)?,
        };
        if config.runs && !config.chances.is_any() && !config.faults {
            port.enable_runs();
        }
        if let Sharing::Main(junction) = &config.sharing {
            port.share(junction);
        }
        let data = epoll::EventData::new_u64(PACKETS);
        let added = epoll::add(&epoll, port.descriptor(), data, epoll::EventFlags::IN);
        added
            .map_err(|error| stentor_fabric_net::StartError::System { what: "watch a socket", source: error.into() })?;
        let mut pump = Pump::new(port);
        if let Some(path) = &config.pcap {
            let failed = |source| StartError::Pcap { path: path.clone(), source };
            pump.capture(Pcap::create(path).map_err(failed)?);
        }
        pump.inject(config.chances, config.seed);
        let sets = SwitchSets::new(config.switch.clone(), net)?;
        let device = RoceDevice {
            capabilities: capabilities(&config),
            config,
            endpoint: Endpoint::new(),
            pump,
            keys: HashMap::new(),
            rung: false,
            heard: true,
            failure: None,
            paths: PathMtus::default(),
            spared: 0,
            waits: false,
        };
        Ok((device, sets))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn make(&mut self, qp: QpId, peer: ProcessId, config: QpConfig) -> Result<(), String> {
        let numbers = self.pump.port().numbers();
        let made = std::iter::repeat_with(|| self.endpoint.create(fresh_qp(&numbers), domain(peer), config));
        let made = made.take(TRIES).flatten().next().ok_or("no free queue pair number was found")?;
        debug_assert_eq!(made, qp);
        Ok(())
    }

    #[inline]
    fn is_alive(&self, qp: QpId) -> bool {
        self.endpoint.state(qp) != Some(State::Error)
    }

    fn register(&mut self, region: RegionId, bytes: u64) -> Result<(), String> {
        let made = self.endpoint.memory_mut().register((bytes / WORD as u64) as usize, 0);
        debug_assert_eq!(made, region);
        Ok(())
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.endpoint.memory().words(region)
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<RemoteKey, String> {
        let entropy = u16::from_be_bytes(nonce());
        let key = self.endpoint.memory_mut().grant(region, domain(peer), access, entropy);
        let key = key.ok_or("all 65536 indices of keys are in use or exhausted")?;
        self.keys.insert((region, peer), key);
        Ok(RemoteKey { key: key.into(), base: 0 })
    }

    /// Revokes a grant. The revocation takes effect at once, because this process itself stores all data that it
    /// acknowledges.
    fn fence(&mut self, region: RegionId, peer: ProcessId) -> Result<Fence, String> {
        if let Some(key) = self.keys.remove(&(region, peer)) {
            self.endpoint.memory_mut().revoke(key);
        }
        Ok(Fence::Holds)
    }

    #[inline]
    fn post(&mut self, remotes: &Remotes, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let remote = |span: &RemoteSpan| {
            let place = remotes.place(&span.region);
            Remote { va: place.base.wrapping_add(span.offset), rkey: place.key as u32 }
        };
        let operation = request.verb.operation(|source| *source, |span| span, remote)?;
        let work = Work { id: request.id, request: operation, signalled: request.signalled, solicited: false };
        self.endpoint.post_send(qp, &work)
    }

    #[inline]
    fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError> {
        self.endpoint.post_receive(qp, span, id)
    }

    #[inline]
    fn flush(&mut self) {
        self.pump.send(&mut self.endpoint);
    }

    #[inline]
    fn poll_hint(&mut self) -> PollHint {
        self.drive();
        if std::mem::take(&mut self.heard) { PollHint::ANYBODY } else { PollHint::NOTHING }
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

    fn arm(&mut self) {
        self.rung = false;
    }

    fn work(&mut self) {
        self.drive();
    }

    fn has_news(&self) -> bool {
        self.rung || self.endpoint.has_completions()
    }

    fn slice(&self, longest: Duration) -> Duration {
        self.pump.idle(&self.endpoint, longest)
    }

    fn woken(&mut self, which: &[u64], complete: bool) {
        // No reads are skipped in two cases. If injectors may hold packets back, the kernel does not report these
        // packets. If another endpoint of this process hands packets over, they may arrive after the kernel's report,
        // and checking for them is cheap.
        let looks = self.pump.injects() || self.pump.port().is_beside();
        self.spared = if looks { 0 } else { SPARED };
        self.waits = !complete || which.contains(&PACKETS);
    }

    fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }
}
