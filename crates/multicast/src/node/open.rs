//! What a member registers and connects at start.

use stentor_fabric::ring::Geometry;
use stentor_fabric::seal::Seal;
use stentor_fabric::{Access, Fabric, ProcessId, Purpose, Record, RegionId, RegionSpec, RingReader};

use super::inbound::{CreditOut, Inbound};
use super::outbound::{Outbound, scratch};
use super::posting::Link;
use super::{BODY, CONTROL, MAIN, NodeError, STREAM, STREAMING};
use crate::limits::{CREDIT_CELLS_BYTES, STREAM_CREDIT_OFFSET};
use crate::{ClientId, GroupId, Limits, Topology};

/// One client's ring at this member.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) ring: Inbound,
    /// Nothing more was in the ring at the last look.
    pub(super) drained: bool,
    /// A client that connected has not been told yet that the ring is empty.
    pub(super) settling: bool,
    pub(super) last_sequence: u64,
    pub(super) freed_slots: u64,
    pub(super) freed_position: u64,
    pub(super) credited_slots: u64,
}

impl Body {
    fn new(ring: Inbound) -> Self {
        Body {
            ring,
            drained: false,
            settling: false,
            last_sequence: 0,
            freed_slots: 0,
            freed_position: 0,
            credited_slots: 0,
        }
    }
}

/// The control rings with another member.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
}

/// The leader's stream, at a follower.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) ring: Inbound,
    pub(super) record: Vec<u64>,
    /// The record in work, its end and its next item, in words.
    pub(super) held: Option<(Record, usize, usize)>,
}

/// Registers while it collects the links.
pub(super) struct Opener<'a, F: Fabric> {
    pub(super) fabric: &'a mut F,
    pub(super) links: Vec<Link>,
    pub(super) topology: &'a Topology,
    pub(super) limits: &'a Limits,
    pub(super) seal: &'a dyn Fn(ProcessId) -> Seal,
    /// Bytes registered so far.
    pub(super) registered: u64,
}

impl<F: Fabric> Opener<'_, F> {
    /// A region that `writer` may write.
    pub(super) fn region(&mut self, purpose: Purpose, writer: ProcessId, bytes: u64) -> Result<RegionId, NodeError> {
        let bytes = bytes.next_multiple_of(64);
        let region = self.fabric.register(RegionSpec { purpose, writer, bytes })?;
        self.fabric.grant(region, writer, Access::Write)?;
        self.registered += bytes;
        Ok(region)
    }

    pub(super) fn link(&mut self, peer: ProcessId, service: stentor_fabric::Service) -> Result<usize, NodeError> {
        self.links.push(Link::open(self.fabric, peer, service)?);
        Ok(self.links.len() - 1)
    }

    /// A ring that `peer` writes and whose credit goes to `offset` of its control region.
    fn inbound(&mut self, peer: ProcessId, region: RegionId, ring: Geometry, link: usize, offset: u64) -> Inbound {
        let me = self.fabric.me();
        Inbound {
            region,
            reader: RingReader::new(ring, (self.seal)(peer)),
            credit: CreditOut::new((self.seal)(me), link, offset),
        }
    }

    /// The control rings with another member, both ways.
    pub(super) fn peer(&mut self, peer: ProcessId) -> Result<Peer, NodeError> {
        let ring = self.limits.control_ring(self.topology);
        let link = self.link(peer, MAIN)?;
        let region = self.region(CONTROL, peer, CREDIT_CELLS_BYTES + ring.bytes())?;
        let seal = (self.seal)(self.fabric.me());
        let mut outbound = Outbound::new(self.fabric, ring, seal, peer.0)?;
        self.registered += outbound.staging_bytes();
        outbound.add_target(peer, link, CONTROL, (region, 0), (self.seal)(peer));
        Ok(Peer { outbound, inbound: self.inbound(peer, region, ring, link, 0) })
    }

    /// The stream ring to all other members of the own group, and the leader's here.
    pub(super) fn stream(
        &mut self,
        group: GroupId,
        leader: ProcessId,
        peers: &[Option<Peer>],
    ) -> Result<(Option<Stream>, Outbound), NodeError> {
        let ring = self.limits.stream_ring(self.topology);
        let me = self.fabric.me();
        let mut outbound = Outbound::new(self.fabric, ring, (self.seal)(me), me.0)?;
        self.registered += outbound.staging_bytes();
        let mut inbound = None;
        for member in self.topology.members(group).filter(|member| *member != me) {
            let Some(peer) = &peers[member.index()] else { continue };
            let control = peer.inbound.region;
            let credit_link = peer.inbound.credit.link;
            let link = self.link(member, STREAMING)?;
            let region = self.region(STREAM, member, ring.bytes())?;
            outbound.add_target(member, link, STREAM, (control, STREAM_CREDIT_OFFSET), (self.seal)(member));
            if member == leader {
                let ring = self.inbound(member, region, ring, credit_link, STREAM_CREDIT_OFFSET);
                inbound = Some(Stream { record: scratch(ring.reader.geometry()), ring, held: None });
            }
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
