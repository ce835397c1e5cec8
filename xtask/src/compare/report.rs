//! The result of a comparison: medians of runs, and Stentor's figures relative to the best of each other system at the
//! same place.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use stentor_testutil::median;

use super::system::{Figures, Setting, System};

/// A system in a setting, with its runs.
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

    /// Adds bounds to the rows of the first run.
    #[cfg(test)]
    pub(super) fn bounded(&mut self, bounds: &[f64]) {
        for (row, bound) in self.runs[0].iter_mut().zip(bounds) {
            *row = row.beside(*bound);
        }
    }

    /// Returns the medians of the runs, in the order of the first run.
    fn medians(&self) -> Vec<Figures> {
        let of = |at: usize, figure: fn(&Figures) -> Option<f64>| {
            let found: Option<Vec<f64>> = self.runs.iter().map(|run| figure(&run[at])).collect();
            found.map(median)
        };
        let medians = self.runs.first().into_iter().flatten().enumerate().map(|(at, first)| Figures {
            msgs_per_s: of(at, |figures| figures.msgs_per_s),
            p50_us: of(at, |figures| figures.p50_us),
            p99_us: of(at, |figures| figures.p99_us),
            bound: of(at, |figures| figures.bound),
            ratio: of(at, |figures| figures.ratio),
            ..*first
        });
        medians.collect()
    }
}

/// The result of a comparison.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) systems: Vec<Told>,
    /// The ratios by place, own system, other system and payload: Stentor's rate relative to that of the other system's
    /// best setting, and the other's latency relative to Stentor's. A bound counts as another system.
    #[serde(serialize_with = "as_object")]
    pub(super) ratios: Vec<(String, Ratio)>,
    /// Systems that were not measured, each with the reason.
    pub(super) absent: Vec<String>,
    /// Settings that failed, with their errors.
    pub(super) failed: Vec<String>,
}

#[derive(Clone, Serialize)]
pub(super) struct Told {
    pub(super) name: &'static str,
    #[serde(skip)]
    pub(super) ours: bool,
    pub(super) version: String,
    pub(super) guarantee: &'static str,
    pub(super) until: &'static str,
    pub(super) wait: &'static str,
    pub(super) place: &'static str,
    pub(super) how: &'static str,
    pub(super) runs: usize,
    pub(super) rows: Vec<Figures>,
}

impl Told {
    /// Returns the rate of a payload in a stream, in messages per second. For a system without streams it is the rate
    /// one at a time.
    pub(super) fn rate(&self, bytes: u32) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| row.bytes == bytes);
        rows.max_by_key(|row| row.outstanding)?.msgs_per_s
    }

    /// Returns the median latency of a payload, one at a time.
    pub(super) fn latency(&self, bytes: u32) -> Option<f64> {
        self.rows.iter().find(|row| row.bytes == bytes && row.outstanding == 1)?.p50_us
    }

    /// Returns the inverse of a message's cost relative to its bound: 1 is at the bound, and smaller is worse.
    fn to_the_bound(&self, bytes: u32) -> Option<Ratio> {
        let of = |is_wanted: fn(&Figures) -> bool| {
            let row = self.rows.iter().find(|row| row.bytes == bytes && is_wanted(row))?;
            row.ratio.filter(|ratio| *ratio > 0.0).map(|ratio| 1.0 / ratio)
        };
        let ratio = Ratio { rate: of(|row| row.outstanding > 1), latency: of(|row| row.outstanding == 1) };
        (ratio.rate.is_some() || ratio.latency.is_some()).then_some(ratio)
    }

    fn streams(&self) -> bool {
        self.rows.iter().any(|row| row.outstanding > 1)
    }
}

/// A ratio for which larger is better for Stentor. A part is `None` if one of the two systems does not report the
/// figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) rate: Option<f64>,
    pub(super) latency: Option<f64>,
}

