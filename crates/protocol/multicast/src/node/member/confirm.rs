//! Confirms reads: a leader proves that it still led when a read arrived.
//!
//! The leader writes a word into its stream region at each follower, and waits until the writes have completed at a
//! majority, itself included.
//!
//! # Why that is enough
//! A follower that promises a larger ballot first revokes the access to its stream regions from all processes but that
//! ballot's leader, and waits until the revocation has taken effect (`streams.rs`). So a follower at which the write
//! completed had not promised a larger ballot when the write was posted, which is after the read arrived. Suppose that
//! a majority had not promised a larger ballot at that moment. Then no member had installed a larger ballot, and no
//! member had delivered a message in one.
//!
//! A follower counts only if the ballot is installed there, which it has reported on the present connection. A process
//! that replaced the follower has another connection. The write names a region of the process that granted it: when
//! that process has ended, the write fails or breaks with its connection (rule 12 of the fabric's contract). So a write
//! into the memory of a dead process counts only as long as no other process of that member has connected. And such a
//! process promises nothing before a leader has admitted it: either this leader, over a connection that it knows of, or
//! a leader whose ballot a majority has promised before.
//!
//! # Invariants
//! - A round counts in the ballot in which it began, as long as this member leads in that ballot.
//! - A write counts on the connection on which it was posted.

use std::collections::VecDeque;

use stentor_fabric::{Fabric, ProcessId, RemoteSpan};
use zerocopy::IntoBytes;

use super::Member;
use crate::mutant::mutant;
use crate::node::counts::Step;
use crate::node::peer_link::PeerLink;
use crate::{Ballot, GroupId, Limits, ReadBarrier, ReadProgress, Timestamp, Topology};

/// Maximum number of rounds in progress.
const MOST: usize = 8;

/// One round: writes to the followers that together prove that this member leads.
#[derive(Debug)]
struct Round {
    number: u64,
    ballot: Ballot,
    /// Indexed by follower: the connection and the number of the request; `None` if nothing was written.
    writes: Vec<Option<(u64, u64)>>,
}

/// The confirmation rounds of this member.
#[derive(Debug)]
pub(super) struct Confirmations {
    followers: Vec<ProcessId>,
    /// Number of followers at which a write must complete.
    needed: usize,
    /// Offset of the word in a stream region; `None` if the cluster has no replies, because the regions then have no
    /// such word.
    offset: Option<u64>,
    /// Rounds in progress, the oldest first.
    under_way: VecDeque<Round>,
    spare: Vec<Round>,
    begun: u64,
    confirmed: u64,
}

impl Confirmations {
    pub(super) fn new(topology: &Topology, limits: &Limits, (me, group): (ProcessId, GroupId)) -> Self {
        let followers: Vec<ProcessId> = topology.members(group).filter(|process| *process != me).collect();
        Confirmations {
            needed: topology.majority(group) as usize - 1,
            followers,
            offset: limits.has_replies().then(|| limits.stream_ring(topology).bytes()),
            under_way: VecDeque::with_capacity(MOST),
            spare: Vec::new(),
            begun: 0,
            confirmed: 0,
        }
    }

    fn round(&mut self, ballot: Ballot) -> Round {
        let mut round =
            self.spare.pop().unwrap_or_else(|| Round { number: 0, ballot, writes: vec![None; self.followers.len()] });
        round.writes.fill(None);
        self.begun += 1;
        (round.number, round.ballot) = (self.begun, ballot);
        round
    }

    fn forget_oldest(&mut self) {
        self.spare.extend(self.under_way.pop_front());
    }
}

impl Round {
    /// Returns the number of writes that completed, and the number of those that completed or still may.
    fn count(&self, completed: impl Fn(usize, u64, u64) -> Option<bool>) -> (usize, usize) {
        let written = self.writes.iter().enumerate().filter_map(|(at, write)| write.map(|write| (at, write)));
        written.fold((0, 0), |(done, possible), (at, (connection, request))| match completed(at, connection, request) {
            Some(true) => (done + 1, possible + 1),
            Some(false) => (done, possible + 1),
            None => (done, possible),
        })
    }
}

