//! The rows of `stentor bench NAME --json`, as costs.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// A row's name and its payload in bytes.
pub(crate) type Key = (String, u64);

/// The figures of one run of a bench.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Run {
    /// The wait mode of the run.
    pub wait: String,
    /// The time of a message or, for a row about throughput, the inverse of the rate. Less is better.
    pub costs: BTreeMap<Key, f64>,
}

/// Parses the document that a bench prints.
pub(crate) fn read(text: &str) -> Result<Run> {
    let document: Value = serde_json::from_str(text).context("it does not print a JSON document")?;
    if let Some(what) = document.pointer("/error/what").and_then(Value::as_str) {
        bail!("it printed the error: {what}");
    }
    let environment = &document["environment"];
    ensure!(environment["profile"] == "release", "it is not a release build, so its figures are not comparable");
    let wait = environment["wait"].as_str().context("it names no wait mode")?.to_owned();
    let rows = document["rows"].as_array().context("its document has no rows")?;
    ensure!(!rows.is_empty(), "its document has no rows");
    let mut costs = BTreeMap::new();
    for row in rows {
        let name = row["name"].as_str().context("a row has no name")?;
        let bytes = row["bytes"].as_u64().with_context(|| format!("row `{name}` has no number of bytes"))?;
        let cost = cost(row).with_context(|| format!("row `{name}` with {bytes} bytes has no figure"))?;
        let twice = costs.insert((name.to_owned(), bytes), cost).is_some();
        ensure!(!twice, "there are two rows `{name}` with {bytes} bytes");
    }
    Ok(Run { wait, costs })
}

/// Returns the cost of a row. The cost is computed from the figure that has the unit of the row's bound. Older
/// documents call the bound a floor.
fn cost(row: &Value) -> Option<f64> {
    let figure = |name: &str| row[name].as_f64().filter(|figure| *figure > 0.0);
    let rate = || figure("msgs_per_s").or_else(|| figure("mb_per_s")).map(|rate| 1.0 / rate);
    let unit = ["/bound/unit", "/floor/unit"].into_iter().find_map(|at| row.pointer(at));
    match unit.and_then(Value::as_str) {
        Some(unit) if unit.ends_with("/s") => rate(),
        _ => figure("p50_us").or_else(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(profile: &str, rows: &str) -> String {
        format!(r#"{{"environment": {{"profile": "{profile}", "wait": "adaptive"}}, "rows": [{rows}]}}"#)
    }

    const TIME: &str =
        r#"{"name": "one", "bytes": 64, "p50_us": 20.0, "msgs_per_s": 5e4, "mb_per_s": 3.2, "bound": {"unit": "us"}}"#;
    const RATE: &str = r#"{"name": "many", "bytes": 64, "p50_us": 9.0, "msgs_per_s": 4e5, "mb_per_s": 25.6, "bound": {"unit": "msgs/s"}}"#;
    const BARE: &str =
        r#"{"name": "bare", "bytes": 8, "p50_us": null, "msgs_per_s": null, "mb_per_s": 500, "bound": null}"#;
    const OLD: &str = r#"{"name": "old", "bytes": 8, "p50_us": 9.0, "msgs_per_s": 4e5, "floor": {"unit": "msgs/s"}}"#;

    #[test]
    fn cost_of_a_row_has_the_unit_of_its_bound() {
        let run = read(&document("release", &[TIME, RATE, BARE, OLD].join(", "))).unwrap();
        let costs: Vec<_> = run.costs.iter().map(|((name, bytes), cost)| (name.as_str(), *bytes, *cost)).collect();
        assert_eq!(
            costs,
            [("bare", 8, 1.0 / 500.0), ("many", 64, 1.0 / 4e5), ("old", 8, 1.0 / 4e5), ("one", 64, 20.0)]
        );
        assert_eq!(run.wait, "adaptive");
    }

    #[test]
    fn document_without_figures_is_refused() {
        let nothing = r#"{"name": "one", "bytes": 64, "p50_us": null, "msgs_per_s": null, "mb_per_s": null}"#;
        let said = r#"{"ok": false, "error": {"what": "there is no bench"}}"#;
        for (text, why) in [
            ("plain text".to_owned(), "no JSON"),
            (said.to_owned(), "there is no bench"),
            (document("debug", TIME), "release"),
            (document("release", ""), "no rows"),
            (document("release", &[TIME, TIME].join(", ")), "two rows"),
            (document("release", nothing), "no figure"),
        ] {
            let error = format!("{:#}", read(&text).unwrap_err());
            assert!(error.contains(why) || why == "no JSON", "{text}: {error}");
        }
    }
}
