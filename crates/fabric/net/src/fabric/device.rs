//! The interface of a device, which moves the data of a fabric between hosts.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, Capabilities, Completion, PollHint, PostError, ProcessId, QpConfig, QpId, RegionId, Span, WorkRequest,
};

use crate::{NetConfig, RemoteKey, Remotes, Sets, StartError, Transport};

/// The state of a revoked grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// No data of the peer lands in the region any more.
    Holds,
    /// Data of the peer may still land. [`Device::next_fence`] reports when that has ended.
    Waits,
}

/// The result of a fence that [`Device::fence`] left waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// The fence holds now.
    Holds(RegionId, ProcessId),
    /// The fence takes too long: the fabric must break all queue pairs to this peer. After that the fence holds.
    Late(ProcessId),
}

/// A device that moves the data of a [`NetFabric`](super::NetFabric): queue pairs, memory that peers use, polling and
/// waiting.
///
/// The device need not check the arguments of most calls. The fabric ensures that queue pairs exist, that local spans
/// lie inside their regions, and that requests are posted only to queue pairs that are ready.
/// [`memory`](Device::memory) alone may be called for a region that does not exist, and panics. The fabric assigns the
/// ids of queue pairs and regions, counted from 0.
///
/// # Call order
/// [`open`](Device::open) is called first. [`make`](Device::make) or [`make_set`](Device::make_set) precedes every
/// other call for a queue pair, and [`register`](Device::register) precedes every other call for a region that exists.
/// In each life of a queue pair, [`begin`](crate::Transport::begin), [`meet`](crate::Transport::meet) and
/// [`ready`](crate::Transport::ready) are called in this order. A life ends with [`fail`](crate::Transport::fail), or
/// when the queue pair breaks by itself, which [`next_broken`](crate::Transport::next_broken) reports once.
///
/// # Example
/// A device without a network: a process connects to itself and writes inline data to its own regions. The shortest
/// device that reaches other hosts is that of `stentor-fabric-roce`.
///
/// ```
/// use std::collections::VecDeque;
/// use std::net::Ipv4Addr;
/// use std::os::fd::OwnedFd;
/// use std::sync::Arc;
///
/// use stentor_fabric::memory::{Ordering, WORD, Word};
/// use stentor_fabric::{
///     Access, Capabilities, Completion, Event, Fabric, Opcode, PostError, ProcessId, Purpose, QpConfig, QpId, RegionId,
///     RegionSpec, RemoteSpan, Service, Source, Span, Status, Verb, WorkRequest,
/// };
/// use stentor_fabric_net::{
///     Device, End, Fence, NetConfig, NetFabric, NoSets, RemoteKey, Remotes, StartError, Transport,
/// };
///
/// struct Loopback {
///     capabilities: Capabilities,
///     /// Memory by region. The key of a grant of region n is n + 1.
///     regions: Vec<Box<[Word]>>,
///     /// `true` for queue pairs that are alive.
///     pairs: Vec<bool>,
///     completions: VecDeque<Completion>,
/// }
///
/// impl Transport for Loopback {
///     // There is no other process, so the address of an end carries no information.
///     fn begin(&mut self, qp: QpId) -> Result<End, String> {
///         self.pairs[qp.index()] = true;
///         Ok(End::Opaque(vec![qp.0 as u8]))
///     }
///
///     fn meet(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
///         Ok(())
///     }
///
///     fn ready(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
///         Ok(())
///     }
///
///     fn drive(&mut self) {}
///
///     // Writes execute while they are posted, so no outstanding request could fail.
///     fn fail(&mut self, qp: QpId, _: Status) {
///         self.pairs[qp.index()] = false;
///     }
///
///     fn next_broken(&mut self) -> Option<QpId> {
///         None
///     }
/// }
///
/// impl Device for Loopback {
///     type Config = ();
///     type Sets = NoSets<Self>;
///     type StartError = StartError;
///
///     fn open(_: &NetConfig, (): (), _: Arc<OwnedFd>) -> Result<(Self, NoSets<Self>), StartError> {
///         let capabilities = Capabilities {
///             name: "loopback",
///             ordered_writes: true,
///             ordered_bytes: true,
///             inline_bytes: 4096,
///             max_send_depth: 16,
///             max_recv_depth: 0,
///             max_message_bytes: 4096,
///             max_completions: u32::MAX,
///             atomics: false,
///             unreliable: false,
///             tagged: false,
///             masks_find_early: false,
///             merges_writes: false,
///             loopback: true,
///             many_readers: false,
///             hardware_multicast: false,
///             revokes_in_hardware: true,
///         };
///         let device =
///             Loopback { capabilities, regions: Vec::new(), pairs: Vec::new(), completions: VecDeque::new() };
///         Ok((device, NoSets::default()))
///     }
///
///     fn capabilities(&self) -> &Capabilities {
///         &self.capabilities
///     }
///
///     fn make(&mut self, qp: QpId, _: ProcessId, _: QpConfig) -> Result<(), String> {
///         // An id that is passed again replaces a queue pair whose life did not begin.
///         self.pairs.truncate(qp.index());
///         self.pairs.push(false);
///         Ok(())
///     }
///
///     fn is_alive(&self, qp: QpId) -> bool {
///         self.pairs[qp.index()]
///     }
///
///     fn register(&mut self, _: RegionId, bytes: u64) -> Result<(), String> {
///         self.regions.push((0..bytes / WORD as u64).map(|_| Word::new(0)).collect());
///         Ok(())
///     }
///
///     fn memory(&self, region: RegionId) -> &[Word] {
///         &self.regions[region.index()]
///     }
///
///     fn grant(&mut self, region: RegionId, _: ProcessId, _: Access) -> Result<RemoteKey, String> {
///         Ok(RemoteKey { key: u64::from(region.0) + 1, base: 0 })
///     }
///
///     // The fabric drops the grant, and no write is in flight.
///     fn fence(&mut self, _: RegionId, _: ProcessId) -> Result<Fence, String> {
///         Ok(Fence::Holds)
///     }
///
///     fn post(&mut self, remotes: &Remotes, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
///         let Verb::Write { source: Source::Inline(data), target } = request.verb else {
///             return Err(PostError::Unsupported("anything but inline writes"));
///         };
///         let region = remotes.place(&target.region).key as usize - 1;
///         let words = &self.regions[region][target.offset as usize / WORD..];
///         for (word, bytes) in words.iter().zip(data.as_chunks::<WORD>().0) {
///             word.store(u64::from_ne_bytes(*bytes), Ordering::Release);
///         }
///         if request.signalled {
///             let (opcode, status) = (Opcode::Write, Status::Success);
///             let done = Completion { qp, id: request.id, opcode, status, bytes: 0, imm: None, tag: 0 };
///             self.completions.push_back(done);
///         }
///         Ok(())
///     }
///
///     fn post_receive(&mut self, _: QpId, _: Span, _: u64) -> Result<(), PostError> {
///         Err(PostError::Unsupported("receives"))
///     }
///
///     fn poll(&mut self, out: &mut [Completion]) -> usize {
///         let count = out.len().min(self.completions.len());
///         out.iter_mut().zip(self.completions.drain(..count)).for_each(|(to, done)| *to = done);
///         count
///     }
///
///     fn arm(&mut self) {}
///
///     fn has_news(&self) -> bool {
///         !self.completions.is_empty()
///     }
///
///     fn woken(&mut self, _: &[u64], _: bool) {}
/// }
///
/// let me = ProcessId(0);
/// let net = NetConfig::new("example", me, vec![Some((Ipv4Addr::LOCALHOST, 0).into())]);
/// let mut fabric = NetFabric::<Loopback>::start(net, ())?;
/// let region = fabric.register(RegionSpec { purpose: Purpose(1), writer: me, bytes: 64 })?;
/// fabric.grant(region, me, Access::Write)?;
/// let qp = fabric.connect(me, Service(1), QpConfig::reliable(4, 0))?;
/// assert_eq!(fabric.next_event(), Some(Event::Connected { qp, peer: me }));
/// let target = RemoteSpan { region: fabric.resolve(me, Purpose(1)).expect("the grant has arrived"), offset: 8 };
/// let verb = Verb::Write { source: Source::Inline(&7_u64.to_ne_bytes()), target };
/// fabric.post(qp, WorkRequest { id: 5, verb, signalled: true })?;
/// assert_eq!(fabric.memory(region)[1].load(Ordering::Acquire), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Device: Transport + Sized {
    /// Parameters of the device besides the [`NetConfig`].
    type Config;
    /// Implementation of fan-out sets: [`NoSets`](crate::NoSets) on networks that make no copies.
    type Sets: Sets<Transport = Self>;
    /// The reason why a process could not start.
    type StartError: From<StartError>;

    /// Opens the device, and adds to `epoll` the descriptors for which a sleeping process waits. The epoll data of each
    /// descriptor is above 0 and below `u64::MAX`, and is passed to [`woken`](Device::woken).
    ///
    /// # Errors
    /// Returns the reason why the device cannot be used, with the remedy.
    fn open(net: &NetConfig, config: Self::Config, epoll: Arc<OwnedFd>)
    -> Result<(Self, Self::Sets), Self::StartError>;

    /// Returns a name of 1 to 64 bytes. A peer with another name is refused, except that `roce` and `verbs` connect
    /// with each other.
    fn protocol(&self) -> String {
        self.capabilities().name.to_owned()
    }

    /// Returns the capabilities of the device, which never change.
    fn capabilities(&self) -> &Capabilities;

    /// Creates a queue pair, whose first life begins later. If that life cannot begin, the fabric passes the same id
    /// for the next queue pair.
    ///
    /// # Errors
    /// Returns the reason why the queue pair cannot be created, with the remedy.
    fn make(&mut self, qp: QpId, peer: ProcessId, config: QpConfig) -> Result<(), String>;

    /// Creates this process's end of a set of `members` members.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`make`](Device::make).
    fn make_set(&mut self, qp: QpId, sender: ProcessId, config: QpConfig, members: usize) -> Result<(), String> {
        let _ = members;
        self.make(qp, sender, config)
    }

    /// Returns whether the queue pair is not broken.
    fn is_alive(&self, qp: QpId) -> bool;

    /// Allocates the zeroed memory of a region. `bytes` is a multiple of 64.
    ///
    /// # Errors
    /// Returns the reason why the memory is unavailable, with the remedy.
    fn register(&mut self, region: RegionId, bytes: u64) -> Result<(), String>;

    /// Returns the memory of a region.
    fn memory(&self, region: RegionId) -> &[Word];

    /// Grants a peer access to a region, and returns the key that the peer needs. The fabric calls this only while the
    /// peer has no grant of this region.
    ///
    /// # Errors
    /// Returns the reason for the failure, with the remedy.
    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<RemoteKey, String>;

    /// Revokes a grant.
    ///
    /// # Errors
    /// Returns the reason why the grant still exists. The fabric then breaks all queue pairs to the peer and tries once
    /// more.
    fn fence(&mut self, region: RegionId, peer: ProcessId) -> Result<Fence, String>;

    /// Returns the next waiting fence that now holds or has waited for too long.
    fn next_fence(&mut self) -> Option<Waiting> {
        None
    }

    /// Returns whether a fence is waiting.
    fn has_fences(&self) -> bool {
        false
    }

    /// Posts a request to a send queue.
    ///
    /// # Errors
    /// Returns a [`PostError`], for example because the queue is full or the queue pair has just broken. The call then
    /// has no effect.
    fn post(&mut self, remotes: &Remotes, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError>;

    /// Posts a receive.
    ///
    /// # Errors
    /// Returns a [`PostError`], for example because the queue is full or the queue pair has just broken. The call then
    /// has no effect.
    fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError>;

    /// Posts a tagged receive. The fabric calls this only if [`Capabilities::tagged`] is true.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`post_receive`](Device::post_receive).
    fn post_tagged_receive(
        &mut self,
        qp: QpId,
        span: Span,
        (tag, ignore): (u64, u64),
        id: u64,
    ) -> Result<(), PostError> {
        let _ = (qp, span, tag, ignore, id);
        Err(PostError::Unsupported("tagged receive"))
    }

    /// Cancels a tagged receive. The fabric calls this only if [`Capabilities::tagged`] is true.
    fn cancel_tagged_receive(&mut self, qp: QpId, id: u64) {
        let _ = (qp, id);
    }

    /// Passes posted requests to the network, as many as it accepts now.
    fn flush(&mut self) {}

    /// Returns a hint about what has landed and completed since the last call.
    fn poll_hint(&mut self) -> PollHint {
        PollHint::ANYBODY
    }

    /// Writes completions to `out` and returns their number.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Handles the asynchronous events of the device. The fabric calls this before each round of the control plane.
    fn handle_events(&mut self) {}

    /// Arms the device, so that a write that lands or a completion wakes a sleeping process.
    fn arm(&mut self);

    /// Prepares for a sleep of the process.
    fn begin_wait(&mut self) {}

    /// Performs pending work before the process sleeps, for devices that are implemented in software.
    fn work(&mut self) {}

    /// Returns whether a write has landed or a request has completed since [`arm`](Device::arm).
    fn has_news(&self) -> bool;

    /// Returns the time that a process may sleep if it has `longest` left. The time is shorter if the device has work
    /// to do before that.
    fn slice(&self, longest: Duration) -> Duration {
        longest
    }

    /// Handles the end of a sleep. `which` has the epoll data of the descriptors that are ready. If `complete` is
    /// `false`, further descriptors may be ready.
    fn woken(&mut self, which: &[u64], complete: bool);

    /// Handles the end of a wait.
    fn end_wait(&mut self) {}

    /// Returns the error of a failed system call, after which the process must not sleep.
    fn take_failure(&mut self) -> Option<String> {
        None
    }

    /// Returns whether the descriptors report everything that lands after [`arm`](Device::arm).
    fn has_descriptors(&self) -> bool {
        true
    }
}
