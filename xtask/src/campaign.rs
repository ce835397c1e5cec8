//! Simulation runs, mutants, traces and demonstrations, which run the command itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use stentor_testutil::{TempDir, median};

use crate::cargo::{Context, Profile, capture, run};
use crate::programs;
use crate::step::Outcome;

/// Number of seeds of the multicast without mutants. Each mutant must be found within the same number of seeds.
const SEEDS: u64 = 1000;
/// Maximum time of a simulation run without mutants on two cores, in seconds. It is five times the longest run on an
/// idle machine. So a run that hangs is found, and a slow machine does not fail the step.
const MOST_SECONDS: f64 = 180.0;
/// Mutants of writes to fan-out sets. By default only one run in four has sets, so the runs that search for these
/// mutants all have sets.
const OF_SETS: [&str; 2] = ["place-reused-under-set", "broken-set-forgotten"];
/// Mutants of the multicast that only show under a fault profile: their names, and the profile.
const UNDER_PROFILES: [(&str, &str); 9] = [
    ("held-bodies-uncredited", "rings"),
    ("state-set-back", "rejoins"),
    ("applied-again", "states"),
    ("pieces-mixed", "states"),
    ("nobody-expelled", "stops"),
    ("clock-set-back", "clocks"),
    ("physical-alone", "clocks"),
    ("ended-assigned", "forgets"),
    ("memory-ignored", "forgets"),
];
/// Number of seeds of the switch without mutants.
const SWITCH_SEEDS: u64 = 2000;
/// Number of seeds of sessions without mutants.
const SESSION_SEEDS: u64 = 500;
/// Kinds of fault that a run of the simulated multicast must report. If one is missing, its count was lost.
const FAILURES: [&str; 11] = [
    "member_crashes_at_a_post",
    "double_crashes",
    "crashes_during_recovery",
    "rejoins_under_load",
    "deaf_leaders",
    "mute_leaders",
    "slow_leaders",
    "flaps",
    "client_crashes",
    "clients_gone",
    "clients_superseded",
];
/// Minimum number of mutants of each protocol. If there are fewer, some were lost.
const PLANTS: [(&str, usize); 5] = [("multicast", 8), ("neb", 20), ("channel", 12), ("switch", 9), ("sessions", 11)];
/// Seeds whose traces are compared.
const TRACED: [u64; 3] = [1, 2, 3];

/// The fields of `stentor sim … --json` that the steps check.
#[derive(Debug, Deserialize)]
pub(crate) struct Simulated {
    seeds: u64,
    violations: u64,
    first_violation: Option<Violation>,
    #[serde(default)]
    unseen_faults: Vec<String>,
    #[serde(default)]
    faults: BTreeMap<String, u64>,
    wall_seconds: f64,
}

#[derive(Debug, Deserialize)]
struct Violation {
    seed: u64,
    property: String,
    reproduce: String,
}