impl Report {
    pub(super) fn of(measured: &[Measured], absent: Vec<String>, failed: Vec<String>) -> Self {
        let told = |measured: &Measured| Told {
            name: measured.system.name,
            ours: measured.system.is_ours(),
            version: measured.version.clone(),
            guarantee: measured.system.guarantee,
            until: measured.system.until,
            wait: measured.system.wait,
            place: measured.setting.place,
            how: measured.setting.how,
            runs: measured.runs.len(),
            rows: measured.medians(),
        };
        let systems: Vec<_> = measured.iter().filter(|measured| !measured.runs.is_empty()).map(told).collect();
        Report { ratios: ratios(&systems), systems, absent, failed }
    }

    /// Returns the places with measurements, in the order of the systems.
    pub(super) fn places(&self) -> Vec<&'static str> {
        let mut places = Vec::new();
        for system in &self.systems {
            if !places.contains(&system.place) {
                places.push(system.place);
            }
        }
        places
    }

    /// Returns the systems that were measured at a place.
    pub(super) fn at(&self, place: &str) -> impl Iterator<Item = &Told> {
        self.systems.iter().filter(move |system| system.place == place)
    }

    /// Returns all payloads.
    pub(super) fn payloads(&self) -> Vec<u32> {
        let all: BTreeSet<_> = self.systems.iter().flat_map(|system| &system.rows).map(|row| row.bytes).collect();
        all.into_iter().collect()
    }
}

