//! `stentor bench compare`: the rows of two runs side by side.
//!
//! The two runs were made one after the other, so the ratios include changes of the machine's speed between them. If a
//! few percent matter, rounds of the two programs must alternate.

mod document;
mod ratio;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use stentor_support::{Failure, Human, Style, Verdict, table};

use super::samples::median;
use crate::args::BenchCompare;
use crate::report::{MESSAGES_PER_SECOND, MICROSECONDS};
use document::{Document, Environment, Key, Row};
use ratio::Ratio;

/// The change of a row between the two runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    /// The whole interval is below 1 by more than the tolerance.
    Faster,
    /// The interval ends at 1 plus the tolerance or below, but not all of it is below 1 by more than the tolerance.
    NotSlower,
    /// There is no interval, or only a part of it is above 1 by more than the tolerance.
    CannotBeTold,
    /// The whole interval is above 1 by more than the tolerance.
    Slower,
}

/// A row that both documents have.
#[derive(Clone, Debug, Serialize)]
struct Compared {
    name: String,
    bytes: u64,
    /// Unit of the two figures: `us` for a median latency, or `msgs/s`.
    unit: &'static str,
    before: f64,
    after: f64,
    p99_us_before: Option<f64>,
    p99_us_after: Option<f64>,
    /// Cost after, divided by cost before: a larger ratio is slower. `None` if one of the rows has fewer than four
    /// rounds, or if one has a rate and the other a latency.
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    change: Change,
}

/// Result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Comparison {
    /// `true` if every row is `faster` or `not_slower`.
    ok: bool,
    tolerance_percent: u32,
    rows: Vec<Compared>,
    /// Rows that only the first document has.
    only_before: Vec<String>,
    /// Rows that only the second document has.
    only_after: Vec<String>,
    /// Circumstances that make the comparison misleading.
    warnings: Vec<String>,
}

pub(super) fn run(args: &BenchCompare) -> Result<(Comparison, Verdict), Failure> {
    let (before, after) = (Document::read(&args.before)?, Document::read(&args.after)?);
    let comparison = compare(&before, &after, args.tolerance);
    if comparison.rows.is_empty() {
        let what = "the two documents have no row in common";
        let place = format!("{} and {}", args.before.display(), args.after.display());
        return Err(Failure::usage(what, place, "compare two runs of the same bench with the same arguments"));
    }
    let verdict = match comparison.rows.iter().map(|row| row.change).max() {
        Some(Change::Slower) => Verdict::Bad,
        Some(Change::CannotBeTold) => Verdict::Undecided,
        _ => Verdict::Good,
    };
    Ok((comparison, verdict))
}

fn compare(before: &Document, after: &Document, tolerance_percent: u32) -> Comparison {
    let (olds, news) = (before.by_key(), after.by_key());
    let tolerance = f64::from(tolerance_percent) / 100.0;
    let both = |row: &&Row| olds.contains_key(&(row.name.clone(), row.bytes));
    let rows: Vec<_> = after.rows.iter().filter(both).map(|row| compared(olds[&key(row)], row, tolerance)).collect();
    let only = |a: &BTreeMap<Key, &Row>, b: &BTreeMap<Key, &Row>| -> Vec<String> {
        let gone = a.keys().filter(|key| !b.contains_key(*key));
        gone.map(|(name, bytes)| format!("{name}, {bytes} B")).collect()
    };
    Comparison {
        ok: rows.iter().all(|row| row.change <= Change::NotSlower),
        tolerance_percent,
        only_before: only(&olds, &news),
        only_after: only(&news, &olds),
        warnings: warnings(&before.environment, &after.environment),
        rows,
    }
}

fn key(row: &Row) -> Key {
    (row.name.clone(), row.bytes)
}

fn compared(before: &Row, after: &Row, tolerance: f64) -> Compared {
    let ratio = Ratio::of(&before.costs(), &after.costs()).filter(|_| before.is_rate() == after.is_rate());
    let change = match ratio {
        Some(Ratio { low, .. }) if low > 1.0 + tolerance => Change::Slower,
        Some(Ratio { high, .. }) if high < 1.0 - tolerance => Change::Faster,
        Some(Ratio { high, .. }) if high <= 1.0 + tolerance => Change::NotSlower,
        _ => Change::CannotBeTold,
    };
    let figure = |row: &Row| median(row.of_rounds.iter().copied());
    Compared {
        name: after.name.clone(),
        bytes: after.bytes,
        unit: if after.is_rate() { MESSAGES_PER_SECOND } else { MICROSECONDS },
        before: figure(before),
        after: figure(after),
        p99_us_before: before.p99_us,
        p99_us_after: after.p99_us,
        ratio: ratio.map(|ratio| ratio.value),
        low: ratio.map(|ratio| ratio.low),
        high: ratio.map(|ratio| ratio.high),
        change,
    }
}

