//! The link to one process, and the meaning of its completions.
//!
//! Each request has a number. A queue next to the link holds request numbers and the meaning of their completions,
//! because one completion may report many requests.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use stentor_fabric::{Fabric, ProcessId, Purpose, QpConfig, RemoteRegion, RemoteSpan, Source, Span, Verb};
use stentor_link::service::NEB;
use stentor_link::{Link, Links, Resolved};

use super::NodeError;

/// Requested depth of every send queue. The fabric may permit less.
pub(super) const SEND_DEPTH: u32 = 1024;

/// Meaning of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// Own broadcasts below this index were written.
    Broadcast { upto: u64 },
    /// Registers of a stream below this index are complete.
    Register { stream: ProcessId, upto: u64 },
    /// A floor is raised. If values are signed, this was done by writing the proof in this slot.
    Floor { stream: ProcessId, floor: u64, proof: u64 },
    /// The registers, or floors, of a round have arrived.
    Read { stream: ProcessId, serial: u64 },
    /// A credit was sent.
    Credit,
}

/// The link to one process.
///
/// # Invariants
/// Every request in `awaited` was posted on the present connection.
#[derive(Debug)]
pub(crate) struct Peer {
    link: Link,
    /// Request numbers, ascending, and the meaning of their completion.
    awaited: VecDeque<(u64, Done)>,
    regions: Vec<Resolved>,
}

impl Peer {
    fn open<F: Fabric>(fabric: &mut F, process: ProcessId) -> Result<Self, NodeError> {
        let link = Link::open(fabric, process, NEB, QpConfig::reliable(SEND_DEPTH, 0))?;
        let depth = SEND_DEPTH.min(fabric.capabilities().max_send_depth) as usize;
        Ok(Peer { link, awaited: VecDeque::with_capacity(depth), regions: Vec::new() })
    }

    /// Returns the peer's region, once it is granted and known here.
    #[inline]
    pub(crate) fn resolve<F: Fabric>(&mut self, fabric: &mut F, purpose: Purpose) -> Option<RemoteRegion> {
        let resolved = self.regions.iter().find(|region| region.purpose() == purpose);
        if let Some(known) = resolved.and_then(|region| region.known(&self.link)) {
            return Some(known);
        }
        self.resolve_anew(fabric, purpose)
    }

    #[cold]
    fn resolve_anew<F: Fabric>(&mut self, fabric: &mut F, purpose: Purpose) -> Option<RemoteRegion> {
        let known = self.regions.iter().position(|region| region.purpose() == purpose);
        let known = known.unwrap_or_else(|| {
            self.regions.push(Resolved::new(purpose));
            self.regions.len() - 1
        });
        self.regions[known].get(fabric, &self.link)
    }

    /// Posts a WRITE. Returns whether the queue pair accepted it.
    #[inline]
    pub(crate) fn write<F: Fabric>(
        &mut self,
        fabric: &mut F,
        source: Source<'_>,
        target: RemoteSpan,
        done: Option<Done>,
    ) -> bool {
        let posted = self.link.write(fabric, source, target, done.is_some());
        self.await_done(posted, done)
    }

    /// Posts a READ. Returns whether the queue pair accepted it. Without `done`, the READ is not signalled, and a later
    /// completion reports it as well.
    #[inline]
    pub(crate) fn read<F: Fabric>(
        &mut self,
        fabric: &mut F,
        local: Span,
        remote: RemoteSpan,
        done: Option<Done>,
    ) -> bool {
        let posted = self.link.post(fabric, Verb::Read { local, remote }, done.is_some());
        self.await_done(posted, done)
    }

    #[inline]
    fn await_done(&mut self, posted: Option<u64>, done: Option<Done>) -> bool {
        if let (Some(number), Some(done)) = (posted, done) {
            self.awaited.push_back((number, done));
        }
        posted.is_some()
    }

    /// Returns the next entry that is known to be done.
    #[inline]
    pub(super) fn next_done(&mut self) -> Option<Done> {
        let (number, done) = *self.awaited.front()?;
        if number > self.link.done() {
            return None;
        }
        self.awaited.pop_front();
        Some(done)
    }

    /// Drops all awaited completions, because the connection ended.
    pub(super) fn forget(&mut self) {
        self.awaited.clear();
    }

    /// Closes the link to a fenced peer: nothing is posted any more.
    pub(super) fn close(&mut self) {
        self.link.close();
        self.forget();
    }
}

impl Deref for Peer {
    type Target = Link;

    #[inline]
    fn deref(&self) -> &Link {
        &self.link
    }
}

impl DerefMut for Peer {
    #[inline]
    fn deref_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// The links of a process.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(super) links: Links<Peer>,
    /// For each process, the index of the link to it. A process without a link has an index that is larger than that of
    /// any link.
    places: Vec<u16>,
}

impl Peers {
    /// Opens a link to each process that is `linked`. `processes` are all processes, in order.
    pub(super) fn open<F: Fabric>(
        fabric: &mut F,
        processes: impl Iterator<Item = ProcessId>,
        linked: impl Fn(ProcessId) -> bool,
    ) -> Result<Self, NodeError> {
        let mut peers = Peers::default();
        for process in processes {
            let peer = linked(process).then(|| Peer::open(fabric, process)).transpose()?;
            let place = peer.map(|peer| peers.links.push(peer) as u16);
            peers.places.push(place.unwrap_or(u16::MAX));
        }
        Ok(peers)
    }

    /// Returns the link to a process, if there is one.
    #[inline]
    pub(crate) fn get(&self, process: ProcessId) -> Option<&Peer> {
        self.links.get(usize::from(*self.places.get(process.index())?))
    }

    /// Returns the link to a process, if there is one.
    #[inline]
    pub(crate) fn get_mut(&mut self, process: ProcessId) -> Option<&mut Peer> {
        self.links.get_mut(usize::from(*self.places.get(process.index())?))
    }

    /// Returns all links.
    #[inline]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Peer> {
        self.links.iter()
    }
}
