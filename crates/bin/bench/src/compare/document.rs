//! Reader for the documents that `stentor bench NAME --json` prints.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use stentor_support::Failure;

use crate::report::MICROSECONDS;

/// The parts of a document that are compared. All other parts are ignored, and may differ between versions.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Document {
    pub(super) environment: Environment,
    pub(super) rows: Vec<Row>,
}

/// The circumstances of a run. Figures of runs with different circumstances are hard to compare.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Environment {
    pub(super) profile: String,
    pub(super) cpu: String,
    pub(super) cores: u64,
    pub(super) kernel: String,
    pub(super) fabric: String,
    pub(super) wait: String,
    pub(super) pinning: String,
    #[serde(default)]
    pub(super) network: Option<String>,
    #[serde(default)]
    pub(super) warnings: Vec<Warning>,
}

/// A circumstance that makes figures misleading.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Warning {
    pub(super) what: String,
}

/// One row of the document.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) p99_us: Option<f64>,
    /// Median latency in microseconds, or messages per second, of each round.
    pub(super) of_rounds: Vec<f64>,
    bound: Option<Bound>,
    #[serde(default)]
    of_rounds_unit: Option<String>,
    p50_us: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Bound {
    unit: String,
}

/// A document that reports why a bench failed.
#[derive(Deserialize)]
struct Failed {
    error: FailedWhat,
}

#[derive(Deserialize)]
struct FailedWhat {
    what: String,
}

/// Name and payload of a row.
pub(super) type Key = (String, u64);

impl Row {
    /// Returns whether the figures of the rounds are rates. Otherwise they are latencies. Documents of earlier versions
    /// do not name the unit of these figures. In such a document, the unit of the bound decides. Without a bound, the
    /// figures are rates if the row has no latency.
    pub(super) fn is_rate(&self) -> bool {
        let unit = self.of_rounds_unit.as_ref().or(self.bound.as_ref().map(|bound| &bound.unit));
        unit.map_or(self.p50_us.is_none(), |unit| unit != MICROSECONDS)
    }

    /// Returns the cost of each round whose figure is above 0: its latency, or the inverse of its rate.
    pub(super) fn costs(&self) -> Vec<f64> {
        let rounds = self.of_rounds.iter().copied().filter(|figure| *figure > 0.0);
        if self.is_rate() { rounds.map(|rate| 1.0 / rate).collect() } else { rounds.collect() }
    }
}

impl Document {
    /// Reads a document from a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is not the document of a bench.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let place = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let remedy = "name a file with the output of `stentor bench NAME --json`";
            Failure::usage(format_args!("cannot read: {error}"), &place, remedy)
        })?;
        let remedy = "write it with `stentor bench NAME --json > FILE` of this version of stentor";
        Self::parse(&text).map_err(|what| Failure::usage(what, &place, remedy))
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(failed) = serde_json::from_str::<Failed>(text) {
            return Err(format!("the bench failed: {}", failed.error.what));
        }
        let document: Document =
            serde_json::from_str(text).map_err(|error| format!("no document of a bench: {error}"))?;
        if document.rows.is_empty() {
            return Err("the document has no rows".to_owned());
        }
        let mut seen = BTreeMap::new();
        for row in &document.rows {
            if seen.insert((&row.name, row.bytes), ()).is_some() {
                return Err(format!("the document has two rows `{}` of {} bytes", row.name, row.bytes));
            }
        }
        Ok(document)
    }

    /// Returns the rows by name and payload.
    pub(super) fn by_key(&self) -> BTreeMap<Key, &Row> {
        self.rows.iter().map(|row| ((row.name.clone(), row.bytes), row)).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a document with these rows: name, unit, and the figures of the rounds.
    pub(in super::super) fn document(wait: &str, rows: &[(&str, &str, &[f64])]) -> String {
        let row = |(name, unit, figures): &(&str, &str, &[f64])| {
            format!(
                r#"{{"name": "{name}", "bytes": 64, "p50_us": 1.0, "p99_us": null, "of_rounds": {figures:?},
                   "bound": {{"unit": "{unit}", "value": 1.0, "what": ""}}}}"#
            )
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        format!(
            r#"{{"environment": {{"profile": "release", "cpu": "C", "cores": 2, "kernel": "6", "fabric": "shm",
               "wait": "{wait}", "pinning": "none", "load": 0.1, "warnings": []}}, "rows": [{}]}}"#,
            rows.join(", ")
        )
    }

    pub(in super::super) fn parsed(wait: &str, rows: &[(&str, &str, &[f64])]) -> Document {
        Document::parse(&document(wait, rows)).unwrap()
    }

    /// `bench cluster` has no bound. With several messages in flight its rounds have rates, although rows have
    /// latencies.
    #[test]
    fn unit_of_the_rounds_decides_before_bound_and_latency() {
        let row = |more: &str| -> Row {
            serde_json::from_str(&format!(r#"{{"name": "", "bytes": 8, "p50_us": 5.0, "of_rounds": [2.5]{more}}}"#))
                .unwrap()
        };
        assert!(row(r#", "of_rounds_unit": "msgs/s""#).is_rate());
        assert!(!row(r#", "of_rounds_unit": "us", "bound": {"unit": "msgs/s"}"#).is_rate());
        assert!(row(r#", "bound": {"unit": "msgs/s"}"#).is_rate(), "a document of an earlier version");
        assert!(!row("").is_rate());
    }

    #[test]
    fn rates_cost_their_inverse() {
        let document = parsed("poll", &[("one", "us", &[2.0, 4.0]), ("many", "msgs/s", &[2.0, 4.0, 0.0])]);
        assert_eq!(document.rows[0].costs(), [2.0, 4.0]);
        assert_eq!(document.rows[1].costs(), [0.5, 0.25], "a round without messages has no cost");
    }

    #[test]
    fn documents_of_other_kinds_are_refused() {
        let twice = document("poll", &[("one", "us", &[1.0]), ("one", "us", &[1.0])]);
        for (text, why) in [
            ("text", "no document of a bench"),
            ("{}", "no document of a bench: missing field"),
            (r#"{"ok": false, "error": {"what": "there is one processor"}}"#, "the bench failed: there is one"),
            (&document("poll", &[]), "no rows"),
            (&twice, "two rows `one` of 64 bytes"),
        ] {
            let error = Document::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