/// Returns the differences between the two runs other than the program, and the warnings of each run.
fn warnings(before: &Environment, after: &Environment) -> Vec<String> {
    let network = |environment: &Environment| environment.network.clone().unwrap_or_else(|| "left alone".to_owned());
    let cores = |environment: &Environment| environment.cores.to_string();
    let differ = [
        ("builds", before.profile.clone(), after.profile.clone()),
        ("processors", before.cpu.clone(), after.cpu.clone()),
        ("numbers of processors", cores(before), cores(after)),
        ("kernels", before.kernel.clone(), after.kernel.clone()),
        ("fabrics", before.fabric.clone(), after.fabric.clone()),
        ("wait modes", before.wait.clone(), after.wait.clone()),
        ("placements", before.pinning.clone(), after.pinning.clone()),
        ("packets", network(before), network(after)),
    ];
    let differ = differ.into_iter().filter(|(_, a, b)| a != b);
    let differ = differ.map(|(what, a, b)| format!("the two runs have different {what}: `{a}` and `{b}`"));
    let told = [("before", before), ("after", after)].into_iter().flat_map(|(which, environment)| {
        environment.warnings.iter().map(move |warning| format!("{which}: {}", warning.what))
    });
    differ.chain(told).collect()
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

impl Human for Comparison {
    fn human(&self, style: Style) -> String {
        let head = ["row", "#bytes", "unit", "before", "after", "99% before", "99% after", "ratio", "95% interval", ""];
        let cells = |row: &Compared| {
            let digits = if row.unit == MICROSECONDS { 3 } else { 0 };
            let interval = row
                .low
                .zip(row.high)
                .map_or_else(|| "fewer than 4 rounds".to_owned(), |(low, high)| format!("{low:.3} to {high:.3}"));
            vec![
                row.name.clone(),
                row.bytes.to_string(),
                row.unit.to_owned(),
                format!("{:.digits$}", row.before),
                format!("{:.digits$}", row.after),
                number(row.p99_us_before, 3),
                number(row.p99_us_after, 3),
                number(row.ratio, 3),
                interval,
                word(row.change).to_owned(),
            ]
        };
        let mut text = table(&head, self.rows.iter().map(cells));
        let _ = writeln!(
            text,
            "\nratio: cost after to cost before, larger is slower; slower or faster is told from {} % on, if the whole interval \
             is beyond it",
            self.tolerance_percent
        );
        for (which, rows) in [("before", &self.only_before), ("after", &self.only_after)] {
            rows.iter().for_each(|row| {
                let _ = writeln!(text, "only {which}: {row}");
            });
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "{}: {warning}", style.bad("warning"));
        }
        text
    }
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Faster => "faster",
        Change::NotSlower => "not slower",
        Change::CannotBeTold => "cannot be told",
        Change::Slower => "SLOWER",
    }
}

#[cfg(test)]
mod tests {
    use super::document::tests::parsed;
    use super::*;

    const STEADY: &[f64] = &[10.0, 10.1, 9.9, 10.0, 10.05];

    fn changes(before: &[f64], after: &[f64], unit: &str) -> Change {
        let [before, after] = [before, after].map(|rounds| parsed("poll", &[("row", unit, rounds)]));
        compare(&before, &after, 3).rows[0].change
    }

    fn times(factor: f64) -> Vec<f64> {
        STEADY.iter().map(|value| value * factor).collect()
    }

    #[test]
    fn a_row_is_slower_only_if_its_whole_interval_is() {
        for (factor, latency, rate) in [
            (1.0, Change::NotSlower, Change::NotSlower),
            (1.2, Change::Slower, Change::Faster),
            (0.8, Change::Faster, Change::Slower),
        ] {
            assert_eq!(changes(STEADY, &times(factor), "us"), latency, "{factor}");
            assert_eq!(changes(STEADY, &times(factor), "msgs/s"), rate, "{factor}");
        }
        assert_eq!(changes(STEADY, &[5.0, 20.0, 5.0, 20.0, 10.0], "us"), Change::CannotBeTold);
        assert_eq!(changes(STEADY, &[10.0; 3], "us"), Change::CannotBeTold, "three rounds");
    }

    #[test]
    fn differences_and_unmatched_rows_are_reported() {
        let before = parsed("poll", &[("row", "us", STEADY), ("gone", "us", STEADY)]);
        let after = parsed("block", &[("row", "us", STEADY), ("come", "us", STEADY)]);
        let found = compare(&before, &after, 3);
        assert_eq!(
            (&found.only_before[..], &found.only_after[..]),
            (&["gone, 64 B".into()][..], &["come, 64 B".into()][..])
        );
        assert_eq!(found.warnings, ["the two runs have different wait modes: `poll` and `block`"]);
        assert!(found.ok && found.rows.len() == 1);
        let text = found.human(Style::PLAIN);
        assert!(text.contains("only before: gone, 64 B") && text.contains("not slower"), "{text}");
    }
}
