//! The queue pair with one peer, and the memory of its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use stentor_fabric::{Access, Fabric, ProcessId, QpConfig, RegionId, RegionSpec};
use stentor_link::{Link, Resolved, purpose};

use super::{EndpointConfig, EndpointError};
use crate::Scheme;

/// The queue pair with one peer.
///
/// # Invariants
/// - Each area is free, withheld, or used by one connection that is not over.
/// - `sends` and `recvs` count operations that were posted since the queue pair was created or last reset and have not
///   completed.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    /// Region in which messages are received.
    pub(super) inbox: RegionId,
    /// Region from which messages are sent.
    pub(super) outbox: RegionId,
    /// The peer's region that this end writes, with [`Scheme::Counted`].
    pub(super) target: Resolved,
    /// Areas that a new connection may use.
    pub(super) free: Vec<u16>,
    /// Areas that the peer may still write, until the queue pair is connected again.
    pub(super) withheld: Vec<u16>,
    /// Index of each connection that is not over, by number.
    pub(super) numbers: BTreeMap<u32, u32>,
    /// Connection numbers that may still have messages in flight after a failure.
    pub(super) spent: BTreeSet<u32>,
    /// Number of times that each connection number was opened since the queue pair was created or last reset.
    pub(super) lives: BTreeMap<u32, u32>,
    /// With [`Scheme::Counted`], the content of hellos for connections that this end has not opened yet, by connection
    /// number.
    pub(super) early: BTreeMap<u32, [u64; 8]>,
    /// Number of outstanding sends of all connections with the peer.
    pub(super) sends: u32,
    /// Number of posted receives that any WRITE_WITH_IMM may use.
    pub(super) recvs: u32,
    /// Number of receives for WRITE_WITH_IMM that the connections need.
    pub(super) recvs_needed: u32,
}

impl Peer {
    /// Registers the areas of all connections with a peer, and begins to connect.
    pub(super) fn open<F: Fabric>(
        fabric: &mut F,
        config: &EndpointConfig,
        peer: ProcessId,
    ) -> Result<Self, EndpointError> {
        let (me, first) = (fabric.me(), config.first_purpose);
        let counted = config.channel.scheme == Scheme::Counted;
        let bytes = config.memory_bytes() / 2;
        let mut area = |outgoing, writer| {
            let purpose = purpose::channel(first, peer, outgoing);
            fabric.register(RegionSpec { purpose, writer, bytes })
        };
        let inbox = area(false, if counted { peer } else { me })?;
        let outbox = area(true, me)?;
        if counted {
            fabric.grant(inbox, peer, Access::Write)?;
        }
        let receives = config.recvs() * u32::from(config.connections);
        Ok(Peer {
            link: Link::open(fabric, peer, config.service, QpConfig::reliable(config.send_depth, receives))?,
            inbox,
            outbox,
            target: Resolved::new(purpose::channel(first, me, false)),
            free: (0..config.connections).rev().collect(),
            withheld: Vec::new(),
            numbers: BTreeMap::new(),
            spent: BTreeSet::new(),
            lives: BTreeMap::new(),
            early: BTreeMap::new(),
            sends: 0,
            recvs: 0,
            recvs_needed: 0,
        })
    }

    /// Allocates the area `wanted`, or any free area if `wanted` is `None`. Returns `None` if there is no such area.
    /// With [`Scheme::Counted`] the wanted area has the connection's number, so that the peer knows where to write.
    pub(super) fn take_area(&mut self, wanted: Option<u16>) -> Option<u16> {
        match wanted {
            None => self.free.pop(),
            Some(area) => {
                let place = self.free.iter().position(|free| *free == area)?;
                Some(self.free.swap_remove(place))
            }
        }
    }

    /// Resets the state for a new connection of the queue pair, on which nothing is in flight.
    pub(super) fn begin_anew(&mut self) {
        self.spent.clear();
        self.lives.clear();
        self.early.clear();
        self.sends = 0;
        self.recvs = 0;
        self.recvs_needed = 0;
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
