//! Formats a report as Markdown.

use std::fmt::Write as _;

use super::report::{Ratio, Report, Told};
use super::system::Figures;

/// Payloads of the short table, in bytes.
const SHORT: [u32; 2] = [64, 16_384];

/// The meaning of two columns.
const BOUND: &str = "\nbound: the same processes without the system, in the same run: p50 µs if one is outstanding, else messages/s; \
    ratio: the cost of a message by the bound's, 1.00 is at the bound, larger is worse\n";

/// Returns a short table, all figures by place, ratios, and the description of each system.
pub(super) fn text(report: &Report) -> String {
    let mut text = short(report);
    for place in report.places() {
        let _ = writeln!(
            text,
            "\n## {place}\n\n| system | bytes | outstanding | messages/s | p50 µs | p99 µs | bound | ratio |"
        );
        let _ = writeln!(text, "|---|---|---|---|---|---|---|---|");
        for system in report.at(place) {
            for row in &system.rows {
                let Figures { bytes, outstanding, msgs_per_s, p50_us, p99_us, bound, ratio } = row;
                let (name, how) = (system.name, system.how);
                let (rate, p50, p99) = (cell(*msgs_per_s, 0), cell(*p50_us, 2), cell(*p99_us, 2));
                let (bound, ratio) = (cell(*bound, if *outstanding == 1 { 2 } else { 0 }), cell(*ratio, 2));
                let _ = write!(text, "| {name} ({how}) | {bytes} | {outstanding} | {rate} | {p50} | {p99} |");
                let _ = writeln!(text, " {bound} | {ratio} |");
            }
        }
    }
    text += BOUND;
    let _ =
        writeln!(text, "\n| ours beside another | times the messages/s | times as short a latency |\n|---|---|---|");
    for (name, Ratio { rate, latency }) in &report.ratios {
        let _ = writeln!(text, "| {name} | {} | {} |", cell(*rate, 2), cell(*latency, 2));
    }
    text + &systems(report) + &missing(report)
}

/// Returns a table with one row for each system at each place.
fn short(report: &Report) -> String {
    let mut text = "\n| place | system | waits |".to_owned();
    for bytes in SHORT {
        let _ = write!(text, " {bytes} bytes: p50 µs | messages/s |");
    }
    let _ = writeln!(text, "\n|---|---|---|{}", "---|---|".repeat(SHORT.len()));
    for place in report.places() {
        for system in report.at(place) {
            let Told { name, how, wait, .. } = system;
            let _ = write!(text, "| {place} | {name} ({how}) | {wait} |");
            for bytes in SHORT {
                let _ = write!(text, " {} | {} |", cell(system.latency(bytes), 2), cell(system.rate(bytes), 0));
            }
            text.push('\n');
        }
    }
    text
}

/// Lists each system once, with its version and guarantee.
fn systems(report: &Report) -> String {
    let (mut text, mut named) = (String::new(), Vec::new());
    for system in &report.systems {
        let Told { name, version, guarantee, until, wait, runs, .. } = system;
        if !named.contains(name) {
            named.push(name);
            let _ = writeln!(
                text,
                "\n{name}: {version}; guarantee: {guarantee}; waits: {wait}; a latency ends when {until}; medians of runs: {runs}"
            );
        }
    }
    text
}

/// Lists the systems without figures, with the reasons.
fn missing(report: &Report) -> String {
    let absent = report.absent.iter().map(|absent| format!("\nnot measured: {absent}\n"));
    absent.chain(report.failed.iter().map(|failed| format!("\nfailed: {failed}\n"))).collect()
}

fn cell(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::measured;
    use super::*;

    #[test]
    fn each_place_has_one_table_and_absent_systems_are_named() {
        let mut ours = measured("stentor", 0, &[[(9.0, 10.0), (900.0, 99.0)]]);
        ours.bounded(&[8.0, 1200.0]);
        let udpu = measured("cpg", 0, &[[(1.0, 100.0), (400.0, 999.0)]]);
        let knet = measured("cpg", 1, &[[(1.0, 80.0), (200.0, 999.0)]]);
        let report = Report::of(&[ours, udpu, knet], vec!["x: not installed".to_owned()], vec!["y: lost".to_owned()]);
        let text = text(&report);
        assert!(text.contains("| stentor (roce) | 64 | 1 | 9 | 10.00 | 20.00 | 8.00 | 1.25 |"), "{text}");
        assert!(text.contains("| stentor (roce) | 64 | 500 | 900 | 99.00 | 198.00 | 1200 | 1.33 |"), "{text}");
        assert!(text.contains("| cpg (udpu) | 64 | 1 | 1 | 100.00 | 200.00 | – | – |"), "{text}");
        assert!(text.contains("stentor beside bound, 64 bytes | 0.75 | 0.80 |"), "{text}");
        assert!(text.contains(" | 10.00 | 900 | – | – |"), "{text}");
        assert!(text.contains("not measured: x: not installed") && text.contains("failed: y: lost"), "{text}");
        assert_eq!(text.matches("## three hosts, MTU 1500").count(), 1, "{text}");
        assert_eq!(text.matches("\ncpg: 1.0; guarantee: total order").count(), 1, "{text}");
    }
}
