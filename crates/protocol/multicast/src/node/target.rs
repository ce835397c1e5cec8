//! One peer that receives a ring's records.

use std::collections::VecDeque;

use stentor_fabric::ring::Geometry;
use stentor_fabric::seal::Seal;
use stentor_fabric::{Fabric, ProcessId, Purpose, RegionId, RemoteRegion, RingReader, SlotReader};
use stentor_link::Resolved;

use super::credit_report::CreditReport;
use super::fanout::CompletedWrites;
use super::pace::Pace;
use super::peer_link::PeerLink;

/// The state of a target, which determines whether it counts for flow control and is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerProgress {
    /// The target was never started.
    Awaited,
    /// The target was started. It counts for flow control, and is written.
    Started,
    /// The target was stopped, for example because the connection to the peer broke, or it is no longer awaited.
    Stopped,
    /// The peer asked not to be waited for. The credits of the peer are still read, because they report when the
    /// request ends.
    Aside,
    /// The peer has withdrawn its request not to be waited for. The target is to be restarted.
    Back,
}

/// One peer that receives the ring's records.
///
/// # Invariants
/// - `report`, `elsewhere` and `freed` belong to the last start. While there is a `report`, `elsewhere` is older.
/// - Both numbers increase along `fanned`. They do so along `staged`, too, among the writes since one start.
/// - While `behind` is set, only records that it reads from staging are written to the peer.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) peer: ProcessId,
    /// Index into the node's links.
    pub(super) link: usize,
    pub(super) region: Resolved,
    pub(super) credit: Option<SlotReader>,
    /// The cell into which the peer writes its credit.
    pub(super) cell: CreditCell,
    pub(super) progress: PeerProgress,
    pub(super) generation: u64,
    pub(super) freed: u64,
    /// The last credit since the start, if it belongs to the known history; `None` before the first.
    pub(super) report: Option<CreditReport>,
    /// The last credit since the start that belongs to another history.
    elsewhere: Option<CreditReport>,
    /// The progress of the peer in freeing the ring.
    pub(super) pace: Pace,
    /// Writes whose source in staging may still be read: (request, position).
    pub(super) staged: VecDeque<(u64, u64)>,
    /// Reads the records in staging that the target has yet to get.
    pub(super) behind: Option<RingReader>,
    /// The last request on the target's link before the start. The records that `behind` reads are written when that
    /// request is done.
    pub(super) before: u64,
    /// Records that the fan-out set carried and that are not known to be done: (request, position).
    pub(super) fanned: VecDeque<(u64, u64)>,
    /// Position of the first record of a broken fan-out set that may land late.
    in_doubt_from: Option<u64>,
}

