//! Counts of the outcomes of state transfers, under the names that reports use.

use stentor_multicast::{GivenUp, TransferOutcome, TransferReport, TransferRole};

/// The names of the counts that must not be 0 after a simulation run of enough seeds.
pub(crate) const CLAIMS: [&str; 4] =
    ["transfers_complete", "transfers_resumed", "transfers_abandoned", "transfers_of_old_leaders"];

/// Outcomes of state transfers, counted at donors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferCounts {
    /// Transfers that began with a freeze.
    pub began: u64,
    /// Transfers whose receiver has the complete state.
    pub complete: u64,
    /// Times that a transfer resumed after a broken connection.
    pub resumed: u64,
    /// Transfers that ended because the receiver made no progress.
    pub silent: u64,
    /// Transfers that ended because the receiver accepted another donor's state or restarted.
    pub abandoned: u64,
    /// Transfers that ended because the donor lost its leadership.
    pub of_old_leaders: u64,
    /// Transfers that ended because too many messages were delivered meanwhile, or the state was too large.
    pub overflowed: u64,
}

impl TransferCounts {
    /// Adds a report to the counts.
    pub(crate) fn count(&mut self, report: &TransferReport) {
        if report.role != TransferRole::Donor {
            return;
        }
        let counter = match report.outcome {
            TransferOutcome::Began => &mut self.began,
            TransferOutcome::Complete => &mut self.complete,
            TransferOutcome::Resumed => &mut self.resumed,
            TransferOutcome::GivenUp(GivenUp::Silent) => &mut self.silent,
            TransferOutcome::GivenUp(GivenUp::Abandoned) => &mut self.abandoned,
            TransferOutcome::GivenUp(GivenUp::LeaderChanged) => &mut self.of_old_leaders,
            // Writing a simulated state never fails.
            TransferOutcome::GivenUp(GivenUp::BacklogFull { .. } | GivenUp::TooLarge { .. } | GivenUp::Unwritable) => {
                &mut self.overflowed
            }
        };
        *counter += 1;
    }

    /// Returns the names and values in a fixed order.
    pub(crate) fn named(self) -> Vec<(&'static str, u64)> {
        vec![
            ("transfers_begun", self.began),
            ("transfers_complete", self.complete),
            ("transfers_resumed", self.resumed),
            ("transfers_silent", self.silent),
            ("transfers_abandoned", self.abandoned),
            ("transfers_of_old_leaders", self.of_old_leaders),
            ("transfers_overflowed", self.overflowed),
        ]
    }
}
