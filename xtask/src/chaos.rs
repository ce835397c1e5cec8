//! The steps that run `stentor chaos` on clusters of real processes.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::campaign::stentor;
use crate::cargo::Context;
use crate::needs::Needs;
use crate::step::Outcome;

/// The fields of `stentor chaos --json` that the steps check.
#[derive(Debug, Deserialize)]
struct Chaos {
    ok: bool,
    interrupted: bool,
    fault_seconds: f64,
    faults: BTreeMap<String, u64>,
    wrong_clocks: u64,
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
    service: Option<Service>,
}

/// The calls of a service.
#[derive(Debug, Default, Deserialize)]
struct Service {
    commands: u64,
    reads: BTreeMap<String, u64>,
    unknown: u64,
    resolved_later: u64,
    timers: u64,
    notified: u64,
    missed: u64,
    time_behind_us: u64,
    time_ahead_us: u64,
}

/// The faults that each fabric supports.
const FABRICS: [(&str, &[&str]); 2] =
    [("shm", &["kill", "stop", "move", "restart"]), ("roce", &["kill", "stop", "move", "restart", "cut", "loss"])];
/// Number of properties in a report on the multicast: M1 to M11, and R1.
const PROPERTIES: usize = 12;

/// The faults that only a service has.
const OF_A_SERVICE: [&str; 2] = ["clock", "client"];
/// The properties of a service.
const OF_THE_SERVICE: [&str; 4] = ["V1", "V2", "V3", "V4"];
/// The kinds of reads of a service.
const READS: [&str; 4] = ["after", "leader", "local", "ordered"];

/// The library that the fault `clock` needs.
pub(crate) const NEEDS: Needs = Needs { things: &["faketime/libfaketimeMT.so.1"], sources: &[] };

/// Injects faults for half a minute on each fabric, and into a service for some seconds.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    for (fabric, faults) in FABRICS {
        torture(context, fabric, faults, 3, 0.5)?;
    }
    let mut all = Totals::default();
    for (fabric, _) in FABRICS {
        all.add(service(context, fabric, 1, 0.12)?);
    }
    all.print();
    Ok(Outcome::Passed)
}

/// Injects faults into services with the seeds 0..100, or with the seeds that `STENTOR_CHAOS_SERVICE=FIRST..END` names.
pub(crate) fn service_long(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    let mut all = Totals::default();
    for seed in seeds(std::env::var("STENTOR_CHAOS_SERVICE").ok().as_deref())? {
        let (fabric, _) = FABRICS[seed as usize % FABRICS.len()];
        all.add(service(context, fabric, seed, 0.25)?);
    }
    all.print();
    // An event may be missing in a single run. With at least 20 runs, each event must happen in one of them.
    all.judge(all.runs >= 20)?;
    Ok(Outcome::Passed)
}

fn seeds(asked: Option<&str>) -> Result<Range<u64>> {
    let text = asked.unwrap_or("0..100");
    let ends = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    ends.filter(|seeds| !seeds.is_empty())
        .with_context(|| format!("STENTOR_CHAOS_SERVICE is `{text}`: set it to FIRST..END, as in 0..100"))
}

/// Counts over the runs of a service.
#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    calls: u64,
    faults: BTreeMap<String, u64>,
    wrong_clocks: u64,
    service: Service,
}

impl Totals {
    fn add(&mut self, found: Chaos) {
        self.runs += 1;
        self.calls += found.messages;
        self.wrong_clocks += found.wrong_clocks;
        found.faults.into_iter().for_each(|(fault, n)| *self.faults.entry(fault).or_default() += n);
        let Some(other) = found.service else { return };
        let all = &mut self.service;
        other.reads.into_iter().for_each(|(kind, n)| *all.reads.entry(kind).or_default() += n);
        all.commands += other.commands;
        all.unknown += other.unknown;
        all.resolved_later += other.resolved_later;
        all.timers += other.timers;
        all.notified += other.notified;
        all.missed += other.missed;
        all.time_behind_us = all.time_behind_us.max(other.time_behind_us);
        all.time_ahead_us = all.time_ahead_us.max(other.time_ahead_us);
    }

    fn print(&self) {
        let Totals { runs, calls, faults, wrong_clocks, service } = self;
        println!(
            "{runs} runs of a service: {faults:?}, {wrong_clocks} clocks beyond the bound; {calls} calls; {service:?}"
        );
    }

    /// Fails if one of the events never happened, although there were enough runs.
    fn judge(&self, enough: bool) -> Result<()> {
        let never: Vec<_> = self.faults.iter().filter(|(_, n)| **n == 0).map(|(fault, _)| fault.as_str()).collect();
        ensure!(!enough || never.is_empty(), "faults that never happened: {never:?}");
        ensure!(!enough || self.wrong_clocks > 0, "no clock was beyond the bound");
        ensure!(!enough || self.service.resolved_later > 0, "no client resolved a call of its earlier process");
        Ok(())
    }
}

