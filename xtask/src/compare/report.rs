//! What a comparison found: medians of runs, and Stentor's figures beside the best of each other system at the same place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use stentor_testutil::median;

use super::system::{Figures, Setting, System};

/// A system in a setting, and its runs.
pub(super) struct Measured {
    pub(super) system: &'static System,
    pub(super) setting: &'static Setting,
    version: String,
    runs: Vec<Vec<Figures>>,
}

impl Measured {
    pub(super) fn new(system: &'static System, setting: &'static Setting, version: String) -> Self {
        Measured { system, setting, version, runs: Vec::new() }
    }

    pub(super) fn named(&self) -> String {
        format!("{}, {} ({})", self.system.name, self.setting.place, self.setting.how)
    }

    pub(super) fn add(&mut self, figures: Vec<Figures>) {
        self.runs.push(figures);
    }

    /// The medians of the runs, in the order of the first one.
    fn medians(&self) -> Vec<Figures> {
        let of = |at: usize, figure: fn(&Figures) -> f64| median(self.runs.iter().map(|run| figure(&run[at])));
        let medians = self.runs.first().into_iter().flatten().enumerate().map(|(at, first)| Figures {
            msgs_per_s: of(at, |figures| figures.msgs_per_s),
            p50_us: of(at, |figures| figures.p50_us),
            p99_us: of(at, |figures| figures.p99_us),
            ..*first
        });
        medians.collect()
    }
}

/// The result.
#[derive(Serialize)]
pub(super) struct Report {
    systems: Vec<Told>,
    /// By place, other system and payload: how many times as many messages a second as its best setting, and how many times as
    /// short a latency.
    ratios: BTreeMap<String, Ratio>,
    /// Systems that were not measured, and the line that installs each.
    absent: Vec<String>,
}

#[derive(Serialize)]
struct Told {
    name: &'static str,
    version: String,
    guarantee: &'static str,
    until: &'static str,
    wait: &'static str,
    place: &'static str,
    how: &'static str,
    runs: usize,
    rows: Vec<Figures>,
}

/// Larger is better for Stentor.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Ratio {
    rate: f64,
    latency: f64,
}

impl Report {
    pub(super) fn of(measured: &[Measured], absent: Vec<String>) -> Self {
        let told = |measured: &Measured| Told {
            name: measured.system.name,
            version: measured.version.clone(),
            guarantee: measured.system.guarantee,
            until: measured.system.until,
            wait: measured.system.wait,
            place: measured.setting.place,
            how: measured.setting.how,
            runs: measured.runs.len(),
            rows: measured.medians(),
        };
        let systems: Vec<_> = measured.iter().map(told).collect();
        Report { ratios: ratios(&systems), systems, absent }
    }

    /// Tables in Markdown: one for each place.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut places: Vec<_> = self.systems.iter().map(|system| system.place).collect();
        places.dedup();
        let mut seen = Vec::new();
        for place in places {
            if seen.contains(&place) {
                continue;
            }
            seen.push(place);
            let _ = writeln!(text, "\n## {place}\n\n| system | bytes | outstanding | messages/s | p50 µs | p99 µs |");
            let _ = writeln!(text, "|---|---|---|---|---|---|");
            for system in self.systems.iter().filter(|system| system.place == place) {
                for row in &system.rows {
                    let Figures { bytes, outstanding, msgs_per_s, p50_us, p99_us } = row;
                    let _ = writeln!(
                        text,
                        "| {} ({}) | {bytes} | {outstanding} | {msgs_per_s:.0} | {p50_us:.1} | {p99_us:.1} |",
                        system.name, system.how
                    );
                }
            }
        }
        let _ = writeln!(text, "\n| beside | times the messages/s | times as short a latency |\n|---|---|---|");
        for (name, Ratio { rate, latency }) in &self.ratios {
            let _ = writeln!(text, "| {name} | {rate:.2} | {latency:.2} |");
        }
        let mut named = Vec::new();
        for system in &self.systems {
            if !named.contains(&system.name) {
                named.push(system.name);
                let Told { name, version, guarantee, until, wait, runs, .. } = system;
                let _ = writeln!(
                    text,
                    "\n{name}: {version}; {guarantee}; waits by {wait}; a latency ends when {until}; medians of {runs} runs"
                );
            }
        }
        for absent in &self.absent {
            let _ = writeln!(text, "\nnot measured: {absent}");
        }
        text
    }
}

