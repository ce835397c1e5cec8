//! What a member registers and connects at start.

use stentor_fabric::ring::Geometry;
use stentor_fabric::{Access, Fabric, ProcessId, Purpose, Record, RegionId, RegionSpec, RingReader};

use super::greeting::{Greeting, Seals};
use super::inbound::{CreditOut, Inbound};
use super::links::Links;
use super::outbound::{Outbound, Shape, scratch};
use super::{BODY, CONTROL, MAIN, NodeError, STREAM, STREAMING};
use crate::limits::{CREDIT_CELLS_BYTES, STREAM_CREDIT_OFFSET};
use crate::{ClientId, GroupId, Limits, Plant, Topology};

/// One client's ring at this member.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) ring: Inbound,
    /// Whoever has the place now goes on here, once everything that came before is taken.
    pub(super) greeted: Option<Greeting>,
    /// Nothing more was in the ring at the last look.
    pub(super) drained: bool,
    /// A client that connected has not been told yet that all its messages are delivered.
    pub(super) settling: bool,
    /// The generation in which the process that has the place multicasts, if it knew.
    pub(super) generation: Option<u64>,
    /// It said that it has begun.
    pub(super) begun: bool,
    pub(super) last_sequence: u64,
    /// Slots below this are held or freed.
    pub(super) held_slots: u64,
    pub(super) freed_slots: u64,
    pub(super) freed_position: u64,
    pub(super) credited_slots: u64,
}

impl Body {
    fn new(ring: Inbound) -> Self {
        Body {
            ring,
            greeted: None,
            drained: false,
            settling: false,
            generation: None,
            begun: false,
            last_sequence: 0,
            held_slots: 0,
            freed_slots: 0,
            freed_position: 0,
            credited_slots: 0,
        }
    }
}

/// The links and control rings with another member.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
    pub(super) main: usize,
    /// With a member of the own group.
    pub(super) streaming: Option<usize>,
    /// All links are up and the peer has greeted.
    pub(super) connected: bool,
}

/// The stream ring of another member of the group, here.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) ring: Inbound,
    pub(super) granted: bool,
    pub(super) record: Vec<u64>,
    /// The record in work, its end and its next item, in words.
    pub(super) held: Option<(Record, usize, usize)>,
}

/// Registers while it collects the links.
pub(super) struct Opener<'a, F: Fabric> {
    pub(super) fabric: &'a mut F,
    pub(super) links: Links,
    pub(super) topology: &'a Topology,
    pub(super) limits: &'a Limits,
    pub(super) seals: Seals,
    pub(super) plant: Plant,
    /// Bytes registered so far.
    pub(super) registered: u64,
}

impl<F: Fabric> Opener<'_, F> {
    /// A region for `writer`, who may not write it yet.
    fn closed_region(&mut self, purpose: Purpose, writer: ProcessId, bytes: u64) -> Result<RegionId, NodeError> {
        let bytes = bytes.next_multiple_of(64);
        let region = self.fabric.register(RegionSpec { purpose, writer, bytes })?;
        self.registered += bytes;
        Ok(region)
    }

    /// A region that `writer` may write.
    pub(super) fn region(&mut self, purpose: Purpose, writer: ProcessId, bytes: u64) -> Result<RegionId, NodeError> {
        let region = self.closed_region(purpose, writer, bytes)?;
        self.fabric.grant(region, writer, Access::Write)?;
        Ok(region)
    }

    pub(super) fn link(&mut self, peer: ProcessId, service: stentor_fabric::Service) -> Result<usize, NodeError> {
        self.links.open(self.fabric, peer, service)
    }

    /// A ring that `peer` writes and whose credit goes to `offset` of its control region. What it writes is sealed for an
    /// incarnation that is not known before it greets.
    fn inbound(&mut self, peer: ProcessId, region: RegionId, ring: Geometry, link: usize, offset: u64) -> Inbound {
        let own = self.seals.of(self.fabric.me(), self.links.incarnation);
        let reader = RingReader::new(ring, self.seals.of(peer, 0));
        Inbound::new(region, reader, CreditOut::new(own, link, offset))
    }

    pub(super) fn outbound(&mut self, shape: Shape) -> Result<Outbound, NodeError> {
        let own = self.seals.of(self.fabric.me(), self.links.incarnation);
        let outbound = Outbound::new(self.fabric, shape, own, self.plant)?;
        self.registered += outbound.staging_bytes();
        Ok(outbound)
    }

    /// The control rings with another member, both ways.
    pub(super) fn peer(&mut self, peer: ProcessId) -> Result<Peer, NodeError> {
        let geometry = self.limits.control_ring(self.topology);
        let main = self.link(peer, MAIN)?;
        let region = self.region(CONTROL, peer, CREDIT_CELLS_BYTES + geometry.bytes())?;
        let mut outbound =
            self.outbound(Shape { geometry, serial: peer.0, patient: true, catches_up: false, keeps: 0 })?;
        outbound.add_target(peer, main, CONTROL, (region, 0));
        let inbound = self.inbound(peer, region, geometry, main, 0);
        Ok(Peer { outbound, inbound, main, streaming: None, connected: false })
    }

    /// The stream ring to all other members of the own group, and theirs here, by process. Only the leader may write.
    pub(super) fn streams(
        &mut self,
        group: GroupId,
        leader: ProcessId,
        peers: &mut [Option<Peer>],
    ) -> Result<(Vec<Option<Stream>>, Outbound), NodeError> {
        let geometry = self.limits.stream_ring(self.topology);
        let me = self.fabric.me();
        let mut outbound =
            self.outbound(Shape { geometry, serial: me.0, patient: false, catches_up: true, keeps: 0 })?;
        let mut inbound: Vec<Option<Stream>> = peers.iter().map(|_| None).collect();
        for member in self.topology.members(group).filter(|member| *member != me) {
            let link = self.link(member, STREAMING)?;
            let region = self.closed_region(STREAM, member, geometry.bytes())?;
            let granted = member == leader;
            if granted {
                self.fabric.grant(region, member, Access::Write)?;
            }
            let Some(peer) = &mut peers[member.index()] else { continue };
            peer.streaming = Some(link);
            outbound.add_target(member, link, STREAM, (peer.inbound.region, STREAM_CREDIT_OFFSET));
            let main = peer.main;
            let ring = self.inbound(member, region, geometry, main, STREAM_CREDIT_OFFSET);
            inbound[member.index()] = Some(Stream { record: scratch(&geometry), ring, granted, held: None });
        }
        Ok((inbound, outbound))
    }

    /// A client's ring.
    pub(super) fn body(&mut self, client: ClientId) -> Result<Body, NodeError> {
        let ring = self.limits.body_ring(self.topology);
        let process = self.topology.client_process(client);
        let link = self.link(process, MAIN)?;
        let region = self.region(BODY, process, ring.bytes())?;
        Ok(Body::new(self.inbound(process, region, ring, link, 0)))
    }
}
