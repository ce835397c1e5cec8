//! The contract of `stentor-fabric`, on one provider.
//!
//! Every life of a queue pair has an endpoint of its own. WRITE, READ, atomics and tagged messages are the provider's; SENDs go
//! in pieces into memory of the receiving end, and from there into the receive (a copy), because the provider's receives know
//! neither WRITE_WITH_IMM nor budgets. A request that needs a receive waits at the sender until the receiver has told of one.
//!
//! What a peer would refuse is refused here, by what it has granted; its provider refuses the rest, by keys that nobody guesses.
//! Data moves only while the process calls the fabric, on providers that have no hardware. The bootstrap is authenticated; what
//! goes over the provider is not, nor is it encrypted: frames and keys are known to the two ends only, but who learns an
//! endpoint's address can send tagged messages to it. For networks that are trusted, like RDMA itself.

mod config;
mod frame;
mod life;
mod net;
mod post;
mod queue;
mod regions;
mod wait;

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use stentor_bootstrap::{self as bootstrap, Bootstrap, Ends};
use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpKind, QpState, Refusal, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, Span,
    WaitError, Wake, WorkRequest,
};

use crate::domain::Domain;
use crate::info::Info;
use crate::load::Libfabric;
use crate::quirks::Quirks;
use crate::segments::has_segments;
pub use config::{OfiConfig, StartError};
use net::{Net, Shared, Trouble};
use queue::Qp;
use regions::{Own, Revocation, fresh_key};

/// The deepest queues.
const DEPTH_LIMIT: u32 = 1 << 11;

/// One process of a cluster on a provider of libfabric.
#[derive(Debug)]
pub struct OfiFabric {
    // Dropped in this order: endpoints, then registrations.
    net: Net,
    config: OfiConfig,
    capabilities: Capabilities,
    bootstrap: Bootstrap,
    regions: Vec<Own>,
    region_names: HashMap<(ProcessId, Purpose), RegionId>,
    /// Regions that this process has granted to itself, by key.
    own_keys: HashMap<u64, RegionId>,
    revocations: Vec<Revocation>,
    /// Those of which nobody is told.
    silent: Vec<(RegionId, ProcessId)>,
    /// A system call failed: said by the next [`wait`](Fabric::wait).
    failure: Option<String>,
    last_pump: Instant,
}

impl OfiFabric {
    /// Starts a process of a cluster: from here on its peers can connect. [`provider`](OfiFabric::provider) says which one was
    /// taken: print it.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: OfiConfig) -> Result<OfiFabric, StartError> {
        let info = config.choose()?;
        let capabilities = capabilities(&config, &info);
        let (depth, wide) = (info.send_depth() as usize, info.immediate_bytes() >= 8);
        let bootstrap = Bootstrap::start(bootstrap::Config {
            fabric: carrier(&info),
            cluster: config.cluster.clone(),
            key: config.key.clone(),
            fingerprint: config.fingerprint,
            version: config.version,
            me: config.me,
            addresses: config.addresses.clone(),
            names: config.names.clone(),
            one_life: config.one_life,
            switch: None,
        })?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| StartError::System { what: "make an epoll instance", source: error.into() })?;
        let domain = Domain::open(Libfabric::load()?, info)?;
        let shared = Shared {
            ready: VecDeque::new(),
            broken: VecDeque::new(),
            fenced: HashSet::new(),
            answered: Vec::new(),
            memories: Vec::new(),
            rung: false,
            armed: false,
            ordered: capabilities.ordered_writes,
            waits: config.waits,
            depth,
            rnr_timeout: config.rnr_timeout,
            wide,
            epoll,
        };
        let mut fabric = OfiFabric {
            net: Net { ends: Vec::new(), shared, domain, me: config.me, trouble: Trouble::default() },
            config,
            capabilities,
            bootstrap,
            regions: Vec::new(),
            region_names: HashMap::new(),
            own_keys: HashMap::new(),
            revocations: Vec::new(),
            silent: Vec::new(),
            failure: None,
            last_pump: Instant::now(),
        };
        fabric.watch().map_err(|error| StartError::System { what: "watch a socket", source: error.into() })?;
        Ok(fabric)
    }

    /// The provider that is used, and its device.
    #[must_use]
    pub fn provider(&self) -> &Info {
        self.net.domain.info()
    }

    /// Lets the provider work: what a card does by itself.
    pub fn drive(&mut self) {
        self.net.drive();
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

    /// Returns why connections cannot be made again, once until one can.
    pub fn next_trouble(&mut self) -> Option<String> {
        self.net.trouble.next()
    }

    /// Whether a peer says that another process with this one's id is connected to it.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        self.bootstrap.is_displaced()
    }

    /// Whether a peer is connected.
    #[must_use]
    pub fn is_linked(&self, peer: ProcessId) -> bool {
        self.bootstrap.is_linked(peer)
    }

    /// All memory that is registered for regions, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.net.shared.memories.iter().map(|memory| memory.bytes()).sum()
    }

    fn pump_control(&mut self) {
        self.last_pump = Instant::now();
        self.bootstrap.pump(&mut self.net);
        self.settle_revocations();
        if let Err(error) = self.watch() {
            self.failure.get_or_insert(error.to_string());
        }
    }
}

