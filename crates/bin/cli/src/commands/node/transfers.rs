//! Logs transfers of the application's state.

use std::time::Instant;

use stentor::runtime::{GivenUp, TransferOutcome, TransferReport, TransferRole};
use stentor_support::{Level, bytes};

/// Times at which the last transfers of this process began: as a donor (`given`) and as a receiver (`taken`).
#[derive(Default)]
pub(super) struct Began {
    given: Option<Instant>,
    taken: Option<Instant>,
}

impl Began {
    /// Returns the log line for a report, with the name of the other member.
    pub(super) fn text(&mut self, report: &TransferReport, peer: &str) -> (Level, String) {
        let position = report.position;
        let (began, what) = match report.role {
            TransferRole::Donor => (&mut self.given, format!("gives {peer} its state after {position} deliveries")),
            TransferRole::Receiver => (&mut self.taken, format!("takes {peer}'s state after {position} deliveries")),
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
                    GivenUp::TooLarge { .. } | GivenUp::BacklogFull { .. } | GivenUp::Silent | GivenUp::Unwritable => {
                        Level::Warn
                    }
                    GivenUp::Abandoned | GivenUp::LeaderChanged => Level::Info,
                };
                (level, format!("{what}: given up after {size}: {why}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;

    use super::*;

    #[test]
    fn each_outcome_is_logged_with_its_size_and_failures_are_warnings() {
        let mut began = Began::default();
        let mut told = |role, outcome| {
            let report = TransferReport { role, peer: ProcessId(1), position: 7, bytes: 2048, outcome };
            began.text(&report, "g1.2")
        };
        let (level, text) = told(TransferRole::Donor, TransferOutcome::Began);
        assert_eq!((level, text.as_str()), (Level::Info, "gives g1.2 its state after 7 deliveries"));
        let (_, text) = told(TransferRole::Receiver, TransferOutcome::Resumed);
        assert_eq!(text, "takes g1.2's state after 7 deliveries: goes on at 2.0 KiB after a broken connection");
        let (_, text) = told(TransferRole::Donor, TransferOutcome::Complete);
        assert!(text.starts_with("gives g1.2 its state after 7 deliveries: complete, 2.0 KiB in "), "{text}");
        for (why, level) in [
            (GivenUp::TooLarge { bytes: 4096, limit: 2048 }, Level::Warn),
            (GivenUp::BacklogFull { limit: 2048 }, Level::Warn),
            (GivenUp::Silent, Level::Warn),
            (GivenUp::Abandoned, Level::Info),
            (GivenUp::LeaderChanged, Level::Info),
            (GivenUp::Unwritable, Level::Warn),
        ] {
            let (is, text) = told(TransferRole::Receiver, TransferOutcome::GivenUp(why));
            assert_eq!(is, level, "{text}");
            assert!(text.ends_with(&format!(": given up after 2.0 KiB: {why}")), "{text}");
        }
    }
}
