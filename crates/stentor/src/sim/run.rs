//! One seed that was run.

use super::failure::SimFailure;
use super::report::SimReport;

/// One seed that was run, with all that is to be told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimRun {
    pub(super) report: SimReport,
    pub(super) digest: u64,
    pub(super) trace: Vec<String>,
    pub(super) failure: Option<SimFailure>,
}

impl SimRun {
    /// Returns how often what happened.
    #[must_use]
    pub fn report(&self) -> &SimReport {
        &self.report
    }

    /// Returns a hash of everything that happened, down to each write of a member. Two runs with the same hash are the same.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns what happened, a line for each event, in order; of a long run the last 4000 lines.
    #[must_use]
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    /// Returns how the seed failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&SimFailure> {
        self.failure.as_ref()
    }
}
