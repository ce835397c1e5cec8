//! Compares the public items of the crate `stentor` with a recorded list, so that every change of the items is noticed.
//!
//! The list is computed from rustdoc's JSON output. The format differs between toolchains, so the step runs with only
//! one toolchain.

mod listing;
mod render;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use rustdoc_types::{Crate, FORMAT_VERSION};
use serde::Deserialize;

use self::render::UNNAMED;
use crate::cargo::{Context, run};
use crate::step::{Component, Outcome};
use crate::tools;
use crate::workspace::Workspace;

/// The path of the list from the repository root.
const RECORD: &str = "crates/stentor/public-api.txt";
/// The toolchain whose rustdoc is read. Its format is that of the crate `rustdoc-types` in the version that
/// `xtask/Cargo.toml` requires.
const RELEASE: &str = "rustc 1.95.";
const TOOLCHAIN: Component = Component {
    name: "toolchain 1.95",
    remedy: "rustup toolchain install 1.95, and run the step by cargo +1.95 xtask test --only api",
};
/// The beginning of the list.
const HEAD: &str = "\
# The public items of the crate `stentor` with its default features, one a line: see CONTRIBUTING.md.
# Written by `cargo xtask api --record`.
";
/// Words that no public item may contain, because the concepts are internal: mutants, salts (which distinguish the
/// memory of different processes), and connection ids (which a reconnect renews).
const INSIDE: [&[&str]; 8] = [
    &["mutant"],
    &["mutants"],
    &["plant"],
    &["plants"],
    &["salt"],
    &["salts"],
    &["connection", "id"],
    &["connection", "ids"],
];

/// Checks that the public items are those of the list.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    if !is_named_toolchain() {
        return Ok(Outcome::NotRun(TOOLCHAIN));
    }
    let (now, path) = (lines(context)?, context.root.join(RECORD));
    let text = fs::read_to_string(&path).with_context(|| format!("nothing is recorded in {}", path.display()))?;
    judge(&parse(&text), &now)?;
    println!("{} public items and implementations", now.len());
    Ok(Outcome::Passed)
}

/// Compares the items with the list, or records a new list.
///
/// # Errors
///
/// Fails if the items differ, or with another toolchain.
pub(crate) fn compare(context: &Context, record: bool) -> Result<()> {
    if !record {
        return match step(context)? {
            Outcome::NotRun(component) => bail!("this needs the {}: {}", component.name, component.remedy),
            _ => Ok(()),
        };
    }
    ensure!(is_named_toolchain(), "this needs the {}: cargo +1.95 xtask api --record", TOOLCHAIN.name);
    let (now, path) = (lines(context)?, context.root.join(RECORD));
    let before = fs::read_to_string(&path).unwrap_or_default();
    println!("{}", differences(&parse(&before), &now));
    fs::write(&path, written(&now)).with_context(|| format!("cannot write {RECORD}"))?;
    println!("wrote {RECORD}: {} lines", now.len());
    named(&now)?;
    inside(&now)
}

fn is_named_toolchain() -> bool {
    tools::version_of(Path::new("rustc")).is_some_and(|version| version.starts_with(RELEASE))
}

/// Returns the public items according to rustdoc.
fn lines(context: &Context) -> Result<Vec<String>> {
    let workspace = Workspace::load(context)?;
    let build = workspace.build_directory.as_ref().unwrap_or(&workspace.target_directory);
    // The result has its own folder, so that it does not replace the pages of the step `docs`. All steps share the
    // build products.
    let target = workspace.target_directory.join("api");
    let json = target.join("doc/stentor.json");
    if json.exists() {
        fs::remove_file(&json)?;
    }
    let flags = ["--", "-Z", "unstable-options", "--output-format", "json"];
    let mut command = context.cargo(["rustdoc", "-p", "stentor", "--lib"]);
    command.args(flags).env("RUSTDOC", context.root.join("xtask/src/api/rustdoc"));
    run(command.env("CARGO_TARGET_DIR", &target).env("CARGO_BUILD_BUILD_DIR", build))?;
    read(&json)
}

/// Parses rustdoc's output.
fn read(json: &Path) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
    }
    let text = fs::read_to_string(json).with_context(|| format!("rustdoc has not written {}", json.display()))?;
    let found: Version = serde_json::from_str(&text)?;
    ensure!(
        found.format_version == FORMAT_VERSION,
        "rustdoc writes format {}, but xtask reads format {FORMAT_VERSION}: change the version of rustdoc-types in xtask/Cargo.toml",
        found.format_version
    );
    let krate: Crate = serde_json::from_str(&text).context("cannot parse the output of rustdoc")?;
    Ok(listing::lines(&krate))
}

fn written(lines: &[String]) -> String {
    format!("{HEAD}{}\n", lines.join("\n"))
}

fn parse(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.starts_with("# ") && !line.is_empty()).map(str::to_owned).collect()
}

fn judge(before: &[String], now: &[String]) -> Result<()> {
    named(now)?;
    inside(now)?;
    let differences = differences(before, now);
    ensure!(
        differences.is_empty(),
        "the public items differ from {RECORD}:\n{differences}If this is intended, run `cargo xtask api --record`, and add a line \
         to CHANGELOG.md"
    );
    Ok(())
}

