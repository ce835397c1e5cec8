//! A latency that is computed from measured parts, and the accuracy of the computation in a case that can be measured
//! directly.

use std::fmt::Write;

use serde::Serialize;

/// Largest relative error with which a computed value counts as accurate, and largest share of interrupted measurements
/// with which it is not reported as disturbed.
const TOLERANCE: f64 = 0.10;

/// One step of the path of a message.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PathStep {
    /// Role of the process: client, leader or follower.
    pub(super) role: &'static str,
    /// Median time in microseconds from the last write of the previous step to the last write or the delivery of this
    /// step. It contains the hop, the rest of the polling round in which the write arrives, and the work of the
    /// process.
    pub(super) us: f64,
}

/// The basis on which the figures of a row were computed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Computed {
    /// The path that most messages take.
    pub(super) path: Vec<PathStep>,
    /// Share of the messages that take this path, from 0 to 1.
    pub(super) share: f64,
    /// Number of messages without a path, because their reactions did not fit together. The row does not contain them.
    pub(super) dropped: u64,
    /// Share of the measurements, from 0 to 1, that are excluded because the measured process was interrupted: its
    /// reaction took longer than the pause of the other processes.
    pub(super) interrupted: f64,
    /// Latency in microseconds of the same cluster with a processor for each process, measured in the same rounds: the
    /// median of the rounds' medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured_p50_us: Option<f64>,
    /// Ratio of the computed to the measured median of a round: the median of all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) computed_to_measured: Option<f64>,
}

impl Computed {
    /// Describes the computation of a row with this name and this median.
    pub(super) fn human(&self, name: &str, p50_us: f64) -> String {
        let steps: Vec<_> = self.path.iter().map(|step| format!("{} {:.3}", step.role, step.us)).collect();
        let mut text = format!(
            "{name}: {} usec on the path of {:.0} % of the messages; computed\n",
            steps.join(" > "),
            self.share * 100.0
        );
        if self.interrupted > TOLERANCE {
            let _ = writeln!(
                text,
                "{name}: {:.0} % of the measurements were interrupted and left out; repeat it with nothing else running",
                self.interrupted * 100.0
            );
        }
        if let Some((measured, ratio)) = self.measured_p50_us.zip(self.computed_to_measured) {
            let off = if (ratio - 1.0).abs() > TOLERANCE {
                ": off by more than 10 %, so do not trust the computed rows of this run"
            } else {
                ""
            };
            let _ =
                writeln!(text, "{name}: computed {p50_us:.3} usec, measured {measured:.3} usec, ratio {ratio:.2}{off}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inaccurate_value_is_reported_as_untrustworthy() {
        let step = |role, us| PathStep { role, us };
        let of = |ratio| Computed {
            path: vec![step("client", 0.25), step("leader", 0.5)],
            share: 0.95,
            dropped: 0,
            interrupted: 0.05,
            measured_p50_us: Some(0.8),
            computed_to_measured: Some(ratio),
        };
        let text = of(0.92).human("row", 0.75);
        assert_eq!(
            text,
            "row: client 0.250 > leader 0.500 usec on the path of 95 % of the messages; computed\n\
             row: computed 0.750 usec, measured 0.800 usec, ratio 0.92\n"
        );
        assert!(of(1.11).human("row", 0.9).contains("do not trust") && of(0.89).human("row", 0.7).contains("off by"));
        let alone = Computed { measured_p50_us: None, computed_to_measured: None, ..of(1.0) };
        assert!(!alone.human("row", 0.75).contains("measured"));
        assert!(Computed { interrupted: 0.2, ..alone }.human("row", 0.75).contains("20 % of the measurements were"));
    }
}
