//! The queue pair with one peer, and the memory that its connections use.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use stentor_fabric::{Access, Fabric, ProcessId, QpConfig, RegionId, RegionSpec};
use stentor_link::{Link, Resolved, purpose};

use super::{EndpointConfig, EndpointError};
use crate::Scheme;

/// The queue pair with one peer.
///
/// # Invariants
/// - Each area is free, withheld, or used by one open connection.
/// - `sends` and `recvs` count what was posted on the present connection of the link and has not completed.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    /// Where messages are received.
    pub(super) inbox: RegionId,
    /// Where they are sent from.
    pub(super) outbox: RegionId,
    /// The peer's memory for what this end writes, where places are written.
    pub(super) target: Resolved,
    /// Areas that no connection uses.
    pub(super) free: Vec<u16>,
    /// Areas that the peer may still write into, until the queue pair is connected anew.
    pub(super) withheld: Vec<u16>,
    /// Open connections, by number.
    pub(super) numbers: BTreeMap<u32, u32>,
    /// Numbers under which something may still be under way.
    pub(super) spent: BTreeSet<u32>,
    /// How often numbers were opened.
    pub(super) lives: BTreeMap<u32, u32>,
    /// Greetings of lives that this end has not opened yet, where places are written, by number.
    pub(super) early: BTreeMap<u32, [u64; 8]>,
    /// Requests that the fabric has not completed.
    pub(super) sends: u32,
    /// Receives that any WRITE_WITH_IMM may use, as they were posted and used.
    pub(super) recvs: u32,
    /// As many as connections need.
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

    /// Takes an area: with places that the peer must know, the one of the number.
    pub(super) fn take_area(&mut self, wanted: Option<u16>) -> Option<u16> {
        match wanted {
            None => self.free.pop(),
            Some(area) => {
                let place = self.free.iter().position(|free| *free == area)?;
                Some(self.free.swap_remove(place))
            }
        }
    }

    /// The queue pair begins anew: nothing is under way any more.
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
