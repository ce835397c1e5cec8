//! `cargo xtask nightly --only critical-path`: checks that a latency computed from measured parts equals the measured
//! latency.
//!
//! The bench computes and measures the latency of a client and a group of one in turns. Runs differ by a few percent,
//! so the median of several runs is judged.

use anyhow::{Result, ensure};
use serde::Deserialize;
use stentor_testutil::median;

use crate::campaign::stentor;
use crate::cargo::Context;
use crate::step::Outcome;

/// Number of runs of the bench.
const RUNS: usize = 5;
/// Maximum difference of the median ratio from 1.
const TOLERANCE: f64 = 0.10;
const BENCH: &[&str] =
    &["bench", "multicast", "--critical-path", "--groups", "1", "--dest", "1", "--window", "1", "--json"];

#[derive(Debug, Deserialize)]
struct Document {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    computed: Option<Computed>,
}

#[derive(Debug, Deserialize)]
struct Computed {
    computed_to_measured: Option<f64>,
}

pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        let (good, document): (_, Document) = stentor(context, BENCH)?;
        ensure!(good, "`stentor {}` failed", BENCH.join(" "));
        ratios.extend(ratio(&document));
    }
    let told: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    println!("  computed to measured: {}", told.join(", "));
    judge(&ratios)?;
    Ok(Outcome::Passed)
}

/// Returns the ratio of the row that was also measured.
fn ratio(document: &Document) -> Option<f64> {
    document.rows.iter().find_map(|row| row.computed.as_ref()?.computed_to_measured)
}

fn judge(ratios: &[f64]) -> Result<()> {
    ensure!(ratios.len() == RUNS, "{} of {RUNS} runs have a row that is computed and measured", ratios.len());
    let median = median(ratios.iter().copied());
    ensure!(
        (median - 1.0).abs() <= TOLERANCE,
        "the computed latency of a client and a group of one is {median:.2} times the measured one: the steps of the \
        path do not add up, see docs/benches.md"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_may_be_off_by_a_tenth_and_no_more() {
        assert!(judge(&[0.7, 0.91, 0.92, 1.0, 1.3]).is_ok());
        assert!(judge(&[0.7, 0.8, 0.89, 1.0, 1.3]).is_err());
        assert!(judge(&[0.7, 1.0, 1.11, 1.2, 1.3]).is_err());
    }

    #[test]
    fn a_run_without_the_row_proves_nothing() {
        assert!(judge(&[1.0; RUNS - 1]).is_err());
        let parse = |text: &str| serde_json::from_str::<Document>(text).expect("a document");
        assert_eq!(ratio(&parse(r#"{ "rows": [ {}, { "computed": { "path": [] } } ] }"#)), None);
        let checked = r#"{ "rows": [ {}, { "computed": { "computed_to_measured": 0.97 } } ] }"#;
        assert_eq!(ratio(&parse(checked)), Some(0.97));
    }
}
