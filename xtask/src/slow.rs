//! Runs the tests that plain `cargo test` ignores because each takes seconds. The tests mostly wait.
//!
//! Such a test is marked by `#[ignore]` with a reason that begins as [`MARK`] does. It is in a file below `tests`, and
//! not in a module inside that file.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::cargo::{Context, Unsuccessful, capture, run};
use crate::source::rust_files;
use crate::step::Outcome;
use crate::workspace::Workspace;

/// The mark of a test that this step runs.
const MARK: &str = "#[ignore = \"slow: ";
/// Number of tests that run at once, even on fewer processors, because the tests mostly wait.
const THREADS: &str = "3";

pub(crate) fn step(context: &Context) -> Result<Outcome> {
    crate::chaos::NEEDS.ensure()?;
    let (mut targets, mut tests) = (Vec::new(), Vec::new());
    for package in Workspace::load(context)?.members() {
        for target in package.targets.iter().filter(|target| target.kind.iter().any(|kind| kind == "test")) {
            let found = of_target(&target.src_path)?;
            if !found.is_empty() {
                targets.extend(["--test".to_owned(), target.name.clone()]);
                tests.extend(found);
            }
        }
    }
    let command = || {
        let mut command = context.debug("test");
        command.arg("--no-fail-fast").args(&targets).args(["--", "--ignored", "--exact"]).args(&tests);
        command
    };
    let (good, text) = capture(command().arg("--list"))?;
    let known: Vec<_> = text.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let unknown: Vec<_> = tests.iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
    ensure!(
        good && unknown.is_empty() && known.len() == tests.len() && !tests.is_empty(),
        "{} tests are marked by `{MARK}`, and cargo lists {}; it lacks: {}",
        tests.len(),
        known.len(),
        unknown.join(", ")
    );
    // The command line names every test, so the error with it would fill a page.
    run(command().args(["--test-threads", THREADS])).map_err(|error| match error.downcast::<Unsuccessful>() {
        Ok(failed) => failed.named("cargo test of the slow tests").into(),
        Err(error) => error,
    })?;
    Ok(Outcome::Passed)
}

/// Returns the marked tests of a target, which is given by its root file.
fn of_target(root: &Path) -> Result<Vec<String>> {
    let folder = root.parent().context("a folder of tests")?;
    let has_folder = root.file_name().is_some_and(|name| name == "main.rs");
    let mut tests = Vec::new();
    for source in rust_files(folder, folder)?.iter().filter(|source| has_folder || folder.join(&source.path) == root) {
        let mut module: Vec<_> =
            source.path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| last == "mod" || last == "main" || !has_folder);
        for name in marked(&source.text) {
            tests.push(module.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join("::"));
        }
    }
    Ok(tests)
}

/// Returns the names of the functions that follow the mark.
fn marked(text: &str) -> Vec<&str> {
    let mut lines = text.lines();
    let mut names = Vec::new();
    while lines.any(|line| line.trim_start().starts_with(MARK)) {
        let name = lines.find_map(|line| line.trim_start().strip_prefix("fn ")?.split('(').next());
        names.extend(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_testutil::TempDir;

    #[test]
    fn marked_tests_are_found_by_their_modules() {
        let work = TempDir::new();
        let text = format!("#[test]\nfn quick() {{}}\n#[test]\n{MARK}it waits\"]\nfn waits() {{}}\n");
        let root = work.file("main.rs", &text);
        work.file("deep.rs", format!("{text}{text}"));
        assert_eq!(of_target(&root).unwrap().len(), 3);
        assert!(of_target(&root).unwrap().contains(&"deep::waits".to_owned()));
        let alone = work.file("alone.rs", &text);
        assert_eq!(of_target(&alone).unwrap(), ["waits"]);
    }
}
