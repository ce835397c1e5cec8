//! Heartbeats in the fabric: a few words in each member's memory, which the other members of its group READ one-sided.
//! The caller defines the meaning of the words. Publishing them costs the owner eight stores. A reader posts one READ
//! per tick for each other member.
//!
//! # Invariants
//! - At most one READ per member is in flight. Its result is used when it has completed, and never if the link broke
//!   meanwhile.
//! - A member that has published nothing reads nothing, so without an election heartbeats cost nothing.

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, Fabric, ProcessId, RegionId, RegionSpec, RemoteSpan, Span, Verb};
use stentor_link::purpose::{MULTICAST_HEARTBEAT, MULTICAST_HEARTBEATS_READ};

use super::NodeError;
use super::open::{Opener, Peer};
use super::peer_links::PeerLinks;
use crate::{GroupId, HeartbeatCell};

/// Bytes of one member's words.
const BYTES: u64 = (HeartbeatCell::WORDS * WORD) as u64;

/// The words last read from another member.
#[derive(Debug)]
struct Reading {
    process: ProcessId,
    /// Index of the link over which they are read.
    main: usize,
    /// The connection and the number of the READ in flight.
    pending: Option<(u64, u64)>,
    last: Option<[u64; HeartbeatCell::WORDS]>,
}

/// The words of this member and those of the other members of its group. Empty in a group of one, and on fabrics where
/// a region has at most one reader.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    /// The region with this member's words, and the one into which the others' words are read.
    regions: Option<(RegionId, RegionId)>,
    readings: Vec<Reading>,
    published: bool,
}

impl Heartbeats {
    pub(super) fn open<F: Fabric>(
        opener: &mut Opener<'_, F>,
        group: GroupId,
        peers: &[Option<Peer>],
    ) -> Result<Self, NodeError> {
        let me = opener.fabric.me();
        let others =
            opener.topology.members(group).filter_map(|process| Some((process, peers[process.index()].as_ref()?)));
        let readings: Vec<Reading> =
            others.map(|(process, peer)| Reading { process, main: peer.main, pending: None, last: None }).collect();
        if readings.is_empty() || !opener.fabric.capabilities().many_readers {
            return Ok(Heartbeats::default());
        }
        let own = opener.fabric.register(RegionSpec { purpose: MULTICAST_HEARTBEAT, writer: me, bytes: BYTES })?;
        for reading in &readings {
            opener.fabric.grant(own, reading.process, Access::Read)?;
        }
        let bytes = BYTES * readings.len() as u64;
        let landing = opener.fabric.register(RegionSpec { purpose: MULTICAST_HEARTBEATS_READ, writer: me, bytes })?;
        opener.registered += BYTES + bytes;
        Ok(Heartbeats { regions: Some((own, landing)), readings, published: false })
    }

    /// Publishes this member's words, and enables the READs.
    pub(super) fn publish<F: Fabric>(&mut self, fabric: &F, words: &[u64; HeartbeatCell::WORDS]) {
        let Some((own, _)) = self.regions else { return };
        self.published = true;
        for (cell, word) in fabric.memory(own).iter().zip(words) {
            cell.store(*word, Ordering::Release);
        }
    }

    /// Returns the link to another member and the words last read from it.
    pub(super) fn last(&self, process: ProcessId) -> Option<(usize, Option<[u64; HeartbeatCell::WORDS]>)> {
        let reading = self.readings.iter().find(|reading| reading.process == process)?;
        Some((reading.main, reading.last))
    }

    /// Collects completed READs and posts new ones.
    pub(super) fn tick<F: Fabric>(&mut self, fabric: &mut F, links: &mut PeerLinks) {
        let Some((_, landing)) = self.regions.filter(|_| self.published) else { return };
        for (at, reading) in self.readings.iter_mut().enumerate() {
            let link = &mut links[reading.main];
            if let Some((_, id)) = reading.pending.filter(|(connection, _)| *connection == link.connection_id()) {
                if link.done() < id {
                    continue;
                }
                let cells = &fabric.memory(landing)[at * HeartbeatCell::WORDS..][..HeartbeatCell::WORDS];
                reading.last = Some(std::array::from_fn(|word| cells[word].load(Ordering::Acquire)));
            }
            reading.pending = None;
            let region = fabric.resolve(reading.process, MULTICAST_HEARTBEAT).filter(|region| region.bytes >= BYTES);
            if let Some(region) = region
                && link.can_post()
            {
                let local = Span { region: landing, offset: at as u64 * BYTES, bytes: BYTES as u32 };
                let verb = Verb::Read { local, remote: RemoteSpan { region, offset: 0 } };
                reading.pending = link.post(fabric, verb, true).map(|id| (link.connection_id(), id));
            }
        }
    }
}