/// The fields of `stentor demo --json` that the steps check.
#[derive(Debug, Deserialize)]
pub(crate) struct Demo {
    ok: bool,
    pub properties: BTreeMap<String, String>,
    pub deliveries: u64,
    /// The fabric and device of the run, if they are chosen at start.
    #[serde(default)]
    pub carrier: Option<String>,
    /// The counts of the switch, if there is one.
    #[serde(default)]
    switch: Option<Switched>,
    /// Number of writes for each message, by step of the protocol.
    #[serde(default)]
    writes_by_step: BTreeMap<String, f64>,
    /// Number of writes for each message, by step of the protocol, if each receiver needed a separate write.
    #[serde(default)]
    items_by_step: BTreeMap<String, f64>,
    /// The time from the kill of a leader to the next delivery.
    #[serde(default)]
    failover_ms: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Switched {
    copies: u64,
}

/// Checks that every property holds for every seed, and that the command of users has no mutants.
pub(crate) fn campaign(context: &Context) -> Result<Outcome> {
    let (good, tree) = capture(&mut context.cargo(["tree", "-p", "stentor-cli", "-e", "normal", "-f", "{p} {f}"]))?;
    ensure!(good && tree.contains("stentor-multicast "), "cargo does not list what the command links: {tree}");
    ensure!(!tree.contains("plants"), "the command has mutants by default:\n{tree}");
    if context.profile == Profile::Release {
        let listed = Command::new(programs::stentor(context)?).args(["sim", "multicast", "--plants"]).output()?;
        ensure!(
            listed.status.code() == Some(2),
            "the command has mutants: its `--plants` ended with {}",
            listed.status
        );
    }
    simulate(context, "multicast", SEEDS)?;
    Ok(Outcome::Passed)
}

/// Checks that every property of the switch holds for every seed, with 8 and 32 receivers among others.
pub(crate) fn campaign_switch(context: &Context) -> Result<Outcome> {
    simulate(context, "switch", SWITCH_SEEDS)?;
    Ok(Outcome::Passed)
}

/// Checks that every property of sessions holds for every seed, and every rare state is visited.
pub(crate) fn campaign_sessions(context: &Context) -> Result<Outcome> {
    simulate(context, "sessions", SESSION_SEEDS)?;
    Ok(Outcome::Passed)
}

/// Runs this number of seeds of a simulation. Every property must hold in all of them.
fn simulate(context: &Context, simulation: &str, seeds: u64) -> Result<()> {
    let range = format!("0..{seeds}");
    let (good, found): (_, Simulated) = stentor(context, &["sim", simulation, "--seeds", &range, "--json"])?;
    judge(simulation, "", &found, seeds)?;
    ensure!(good, "the simulation found no violation, but the command failed");
    Ok(())
}

/// Checks the run of a profile: the number of seeds is right, every property held in all of them, every fault of the
/// profile happened, and the time did not exceed [`MOST_SECONDS`].
pub(crate) fn judge(simulation: &str, profile: &str, found: &Simulated, seeds: u64) -> Result<()> {
    sound(found, seeds)?;
    println!("{simulation} {profile}: {} seeds in {:.1} s, no violation", found.seeds, found.wall_seconds);
    ensure!(found.wall_seconds <= MOST_SECONDS, "the simulation took {:.1} s", found.wall_seconds);
    if (simulation, profile) == ("multicast", "all") { all_failed(&found.faults) } else { Ok(()) }
}

/// Checks that the simulation finds every mutant.
pub(crate) fn plants(context: &Context) -> Result<Outcome> {
    let planted = programs::stentor_with_plants(context)?;
    let seeds = format!("0..{SEEDS}");
    for (protocol, least) in PLANTS {
        let (_, names): (_, Vec<String>) = document(&planted, &["sim", protocol, "--plants", "--json"])?;
        ensure!(names.len() >= least, "{} mutants of `{protocol}`; there were {least}", names.len());
        for name in names {
            let mut arguments = vec!["sim", protocol, "--seeds", &seeds, "--plant", &name, "--json"];
            if OF_SETS.contains(&name.as_str()) {
                arguments.extend(["--sets", "always"]);
            } else if protocol == "neb" {
                // If some of the runs had sets, the rarest of the other mutants would take more seeds.
                arguments.extend(["--sets", "never"]);
            }
            hunt(&planted, protocol, &name, &arguments)?;
        }
    }
    for (name, profile) in UNDER_PROFILES {
        let arguments = ["sim", "multicast", "--profile", profile, "--seeds", &seeds, "--plant", name, "--json"];
        hunt(&planted, "multicast", name, &arguments)?;
    }
    Ok(Outcome::Passed)
}

/// Runs a simulation with a mutant, which the simulation must find.
fn hunt(planted: &Path, protocol: &str, name: &str, arguments: &[&str]) -> Result<()> {
    let (good, found): (_, Simulated) = document(planted, arguments)?;
    let violation = found.first_violation.with_context(|| format!("mutant `{name}` was not found"))?;
    ensure!(!good && found.violations > 0, "mutant `{name}` was found, but the command succeeded");
    println!("{protocol} {name}: breaks {} at seed {}", violation.property, violation.seed);
    Ok(())
}

/// Checks that the same seed gives the same trace to the byte: in two runs, and in debug and optimised builds.
pub(crate) fn traces(context: &Context) -> Result<Outcome> {
    let directory = TempDir::new();
    let (debug, release) = (programs::debug_stentor(context)?, programs::stentor(context)?);
    for seed in TRACED {
        let mut traces = Vec::new();
        for (n, program) in [&debug, &release, &release].into_iter().enumerate() {
            let path = directory.join(format!("{seed}-{n}.json"));
            let mut command = Command::new(program);
            command.args(["sim", "multicast", "-q", "--seed", &seed.to_string(), "--trace"]).arg(&path);
            run(&mut command)?;
            traces.push(read(&path)?);
        }
        let [debug, release, again] = &traces[..] else { unreachable!("three were pushed") };
        ensure!(debug.len() > 1000, "the trace of seed {seed} has only {} bytes", debug.len());
        ensure!(release == again, "two traces of seed {seed} differ");
        ensure!(debug == release, "the traces of seed {seed} in debug and release builds differ");
        println!("seed {seed}: {} bytes, the same each time", debug.len());
    }
    Ok(Outcome::Passed)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Maximum fail-over time of one demonstration, from the kill of the leader to the next delivery. The machine may be
/// busy with other steps.
const MOST_FAILOVER_MS: f64 = 1000.0;
/// Maximum of the median over [`DEMONSTRATIONS`].
const MEDIAN_FAILOVER_MS: f64 = 100.0;
const DEMONSTRATIONS: usize = 20;

/// Runs one demonstration, which kills a leader right after the start. Returns its fail-over time in ms.
fn demonstrate(context: &Context) -> Result<f64> {
    let (good, found): (_, Demo) = stentor(context, &["demo", "--json"])?;
    shown(&found)?;
    ensure!(good, "every property held, but the demonstration failed");
    let failover = found.failover_ms.context("the demonstration reports no fail-over: was no leader killed?")?;
    let (deliveries, properties) = (found.deliveries, found.properties.len());
    println!("{deliveries} deliveries, {properties} properties ok, fail-over {failover:.1} ms");
    Ok(failover)
}

/// Runs the demonstration once, with real processes. Checks every property and the fail-over time.
pub(crate) fn demo(context: &Context) -> Result<Outcome> {
    let failover = demonstrate(context)?;
    ensure!(failover <= MOST_FAILOVER_MS, "fail-over took {failover:.0} ms, more than {MOST_FAILOVER_MS} ms");
    Ok(Outcome::Passed)
}

/// Runs the demonstration [`DEMONSTRATIONS`] times, and checks the median of the fail-over time.
pub(crate) fn demo_failover(context: &Context) -> Result<Outcome> {
    let all = (0..DEMONSTRATIONS).map(|_| demonstrate(context)).collect::<Result<Vec<_>>>()?;
    let median = median(all);
    println!("median of {DEMONSTRATIONS}: {median:.1} ms");
    ensure!(median <= MEDIAN_FAILOVER_MS, "the median fail-over took more than {MEDIAN_FAILOVER_MS} ms");
    Ok(Outcome::Passed)
}

/// Runs the demonstration with copies by a software switch, without loss and with a loss of 1 % of the packets. Then
/// runs the broadcast with such copies.
pub(crate) fn demo_switch(context: &Context) -> Result<Outcome> {
    for lossy in [&[][..], &["--drop-chance", "0.01"]] {
        let arguments = ["demo", "--fabric", "roce", "--switch", "--json"];
        let (good, found): (_, Demo) = stentor(context, &[&arguments[..], lossy].concat())?;
        shown(&found)?;
        ensure!(good, "every property held, but the demonstration failed");
        let Some(Switched { copies }) = found.switch else { bail!("the demonstration reports no switch") };
        let (posted, receivers) = (found.writes_by_step["body"], found.items_by_step["body"]);
        ensure!(copies > 0 && posted < receivers, "the switch made {copies} copies");
        println!(
            "{} deliveries; {copies} copies by the switch: {posted:.2} writes of the first step for a message instead of \
             {receivers:.2}",
            found.deliveries
        );
    }
    let (good, found): (_, Demo) = stentor(context, &["demo", "--neb", "--fabric", "roce", "--switch", "--json"])?;
    shown(&found)?;
    ensure!(good, "every property held, but the broadcast failed");
    let copies = found.switch.map_or(0, |switch| switch.copies);
    ensure!(copies > 0, "the switch made no copies for the broadcast");
    println!("{} deliveries of the broadcast; {copies} copies by the switch", found.deliveries);
    Ok(Outcome::Passed)
}

/// Runs the broadcast with real processes, one of them Byzantine. Checks every property.
pub(crate) fn demo_neb(context: &Context) -> Result<Outcome> {
    let (good, found): (_, Demo) = stentor(context, &["demo", "--neb", "--json"])?;
    shown(&found)?;
    ensure!(good, "every property held, but the demonstration failed");
    println!("{} deliveries, {} properties ok", found.deliveries, found.properties.len());
    Ok(Outcome::Passed)
}

fn sound(found: &Simulated, seeds: u64) -> Result<()> {
    if let Some(violation) = &found.first_violation {
        println!("REPRODUCE WITH: {}", violation.reproduce);
        anyhow::bail!("{} violations; the first: {} at seed {}", found.violations, violation.property, violation.seed);
    }
    ensure!(found.violations == 0, "{} violations", found.violations);
    ensure!(found.unseen_faults.is_empty(), "claimed faults that never happened: {:?}", found.unseen_faults);
    ensure!(found.seeds == seeds, "{} seeds were run, not {seeds}", found.seeds);
    Ok(())
}

/// Checks that every required kind of fault and every other reported kind has happened.
fn all_failed(faults: &BTreeMap<String, u64>) -> Result<()> {
    let never: Vec<_> = faults.iter().filter(|(_, count)| **count == 0).map(|(kind, _)| kind.as_str()).collect();
    let untold: Vec<_> = FAILURES.into_iter().filter(|kind| !faults.contains_key(*kind)).collect();
    ensure!(never.is_empty() && untold.is_empty(), "never happened: {never:?}; not counted: {untold:?}");
    Ok(())
}

pub(crate) fn shown(found: &Demo) -> Result<()> {
    shown_but(found, &[])
}

/// Checks a demonstration. The properties in `unchecked` may remain unchecked, because the demonstration has no event
/// to which they apply.
pub(crate) fn shown_but(found: &Demo, unchecked: &[&str]) -> Result<()> {
    let excused = |name: &str, verdict: &str| verdict == "not_checked" && unchecked.contains(&name);
    let bad: Vec<_> = found.properties.iter().filter(|(name, is)| *is != "ok" && !excused(name, is)).collect();
    ensure!(bad.is_empty() && found.ok, "not ok: {bad:?}");
    ensure!(found.properties.values().any(|is| is == "ok") && found.deliveries > 0, "nothing was checked");
    Ok(())
}

/// Runs the command and parses the document that it prints, whatever its exit code.
pub(crate) fn stentor<T: DeserializeOwned>(context: &Context, arguments: &[&str]) -> Result<(bool, T)> {
    document(&programs::stentor(context)?, arguments)
}

fn document<T: DeserializeOwned>(program: &Path, arguments: &[&str]) -> Result<(bool, T)> {
    let (good, text) = capture(Command::new(program).args(arguments))?;
    let document =
        serde_json::from_str(&text).with_context(|| format!("`stentor {}` printed {text:?}", arguments.join(" ")))?;
    Ok((good, document))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Result<()> {
        sound(&serde_json::from_str(text).unwrap(), SEEDS)
    }

    #[test]
    fn a_simulation_run_is_sound_only_without_violations_and_with_all_seeds() {
        assert!(judged(r#"{"seeds": 1000, "violations": 0, "first_violation": null, "wall_seconds": 1.0}"#).is_ok());
        let unseen = r#"{"seeds": 1000, "violations": 0, "unseen_faults": ["stalls"], "wall_seconds": 1.0}"#;
        assert!(judged(unseen).unwrap_err().to_string().contains("stalls"));
        assert!(judged(r#"{"seeds": 0, "violations": 0, "wall_seconds": 1.0}"#).is_err());
        assert!(judged(r#"{"seeds": 1000, "violations": 1, "wall_seconds": 1.0}"#).is_err());
        let found = r#"{"seed": 7, "property": "M4", "reproduce": "stentor sim multicast --seed 7"}"#;
        let found = format!(r#"{{"seeds": 1000, "violations": 1, "first_violation": {found}, "wall_seconds": 1.0}}"#);
        assert!(judged(&found).unwrap_err().to_string().contains("M4 at seed 7"));
    }

    #[test]
    fn every_failure_must_have_happened() {
        let all: BTreeMap<String, u64> = FAILURES.into_iter().map(|kind| (kind.to_owned(), 1)).collect();
        assert!(all_failed(&all).is_ok());
        assert!(all_failed(&all.clone().into_iter().skip(1).collect()).is_err());
        let never = [("stalls".to_owned(), 0)].into_iter().chain(all).collect();
        assert!(all_failed(&never).unwrap_err().to_string().contains("stalls"));
    }

    #[test]
    fn a_demonstration_must_have_checked_something() {
        let demo = |text: &str| shown(&serde_json::from_str(text).unwrap());
        assert!(demo(r#"{"ok": true, "properties": {"M1": "ok"}, "deliveries": 9}"#).is_ok());
        assert!(demo(r#"{"ok": true, "properties": {}, "deliveries": 9}"#).is_err());
        assert!(demo(r#"{"ok": true, "properties": {"M1": "ok"}, "deliveries": 0}"#).is_err());
        assert!(demo(r#"{"ok": true, "properties": {"M1": "violated"}, "deliveries": 9}"#).is_err());
        assert!(demo(r#"{"ok": true, "properties": {"M1": "not_checked"}, "deliveries": 9}"#).is_err());
        assert!(demo(r#"{"ok": true, "properties": {"M1": "ok", "M10": "not_checked"}, "deliveries": 9}"#).is_err());
        assert!(demo(r#"{"ok": false, "properties": {"M1": "ok"}, "deliveries": 9}"#).is_err());
        let but = |text: &str| shown_but(&serde_json::from_str(text).unwrap(), &["M11"]);
        assert!(but(r#"{"ok": true, "properties": {"M1": "ok", "M11": "not_checked"}, "deliveries": 9}"#).is_ok());
        assert!(but(r#"{"ok": true, "properties": {"M1": "ok", "M11": "violated"}, "deliveries": 9}"#).is_err());
        assert!(but(r#"{"ok": true, "properties": {"M1": "not_checked"}, "deliveries": 9}"#).is_err());
        assert!(but(r#"{"ok": true, "properties": {"M11": "not_checked"}, "deliveries": 9}"#).is_err());
    }
}