/// Injects faults into a service.
fn service(context: &Context, fabric: &str, seed: u64, minutes: f64) -> Result<Chaos> {
    let (seed, time) = (seed.to_string(), minutes.to_string());
    let of_fabric = FABRICS.iter().find(|(name, _)| *name == fabric).map_or(&[][..], |(_, faults)| faults);
    let faults = [of_fabric, &OF_A_SERVICE].concat().join(",");
    let shape = ["chaos", "--json", "--service", "--fabric", fabric, "--rate", "300", "--faults", &faults];
    let arguments = [&shape[..], &["--minutes", &time, "--seed", &seed]].concat();
    let (good, found): (_, serde_json::Value) = stentor(context, &arguments)?;
    ensure!(found.get("trouble").is_some(), "{found:#}");
    let found: Chaos = serde_json::from_value(found).context("cannot parse the document of `stentor chaos`")?;
    judge_service(&found, minutes)?;
    ensure!(good, "every property held, but the command failed");
    Ok(found)
}

fn judge_service(found: &Chaos, minutes: f64) -> Result<()> {
    let Chaos { trouble, counter_example, repeat, properties, .. } = found;
    let ok = |property: &&str| properties.get(*property).is_some_and(|verdict| verdict == "ok");
    let bad: Vec<_> = OF_THE_SERVICE.iter().filter(|property| !ok(property)).collect();
    ensure!(
        found.ok && bad.is_empty() && trouble.is_none(),
        "{repeat}\nnot ok: {bad:?}, {trouble:#?}, {counter_example:?}"
    );
    ensure!(
        !found.interrupted && found.fault_seconds >= minutes * 59.0,
        "the run ended early: {:.0} s",
        found.fault_seconds
    );
    let service = found.service.as_ref().with_context(|| format!("{repeat}\nno calls are counted"))?;
    let missing: Vec<_> = READS.iter().filter(|read| service.reads.get(**read).is_none_or(|n| *n == 0)).collect();
    ensure!(service.commands > 0 && missing.is_empty(), "{repeat}\nno commands, or no reads: {missing:?}");
    Ok(())
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
    // A run that could not begin prints another document with the error.
    let (good, found): (_, serde_json::Value) = stentor(context, &arguments)?;
    ensure!(found.get("trouble").is_some(), "{found:#}");
    let found: Chaos = serde_json::from_value(found).context("cannot parse the document of `stentor chaos`")?;
    judge(&found, faults, minutes)?;
    ensure!(good, "every property held, but the command failed");
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
    ensure!(missing.is_empty(), "{repeat}\nfaults that never happened: {missing:?}");
    ensure!(
        !found.interrupted && found.fault_seconds >= minutes * 59.0,
        "the run ended early: {:.0} s",
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
            "ok": true, "interrupted": false, "fault_seconds": 30.0, "faults": {"kill": 3, "stop": 2}, "wrong_clocks": 0, "messages": 4,
            "deliveries": 9, "longest_gap_ms": 1, "longest_return_ms": 1, "properties": properties, "trouble": null,
            "counter_example": null, "history_bytes": 1, "check_seconds": 0.1, "repeat": "stentor chaos", "service": null
        });
        change(&mut found);
        judge(&serde_json::from_value(found).unwrap(), &["kill", "stop"], 0.5)
    }

    fn judged_service(change: impl FnOnce(&mut serde_json::Value)) -> Result<()> {
        let properties: BTreeMap<_, _> = OF_THE_SERVICE.map(|name| (name, "ok")).into();
        let reads: BTreeMap<_, _> = READS.map(|name| (name, 1)).into();
        let mut found = json!({
            "ok": true, "interrupted": false, "fault_seconds": 15.0, "faults": {"kill": 3}, "wrong_clocks": 1, "messages": 4,
            "deliveries": 4, "longest_gap_ms": 1, "longest_return_ms": 1, "properties": properties, "trouble": null,
            "counter_example": null, "history_bytes": 1, "check_seconds": 0.1, "repeat": "stentor chaos",
            "service": {"commands": 1, "reads": reads, "unknown": 0, "resolved_later": 0, "timers": 1, "notified": 1,
                "missed": 0, "time_behind_us": 0, "time_ahead_us": 0}
        });
        change(&mut found);
        judge_service(&serde_json::from_value(found).unwrap(), 0.25)
    }

    #[test]
    fn run_of_a_service_must_keep_all_properties_and_have_all_reads() {
        judged_service(|_| ()).unwrap();
        assert!(judged_service(|found| found["properties"]["V2"] = json!("violated")).is_err());
        assert!(judged_service(|found| found["properties"]["V4"] = json!("not_checked")).is_err());
        assert!(judged_service(|found| found["properties"] = json!({})).is_err());
        assert!(judged_service(|found| found["service"] = json!(null)).is_err());
        assert!(judged_service(|found| found["service"]["reads"]["leader"] = json!(0)).is_err());
        assert!(judged_service(|found| found["service"]["commands"] = json!(0)).is_err());
        assert!(judged_service(|found| found["fault_seconds"] = json!(3.0)).is_err());
        assert!(judged_service(|found| found["trouble"] = json!({"what": "a hang"})).is_err());
    }

    #[test]
    fn seeds_are_a_range_that_is_not_empty() {
        assert_eq!(seeds(None).unwrap(), 0..100);
        assert_eq!(seeds(Some("7..9")).unwrap(), 7..9);
        for bad in ["7", "9..7", "a..b", "3..3"] {
            assert!(seeds(Some(bad)).unwrap_err().to_string().contains("FIRST..END"), "{bad}");
        }
    }

    #[test]
    fn run_must_inject_all_faults_and_keep_all_properties() {
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
