//! The result of one seed.

use super::failure::SimFailure;
use super::report::SimReport;

/// The result of one seed: its report, digest, trace and failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimRun {
    pub(super) report: SimReport,
    pub(super) digest: u64,
    pub(super) trace: Vec<String>,
    pub(super) failure: Option<SimFailure>,
}

impl SimRun {
    /// Returns the counts of events.
    #[must_use]
    pub fn report(&self) -> &SimReport {
        &self.report
    }

    /// Returns a hash of all events of the run, including each write of a member. Equal runs have equal hashes, and
    /// different runs almost certainly have different hashes.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the trace: one line for each event, in order. A long run keeps the last 4000 lines.
    #[must_use]
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    /// Returns the failure of the seed, if it failed.
    #[must_use]
    pub fn failure(&self) -> Option<&SimFailure> {
        self.failure.as_ref()
    }
}
