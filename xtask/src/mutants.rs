//! Mutation testing: checks that the tests of a crate fail if one place of its code is changed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::cargo::{Context, run};
use crate::step::Outcome;
use crate::tools::installed;

/// The version of `cargo-mutants`, which determines the mutants.
const VERSION: &str = "27.1.0";

/// Inverse of the share of mutants that are tested.
const SAMPLE: u32 = 20;

/// Minimum share of mutants that the tests of each crate must catch, in percent.
const LEAST_PERCENT: usize = 95;

/// The crates whose code is mutated. The mutants of a crate are tested only with the tests of this crate.
const CRATES: [&str; 8] = [
    "stentor-wire",
    "stentor-switch",
    "stentor-checker",
    "stentor-election",
    "stentor-channel",
    "stentor-neb",
    "stentor-multicast",
    "stentor-session",
];

/// The counts of `cargo-mutants`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
struct Counts {
    caught: usize,
    missed: usize,
    /// Number of mutants with which the tests did not end. They count as caught.
    timeout: usize,
    /// Number of mutants that do not compile.
    unviable: usize,
}

impl Counts {
    fn seen(self) -> usize {
        self.caught + self.timeout
    }

    fn is_enough(self) -> bool {
        100 * self.seen() >= LEAST_PERCENT * (self.seen() + self.missed)
    }
}

/// Tests a sample of each crate's mutants, even after a crate has failed. `STENTOR_MUTANTS` selects crates.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let program = installed(context, "cargo-mutants", VERSION)?;
    let chosen = std::env::var("STENTOR_MUTANTS").unwrap_or_else(|_| CRATES.join(","));
    let mut weak = Vec::new();
    for name in chosen.split(',') {
        let counts = test(context, &program, name)?;
        let Counts { missed, unviable, .. } = counts;
        println!("{name}: {} of {} mutants caught; {unviable} do not compile", counts.seen(), counts.seen() + missed);
        weak.extend((!counts.is_enough()).then_some(name));
    }
    if weak.is_empty() {
        return Ok(Outcome::Passed);
    }
    bail!("fewer than {LEAST_PERCENT} % of the mutants are caught in {}: the survivors are above", weak.join(", "))
}

fn test(context: &Context, program: &Path, name: &str) -> Result<Counts> {
    let folder = context.root.join("target/mutants").join(name);
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(program);
    command.current_dir(&context.root).args(["mutants", "--package", name, "--no-shuffle", "--colors", "never"]);
    command.args(["--sharding", "round-robin", "--shard", &format!("0/{SAMPLE}")]);
    command.args(["--timeout-multiplier", "5", "--minimum-test-timeout", "60", "--output"]).arg(&folder);
    // The program exits with an error if a mutant survives.
    let ran = run(&mut command);
    let outcomes = folder.join("mutants.out/outcomes.json");
    let text = fs::read_to_string(&outcomes).with_context(|| format!("{name} left no {}", outcomes.display()))?;
    let counts: Counts = serde_json::from_str(&text).with_context(|| outcomes.display().to_string())?;
    ensure!(counts.seen() + counts.missed > 0, "{name} has no mutants: {ran:?}");
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_twenty_may_survive() {
        let counts = |caught, missed, timeout| Counts { caught, missed, timeout, unviable: 3 };
        assert!(counts(19, 1, 0).is_enough() && counts(18, 1, 1).is_enough());
        assert!(!counts(18, 1, 0).is_enough() && !counts(0, 1, 0).is_enough());
    }

    #[test]
    fn outcomes_are_counted() {
        let text = r#"{"outcomes": [], "total_mutants": 4, "missed": 1, "caught": 2, "timeout": 0, "unviable": 1, "success": 0}"#;
        assert_eq!(
            serde_json::from_str::<Counts>(text).unwrap(),
            Counts { caught: 2, missed: 1, timeout: 0, unviable: 1 }
        );
    }
}
