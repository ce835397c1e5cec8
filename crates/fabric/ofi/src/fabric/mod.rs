//! The contract of `stentor-fabric`, on one provider: its endpoints as the device of a [`NetFabric`].
//!
//! Every life of a queue pair has an endpoint of its own. WRITE, READ, atomics and tagged messages are the provider's; SENDs go
//! in pieces into memory of the receiving end, and from there into the receive (a copy), because the provider's receives know
//! neither WRITE_WITH_IMM nor budgets. A request that needs a receive waits at the sender until the receiver has told of one.
//!
//! What a peer would refuse is refused here, by what it has granted; its provider refuses the rest, by keys that nobody guesses.
//! Data moves only while the process calls the fabric, on providers that have no hardware. The control connections are
//! authenticated; what goes over the provider is not, nor is it encrypted: frames and keys are known to the two ends only, but
//! who learns an endpoint's address can send tagged messages to it. For networks that are trusted, like RDMA itself.

mod config;
mod ends;
mod frame;
mod life;
mod post;
mod queue;
mod regions;
mod work;

use std::collections::{HashMap, HashSet, VecDeque};
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
use queue::Qp;
use regions::{Grant, Revocation, fresh_key};

/// The deepest queues.
const DEPTH_LIMIT: u32 = 1 << 11;
/// The longest sleep where completion queues have no descriptor: then somebody must look.
const LOOKING: Duration = Duration::from_micros(50);

/// One process of a cluster on a provider of libfabric.
pub type OfiFabric = NetFabric<OfiDevice>;

/// The provider, with all that was made of it.
#[derive(Debug)]
pub struct OfiDevice {
    // Dropped in this order: endpoints, then registrations.
    ends: Vec<Qp>,
    /// For operations of this process, where the provider wants them; by region.
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
    /// Returns the provider that is used, and its device.
    #[must_use]
    pub fn provider(&self) -> &Info {
        self.domain.info()
    }

    /// Returns what is hidden of the provider's capabilities.
    #[must_use]
    pub fn mask(&self) -> CapabilityMask {
        self.mask
    }

    /// Returns why connections cannot be made again, once until one can.
    pub fn next_trouble(&mut self) -> Option<String> {
        self.trouble.next()
    }
}

/// Names the provider and its protocol, and what else its processes must share to reach each other.
fn protocol(info: &Info) -> String {
    let protocol = format!("ofi {} protocol {}", info.provider(), info.protocol());
    match pid_namespace() {
        Some(namespace) if names_by_pid(info.provider()) => format!("{protocol} in PID namespace {namespace}"),
        _ => protocol,
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

    /// Opens a provider. [`provider`](OfiDevice::provider) says which one was taken: print it.
    fn open(net: &NetConfig, config: OfiConfig, epoll: Arc<OwnedFd>) -> Result<(Self, NoSets<Self>), StartError> {
        let info = config.choose(net)?;
        let capabilities = capabilities(&config, &info);
        let (depth, wide) = (info.send_depth() as usize, info.immediate_bytes() >= 8);
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

    /// One provider may speak two protocols (`efa` and `efa-direct`); versions of one protocol are between the providers.
    fn protocol(&self) -> String {
        protocol(self.domain.info())
    }

    fn make(&mut self, qp: QpId, peer: ProcessId, config: QpConfig) -> Result<(), String> {
        // A number that is given again takes the place of one whose life did not begin.
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
        // Posts what could not be posted before, too.
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
        // What lands from here on is news.
        self.ends.iter_mut().filter_map(|qp| qp.life.as_mut()).for_each(|life| _ = life.has_landed());
        // What the descriptors have signalled already is taken back by asking.
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
            // Something is there already.
            Duration::ZERO
        }
    }

    fn woken(&mut self, which: &[u64], complete: bool) {
        self.shared.rung |= !complete || which.contains(&QUEUE);
    }

    fn end_wait(&mut self) {
        self.shared.armed = false;
    }

    /// Without descriptors of completion queues nobody could wait for what lands.
    fn has_descriptors(&self) -> bool {
        self.has_queue_descriptors()
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