/// The location of a credit in this node's memory: region and byte offset.
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

    /// Stores a credit. `history`: the mark of the known history.
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

    /// Checks the last credit again after another history became known. The credit counts if it belongs to that
    /// history.
    pub(super) fn look_again(&mut self, history: u32) {
        if let Some(last) = self.report.take().or(self.elsewhere.take()) {
            self.note(last, history);
        }
    }

    /// Returns the ballot in which the peer counts the slots that it holds; 0 if the peer did not report one.
    pub(super) fn held_in(&self) -> u64 {
        self.report.map_or(0, |report| report.held.ballot)
    }

    #[inline]
    pub(super) fn is_started(&self) -> bool {
        self.progress == PeerProgress::Started
    }

    /// Returns whether the peer has asked not to be waited for since its last start.
    pub(super) fn is_aside(&self) -> bool {
        matches!(self.progress, PeerProgress::Aside | PeerProgress::Back)
    }

    /// Returns whether the peer asked not to be waited for, and no longer does.
    pub(super) fn is_back(&self) -> bool {
        self.progress == PeerProgress::Back
    }

    /// Returns whether records may be written to other targets without waiting for this one, which is not started.
    #[inline]
    pub(super) fn is_left(&self, patient: bool) -> bool {
        self.progress != PeerProgress::Awaited || !patient
    }

    /// Returns whether a record can be written to this target at once, and no earlier record is to be read from
    /// staging. No record is written to a target that is not started, so it suffices that the owner does not wait for
    /// it.
    #[inline]
    pub(super) fn is_plain(&self, links: &[PeerLink], patient: bool) -> bool {
        if !self.is_started() {
            return self.is_left(patient);
        }
        let link = &links[self.link];
        self.region.known(link).is_some() && link.can_post() && self.behind.is_none() && self.staged.is_empty()
    }

    /// Returns whether the target must get records later, because it cannot be written yet or lacks earlier ones.
    #[inline]
    pub(super) fn lags(&self, links: &[PeerLink]) -> bool {
        let link = &links[self.link];
        let writable = link.is_ready() && self.region.known(link).is_some();
        self.is_started() && (self.behind.is_some() || !writable)
    }

    /// Returns the peer's region in which the ring lies.
    #[inline]
    pub(super) fn resolve<F: Fabric>(&mut self, fabric: &mut F, links: &[PeerLink]) -> Option<RemoteRegion> {
        self.region.get(fabric, &links[self.link])
    }

    /// Returns whether a record that ends at `last` may overwrite its staging memory: no outstanding write to this
    /// target still reads that memory. `lap` is the number of cells in a lap.
    #[inline]
    pub(super) fn has_read_staging(&mut self, links: &[PeerLink], last: u64, lap: u64) -> bool {
        let done = links[self.link].done();
        while self.staged.front().is_some_and(|(request, _)| *request <= done) {
            self.staged.pop_front();
        }
        self.staged.front().is_none_or(|(_, position)| last <= position + lap)
    }

    /// Forgets the fan-out set's completed writes. Returns the position of the first that may still land.
    pub(super) fn unfinished<F: Fabric>(&mut self, completed: &CompletedWrites<'_, F>) -> Option<u64> {
        while self.fanned.front().is_some_and(|(request, _)| *request <= completed.done()) {
            self.fanned.pop_front();
        }
        if self.in_doubt_from.is_some() && completed.is_settled(self.peer) {
            self.in_doubt_from = None;
        }
        self.in_doubt_from.or_else(|| self.fanned.front().map(|(_, position)| *position))
    }

    /// Returns whether writes of a broken fan-out set may still land at this target, as far as is known.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt_from.is_some()
    }

    /// Handles a broken fan-out set, whose writes are done up to `done`. Returns the position of the first record that
    /// the peer may lack.
    pub(super) fn set_broke(&mut self, done: u64) -> Option<u64> {
        self.fanned.retain(|(request, _)| *request > done);
        let (_, first) = self.fanned.front().copied()?;
        let missing = self.fanned.iter().map(|(_, position)| *position).find(|at| *at >= self.freed);
        self.in_doubt_from = Some(self.in_doubt_from.map_or(first, |in_doubt| in_doubt.min(first)));
        self.fanned.clear();
        missing.filter(|_| self.is_started())
    }

    /// Starts the target at a position. `behind`: reads the records in staging that the target must get before all
    /// newer ones.
    pub(super) fn start(&mut self, generation: u64, position: u64, behind: Option<RingReader>) {
        self.progress = PeerProgress::Started;
        self.region.forget();
        self.generation = generation;
        self.freed = position;
        (self.report, self.elsewhere) = (None, None);
        self.pace.restart();
        self.behind = behind;
    }

    /// Stops waiting for a target that was never started.
    pub(super) fn give_up(&mut self) {
        if self.progress == PeerProgress::Awaited {
            self.progress = PeerProgress::Stopped;
        }
    }

    /// Stops the target. Returns whether it counted.
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

/// Returns a reader of the records that this node put into its own staging region.
pub(super) fn staging_reader(mut geometry: Geometry, position: u64, seal: Seal) -> RingReader {
    geometry.offset = 0;
    let mut reader = RingReader::new(geometry, seal);
    reader.restart(position, seal);
    reader
}