/// Serializes an object whose members keep their order: payloads from the shortest to the longest.
fn as_object<S: Serializer>(ratios: &[(String, Ratio)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(ratios.iter().map(|(name, ratio)| (name, ratio)))
}

/// Returns the ratios to the bound, and to the best of another system's settings at a place. Streams are compared only
/// with streams.
fn ratios(systems: &[Told]) -> Vec<(String, Ratio)> {
    let mut ratios = Vec::new();
    let (ours, others): (Vec<_>, Vec<_>) = systems.iter().partition(|system| system.ours);
    for own in ours {
        for row in own.rows.iter().filter(|row| row.outstanding == 1) {
            let to_the_bound = own.to_the_bound(row.bytes).into_iter();
            let name = format!("{}, {} beside bound, {} bytes", own.place, own.name, row.bytes);
            ratios.extend(to_the_bound.map(|ratio| (name.clone(), ratio)));
        }
        let there = || others.iter().filter(|other| other.place == own.place);
        let mut names: Vec<_> = there().map(|other| other.name).collect();
        names.dedup();
        for name in names {
            let theirs = || there().filter(|other| other.name == name);
            for alone in own.rows.iter().filter(|row| row.outstanding == 1) {
                let bytes = alone.bytes;
                let alike = theirs().filter(|found| found.streams() == own.streams());
                let most = alike.filter_map(|found| found.rate(bytes)).reduce(f64::max);
                let shortest = theirs().filter_map(|found| found.latency(bytes)).reduce(f64::min);
                let divided = |over: Option<f64>, under: Option<f64>| {
                    over.zip(under).filter(|(_, under)| *under > 0.0).map(|(over, under)| over / under)
                };
                let ratio = Ratio { rate: divided(own.rate(bytes), most), latency: divided(shortest, alone.p50_us) };
                ratios.push((format!("{}, {} beside {name}, {bytes} bytes", own.place, own.name), ratio));
            }
        }
    }
    ratios
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::table::SYSTEMS;
    use super::*;

    fn figures(outstanding: u64, msgs_per_s: f64, p50_us: f64) -> Figures {
        Figures {
            bytes: 64,
            outstanding,
            msgs_per_s: Some(msgs_per_s),
            p50_us: Some(p50_us),
            p99_us: Some(2.0 * p50_us),
            ..Figures::default()
        }
    }

    pub(in super::super) fn measured(system: &str, setting: usize, runs: &[[(f64, f64); 2]]) -> Measured {
        let system = SYSTEMS.iter().find(|known| known.name == system).unwrap();
        let mut measured = Measured::new(system, &system.settings[setting], "1.0".to_owned());
        for [alone, many] in runs {
            measured.add(vec![figures(1, alone.0, alone.1), figures(500, many.0, many.1)]);
        }
        measured
    }

    #[test]
    fn medians_are_compared_with_the_best_setting_of_the_other_system() {
        let runs = [[(9.0, 10.0), (900.0, 99.0)], [(7.0, 30.0), (100.0, 99.0)], [(8.0, 20.0), (800.0, 99.0)]];
        let ours = measured("stentor", 0, &runs);
        let udpu = measured("cpg", 0, &[[(1.0, 100.0), (400.0, 999.0)]]);
        let knet = measured("cpg", 1, &[[(1.0, 80.0), (200.0, 999.0)]]);
        let report = Report::of(&[ours, udpu, knet], Vec::new(), Vec::new());
        let wanted = Ratio { rate: Some(2.0), latency: Some(4.0) };
        let name = "three hosts, MTU 1500, stentor beside cpg, 64 bytes".to_owned();
        assert_eq!(report.ratios, [(name, wanted)]);
    }

    #[test]
    fn own_rows_have_the_median_ratio_to_their_bound() {
        let mut ours = measured("stentor", 0, &[[(9.0, 10.0), (900.0, 99.0)]; 3]);
        // In the second run the machine is slower. The bound and the ratio are each the median of the three runs.
        for (run, (alone, many)) in ours.runs.iter_mut().zip([(5.0, 1800.0), (9.0, 1000.0), (4.0, 3600.0)]) {
            (run[0], run[1]) = (run[0].beside(alone), run[1].beside(many));
        }
        let report = Report::of(&[ours], Vec::new(), Vec::new());
        let beside: Vec<_> = report.systems[0].rows.iter().map(|row| (row.bound, row.ratio)).collect();
        assert_eq!(beside, [(Some(5.0), Some(2.0)), (Some(1800.0), Some(2.0))]);
        let document = serde_json::to_value(&report).unwrap();
        let ratio = &document["ratios"]["three hosts, MTU 1500, stentor beside bound, 64 bytes"];
        assert_eq!(*ratio, serde_json::json!({ "rate": 0.5, "latency": 0.5 }), "{document}");
        assert_eq!(document["systems"][0]["rows"][0]["ratio"], 2.0);
    }

    #[test]
    fn streams_are_not_compared_with_a_system_without_streams() {
        let ours = measured("stentor", 0, &[[(9.0, 10.0), (900.0, 99.0)]]);
        let mut other = measured("cpg", 0, &[[(1.0, 80.0), (200.0, 999.0)]]);
        other.runs[0].pop();
        let report = Report::of(&[ours, other], Vec::new(), Vec::new());
        let document = serde_json::to_value(&report).unwrap();
        let ratio = &document["ratios"]["three hosts, MTU 1500, stentor beside cpg, 64 bytes"];
        assert_eq!(*ratio, serde_json::json!({ "rate": null, "latency": 8.0 }), "{document}");
        assert_eq!(document["systems"][1]["guarantee"], "total order (agreed, not safe)");
    }

    #[test]
    fn lone_system_has_no_ratio_and_failed_one_has_no_figure() {
        let ours = measured("stentor", 3, &[[(9.0, 10.0), (900.0, 99.0)]]);
        let failed = measured("cpg", 0, &[]);
        let report = Report::of(&[ours, failed], Vec::new(), Vec::new());
        assert!(report.ratios.is_empty());
        assert_eq!(report.places(), ["one host, shared memory"]);
    }

    #[test]
    fn figures_of_different_places_are_not_compared() {
        let ours = measured("stentor", 0, &[[(9.0, 10.0), (900.0, 99.0)]]);
        let elsewhere = measured("cpg", 2, &[[(9.0, 10.0), (900.0, 99.0)]]);
        assert!(ours.setting.place != elsewhere.setting.place);
        assert!(Report::of(&[ours, elsewhere], Vec::new(), Vec::new()).ratios.is_empty());
    }
}