/// Returns the removed and the added lines, in the order of the lists.
fn differences(before: &[String], now: &[String]) -> String {
    let (old, new): (HashSet<_>, HashSet<_>) = (before.iter().collect(), now.iter().collect());
    let (mut before, mut now, mut text) = (before.iter().peekable(), now.iter().peekable(), String::new());
    while before.peek().is_some() || now.peek().is_some() {
        if let Some(gone) = before.next_if(|line| !new.contains(line)) {
            let _ = writeln!(text, "- {gone}");
        } else if let Some(come) = now.next_if(|line| !old.contains(line)) {
            let _ = writeln!(text, "+ {come}");
        } else if before.peek() == now.peek() || before.peek().is_none() {
            before.next();
            now.next();
        } else {
            before.next();
        }
    }
    text
}

/// Checks that every type of the crate in a signature has a public path.
fn named(lines: &[String]) -> Result<()> {
    let found: Vec<_> = lines.iter().filter(|line| line.contains(UNNAMED)).map(String::as_str).collect();
    ensure!(
        found.is_empty(),
        "public items use types without a public path, which are marked `{UNNAMED}…`, so no program can name them:\n{}\n\
         Publish the types, or use other types",
        found.join("\n")
    );
    Ok(())
}

/// Checks that no item names an internal concept.
fn inside(lines: &[String]) -> Result<()> {
    let found = lines.iter().filter(|line| {
        let words = words(line);
        INSIDE.iter().any(|inside| words.windows(inside.len()).any(|some| some == *inside))
    });
    let found: Vec<_> = found.map(String::as_str).collect();
    ensure!(
        found.is_empty(),
        "public items name mutants, salts or connection ids, which are internal concepts:\n{}\nHide them, or change \
         INSIDE in xtask/src/api/mod.rs",
        found.join("\n")
    );
    Ok(())
}

/// Returns the words of the names in a line, in lower case: `ConnectionId` and `connection_id` are two words each.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for letter in line.chars() {
        if !letter.is_alphanumeric() || (was_small && letter.is_uppercase()) {
            words.push(String::new());
        }
        was_small = letter.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use stentor_testutil::TempDir;

    use super::*;

    /// Returns the list of a crate of the folder `fixtures`, or `None` with another toolchain.
    fn fixture() -> Option<Vec<String>> {
        if !is_named_toolchain() {
            println!("not run: without {}: {}", TOOLCHAIN.name, TOOLCHAIN.remedy);
            return None;
        }
        let (source, target) = (Context::new().root.join("xtask/src"), TempDir::new());
        let mut rustdoc = Command::new(source.join("api/rustdoc"));
        rustdoc.arg(source.join("fixtures/api.rs")).args(["--edition", "2024", "-Z", "unstable-options"]);
        run(rustdoc.args(["--output-format", "json", "-o"]).arg(&*target)).unwrap();
        Some(read(&target.join("api.json")).unwrap())
    }

    #[test]
    fn every_public_item_of_a_crate_is_listed_once() {
        if let Some(lines) = fixture() {
            assert_eq!(differences(&parse(include_str!("../fixtures/api.txt")), &lines), "");
            assert_eq!(lines.iter().collect::<HashSet<_>>().len(), lines.len());
        }
    }

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn removed_and_added_lines_are_listed_in_order() {
        let told = |before, now| differences(&lines(before), &lines(now));
        assert_eq!(told("a b c", "a b c"), "");
        assert_eq!(told("a b1 c e", "a b2 c d e f"), "- b1\n+ b2\n+ d\n+ f\n");
        assert_eq!(told("a b", ""), "- a\n- b\n");
        assert_eq!(told("a a b", "a b c"), "+ c\n", "a line that is there twice");
        assert_eq!(told("a b c", "c b a d"), "+ d\n", "another order");
    }

    #[test]
    fn other_items_are_an_error_with_a_remedy() {
        judge(&lines("a b"), &lines("a b")).unwrap();
        let error = judge(&lines("a b"), &lines("a c")).unwrap_err().to_string();
        assert!(error.contains("\n- b\n+ c\n") && error.contains("`cargo xtask api --record`"), "{error}");
    }

    #[test]
    fn a_type_without_a_public_path_is_an_error() {
        let line = vec![format!("pub fn a::key(key: {UNNAMED}a::Source)")];
        let error = judge(&line, &line).unwrap_err().to_string();
        assert!(error.contains(&line[0]), "{error}");
    }

    #[test]
    fn words_of_internal_concepts_are_found_in_all_spellings() {
        for bad in [
            "pub fn a::with_salt()",
            "pub fn a::b(_: a::Mutant)",
            "pub fn a::b(_: a::ConnectionId)",
            "pub a::B::connection_id: u64",
            "pub const a::PLANTS: u8 = 1",
            "pub const a::CONNECTION_IDS: u8 = 1",
        ] {
            let error = inside(&[bad.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
        for good in ["pub fn a::b() -> Result<a::Connection, a::Id>", "pub a::basalt: u8", "pub mod a::explants"] {
            inside(&[good.to_owned()]).unwrap();
        }
    }

    #[test]
    fn written_list_is_parsed() {
        let lines = lines("a b");
        assert_eq!(parse(&written(&lines)), lines);
        assert_eq!(parse("# a\n#[non_exhaustive] b\n"), ["#[non_exhaustive] b"]);
    }
}
