//! Builds the crate `stentor` in all combinations of features that matter. Each must compile without a warning. Without
//! a fabric the build must fail.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cargo::{Context, line, run};
use crate::step::Outcome;

/// The combinations of features that are built. Each fabric is built alone, because a fabric must not need a dependency
/// that only another fabric brings.
const COMBINATIONS: [&str; 10] = [
    "shm",
    "roce",
    "verbs",
    "ofi",
    "shm,roce",
    "shm,roce,verbs,ofi",
    "shm,unstable-core",
    "ofi,unstable-core",
    "shm,checker",
    "shm,sim,plants",
];
/// The features of the fabrics, of which at least one is needed.
const FABRICS: [&str; 4] = ["shm", "roce", "verbs", "ofi"];

/// Flags of every clippy command here. They are those of the step `clippy`; with other flags, clippy would check all
/// crates again.
const DENIED: [&str; 3] = ["--", "-D", "warnings"];

/// Builds every combination, and the crate without a fabric.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    for features in COMBINATIONS {
        run(&mut clippy(context, &["--features", features]))?;
    }
    without_fabric(context)?;
    Ok(Outcome::Passed)
}

fn clippy(context: &Context, features: &[&str]) -> Command {
    let mut command = context.cargo(["clippy", "-p", "stentor", "--lib", "--no-default-features"]);
    command.args(features).args(DENIED);
    command
}

fn without_fabric(context: &Context) -> Result<()> {
    let mut command = clippy(context, &[]);
    println!("$ {}", line(&command));
    let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "the crate compiles without a fabric");
    names_fabrics(&text)
}

/// Checks that the first error names all fabrics. The errors after it are confusing.
fn names_fabrics(text: &str) -> Result<()> {
    let first = text.lines().find(|line| line.starts_with("error")).unwrap_or_default();
    let named = FABRICS.iter().all(|fabric| first.contains(&format!("`{fabric}`")));
    ensure!(named, "without a fabric, the first error should name the features {FABRICS:?}:\n{text}");
    println!("{first}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn every_feature_is_in_a_combination() {
        let manifest = fs::read_to_string(Context::new().root.join("crates/stentor/Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let features = manifest["features"].as_table().unwrap().keys().map(String::as_str);
        let combined: BTreeSet<_> = COMBINATIONS.iter().flat_map(|features| features.split(',')).collect();
        assert_eq!(features.filter(|feature| *feature != "default").collect::<BTreeSet<_>>(), combined);
    }

    #[test]
    fn the_first_error_must_name_every_fabric() {
        let good = "warning: x\nerror: enable one of `shm`, `roce`, `verbs` and `ofi`\nerror[E0004]: y";
        names_fabrics(good).unwrap();
        names_fabrics(&good.replace("`ofi`", "others")).unwrap_err();
        names_fabrics(&good.replace("error: enable", "error[E0004]: y\nerror: enable")).unwrap_err();
        names_fabrics("").unwrap_err();
    }
}
