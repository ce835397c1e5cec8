//! The streams of a group at one of its members: what it writes as a leader, and what the others wrote here.

use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Access, Fabric, ProcessId, Record, RegionId, RemoteRegion};

use super::hello::Start;
use super::inbound::Inbound;
use super::outbound::{Outbound, scratch};
use super::peer_link::PeerLink;

/// The stream ring of another member of the group, here.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) ring: Inbound,
    granted: bool,
    pub(super) record: Vec<u64>,
    /// The record in work.
    pub(super) held: Option<HeldRecord>,
}

/// A record of a stream that is not processed to its end.
#[derive(Debug)]
pub(super) struct HeldRecord {
    pub(super) record: Record,
    /// Its end and its next item, in words.
    pub(super) end: usize,
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
/// - Once a [fence](Streams::fence) holds, nobody but the one that it excepts can write a stream here, and what the others
///   wrote has landed, until a stream is [granted](Streams::grant).
/// - A region is granted again only when its last revocation has taken effect, which would take the new access away, too.
#[derive(Debug)]
pub(super) struct Streams {
    /// By process; of other members of the group.
    inbound: Vec<Option<Stream>>,
    /// Whose stream is read.
    pub(super) reads: Option<ProcessId>,
    pub(super) outbound: Outbound,
    /// Revocations that have not taken effect.
    revoking: Vec<RegionId>,
}

impl Streams {
    pub(super) fn new(inbound: Vec<Option<Stream>>, reads: Option<ProcessId>, outbound: Outbound) -> Self {
        Streams { inbound, reads, outbound, revoking: Vec::new() }
    }

    /// Another member's stream.
    #[inline]
    pub(super) fn of_mut(&mut self, member: ProcessId) -> Option<&mut Stream> {
        self.inbound.get_mut(member.index())?.as_mut()
    }

    /// The stream that is read, and whose it is.
    #[inline]
    pub(super) fn read_mut(&mut self) -> Option<(ProcessId, &mut Stream)> {
        let leader = self.reads?;
        Some((leader, self.of_mut(leader)?))
    }

    /// A follower gets this member's stream from here on.
    pub(super) fn start(&mut self, follower: ProcessId, links: &[PeerLink]) -> Option<Start> {
        let target = self.outbound.target_of(follower)?;
        Some(self.outbound.start(target, links))
    }

    /// Whether a follower gets this member's stream.
    pub(super) fn is_started(&self, follower: ProcessId) -> bool {
        self.outbound.target_of(follower).is_some_and(|target| self.outbound.targets[target].is_started())
    }

    /// The region at a follower that this member's stream lies in.
    pub(super) fn region_of<F: Fabric>(
        &mut self,
        follower: ProcessId,
        fabric: &mut F,
        links: &[PeerLink],
    ) -> Option<RemoteRegion> {
        let target = self.outbound.target_of(follower)?;
        self.outbound.targets[target].resolve(fabric, links)
    }

    /// The connection with a follower ended.
    pub(super) fn stop(&mut self, follower: ProcessId) {
        if let Some(target) = self.outbound.target_of(follower) {
            self.outbound.stop(target);
        }
    }

    /// A follower's credits are sealed like this from here on.
    pub(super) fn hear_credits(&mut self, follower: ProcessId, seal: Seal) {
        if let Some(target) = self.outbound.target_of(follower) {
            self.outbound.hear_credits(target, seal);
        }
    }

    /// A revocation took effect.
    pub(super) fn revoked(&mut self, region: RegionId) {
        self.revoking.retain(|pending| *pending != region);
    }

    /// Takes the access to the streams here away from all members but one. Call it again until it returns true: then this
    /// has taken effect, what they wrote is here, and nothing comes after it.
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

    /// Lets a member write its stream here.
    pub(super) fn grant<F: Fabric>(&mut self, fabric: &mut F, to: ProcessId) {
        let Some(Some(stream)) = self.inbound.get_mut(to.index()) else { return };
        let pending = self.revoking.contains(&stream.ring.region);
        if !stream.granted && !pending && fabric.grant(stream.ring.region, to, Access::Write).is_ok() {
            stream.granted = true;
        }
    }
}
