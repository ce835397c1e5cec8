//! Checks that protocol crates do no I/O, start no threads, read no clock and draw no random numbers. They receive time
//! and randomness as arguments. So one seed replays one run.
//!
//! There are three checks, and a fourth where it is possible. All crates that are linked with the crate are on an
//! allow-list. No path in its sources names a forbidden item. The compiled library calls no forbidden function. The
//! crate builds for a target without an operating system, if that target is installed.

mod paths;
mod symbols;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::cargo::{Context, capture, run};
use crate::source::{Source, Violation, has_root_attribute, judge};
use crate::step::{Component, Outcome};
use crate::workspace::{Package, Workspace};

/// A pure crate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pure {
    /// The name of the crate.
    pub name: &'static str,
    /// The crates that may be linked with this crate, directly or indirectly, except procedural macros.
    pub linked: &'static [&'static str],
    /// `true` if the crate also works without `std`.
    pub no_std: bool,
}

/// The pure crates.
pub(crate) const PURE: &[Pure] = &[
    Pure {
        name: "stentor-channel",
        linked: &["stentor-link", "stentor-fabric", "stentor-atomic-copy", "thiserror", "xxhash-rust", "zerocopy"],
        no_std: false,
    },
    Pure {
        name: "stentor-election",
        linked: &["stentor-fabric", "thiserror", "xxhash-rust", "zerocopy"],
        no_std: false,
    },
    Pure { name: "stentor-link", linked: &["stentor-fabric", "thiserror", "xxhash-rust", "zerocopy"], no_std: false },
    Pure {
        name: "stentor-multicast",
        linked: &["stentor-link", "stentor-fabric", "thiserror", "xxhash-rust", "zerocopy"],
        no_std: false,
    },
    Pure {
        name: "stentor-session",
        linked: &["stentor-multicast", "stentor-link", "stentor-fabric", "thiserror", "xxhash-rust", "zerocopy"],
        no_std: false,
    },
    Pure {
        name: "stentor-switch",
        linked: &["cfg-if", "crc32fast", "stentor-wire", "thiserror", "zerocopy"],
        no_std: false,
    },
    Pure { name: "stentor-wire", linked: &["cfg-if", "crc32fast", "zerocopy"], no_std: true },
    Pure {
        name: "stentor-neb",
        // Most of these crates do the arithmetic of signatures. `fiat-crypto` is only built if a build asks for it.
        // `libc` is only linked on processors whose features must be queried from the operating system, once.
        linked: &[
            "block-buffer",
            "cfg-if",
            "cpufeatures",
            "crypto-common",
            "curve25519-dalek",
            "digest",
            "ed25519",
            "ed25519-dalek",
            "fiat-crypto",
            "generic-array",
            "libc",
            "sha2",
            "signature",
            "stentor-fabric",
            "stentor-link",
            "subtle",
            "thiserror",
            "typenum",
            "xxhash-rust",
            "zerocopy",
            "zeroize",
        ],
        no_std: false,
    },
];

const BARE: &str = "wasm32-unknown-unknown";
const BARE_TARGET: Component =
    Component { name: "target wasm32-unknown-unknown", remedy: "rustup target add wasm32-unknown-unknown" };

/// Checks all pure crates.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let workspace = Workspace::load(context)?;
    let mut violations = Vec::new();
    for pure in PURE {
        let package = workspace.member(pure.name)?;
        let linked: Vec<&str> = workspace.linked_with(package).iter().map(|package| package.name.as_str()).collect();
        violations.extend(check_linked(pure, &linked));
        let sources = shipped(context, package)?;
        violations.extend(check_no_std(pure, &sources)?);
        for source in &sources {
            violations.extend(paths::check(source)?);
        }
        let library = library(context, pure.name)?;
        let (names, found) = symbols::check(pure.name, &std::fs::read(&library).context("cannot read the library")?)?;
        violations.extend(found);
        println!("{}: {} files, {} crates linked, {names} names called", pure.name, sources.len(), linked.len());
    }
    judge(&violations)?;
    bare_build(context)
}

