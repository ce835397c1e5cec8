//! `cargo xtask nightly --only bounds`: checks that no figure of a bench is better than its bound.
//!
//! A bound is a program that moves the same bytes without a protocol. Nothing can be faster, so a ratio below 1 means
//! that the bound is wrong. Runs differ by a few percent, so medians of several runs are judged, with a small
//! tolerance.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Deserialize;
use stentor_testutil::median;

use crate::campaign::stentor;
use crate::cargo::Context;
use crate::step::Outcome;

/// Number of runs of each bench.
const RUNS: usize = 5;
/// Minimum of the median ratio to a correct bound.
const LEAST: f64 = 0.95;

/// The arguments of each bench whose figures are compared with its bound.
const BENCHES: &[&[&str]] = &[
    &["multicast", "--groups", "1", "--dest", "1", "-s", "64,1024,4096"],
    &["multicast", "--groups", "1", "--dest", "1", "--fabric", "roce", "-s", "64,1024,4096", "-n", "3500"],
    &["multicast", "--clients", "2"],
    &["multicast", "--fabric", "roce", "-n", "3500"],
    &["neb", "-s", "8,64,1024"],
    &["neb", "--mode", "all"],
    &["neb", "--mode", "lying-hosts", "--processes", "4"],
    &["neb", "--no-fast"],
    &["neb", "--fabric", "roce", "-n", "3500"],
    &["fabric"],
    &["fabric", "--fabric", "roce", "-n", "14000"],
    &["channel"],
];

#[derive(Debug, Deserialize)]
struct Document {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    bytes: u64,
    ratio: Option<f64>,
}

/// The ratios of each row, one for each run.
type Ratios = BTreeMap<(String, u64), Vec<f64>>;

pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let mut wrong = Vec::new();
    for bench in BENCHES {
        let mut ratios = Ratios::new();
        for _ in 0..RUNS {
            let arguments = [&["bench"][..], bench, &["--json", "--rounds", "5"]].concat();
            let (good, document): (_, Document) = stentor(context, &arguments)?;
            ensure!(good, "`stentor bench {}` failed", bench.join(" "));
            add(&mut ratios, document);
        }
        println!("stentor bench {}", bench.join(" "));
        wrong.extend(judge(&ratios)?.into_iter().map(|row| format!("bench {}: {row}", bench.join(" "))));
    }
    ensure!(wrong.is_empty(), "bounds that are wrong, because a figure is better:\n{}", wrong.join("\n"));
    Ok(Outcome::Passed)
}

fn add(ratios: &mut Ratios, document: Document) {
    for Row { name, bytes, ratio } in document.rows {
        if let Some(ratio) = ratio {
            ratios.entry((name, bytes)).or_default().push(ratio);
        }
    }
}

/// Prints the median of each row. Returns the rows that are better than their bound.
fn judge(ratios: &Ratios) -> Result<Vec<String>> {
    ensure!(!ratios.is_empty(), "no row has a bound");
    let mut wrong = Vec::new();
    for ((name, bytes), ratios) in ratios {
        let median = median(ratios.iter().copied());
        let told = format!("{name}, {bytes} B: ratio {median:.2}");
        println!("  {told}");
        if median < LEAST {
            wrong.push(told);
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(runs: &[[f64; 2]]) -> Ratios {
        let mut ratios = Ratios::new();
        for [one, many] in runs {
            let row = |name: &str, ratio| Row { name: name.into(), bytes: 64, ratio };
            let rows = vec![row("one", Some(*one)), row("many", Some(*many)), row("bare", None)];
            add(&mut ratios, Document { rows });
        }
        ratios
    }

    #[test]
    fn a_row_that_is_better_than_its_bound_in_the_median_is_named() {
        assert_eq!(judge(&ratios(&[[1.2, 0.5], [1.1, 1.0], [0.9, 1.2]])).unwrap(), Vec::<String>::new());
        let wrong = judge(&ratios(&[[1.2, 0.9], [1.1, 0.94], [0.96, 1.2]])).unwrap();
        assert_eq!(wrong, ["many, 64 B: ratio 0.94"]);
    }

    #[test]
    fn benches_without_bounds_prove_nothing() {
        assert!(judge(&Ratios::new()).is_err());
    }
}
