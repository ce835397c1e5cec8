//! The steps that run `stentor chaos` on clusters of real processes.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::campaign::stentor;
use crate::cargo::Context;
use crate::step::Outcome;

/// The fields of `stentor chaos --json` that the steps judge.
#[derive(Debug, Deserialize)]
struct Chaos {
    ok: bool,
    interrupted: bool,
    fault_seconds: f64,
    faults: BTreeMap<String, u64>,
    messages: u64,
    deliveries: u64,
    longest_gap_ms: u64,
    longest_return_ms: u64,
    properties: BTreeMap<String, String>,
    trouble: Option<serde_json::Value>,
    counter_example: Option<String>,
    history_bytes: u64,
    check_seconds: f64,
    repeat: String,
}

/// The faults that each fabric allows.
const FABRICS: [(&str, &[&str]); 2] =
    [("shm", &["kill", "stop", "move", "restart"]), ("roce", &["kill", "stop", "move", "restart", "cut", "loss"])];
/// The number of properties of the multicast.
const PROPERTIES: usize = 12;

/// Injects faults for half a minute on each fabric.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    for (fabric, faults) in FABRICS {
        torture(context, fabric, faults, 3, 0.5)?;
    }
    Ok(Outcome::Passed)
}

/// Injects faults for half an hour on each fabric, in groups of three and of five.
pub(crate) fn long(context: &Context) -> Result<Outcome> {
    for replicas in [3, 5] {
        for (fabric, faults) in FABRICS {
            torture(context, fabric, faults, replicas, 30.0)?;
        }
    }
    Ok(Outcome::Passed)
}

fn torture(context: &Context, fabric: &str, faults: &[&str], replicas: usize, minutes: f64) -> Result<()> {
    let (members, time) = (replicas.to_string(), minutes.to_string());
    let shape = ["chaos", "--json", "--fabric", fabric, "--replicas", &members];
    let arguments = [&shape[..], &["--minutes", &time, "--seed", "1"]].concat();
    // A run that could not begin prints another document, with what was wrong.
    let (good, found): (_, serde_json::Value) = stentor(context, &arguments)?;
    ensure!(found.get("trouble").is_some(), "{found:#}");
    let found: Chaos = serde_json::from_value(found).context("a document of `stentor chaos`")?;
    judge(&found, faults, minutes)?;
    ensure!(good, "everything held but the command failed");
    println!(
        "{fabric}, groups of {replicas}: {:?}; {} messages, {} deliveries; the longest wait {} ms, the longest return {} ms; \
         {} bytes of histories, checked in {:.1} s",
        found.faults,
        found.messages,
        found.deliveries,
        found.longest_gap_ms,
        found.longest_return_ms,
        found.history_bytes,
        found.check_seconds
    );
    Ok(())
}

fn judge(found: &Chaos, faults: &[&str], minutes: f64) -> Result<()> {
    let bad: Vec<_> = found.properties.iter().filter(|(_, verdict)| *verdict != "ok").collect();
    let Chaos { trouble, counter_example, repeat, .. } = found;
    ensure!(
        found.ok && bad.is_empty() && trouble.is_none(),
        "{repeat}\nnot ok: {bad:?}, {trouble:#?}, {counter_example:?}"
    );
    ensure!(found.properties.len() == PROPERTIES, "not all properties: {:?}", found.properties);
    let missing: Vec<_> = faults.iter().filter(|fault| found.faults.get(**fault).is_none_or(|n| *n == 0)).collect();
    ensure!(missing.is_empty(), "{repeat}\nfaults that did not come: {missing:?}");
    ensure!(
        !found.interrupted && found.fault_seconds >= minutes * 59.0,
        "it ended early: {:.0} s",
        found.fault_seconds
    );
    ensure!(found.deliveries > found.messages && found.messages > 0, "{} deliveries", found.deliveries);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(change: impl FnOnce(&mut serde_json::Value)) -> Result<()> {
        let properties: BTreeMap<_, _> = (1..=12).map(|n| (format!("M{n}"), "ok")).collect();
        let mut found = json!({
            "ok": true, "interrupted": false, "fault_seconds": 30.0, "faults": {"kill": 3, "stop": 2}, "messages": 4,
            "deliveries": 9, "longest_gap_ms": 1, "longest_return_ms": 1, "properties": properties, "trouble": null,
            "counter_example": null, "history_bytes": 1, "check_seconds": 0.1, "repeat": "stentor chaos"
        });
        change(&mut found);
        judge(&serde_json::from_value(found).unwrap(), &["kill", "stop"], 0.5)
    }

    #[test]
    fn a_run_must_have_played_all_faults_to_the_end_and_broken_nothing() {
        judged(|_| ()).unwrap();
        assert!(judged(|found| found["ok"] = json!(false)).is_err());
        assert!(judged(|found| found["trouble"] = json!({"what": "a hang"})).is_err());
        assert!(judged(|found| found["properties"]["M9"] = json!("not_checked")).is_err());
        assert!(judged(|found| found["properties"] = json!({})).is_err());
        assert!(judged(|found| found["faults"]["stop"] = json!(0)).is_err());
        assert!(judged(|found| found["faults"] = json!({"kill": 1})).is_err());
        assert!(judged(|found| found["fault_seconds"] = json!(12.0)).is_err());
        assert!(judged(|found| found["interrupted"] = json!(true)).is_err());
        assert!(judged(|found| found["deliveries"] = json!(0)).is_err());
    }
}
