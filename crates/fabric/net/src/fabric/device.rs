//! What moves the data of a fabric between hosts.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::memory::Word;
use stentor_fabric::{
    Access, Capabilities, Completion, PollHint, PostError, ProcessId, QpConfig, QpId, RegionId, Span, WorkRequest,
};

use crate::{NetConfig, RemoteKey, Remotes, Sets, StartError, Transport};

/// Whether a grant that was taken back is worth nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// Nothing of the peer lands in the region any more.
    Holds,
    /// Something of the peer may still land. [`Device::next_fence`] tells when nothing does.
    Waits,
}

/// A fence that [`Device::fence`] left waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// It holds now.
    Holds(RegionId, ProcessId),
    /// It takes too long: all queue pairs to this peer are to be broken, and then it holds.
    Late(ProcessId),
}

/// What moves the data of a [`NetFabric`](super::NetFabric): queue pairs, memory that peers use, polling and waiting.
///
/// The fabric has checked every argument before it calls: regions and queue pairs exist, spans lie inside their regions, and a
/// queue pair that is posted to is ready. Queue pairs and regions have the numbers that the fabric gives them, counted from 0.
///
/// # Call order
/// [`open`](Device::open); then [`make`](Device::make) before everything else about a queue pair, and
/// [`register`](Device::register) before everything else about a region. In each life of a queue pair
/// [`begin`](crate::Transport::begin), [`meet`](crate::Transport::meet) and [`ready`](crate::Transport::ready) follow each other. A life ends by
/// [`fail`](crate::Transport::fail), or by itself, which [`next_broken`](crate::Transport::next_broken) tells once.
///
/// # An example
/// A device without a network: a process that connects to itself, and writes inline data to its own regions. (The shortest one
/// that reaches other hosts is that of `stentor-fabric-roce`.)
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
///     /// Memory by region, and the keys of grants: the key of region n is n + 1.
///     regions: Vec<Box<[Word]>>,
///     /// By queue pair: whether it is alive.
///     pairs: Vec<bool>,
///     completions: VecDeque<Completion>,
/// }
///
/// impl Transport for Loopback {
///     // What a peer must know to reach this end: nothing, since there is no other process.
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
///     // Writes are done while they are posted, so nothing is outstanding that could fail.
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
///         // A number that is given again takes the place of one whose life did not begin.
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
///     // The fabric forgets the grant, and nothing is under way.
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
/// let target = RemoteSpan { region: fabric.resolve(me, Purpose(1)).expect("granted"), offset: 8 };
/// let verb = Verb::Write { source: Source::Inline(&7_u64.to_ne_bytes()), target };
/// fabric.post(qp, WorkRequest { id: 5, verb, signalled: true })?;
/// assert_eq!(fabric.memory(region)[1].load(Ordering::Acquire), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Device: Transport + Sized {
    /// What a process must know of the device besides its [`NetConfig`].
    type Config;
    /// How it joins sets: [`NoSets`](crate::NoSets) where nothing in the network copies.
    type Sets: Sets<Transport = Self>;
    /// Why a process could not start.
    type StartError: From<StartError>;

    /// Opens the device. It adds the descriptors that a sleeping process waits for to `epoll`, with numbers above 0 and
    /// below `u64::MAX` as their data: [`woken`](Device::woken) gets these.
    ///
    /// # Errors
    /// Why it cannot be used, with the remedy.
    fn open(net: &NetConfig, config: Self::Config, epoll: Arc<OwnedFd>)
    -> Result<(Self, Self::Sets), Self::StartError>;

    /// Returns what both ends of a connection must have in common, 1 to 64 bytes: a peer that has another one is refused.
    fn protocol(&self) -> String {
        self.capabilities().name.to_owned()
    }

    /// Returns what the device can do. It does not change.
    fn capabilities(&self) -> &Capabilities;

    /// Makes a queue pair without a life. The number is given again if the first life of the one before did not begin.
    ///
    /// # Errors
    /// Why it cannot be made, with the remedy.
    fn make(&mut self, qp: QpId, peer: ProcessId, config: QpConfig) -> Result<(), String>;

    /// Makes this process's end of a set of so many members.
    ///
    /// # Errors
    /// As [`make`](Device::make).
    fn make_set(&mut self, qp: QpId, sender: ProcessId, config: QpConfig, members: usize) -> Result<(), String> {
        let _ = members;
        self.make(qp, sender, config)
    }

    /// Whether the queue pair is not broken.
    fn is_alive(&self, qp: QpId) -> bool;

    /// Makes the zeroed memory of a region; its size is a multiple of 64 bytes.
    ///
    /// # Errors
    /// Why it cannot be had, with the remedy.
    fn register(&mut self, region: RegionId, bytes: u64) -> Result<(), String>;

    /// Returns the memory of a region.
    fn memory(&self, region: RegionId) -> &[Word];

    /// Lets a peer use a region, and returns what the peer must know for it. The peer has no grant of this region.
    ///
    /// # Errors
    /// Why not, with the remedy.
    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<RemoteKey, String>;

    /// Takes a grant back.
    ///
    /// # Errors
    /// Why the grant is still there. It is tried once more after all queue pairs to the peer are broken.
    fn fence(&mut self, region: RegionId, peer: ProcessId) -> Result<Fence, String>;

    /// Returns the next fence that waited and does not any more, or waits for too long.
    fn next_fence(&mut self) -> Option<Waiting> {
        None
    }

    /// Whether a fence waits.
    fn has_fences(&self) -> bool {
        false
    }

    /// Posts to a send queue.
    ///
    /// # Errors
    /// [`PostError::SendQueueFull`], or that the queue pair broke just now; nothing was done then.
    fn post(&mut self, remotes: &Remotes, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError>;

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError::RecvQueueFull`], or that the queue pair broke just now; nothing was done then.
    fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError>;

    /// Posts a tagged receive. Called where [`Capabilities::tagged`] is true.
    ///
    /// # Errors
    /// As [`post_receive`](Device::post_receive).
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

    /// Asks for a tagged receive back. Called where [`Capabilities::tagged`] is true.
    fn cancel_tagged_receive(&mut self, qp: QpId, id: u64) {
        let _ = (qp, id);
    }

    /// Hands everything posted to the network.
    fn flush(&mut self) {}

    /// Returns what has landed and completed since the last call, as far as the device can tell.
    fn poll_hint(&mut self) -> PollHint {
        PollHint::ANYBODY
    }

    /// Takes completions; returns how many were written to `out`.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Takes in what the device says about itself. Called before each round of the control plane.
    fn handle_events(&mut self) {}

    /// From here on a sleeping process is woken by what lands and completes.
    fn arm(&mut self);

    /// A process is about to sleep.
    fn begin_wait(&mut self) {}

    /// Does what a device without a processor of its own does while its process would sleep.
    fn work(&mut self) {}

    /// Whether something has landed or completed since [`arm`](Device::arm).
    fn has_news(&self) -> bool;

    /// Returns for how long a process may sleep that has `longest` left: less if the device has to work before.
    fn slice(&self, longest: Duration) -> Duration {
        longest
    }

    /// The process has slept. `which`: the data of the descriptors that have something; it may not be all of them if `complete`
    /// is false.
    ///
    /// # Errors
    /// What the system said.
    fn woken(&mut self, which: &[u64], complete: bool);

    /// The process goes on.
    fn end_wait(&mut self) {}

    /// Takes what went wrong with a system call, after which nobody may sleep.
    fn take_failure(&mut self) -> Option<String> {
        None
    }

    /// Whether the descriptors tell of everything that lands after [`arm`](Device::arm).
    fn has_descriptors(&self) -> bool {
        true
    }
}
