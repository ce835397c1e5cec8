//! Counts of what became of transfers of states, as reports name them.

use stentor_multicast::{GivenUp, TransferOutcome, TransferReport, TransferRole};

/// The counts that simulation runs claim to reach.
pub(crate) const CLAIMS: [&str; 4] =
    ["transfers_complete", "transfers_resumed", "transfers_abandoned", "transfers_of_old_leaders"];

/// What became of transfers, counted at donors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferCounts {
    /// They began: freezes.
    pub began: u64,
    /// The receiver has the state.
    pub complete: u64,
    /// They went on after a broken connection.
    pub resumed: u64,
    /// The receiver made no progress.
    pub silent: u64,
    /// The receiver took another donor's state, or was started again.
    pub abandoned: u64,
    /// The donor lost its leadership.
    pub of_old_leaders: u64,
    /// Too much was delivered meanwhile.
    pub overflowed: u64,
}

impl TransferCounts {
    /// Counts a report.
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
            // No simulated state fails to be written.
            TransferOutcome::GivenUp(GivenUp::BacklogFull { .. } | GivenUp::TooLarge { .. } | GivenUp::Unwritable) => {
                &mut self.overflowed
            }
        };
        *counter += 1;
    }

    /// Returns names and values in a fixed order.
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
