//! The regions that a member or client registers at start, and the links that it opens.

use stentor_fabric::ring::Geometry;
use stentor_fabric::{Access, Fabric, ProcessId, Purpose, RegionId, RegionSpec, RingReader};
use stentor_link::purpose::{MULTICAST_BODY, MULTICAST_CONTROL, MULTICAST_QUERY, MULTICAST_REPLY, MULTICAST_STREAM};
use stentor_link::service::{MULTICAST_MAIN, MULTICAST_STREAM as STREAMING};

use super::NodeError;
use super::credit_report::Standing;
use super::hello::Hello;
use super::inbound::{CreditOut, Inbound};
use super::outbound::{Outbound, Shape};
use super::peer_links::PeerLinks;
use super::seals::Seals;
use super::streams::{Stream, Streams};
use super::target::CreditCell;
use crate::limits::{CREDIT_CELLS_BYTES, RECORD_CREDIT_BYTES, STREAM_CREDIT_OFFSET};
use crate::{ClientId, GroupId, Limits, Mutant, Topology};

/// The body ring of one client at this member.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) ring: Inbound,
    /// The last hello of a client process for which the ring has not restarted yet. It restarts after all older records
    /// are read.
    pub(super) greeted: Option<Hello>,
    /// `true` if the ring was empty at the last look.
    pub(super) drained: bool,
    /// `true` if a process has sent a hello, and no credit since has reported that it may begin or continue.
    pub(super) settling: bool,
    /// Generation of the process with this client id, from its hello or from this group's succession; `None` if
    /// unknown.
    pub(super) generation: Option<u64>,
    /// The smallest generation that the process may have.
    pub(super) above: u64,
    /// `true` if the process may have multicast to this group, according to its hello.
    pub(super) begun: bool,
    /// The status of the client id that credits report, without the first slot and the history.
    pub(super) place: Standing,
    /// First slot of the process; 0 if unknown.
    pub(super) first: u64,
    /// Ticks for which the process has waited for its first slot, since its hello or since another member connected.
    pub(super) ticks: u32,
    /// Slots below this are held or freed.
    pub(super) held_slots: u64,
    pub(super) freed_slots: u64,
    pub(super) freed_position: u64,
    pub(super) credited_slots: u64,
    /// The first record that lies beyond the window, if there is one.
    pub(super) refused: Option<Refused>,
}

/// A record that must be read again later.
///
/// # States
/// *read* → *refused*, because its slot is beyond the window. No credit covers it, and the client is asked not to count
/// this member, so that the client waits for other members only. → *read again*, when this member has delivered enough,
/// or when the client restarts the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) slot: u64,
    /// Position of the record in the ring.
    pub(super) position: u64,
}

impl Body {
    /// Moves the reader back to the refused record, if there is one. The record was not overwritten, because no credit
    /// covers it.
    pub(super) fn go_back_to_refused(&mut self) {
        if let Some(refused) = self.refused.take() {
            self.ring.reader.skip_to(refused.position);
            self.freed_position = self.freed_position.min(refused.position);
        }
    }

    fn new(ring: Inbound) -> Self {
        Body {
            ring,
            greeted: None,
            drained: false,
            settling: false,
            generation: None,
            above: 0,
            begun: false,
            place: Standing::default(),
            first: 0,
            ticks: 0,
            held_slots: 0,
            freed_slots: 0,
            freed_position: 0,
            credited_slots: 0,
            refused: None,
        }
    }
}

/// The control rings and links shared with another member.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
    pub(super) main: usize,
    /// The link for streams; only with a member of the same group.
    pub(super) streaming: Option<usize>,
}

/// The resources with which a node registers regions and opens links, and the number of bytes registered so far.
pub(super) struct Opener<'a, F: Fabric> {
    pub(super) fabric: &'a mut F,
    pub(super) links: PeerLinks,
    pub(super) topology: &'a Topology,
    pub(super) limits: &'a Limits,
    pub(super) seals: Seals,
    pub(super) mutant: Mutant,
    /// Bytes registered so far.
    pub(super) registered: u64,
}

