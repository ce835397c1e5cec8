//! The streams of a group at one of its members: the stream that the member writes as a leader, and the streams that
//! the other members write into its memory.

use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Access, Fabric, ProcessId, Record, RegionId, RemoteRegion};

use super::hello::Start;
use super::inbound::Inbound;
use super::outbound::{Outbound, scratch};
use super::peer_link::PeerLink;

/// The stream ring that another member of the group writes here.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) ring: Inbound,
    granted: bool,
    pub(super) record: Vec<u64>,
    /// The record that is being processed.
    pub(super) held: Option<HeldRecord>,
}

/// A stream record that is not completely processed.
#[derive(Debug)]
pub(super) struct HeldRecord {
    pub(super) record: Record,
    /// Index of the word after the record.
    pub(super) end: usize,
    /// Index of the first word of the record's next item.
    pub(super) at: usize,
}

impl HeldRecord {
    pub(super) fn new(record: Record) -> Self {
        let end = HEADER_WORDS + record.bytes / 8;
        HeldRecord { record, end, at: HEADER_WORDS }
    }
}

impl Stream {
    pub(super) fn new(ring: Inbound, granted: bool) -> Self {
        Stream { record: scratch(ring.reader.geometry()), ring, granted, held: None }
    }
}

/// All streams of a group at one of its members.
///
/// # Invariants
/// - Once a [fence](Streams::fence) holds, only the member that it excepts can write a stream here. Writes of the
///   others have landed, and none lands later, until a stream is [granted](Streams::grant).
/// - A region is granted again only when its last revocation has taken effect. Otherwise the revocation would remove
///   the new access, too.
#[derive(Debug)]
pub(super) struct Streams {
    /// The stream ring that each other member writes here, indexed by process; `None` for processes outside the group.
    inbound: Vec<Option<Stream>>,
    /// The member whose stream is read.
    pub(super) reads: Option<ProcessId>,
    pub(super) outbound: Outbound,
    /// Regions whose revocation has not taken effect.
    revoking: Vec<RegionId>,
}

impl Streams {
    pub(super) fn new(inbound: Vec<Option<Stream>>, reads: Option<ProcessId>, outbound: Outbound) -> Self {
        Streams { inbound, reads, outbound, revoking: Vec::new() }
    }

    /// Returns another member's stream.
    #[inline]
    pub(super) fn of_mut(&mut self, member: ProcessId) -> Option<&mut Stream> {
        self.inbound.get_mut(member.index())?.as_mut()
    }

    /// Returns the stream that is read, and its writer.
    #[inline]
    pub(super) fn read_mut(&mut self) -> Option<(ProcessId, &mut Stream)> {
        let leader = self.reads?;
        Some((leader, self.of_mut(leader)?))
    }

    /// Starts this member's stream at a follower. Returns where it starts.
    pub(super) fn start(&mut self, follower: ProcessId, links: &[PeerLink]) -> Option<Start> {
        let target = self.outbound.target_of(follower)?;
        Some(self.outbound.start(target, links))
    }

    /// Returns whether a follower gets this member's stream.
    pub(super) fn is_started(&self, follower: ProcessId) -> bool {
        self.outbound.target_of(follower).is_some_and(|target| self.outbound.targets[target].is_started())
    }

    /// Returns the region at a follower in which this member's stream lies.
    pub(super) fn region_of<F: Fabric>(
        &mut self,
        follower: ProcessId,
        fabric: &mut F,
        links: &[PeerLink],
    ) -> Option<RemoteRegion> {
        let target = self.outbound.target_of(follower)?;
        self.outbound.targets[target].resolve(fabric, links)
    }

    /// Stops the stream to a follower whose connection ended or to which a transfer begins.
    pub(super) fn stop(&mut self, follower: ProcessId) {
        if let Some(target) = self.outbound.target_of(follower) {
            self.outbound.stop(target);
        }
    }

    /// Sets the seal that later credits of a follower carry.
    pub(super) fn hear_credits(&mut self, follower: ProcessId, seal: Seal) {
        if let Some(target) = self.outbound.target_of(follower) {
            self.outbound.hear_credits(target, seal);
        }
    }

    /// Notes that the revocation of a region took effect.
    pub(super) fn revoked(&mut self, region: RegionId) {
        self.revoking.retain(|pending| *pending != region);
    }

    /// Revokes the access to the streams here from all members but `except`. Call it again until it returns true: then
    /// the revocation has taken effect, all earlier writes of those members have landed, and no write of theirs lands
    /// any more.
    pub(super) fn fence<F: Fabric>(&mut self, fabric: &mut F, except: Option<ProcessId>) -> bool {
        let mut all = true;
        for (process, stream) in (0..).map(ProcessId).zip(&mut self.inbound) {
            let Some(stream) = stream.as_mut().filter(|_| Some(process) != except) else { continue };
            if stream.granted {
                stream.granted = fabric.revoke(stream.ring.region, process).is_err();
                if !stream.granted {
                    self.revoking.push(stream.ring.region);
                }
            }
            all &= !stream.granted;
        }
        all && self.revoking.is_empty()
    }

    /// Grants a member write access to its stream here, unless a revocation of that region is pending.
    pub(super) fn grant<F: Fabric>(&mut self, fabric: &mut F, to: ProcessId) {
        let Some(Some(stream)) = self.inbound.get_mut(to.index()) else { return };
        let pending = self.revoking.contains(&stream.ring.region);
        if !stream.granted && !pending && fabric.grant(stream.ring.region, to, Access::Write).is_ok() {
            stream.granted = true;
        }
    }
}
