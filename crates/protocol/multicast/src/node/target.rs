//! One peer that gets a ring's records.

use std::collections::VecDeque;

use stentor_fabric::ring::Geometry;
use stentor_fabric::seal::Seal;
use stentor_fabric::{Fabric, ProcessId, Purpose, RegionId, RemoteRegion, RingReader, SlotReader};
use stentor_link::Resolved;

use super::credit_report::CreditReport;
use super::fanout::CompletedWrites;
use super::pace::Pace;
use super::peer_link::PeerLink;

/// Whether a target counts for flow control, and is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerProgress {
    /// Never started.
    Awaited,
    /// It counts.
    Started,
    /// Its connection broke.
    Stopped,
    /// It asked not to be waited for. Its credits are read on, because they say when that is over.
    Aside,
    /// It stood aside, and is to be started again.
    Back,
}

/// One peer that gets the ring's records.
///
/// # Invariants
/// - `report` is of the last start; so are `elsewhere` and `freed`. While there is a `report`, `elsewhere` is older.
/// - `staged` and `fanned` rise in both their numbers.
/// - While `behind` is there nothing is written but from it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) peer: ProcessId,
    /// Index into the node's links.
    pub(super) link: usize,
    pub(super) region: Resolved,
    pub(super) credit: Option<SlotReader>,
    /// Where the peer writes its credit.
    pub(super) cell: CreditCell,
    pub(super) progress: PeerProgress,
    pub(super) generation: u64,
    pub(super) freed: u64,
    /// The last credit since the start that is of the known history; `None` before the first.
    pub(super) report: Option<CreditReport>,
    /// The last credit since the start, if it is of another history.
    elsewhere: Option<CreditReport>,
    /// How fast it frees.
    pub(super) pace: Pace,
    /// Posts from staging that may still be read: (request, position).
    pub(super) staged: VecDeque<(u64, u64)>,
    /// Started, but not writable then: the records from here on are in staging.
    pub(super) behind: Option<RingReader>,
    /// The last request on its link before the start: what is behind is written when that is done.
    pub(super) before: u64,
    /// Records that went there by the set, and are not known to be done: (request, position).
    pub(super) fanned: VecDeque<(u64, u64)>,
    /// The first of those that a broken set carried, which may land late.
    in_doubt_from: Option<u64>,
}

/// Where a credit lies in own memory: region and byte offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct CreditCell {
    pub(super) region: RegionId,
    pub(super) offset: u64,
}

impl Target {
    pub(super) fn new(peer: ProcessId, link: usize, purpose: Purpose, cell: CreditCell) -> Self {
        Target {
            peer,
            link,
            region: Resolved::new(purpose),
            credit: None,
            cell,
            progress: PeerProgress::Awaited,
            generation: 0,
            freed: 0,
            report: None,
            elsewhere: None,
            pace: Pace::default(),
            staged: VecDeque::new(),
            behind: None,
            before: 0,
            fanned: VecDeque::new(),
            in_doubt_from: None,
        }
    }

    /// A credit came. `history`: the mark of the one that is known.
    #[inline]
    pub(super) fn note(&mut self, report: CreditReport, history: u32) {
        if report.place.history == history {
            self.report = Some(report);
        } else {
            self.note_elsewhere(report);
        }
    }

    #[cold]
    fn note_elsewhere(&mut self, report: CreditReport) {
        (self.report, self.elsewhere) = (None, Some(report));
    }

    /// Another history is known: the last credit counts if it is of that one.
    pub(super) fn look_again(&mut self, history: u32) {
        if let Some(last) = self.report.take().or(self.elsewhere.take()) {
            self.note(last, history);
        }
    }

    /// The ballot in which the peer counts what it holds; 0, if it does not say.
    pub(super) fn held_in(&self) -> u64 {
        self.report.map_or(0, |report| report.held.ballot)
    }

    #[inline]
    pub(super) fn is_started(&self) -> bool {
        self.progress == PeerProgress::Started
    }

    /// Whether the peer asked not to be waited for, since its last start.
    pub(super) fn is_aside(&self) -> bool {
        matches!(self.progress, PeerProgress::Aside | PeerProgress::Back)
    }

    /// Returns whether the peer asked not to be waited for, and no longer does.
    pub(super) fn is_back(&self) -> bool {
        self.progress == PeerProgress::Back
    }