/// The best of another system's settings at a place, beside ours.
fn ratios(systems: &[Told]) -> BTreeMap<String, Ratio> {
    let mut ratios = BTreeMap::new();
    let (ours, others): (Vec<_>, Vec<_>) = systems.iter().partition(|system| system.name == "stentor");
    for own in ours {
        for name in others.iter().filter(|other| other.place == own.place).map(|other| other.name) {
            let theirs = || others.iter().filter(|other| other.place == own.place && other.name == name);
            let rows = |bytes: u32| theirs().flat_map(|other| &other.rows).filter(move |row| row.bytes == bytes);
            for alone in own.rows.iter().filter(|row| row.outstanding == 1) {
                let bytes = alone.bytes;
                let rate = |row: &Figures| row.msgs_per_s;
                let most = rows(bytes).map(rate).fold(0.0, f64::max);
                let best = own.rows.iter().filter(|row| row.bytes == bytes).map(rate).fold(0.0, f64::max);
                let shortest = rows(bytes).filter(|row| row.outstanding == 1).map(|row| row.p50_us);
                let shortest = shortest.fold(f64::INFINITY, f64::min);
                if most > 0.0 && shortest.is_finite() {
                    let ratio = Ratio { rate: best / most, latency: shortest / alone.p50_us };
                    ratios.insert(format!("{}, {name}, {bytes} bytes", own.place), ratio);
                }
            }
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::super::system::SYSTEMS;
    use super::*;

    fn figures(outstanding: u64, msgs_per_s: f64, p50_us: f64) -> Figures {
        Figures { bytes: 64, outstanding, msgs_per_s, p50_us, p99_us: 2.0 * p50_us }
    }

    fn measured(system: usize, setting: usize, runs: &[[(f64, f64); 2]]) -> Measured {
        let system = &SYSTEMS[system];
        let mut measured = Measured::new(system, &system.settings[setting], "1.0".to_owned());
        for [alone, many] in runs {
            measured.add(vec![figures(1, alone.0, alone.1), figures(500, many.0, many.1)]);
        }
        measured
    }

    #[test]
    fn medians_of_runs_stand_beside_the_best_of_the_other_system() {
        let ours =
            measured(0, 0, &[[(9.0, 10.0), (900.0, 99.0)], [(7.0, 30.0), (100.0, 99.0)], [(8.0, 20.0), (800.0, 99.0)]]);
        let udpu = measured(1, 0, &[[(1.0, 100.0), (400.0, 999.0)]]);
        let knet = measured(1, 1, &[[(1.0, 80.0), (200.0, 999.0)]]);
        let report = Report::of(&[ours, udpu, knet], vec!["x: not installed".to_owned()]);
        let wanted = Ratio { rate: 2.0, latency: 4.0 };
        assert_eq!(report.ratios, [("three hosts, MTU 1500, cpg, 64 bytes".to_owned(), wanted)].into());
        let text = report.text();
        assert!(text.contains("| stentor (roce) | 64 | 500 | 800 | 99.0 | 198.0 |"), "{text}");
        assert!(text.contains("not measured: x: not installed"), "{text}");
        assert_eq!(text.matches("## three hosts, MTU 1500").count(), 1, "{text}");
    }

    #[test]
    fn what_is_measured_alone_has_no_ratio() {
        let ours = measured(0, 3, &[[(9.0, 10.0), (900.0, 99.0)]]);
        assert!(Report::of(&[ours], Vec::new()).ratios.is_empty());
    }
}
