//! Implements the contract of `stentor-fabric` on a libfabric provider, as the device of a [`NetFabric`].
//!
//! Every life of a queue pair has an endpoint of its own. The provider executes WRITE, READ, atomics and tagged
//! messages. A SEND is split into pieces. The pieces arrive in buffers of the receiving end and are copied from there
//! into the receive. The provider's own receives do not suffice: a WRITE_WITH_IMM does not consume one, and a sender
//! would wait for one without a time limit. A request that needs a receive waits at the sender until the receiver has
//! reported one.
//!
//! # Protection
//!
//! The sender refuses requests for which the peer has granted it no access. The peer's provider refuses the operations
//! of a process that skips this check, unless the process guesses a key. Keys are random, except on providers that
//! choose them.
//!
//! The control connections are authenticated, but nothing is encrypted. Traffic on the provider is not authenticated.
//! Each end sends its tokens and keys only to the other end, but a process that learns an endpoint's address can send
//! it tagged messages. Like RDMA itself, this fabric is for trusted networks.
//!
//! # Progress
//!
//! On providers without hardware, data moves only while the process calls the fabric.

mod config;
mod ends;
mod fenced;
mod frame;
mod life;
mod post;
mod queue;
mod regions;
mod work;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, Capabilities, CapabilityMask, Completion, PostError, ProcessId, QpConfig, QpId, RegionId, Source, Span,
    Verb, WorkRequest,
};
use stentor_fabric_net::{
    Device, Fence, MOST_MERGED, NetConfig, NetFabric, NoSets, RemoteKey, Remotes, Transport, Waiting,
};

use crate::domain::Domain;
use crate::info::{Info, has_segments};
use crate::load::Libfabric;
use crate::memory::Registration;
use crate::quirks::Quirks;
pub use config::{OfiConfig, StartError};
use ends::{QUEUE, Shared, Trouble};
use fenced::Fenced;
use queue::Qp;
use regions::{Grant, Revocation, fresh_key};

/// Maximum depth of a queue.
const DEPTH_LIMIT: u32 = 1 << 11;
/// Maximum sleep if completion queues have no descriptors, or if requests make progress only while the process polls.
const LOOKING: Duration = Duration::from_micros(50);

/// One process of a cluster on a libfabric provider.
pub type OfiFabric = NetFabric<OfiDevice>;

/// An open provider with the objects that were created on it.
#[derive(Debug)]
pub struct OfiDevice {
    // Fields are dropped in this order: first endpoints, then registrations.
    ends: Vec<Qp>,
    /// Registrations for this process's own operations if the provider requires them, by region.
    locals: Vec<Option<Registration>>,
    granted: HashMap<(RegionId, ProcessId), Grant>,
    revocations: Vec<Revocation>,
    shared: Shared,
    domain: Arc<Domain>,
    me: ProcessId,
    fence_timeout: Duration,
    mask: CapabilityMask,
    capabilities: Capabilities,
    /// Regions that this process has granted to itself, by key.
    own_keys: HashMap<u64, RegionId>,
    trouble: Trouble,
}

impl OfiDevice {
    /// Returns the provider and device in use.
    #[must_use]
    pub fn provider(&self) -> &Info {
        self.domain.info()
    }

    /// Returns the mask of hidden capabilities.
    #[must_use]
    pub fn mask(&self) -> CapabilityMask {
        self.mask
    }

    /// Returns the reason why connections cannot be established, if it has not been returned since the last endpoint
    /// was created.
    pub fn next_trouble(&mut self) -> Option<String> {
        self.trouble.next()
    }
}

/// Returns the name of the provider, its protocol, and the namespace that its processes must share to reach each other.
fn protocol(info: &Info) -> String {
    let protocol = format!("ofi {} protocol {}", info.provider(), info.protocol());
    match pid_namespace() {
        Some(namespace) if names_by_pid(info.provider()) => format!("{protocol} in PID namespace {namespace}"),
        _ => protocol,
    }
}