    /// Whether nobody waits for this target, which is not started, before something is written to the others.
    #[inline]
    pub(super) fn is_left(&self, patient: bool) -> bool {
        self.progress != PeerProgress::Awaited || !patient
    }

    /// Whether what is written goes there at once, and nothing before it is still to go. Others than started ones get
    /// nothing.
    #[inline]
    pub(super) fn is_plain(&self, links: &[PeerLink], patient: bool) -> bool {
        if !self.is_started() {
            return self.is_left(patient);
        }
        let link = &links[self.link];
        self.region.known(link).is_some() && link.can_post() && self.behind.is_none() && self.staged.is_empty()
    }

    /// Whether it must get its records later: it cannot be written yet, or has not got those before.
    #[inline]
    pub(super) fn lags(&self, links: &[PeerLink]) -> bool {
        let link = &links[self.link];
        let writable = link.is_ready() && self.region.known(link).is_some();
        self.is_started() && (self.behind.is_some() || !writable)
    }

    /// The region that the ring lies in.
    #[inline]
    pub(super) fn resolve<F: Fabric>(&mut self, fabric: &mut F, links: &[PeerLink]) -> Option<RemoteRegion> {
        self.region.get(fabric, &links[self.link])
    }

    /// Whether the staging of a record that ends at `last` is not read for this target any more. `lap`: cells of a lap.
    #[inline]
    pub(super) fn has_read_staging(&mut self, links: &[PeerLink], last: u64, lap: u64) -> bool {
        let done = links[self.link].done();
        while self.staged.front().is_some_and(|(request, _)| *request <= done) {
            self.staged.pop_front();
        }
        self.staged.front().is_none_or(|(_, position)| last <= position + lap)
    }

    /// Forgets of the set's writes what is over. The position of the first that is not.
    pub(super) fn unfinished<F: Fabric>(&mut self, completed: &CompletedWrites<'_, F>) -> Option<u64> {
        while self.fanned.front().is_some_and(|(request, _)| *request <= completed.done()) {
            self.fanned.pop_front();
        }
        if self.in_doubt_from.is_some() && completed.is_settled(self.peer) {
            self.in_doubt_from = None;
        }
        self.in_doubt_from.or_else(|| self.fanned.front().map(|(_, position)| *position))
    }

    /// Whether copies of a broken set may land there late, as far as is known.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt_from.is_some()
    }

    /// The set broke, whose writes are done up to `done`. Returns the position of the first record that the peer may lack.
    pub(super) fn set_broke(&mut self, done: u64) -> Option<u64> {
        self.fanned.retain(|(request, _)| *request > done);
        let (_, first) = self.fanned.front().copied()?;
        let missing = self.fanned.iter().map(|(_, position)| *position).find(|at| *at >= self.freed);
        self.in_doubt_from = Some(self.in_doubt_from.map_or(first, |in_doubt| in_doubt.min(first)));
        self.fanned.clear();
        missing.filter(|_| self.is_started())
    }

    /// It counts from a position on. `behind`: it gets what this reads in staging before anything else.
    pub(super) fn start(&mut self, generation: u64, position: u64, behind: Option<RingReader>) {
        self.progress = PeerProgress::Started;
        self.region.forget();
        self.generation = generation;
        self.freed = position;
        (self.report, self.elsewhere) = (None, None);
        self.pace.restart();
        self.behind = behind;
    }

    /// Gives up waiting for a peer that was never connected.
    pub(super) fn give_up(&mut self) {
        if self.progress == PeerProgress::Awaited {
            self.progress = PeerProgress::Stopped;
        }
    }

    /// It does not count any more. Returns whether it did.
    pub(super) fn stop(&mut self) -> bool {
        let counted = self.is_started();
        if self.progress != PeerProgress::Awaited {
            self.progress = PeerProgress::Stopped;
        }
        if counted {
            (self.report, self.elsewhere) = (None, None);
            self.behind = None;
        }
        counted
    }
}

/// Reads what this node put into its own staging region.
pub(super) fn staging_reader(mut geometry: Geometry, position: u64, seal: Seal) -> RingReader {
    geometry.offset = 0;
    let mut reader = RingReader::new(geometry, seal);
    reader.restart(position, seal);
    reader
}