impl<F: Fabric> Member<F> {
    /// Begins a read that must reflect the group's state after the time `not_before`; see
    /// [`Replica::begin_read`](crate::Replica::begin_read). The read may be answered when it is
    /// [ready](Member::read_progress) and a round of writes that [began](Member::confirm) after this call is
    /// [confirmed](Member::confirmed). Returns `None` if this member does not lead.
    #[must_use]
    pub fn begin_read(&self, not_before: u64) -> Option<ReadBarrier> {
        self.replica.begin_read(not_before)
    }

    /// Returns the progress of a read.
    pub fn read_progress(&mut self, read: &ReadBarrier) -> ReadProgress {
        let reached = self.reached(read.ballot());
        self.replica.read_progress(read, reached)
    }

    /// Starts a round of writes to the followers, which shows whether this member leads. Returns the number of the
    /// round. Returns `None` if this member does not lead, too few followers can be written, too many rounds are in
    /// progress, or the cluster has no replies.
    pub fn confirm(&mut self) -> Option<u64> {
        self.look_at_confirmations();
        let ballot = self.replica.begin_read(0)?.ballot();
        if mutant!(self.mutant, ReadUnconfirmed) {
            self.confirmations.begun += 1;
            return Some(self.confirmations.begun);
        }
        let offset = self.confirmations.offset.filter(|_| self.confirmations.under_way.len() < MOST)?;
        let mut round = self.confirmations.round(ballot);
        let Member { fabric, links, streams, replica, confirmations, outputs, peers, .. } = self;
        let Confirmations { followers, needed, .. } = confirmations;
        let mut written = 0;
        for (at, follower) in followers.iter().enumerate() {
            let Some(link) = peers[follower.index()].as_ref().and_then(|peer| peer.streaming) else { continue };
            let can_post =
                streams.is_started(*follower) && links[link].can_post() && replica.is_installed_at(*follower);
            let Some(region) = streams.region_of(*follower, fabric, links).filter(|_| can_post) else { continue };
            let (link, number) = (&mut links[link], round.number);
            let to = RemoteSpan { region, offset };
            let request = link.write_quietly(fabric, number.as_bytes(), to);
            round.writes[at] = request.map(|request| (link.connection_id(), request));
            written += usize::from(request.is_some());
        }
        outputs.counts.write(Step::Confirm, written as u64);
        let (number, enough) = (round.number, written >= *needed);
        if enough {
            confirmations.under_way.push_back(round);
        } else {
            confirmations.spare.push(round);
        }
        if written > 0 {
            // On a fabric whose writes are done when they are posted, the completion is already there.
            self.fabric.flush();
            self.had_work |= self.poll_completions();
        }
        enough.then_some(number)
    }

    /// Returns the number of the last round that proved that this member led when the round began. It covers all reads
    /// that arrived before the round began.
    pub fn confirmed(&mut self) -> u64 {
        self.look_at_confirmations();
        if mutant!(self.mutant, ReadUnconfirmed) {
            return self.confirmations.begun;
        }
        self.confirmations.confirmed
    }

    /// Returns whether a round is in progress.
    #[must_use]
    pub fn is_confirming(&self) -> bool {
        !self.confirmations.under_way.is_empty()
    }

    /// Returns the timestamp of the last message that was delivered here. Before the first delivery of this process, it
    /// is a timestamp that precedes all others.
    #[must_use]
    pub fn last_timestamp(&self) -> Timestamp {
        self.outputs.last
    }

    /// Returns the time that this group has certainly reached, as far as a leader in this ballot knows. No message that
    /// is unknown to this member gets an earlier time.
    #[must_use]
    pub fn reached(&self, ballot: Ballot) -> u64 {
        let (began, clock) = self.outputs.recovered;
        self.outputs.last.time.max(if began == ballot { clock } else { 0 })
    }

    fn look_at_confirmations(&mut self) {
        let Member { confirmations, replica, links, peers, .. } = self;
        let leads = replica.begin_read(0).map(|read| read.ballot());
        while let Some(round) = confirmations.under_way.front() {
            let (followers, needed, number) = (&confirmations.followers, confirmations.needed, round.number);
            let (done, possible) = round.count(|at, connection, request| {
                let link: &PeerLink = &links[peers[followers[at].index()].as_ref()?.streaming?];
                let counts = link.connection_id() == connection && replica.is_installed_at(followers[at]);
                counts.then(|| link.done() >= request)
            });
            let counts = leads == Some(round.ballot);
            if counts && done >= needed {
                confirmations.confirmed = number;
            } else if counts && possible >= needed {
                return;
            }
            confirmations.forget_oldest();
        }
    }
}
