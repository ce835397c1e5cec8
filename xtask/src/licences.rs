//! Checks licences and origins of all dependencies of the workspace. The allow-list is `deny.toml`, which `cargo deny`
//! also reads.

use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

use crate::cargo::Context;
use crate::source::{Violation, judge};
use crate::step::Outcome;
use crate::workspace::{Package, Workspace};

#[derive(Debug, Deserialize)]
struct Deny {
    licenses: Licenses,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

impl Deny {
    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("deny.toml")
    }

    fn licensees(&self) -> Result<Vec<Licensee>> {
        let parse = |name: &String| Licensee::parse(name).with_context(|| format!("deny.toml: licence `{name}`"));
        self.licenses.allow.iter().map(parse).collect()
    }
}

/// Checks every package of the lock file, including those that only tests, other platforms or optional features need.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let deny = Deny::parse(&fs::read_to_string(context.root.join("deny.toml")).context("cannot read deny.toml")?)?;
    let workspace = Workspace::load_all_features(context)?;
    println!("{} packages against {} licences", workspace.packages.len(), deny.licenses.allow.len());
    judge(&check(&deny, &workspace.packages)?)?;
    Ok(Outcome::Passed)
}

fn check(deny: &Deny, packages: &[Package]) -> Result<Vec<Violation>> {
    let allowed = deny.licensees()?;
    let mut violations = Vec::new();
    for package in packages {
        let place = format!("{} {}", package.name, package.version);
        if let Some(problem) = licence_problem(&allowed, package.license.as_deref()) {
            violations.push(Violation::of(&place, problem));
        }
        let known = |source: &str| deny.sources.allow_registry.iter().any(|url| source == format!("registry+{url}"));
        if let Some(source) = package.source.as_deref().filter(|source| !known(source)) {
            violations.push(Violation::of(&place, format!("comes from {source}, which deny.toml does not allow")));
        }
    }
    Ok(violations)
}

fn licence_problem(allowed: &[Licensee], licence: Option<&str>) -> Option<String> {
    let Some(licence) = licence else { return Some("names no licence".into()) };
    let expression = match Expression::parse_mode(licence, ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("licence `{licence}` cannot be read: {}", error.reason)),
    };
    let good = expression.evaluate(|requirement| allowed.iter().any(|licensee| licensee.satisfies(requirement)));
    (!good).then(|| format!("licence `{licence}` is not among those of deny.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deny() -> Deny {
        Deny::parse(include_str!("../../deny.toml")).unwrap()
    }

    #[test]
    fn copyleft_and_unknown_licences_are_seen() {
        let allowed = deny().licensees().unwrap();
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR GPL-3.0-only",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(licence_problem(&allowed, Some(good)), None);
        }
        for bad in [
            "GPL-3.0-only",
            "MPL-2.0",
            "MIT AND LGPL-2.1-or-later",
            "AGPL-3.0",
            "GPL-2.0 WITH Classpath-exception-2.0",
            "Homemade",
            "",
        ] {
            assert!(licence_problem(&allowed, Some(bad)).is_some(), "{bad}");
        }
        assert!(licence_problem(&allowed, None).is_some());
    }

    #[test]
    fn packages_are_judged_by_licence_and_by_source() {
        let workspace = Workspace::parse(include_str!("fixtures/metadata.json")).unwrap();
        let found: Vec<_> = check(&deny(), &workspace.packages).unwrap();
        let places: Vec<_> = found.iter().map(|violation| violation.place.as_str()).collect();
        assert_eq!(places, ["copyleft 1.0.0", "forked 2.0.0"]);
    }

    #[test]
    fn a_deny_toml_that_is_no_allow_list_is_an_error() {
        assert!(Deny::parse("[licenses]\nallow = 3").is_err());
        assert!(Deny::parse("").is_err());
        let nonsense = Deny::parse("[licenses]\nallow = [\"Homemade\"]\n[sources]\nallow-registry = []").unwrap();
        assert!(nonsense.licensees().is_err());
    }
}