impl<F: Fabric> Opener<'_, F> {
    /// Registers a region for `writer`, without granting it access yet.
    fn closed_region(&mut self, purpose: Purpose, writer: ProcessId, bytes: u64) -> Result<RegionId, NodeError> {
        let bytes = bytes.next_multiple_of(64);
        let region = self.fabric.register(RegionSpec { purpose, writer, bytes })?;
        self.registered += bytes;
        Ok(region)
    }

    /// Registers a region and grants `writer` write access.
    pub(super) fn region(&mut self, purpose: Purpose, writer: ProcessId, bytes: u64) -> Result<RegionId, NodeError> {
        let region = self.closed_region(purpose, writer, bytes)?;
        self.fabric.grant(region, writer, Access::Write)?;
        Ok(region)
    }

    pub(super) fn link(&mut self, peer: ProcessId, service: stentor_fabric::Service) -> Result<usize, NodeError> {
        self.links.open(self.fabric, peer, service)
    }

    /// Returns a ring that `peer` writes. The life with which the peer seals its records is not known before its hello.
    fn inbound(&self, peer: ProcessId, region: RegionId, ring: Geometry, credit: CreditOut) -> Inbound {
        Inbound::new(region, RingReader::new(ring, self.seals.of(peer, 0)), credit)
    }

    /// Returns the sender of the credits for a ring.
    fn credit(&self, link: usize, purpose: Purpose, offset: u64) -> CreditOut {
        CreditOut::new(self.seals.of(self.fabric.me(), self.links.life), link, purpose, offset)
    }

    pub(super) fn outbound(&mut self, shape: Shape) -> Result<Outbound, NodeError> {
        let own = self.seals.of(self.fabric.me(), self.links.life);
        let outbound = Outbound::new(self.fabric, shape, own, self.mutant)?;
        self.registered += outbound.staging_bytes();
        Ok(outbound)
    }

    /// Opens the control rings with another member, in both directions.
    pub(super) fn peer(&mut self, peer: ProcessId) -> Result<Peer, NodeError> {
        let geometry = self.limits.control_ring(self.topology);
        let main = self.link(peer, MULTICAST_MAIN)?;
        let region = self.region(MULTICAST_CONTROL, peer, CREDIT_CELLS_BYTES + geometry.bytes())?;
        let mut outbound =
            self.outbound(Shape { geometry, serial: peer.0, patient: true, catches_up: false, keeps: 0 })?;
        outbound.add_target(peer, main, MULTICAST_CONTROL, CreditCell { region, offset: 0 });
        let inbound = self.inbound(peer, region, geometry, self.credit(main, MULTICAST_CONTROL, 0));
        Ok(Peer { outbound, inbound, main, streaming: None })
    }

    /// Opens the stream rings to and from all other members of this group. Only the leader gets write access.
    pub(super) fn streams(
        &mut self,
        group: GroupId,
        leader: ProcessId,
        peers: &mut [Option<Peer>],
    ) -> Result<Streams, NodeError> {
        let geometry = self.limits.stream_ring(self.topology);
        let me = self.fabric.me();
        let mut outbound =
            self.outbound(Shape { geometry, serial: me.0, patient: false, catches_up: true, keeps: 0 })?;
        let mut inbound: Vec<Option<Stream>> = peers.iter().map(|_| None).collect();
        for member in self.topology.members(group).filter(|member| *member != me) {
            let link = self.link(member, STREAMING)?;
            let region =
                self.closed_region(MULTICAST_STREAM, member, self.limits.stream_region_bytes(self.topology))?;
            let granted = member == leader;
            if granted {
                self.fabric.grant(region, member, Access::Write)?;
            }
            let Some(peer) = &mut peers[member.index()] else { continue };
            peer.streaming = Some(link);
            let cell = CreditCell { region: peer.inbound.region, offset: STREAM_CREDIT_OFFSET };
            outbound.add_target(member, link, MULTICAST_STREAM, cell);
            let credit = self.credit(peer.main, MULTICAST_CONTROL, STREAM_CREDIT_OFFSET);
            let ring = self.inbound(member, region, geometry, credit);
            inbound[member.index()] = Some(Stream::new(ring, granted));
        }
        Ok(Streams::new(inbound, (leader != me).then_some(leader), outbound))
    }

    /// Opens a client's body ring.
    pub(super) fn body(&mut self, client: ClientId) -> Result<Body, NodeError> {
        let ring = self.limits.body_ring(self.topology);
        let process = self.topology.client_process(client);
        let link = self.link(process, MULTICAST_MAIN)?;
        let region = self.region(MULTICAST_BODY, process, ring.bytes())?;
        Ok(Body::new(self.inbound(process, region, ring, self.credit(link, MULTICAST_CONTROL, 0))))
    }

    /// Opens the ring for this member's replies to a client, over `link`.
    pub(super) fn replies_to(&mut self, client: ClientId, link: usize) -> Result<Outbound, NodeError> {
        let process = self.topology.client_process(client);
        // No other ring of a member has a client's process id as its serial number.
        self.records_to(process, link, (MULTICAST_REPLY, process.0), self.limits.reply_ring())
    }

    /// Opens the ring in which this client receives a member's replies.
    pub(super) fn replies_of(&mut self, member: ProcessId, link: usize) -> Result<Inbound, NodeError> {
        self.records_of(member, link, MULTICAST_REPLY, self.limits.reply_ring())
    }

    /// Opens the ring for this client's queries to a member, over `link`.
    pub(super) fn queries_to(&mut self, member: ProcessId, link: usize) -> Result<Outbound, NodeError> {
        // The other rings of a client use group ids as serial numbers.
        let serial = self.topology.groups() as u16 + member.0;
        self.records_to(member, link, (MULTICAST_QUERY, serial), self.limits.query_ring())
    }

    /// Opens the ring in which this member receives a client's queries.
    pub(super) fn queries_of(&mut self, client: ClientId, link: usize) -> Result<Inbound, NodeError> {
        self.records_of(self.topology.client_process(client), link, MULTICAST_QUERY, self.limits.query_ring())
    }

    /// Opens a ring for records to a peer. The peer's credits go into a separate region.
    fn records_to(
        &mut self,
        peer: ProcessId,
        link: usize,
        (purpose, serial): (Purpose, u16),
        geometry: Geometry,
    ) -> Result<Outbound, NodeError> {
        let region = self.region(purpose, peer, RECORD_CREDIT_BYTES)?;
        let shape = Shape { geometry, serial, patient: false, catches_up: false, keeps: 0 };
        let mut ring = self.outbound(shape)?;
        ring.add_target(peer, link, purpose, CreditCell { region, offset: 0 });
        Ok(ring)
    }

    /// Opens a ring for records from a peer.
    fn records_of(
        &mut self,
        peer: ProcessId,
        link: usize,
        purpose: Purpose,
        geometry: Geometry,
    ) -> Result<Inbound, NodeError> {
        let region = self.region(purpose, peer, geometry.bytes())?;
        Ok(self.inbound(peer, region, geometry, self.credit(link, purpose, 0)))
    }
}