/// What two processes must have in common. The bootstrap compares it, and refuses who has another. One provider may speak two
/// protocols (`efa` and `efa-direct`); versions of one protocol are between the providers.
fn carrier(info: &Info) -> String {
    let carrier = format!("ofi {} protocol {}", info.provider(), info.protocol());
    match pid_namespace() {
        Some(namespace) if names_by_pid(info.provider()) => format!("{carrier} in PID namespace {namespace}"),
        _ => carrier,
    }
}

/// Whether a provider finds the memory of a peer by its process id, which is another one in every PID namespace: across them
/// processes never meet, or meet a stranger.
fn names_by_pid(provider: &str) -> bool {
    has_segments(provider)
}

/// The number of this process's PID namespace; `None` where `/proc` does not tell.
fn pid_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(link.to_str()?.trim_matches(|c: char| !c.is_ascii_digit()).to_owned())
}

fn capabilities(config: &OfiConfig, info: &Info) -> Capabilities {
    let (quirks, can, orders) = (Quirks::of(info), info.can(), info.orders());
    let message_bytes = u64::from(config.message_bytes).min(info.message_bytes());
    Capabilities {
        name: "ofi",
        ordered_writes: orders.write_after_write_bytes >= message_bytes,
        ordered_bytes: false,
        inline_bytes: life::INLINE as u32,
        max_send_depth: DEPTH_LIMIT,
        max_recv_depth: DEPTH_LIMIT.min(info.recv_depth()),
        max_message_bytes: message_bytes,
        // Each life has a queue that holds all that it may have outstanding.
        max_completions: u32::MAX,
        atomics: can.atomics && !quirks.fetches_nothing,
        unreliable: false,
        tagged: can.tagged,
        masks_find_early: can.tagged && !quirks.masks_miss_unexpected,
        loopback: true,
        many_readers: true,
        hardware_multicast: false,
        revokes_in_hardware: true,
    }
}

impl Fabric for OfiFabric {
    fn me(&self) -> ProcessId {
        self.net.me
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        self.register_region(spec)
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.net.shared.memories[region.index()].words()
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError> {
        self.grant_region(region, peer, access)
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        self.revoke_region(region, peer)
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        if config.kind == QpKind::Unreliable {
            return Err(ConnectError::NoUnreliable);
        }
        let Capabilities { max_send_depth, max_recv_depth, .. } = self.capabilities;
        let depths =
            [("send queue", config.send_depth, max_send_depth), ("receive queue", config.recv_depth, max_recv_depth)];
        for (what, asked, limit) in depths {
            if asked > limit {
                return Err(ConnectError::TooDeep { what, asked, limit });
            }
        }
        self.bootstrap.connect(&mut self.net, (peer, service), config, |net, qp| {
            // A number that is given again takes the place of one whose life did not begin.
            net.ends.truncate(qp.index());
            net.ends.push(Qp::new(qp, peer, config, false));
            Ok(())
        })
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

    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        self.post_tagged(qp, local, (tag, ignore), id)
    }

    fn cancel_tagged_recv(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receives"));
        }
        let end = self.net.ends.get_mut(qp.index()).ok_or(PostError::UnknownQp(qp))?;
        end.cancel_tagged(id);
        Ok(())
    }

    #[inline]
    fn flush(&mut self) {
        self.net.advance();
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        // Posts what could not be posted before, too.
        let mut count = self.net.drive_into(out);
        while count < out.len()
            && let Some((completion, frees)) = self.net.shared.ready.pop_front()
        {
            let end = &mut self.net.ends[completion.qp.index()];
            if let Some((life, number)) = frees
                && end.lives == life
            {
                end.free_up_to(number);
            }
            out[count] = completion;
            count += 1;
        }
        count
    }

    fn next_event(&mut self) -> Option<Event> {
        if !self.bootstrap.has_events() {
            self.pump_control();
        }
        self.bootstrap.next_event()
    }

    fn arm(&mut self) {
        // What lands from here on is news.
        self.net.ends.iter_mut().filter_map(|qp| qp.life.as_mut()).for_each(|life| _ = life.has_landed());
        // What the descriptors have signalled already is taken back by asking.
        for _ in 0..4 {
            self.net.drive();
            if self.net.may_wait() {
                break;
            }
        }
        (self.net.shared.rung, self.net.shared.armed) = (false, true);
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.sleep(timeout)
    }

    fn raw_fd(&self) -> Option<i32> {
        // Without descriptors of completion queues nobody could wait for what lands.
        self.net.has_descriptors().then(|| self.net.shared.epoll.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_providers_that_name_peers_by_pid_are_bound_to_a_pid_namespace() {
        assert!(names_by_pid("shm") && names_by_pid("ofi_rxm;shm"));
        assert!(!names_by_pid("tcp") && !names_by_pid("efa") && !names_by_pid("ofi_rxd;udp"));
        let namespace = pid_namespace().unwrap();
        assert!(!namespace.is_empty() && namespace.bytes().all(|byte| byte.is_ascii_digit()), "{namespace}");
    }
}