fn check_linked(pure: &Pure, linked: &[&str]) -> Vec<Violation> {
    let foreign = linked.iter().filter(|name| !pure.linked.contains(name));
    let what = |name: &&str| format!("is linked with {name}: find another way, or add it to PURE in xtask/src/purity");
    foreign.map(|name| Violation::of(pure.name, what(name))).collect()
}

fn check_no_std(pure: &Pure, sources: &[Source]) -> Result<Vec<Violation>> {
    let root = sources.iter().find(|source| source.path.ends_with("src/lib.rs"));
    let root = root.with_context(|| format!("{} has no src/lib.rs", pure.name))?;
    let missing = pure.no_std && !has_root_attribute(&root.tokens()?, "no_std", "");
    Ok(missing.then(|| Violation::at(root, 1, "this crate root lacks `#![no_std]`")).into_iter().collect())
}

/// Returns the sources that are compiled into the library: no integration tests, no benchmarks, no modules for tests.
fn shipped(context: &Context, package: &Package) -> Result<Vec<Source>> {
    let mut sources = package.sources(context)?;
    let inside = package.directory().join("src");
    sources.retain(|source| context.root.join(&source.path).starts_with(&inside));
    let mut tests = Vec::new();
    for source in &sources {
        tests.extend(paths::test_modules(source)?);
    }
    sources.retain(|source| {
        !tests.iter().any(|test| source.path.starts_with(test) || source.path == test.with_extension("rs"))
    });
    Ok(sources)
}

#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    package_id: String,
    #[serde(default)]
    filenames: Vec<String>,
}

/// Compiles a crate and returns the path of its library.
fn library(context: &Context, name: &str) -> Result<String> {
    let arguments = ["rustc", "--lib", "-p", name, "--message-format", "json-render-diagnostics", "--"];
    let (good, text) = capture(context.cargo(arguments).args(symbols::COMPLETE))?;
    if !good {
        bail!("{name} does not compile; the message is above");
    }
    let mut found = None;
    for line in text.lines() {
        let message: Message = serde_json::from_str(line).context("cannot parse the output of cargo")?;
        if message.reason == "compiler-artifact" && message.package_id.contains(&format!("#{name}@")) {
            found = message.filenames.into_iter().find(|file| file.ends_with(".rlib"));
        }
    }
    found.with_context(|| format!("cargo did not report the path of the library of {name}"))
}

/// Builds for a target without an operating system, if it is installed.
fn bare_build(context: &Context) -> Result<Outcome> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let (known, directory) = capture(Command::new(rustc).args(["--print", "target-libdir", "--target", BARE]))?;
    if !known || !Path::new(directory.trim()).is_dir() {
        println!("checked only by dependencies, sources and symbols");
        return Ok(Outcome::PassedWithout(BARE_TARGET));
    }
    let packages = PURE.iter().flat_map(|pure| ["-p", pure.name]);
    run(context.cargo(["build", "--lib", "--target", BARE]).args(packages))?;
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::source;

    const TESTED: Pure = Pure { name: "stentor-multicast", linked: &["stentor-fabric"], no_std: true };

    #[test]
    fn foreign_crates_are_seen_through_others_but_macros_and_tests_do_not_count() {
        let workspace = Workspace::parse(include_str!("../fixtures/metadata.json")).unwrap();
        let linked = workspace.linked_with(workspace.member("stentor-multicast").unwrap());
        let linked: Vec<_> = linked.into_iter().map(|package| package.name.as_str()).collect();
        assert_eq!(linked, ["forked", "stentor-fabric"]);
        let found = check_linked(&TESTED, &linked);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("forked"), "{found:?}");
    }

    #[test]
    fn crate_without_std_needs_the_attribute() {
        let check = |text: &str| check_no_std(&TESTED, &[source("crates/a/src/lib.rs", text)]).unwrap().len();
        assert_eq!(check("#![no_std]"), 0);
        assert_eq!(check("//! #![no_std]"), 1);
        assert!(check_no_std(&TESTED, &[]).is_err());
    }
}
