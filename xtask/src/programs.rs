//! Builds programs with cargo, to run them here or in a guest.
//!
//! Tests, and the command for them, are built as parts of the whole workspace, as `cargo test --workspace` builds them.
//! If a crate is built alone, its dependencies have other features, and cargo compiles all of them again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::cargo::{Context, Profile, capture, line};

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

/// Runs a build. Returns the path of a target's program. `folder` is the folder of the target's crate, relative to the
/// root.
pub(crate) fn executable(command: &mut Command, folder: &str, target: &str) -> Result<PathBuf> {
    let (good, text) = capture(command.args(["--message-format", "json-render-diagnostics"]))?;
    if !good {
        bail!("the program does not compile; the message is above");
    }
    find(&text, folder, target).with_context(|| format!("cargo did not report the path of `{target}` of {folder}"))
}

fn find(messages: &str, folder: &str, target: &str) -> Option<PathBuf> {
    let manifest = Path::new(folder).join("Cargo.toml");
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let wanted = |message: &Message| {
        message.target.as_ref().is_some_and(|found| found.name == target) && message.manifest_path.ends_with(&manifest)
    };
    messages.filter(wanted).find_map(|message| message.executable)
}

/// Returns the optimised command: see [`Profile`].
pub(crate) fn stentor(context: &Context) -> Result<PathBuf> {
    optimised(context, context.profile)
}

/// Returns the optimised command with mutants.
pub(crate) fn stentor_with_plants(context: &Context) -> Result<PathBuf> {
    optimised(context, Profile::ReleaseTests)
}

/// Builds the command. The release build is built alone and has no mutants. The other build is built as a part of the
/// whole workspace, and has them.
fn optimised(context: &Context, profile: Profile) -> Result<PathBuf> {
    let mut command = match profile {
        Profile::Release => context.cargo(["build", "--release", "-p", "stentor-cli"]),
        Profile::ReleaseTests => context.release_tests("build"),
    };
    executable(command.args(["--bin", "stentor"]), "crates/bin/cli", "stentor")
}

/// Returns the command that tests use, without optimisation and with mutants.
pub(crate) fn debug_stentor(context: &Context) -> Result<PathBuf> {
    executable(context.test(&["cli"]).arg("--no-run"), "crates/bin/cli", "stentor")
}

/// Returns the program of the example store: the release build if `optimised` is `true`, otherwise the build that its
/// tests use.
pub(crate) fn store(context: &Context, optimised: bool) -> Result<PathBuf> {
    let mut build =
        if optimised { context.cargo(["build", "--release", "-p", "stentor-kv"]) } else { context.test(&["kv"]) };
    executable(if optimised { &mut build } else { build.arg("--no-run") }, "examples/kv", "stentor-kv")
}

/// Returns the program of a folder in `examples` that its tests use.
pub(crate) fn example(context: &Context, folder: &str, name: &str) -> Result<PathBuf> {
    executable(context.debug("build").args(["--bin", name]), &format!("examples/{folder}"), name)
}

/// Returns a test of a folder in `crates` as a program.
pub(crate) fn test_program(context: &Context, folder: &str, name: &str) -> Result<PathBuf> {
    executable(context.test(&[name]).arg("--no-run"), &format!("crates/{folder}"), name)
}

/// Returns a command that runs a test of one crate in the directory in which cargo would run it.
pub(crate) fn test(context: &Context, folder: &str, name: &str) -> Result<Command> {
    let mut command = Command::new(test_program(context, folder, name)?);
    command.current_dir(context.root.join("crates").join(folder));
    Ok(command)
}

/// Fails if one of the programs that a command would run has no test to run. A filter that matches nothing is not a
/// success.
pub(crate) fn ensure_some(command: &mut Command) -> Result<()> {
    let (good, text) = capture(command.arg("--list"))?;
    ensure!(good && each_lists_some(&text), "`{}` finds no test; it printed: {text}", line(command));
    Ok(())
}

/// Returns whether each program lists a test. Its list ends with the number of its tests.
fn each_lists_some(text: &str) -> bool {
    let mut counts = text.lines().filter(|line| line.ends_with(" benchmarks")).peekable();
    counts.peek().is_some() && counts.all(|count| !count.starts_with("0 tests,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_without_a_match_is_detected() {
        const ONE: &str = "searches::those_that_take_minutes: test\n\n1 test, 0 benchmarks\n";
        const NONE: &str = "\n0 tests, 0 benchmarks\n";
        assert!(each_lists_some(ONE));
        assert!(each_lists_some(&format!("{ONE}{ONE}")));
        assert!(!each_lists_some(NONE));
        assert!(!each_lists_some(&format!("{ONE}{NONE}")), "one program of two has none");
        assert!(!each_lists_some(""));
    }

    #[test]
    fn a_program_is_found_among_others_of_its_name() {
        let artifact = |folder: &str, name: &str, program: &str| {
            format!(
                r#"{{"manifest_path": "/x/crates/{folder}/Cargo.toml", "target": {{"name": "{name}"}}, "executable": {program}}}"#
            )
        };
        let messages = [
            r#"{"reason": "build-finished", "success": true}"#.to_owned(),
            artifact("bin/cli", "stentor", "null"),
            artifact("fabric/ofi", "conformance", "\"/x/ofi\""),
            artifact("fabric/verbs", "conformance", "\"/x/verbs\""),
        ]
        .join("\n");
        assert_eq!(find(&messages, "crates/fabric/verbs", "conformance"), Some("/x/verbs".into()));
        assert_eq!(find(&messages, "crates/fabric/ofi", "conformance"), Some("/x/ofi".into()));
        assert_eq!(find(&messages, "crates/bin/cli", "stentor"), None, "a library is no program");
        assert_eq!(find(&messages, "crates/verbs", "conformance"), None);
    }
}
