//! What a node tells about transfers of the application's state.

use std::time::Instant;

use stentor::runtime::{GivenUp, TransferOutcome, TransferReport, TransferRole};
use stentor_support::{Level, bytes};

/// The last transfer that began, each way.
#[derive(Default)]
pub(super) struct Began {
    given: Option<Instant>,
    taken: Option<Instant>,
}

impl Began {
    /// Returns what to say of a report, with the other member's name.
    pub(super) fn text(&mut self, report: &TransferReport, peer: &str) -> (Level, String) {
        let gives = report.role == TransferRole::Donor;
        let began = if gives { &mut self.given } else { &mut self.taken };
        let what = match gives {
            true => format!("gives {peer} its state after {} deliveries", report.position),
            false => format!("takes {peer}'s state after {} deliveries", report.position),
        };
        let size = bytes(report.bytes);
        match report.outcome {
            TransferOutcome::Began => {
                *began = Some(Instant::now());
                (Level::Info, what)
            }
            TransferOutcome::Resumed => (Level::Info, format!("{what}: goes on at {size} after a broken connection")),
            TransferOutcome::Complete => {
                let time = began.take().map_or(0, |began| began.elapsed().as_millis());
                (Level::Info, format!("{what}: complete, {size} in {time} ms"))
            }
            TransferOutcome::GivenUp(why) => {
                let level = match why {
                    GivenUp::TooLarge { .. } | GivenUp::BacklogFull { .. } | GivenUp::Silent => Level::Warn,
                    GivenUp::Abandoned | GivenUp::LeaderChanged => Level::Info,
                };
                (level, format!("{what}: given up after {size}: {why}"))
            }
        }
    }
}