/// Returns whether a provider finds a peer's memory by process id. Process ids differ between PID namespaces, so a
/// process in another namespace would find no peer or a wrong process.
fn names_by_pid(provider: &str) -> bool {
    has_segments(provider)
}

/// Returns the number of this process's PID namespace, or `None` if `/proc` does not show it.
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
        // Each life has a completion queue that is large enough for all its outstanding operations.
        max_completions: u32::MAX,
        atomics: can.atomics && !quirks.fetches_nothing,
        unreliable: false,
        tagged: can.tagged,
        masks_find_early: can.tagged && !quirks.masks_miss_unexpected,
        merges_writes: true,
        loopback: true,
        many_readers: true,
        hardware_multicast: false,
        revokes_in_hardware: true,
    }
}

impl Device for OfiDevice {
    type Config = OfiConfig;
    type Sets = NoSets<Self>;
    type StartError = StartError;

    /// Opens a provider. The caller should print the chosen [`provider`](OfiDevice::provider).
    fn open(net: &NetConfig, config: OfiConfig, epoll: Arc<OwnedFd>) -> Result<(Self, NoSets<Self>), StartError> {
        let info = config.choose(net)?;
        let capabilities = capabilities(&config, &info);
        let (depth, wide) = (info.send_depth() as usize, info.immediate_bytes() >= 8);
        let domain = Domain::open(Libfabric::load()?, info)?;
        let shared = Shared {
            ready: VecDeque::new(),
            broken: VecDeque::new(),
            fenced: Fenced::default(),
            answered: Vec::new(),
            memories: Vec::new(),
            rung: false,
            armed: false,
            ordered: capabilities.ordered_writes,
            waits: config.waits,
            depth,
            most_merged: u64::from(MOST_MERGED).min(capabilities.max_message_bytes) as usize,
            rnr_timeout: config.rnr_timeout,
            wide,
            epoll,
        };
        let device = OfiDevice {
            me: net.me,
            ends: Vec::new(),
            locals: Vec::new(),
            granted: HashMap::new(),
            revocations: Vec::new(),
            shared,
            domain,
            fence_timeout: config.fence_timeout,
            capabilities: config.mask.apply(&capabilities),
            mask: config.mask,
            own_keys: HashMap::new(),
            trouble: Trouble::default(),
        };
        Ok((device, NoSets::default()))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the protocol, which must be equal at both ends. It contains the provider's protocol number, because one
    /// provider may support several protocols (`efa` and `efa-direct`). Providers negotiate the version of a protocol
    /// themselves.
    fn protocol(&self) -> String {
        protocol(self.domain.info())
    }

    fn make(&mut self, qp: QpId, peer: ProcessId, config: QpConfig) -> Result<(), String> {
        // If a queue pair could not begin its life, the next one has the same number and replaces it.
        self.ends.truncate(qp.index());
        self.ends.push(Qp::new(qp, peer, config, false));
        Ok(())
    }

    #[inline]
    fn is_alive(&self, qp: QpId) -> bool {
        self.ends[qp.index()].alive
    }

    fn register(&mut self, _: RegionId, bytes: u64) -> Result<(), String> {
        self.make_region(bytes)
    }

    #[inline]
    fn memory(&self, region: RegionId) -> &[Word] {
        self.shared.memories[region.index()].words()
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<RemoteKey, String> {
        self.grant_key(region, peer, access)
    }

    fn fence(&mut self, region: RegionId, peer: ProcessId) -> Result<Fence, String> {
        Ok(self.ask_to_leave(region, peer))
    }

    fn next_fence(&mut self) -> Option<Waiting> {
        self.next_revocation()
    }

    fn has_fences(&self) -> bool {
        !self.revocations.is_empty()
    }

    #[inline]
    fn post(&mut self, remotes: &Remotes, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let end = &self.ends[qp.index()];
        if end.is_full() {
            return Err(PostError::SendQueueFull { qp, depth: end.config.send_depth });
        }
        if end.peer == self.me {
            return self.post_to_itself(remotes, qp, request);
        }
        if let Verb::TaggedSend { source: Source::Inline(data), tag } = &request.verb
            && self.ends[qp.index()].inject_tagged(data, *tag, (request.id, request.signalled))
        {
            return Ok(());
        }
        let work = self.work_of(remotes, qp, &request.verb);
        let end = &mut self.ends[qp.index()];
        end.push(request.id, request.verb.opcode(), request.signalled, work);
        if !end.may_wait(self.shared.most_merged) {
            end.advance(&mut self.shared);
        }
        Ok(())
    }

    #[inline]
    fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError> {
        let end = &mut self.ends[qp.index()];
        if end.receives_full() {
            return Err(PostError::RecvQueueFull { qp, depth: end.config.recv_depth });
        }
        end.push_receive(id, span);
        Ok(())
    }

    fn post_tagged_receive(
        &mut self,
        qp: QpId,
        span: Span,
        (tag, ignore): (u64, u64),
        id: u64,
    ) -> Result<(), PostError> {
        let local = self.local(span);
        let end = &mut self.ends[qp.index()];
        for _ in 0..16 {
            if end.push_tagged(id, local, tag, ignore) {
                return Ok(());
            }
            end.drive(&mut self.shared, &mut []);
        }
        Err(PostError::RecvQueueFull { qp, depth: end.config.recv_depth })
    }

    fn cancel_tagged_receive(&mut self, qp: QpId, id: u64) {
        self.ends[qp.index()].cancel_tagged(id);
    }

    #[inline]
    fn flush(&mut self) {
        self.advance();
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        // Driving also posts requests that could not be posted before.
        let mut count = self.drive_into(out);
        while count < out.len()
            && let Some((completion, frees)) = self.shared.ready.pop_front()
        {
            let end = &mut self.ends[completion.qp.index()];
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

    fn arm(&mut self) {
        // Query the counters of landed writes once, so that only later writes set `rung`.
        self.ends.iter_mut().filter_map(|qp| qp.life.as_mut()).for_each(|life| _ = life.has_landed());
        // `may_wait` resets descriptors that are already readable.
        for _ in 0..4 {
            self.drive();
            if self.may_wait() {
                break;
            }
        }
        (self.shared.rung, self.shared.armed) = (false, true);
    }

    fn begin_wait(&mut self) {
        self.shared.armed = true;
        self.advance();
    }

    fn work(&mut self) {
        self.drive();
    }

    fn has_news(&self) -> bool {
        self.shared.rung || !self.shared.ready.is_empty()
    }

    fn slice(&self, longest: Duration) -> Duration {
        if !self.has_queue_descriptors() || self.ends.iter().any(|qp| qp.is_busy()) {
            LOOKING.min(longest)
        } else if self.may_wait() {
            longest
        } else {
            // Completions are already queued, so the process must not sleep.
            Duration::ZERO
        }
    }

    fn woken(&mut self, which: &[u64], complete: bool) {
        self.shared.rung |= !complete || which.contains(&QUEUE);
    }

    fn end_wait(&mut self) {
        self.shared.armed = false;
    }

    /// Returns `false` if completion queues have no descriptors, because the process then cannot wait for landed
    /// writes.
    fn has_descriptors(&self) -> bool {
        self.has_queue_descriptors()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_providers_with_pid_addresses_require_one_pid_namespace() {
        assert!(names_by_pid("shm") && names_by_pid("ofi_rxm;shm"));
        assert!(!names_by_pid("tcp") && !names_by_pid("efa") && !names_by_pid("ofi_rxd;udp"));
        let namespace = pid_namespace().unwrap();
        assert!(!namespace.is_empty() && namespace.bytes().all(|byte| byte.is_ascii_digit()), "{namespace}");
    }
}
