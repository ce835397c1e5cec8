//! The permitted dependencies between crates, which `ARCHITECTURE.md` lists in a table. A crate depends only on crates
//! below it in the map.

use anyhow::Result;

use crate::cargo::Context;
use crate::source::{Violation, judge};
use crate::step::Outcome;
use crate::workspace::Workspace;

/// The row of a crate in the map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The crate.
    pub name: &'static str,
    /// Crates of this workspace on which the crate may depend.
    pub on: &'static [&'static str],
    /// Further crates of this workspace that the crate's tests may use.
    pub tests_on: &'static [&'static str],
}

/// A crate that the tests of every crate above it may use.
const TESTUTIL: &str = "stentor-testutil";

/// The map, from the top down. Every crate of the workspace has a row. A protocol depends on `stentor-fabric`, which is
/// the contract of fabrics. It depends on no crate that implements this contract, except in its tests.
pub(crate) const MAP: &[Place] = &[
    // Examples show what a user can do, so they use only the public API.
    Place { name: "stentor-bank", on: &["stentor"], tests_on: &[] },
    Place { name: "stentor-lock", on: &["stentor"], tests_on: &[] },
    Place {
        name: "stentor-cli",
        on: &[
            "stentor",
            "stentor-bench",
            "stentor-simulation",
            "stentor-channel",
            "stentor-checker",
            "stentor-election",
            "stentor-election-zookeeper",
            "stentor-fabric",
            "stentor-fabric-ofi",
            "stentor-fabric-roce",
            "stentor-fabric-shm",
            "stentor-fabric-sim",
            "stentor-fabric-verbs",
            "stentor-host",
            "stentor-multicast",
            "stentor-neb",
            "stentor-session",
            "stentor-soft-switch",
            "stentor-support",
            "stentor-switch",
        ],
        tests_on: &[],
    },
    Place {
        name: "stentor-bench",
        on: &[
            "stentor",
            "stentor-atomic-copy",
            "stentor-channel",
            "stentor-checker",
            "stentor-election",
            "stentor-fabric",
            "stentor-fabric-ofi",
            "stentor-fabric-roce",
            "stentor-fabric-shm",
            "stentor-fabric-sim",
            "stentor-fabric-verbs",
            "stentor-host",
            "stentor-multicast",
            "stentor-neb",
            "stentor-simulation",
            "stentor-soft-switch",
            "stentor-support",
            "stentor-switch",
            "stentor-wire",
        ],
        tests_on: &[],
    },
    Place { name: "stentor-book", on: &["stentor"], tests_on: &[] },
    Place { name: "stentor-kv", on: &["stentor"], tests_on: &["stentor-checker"] },
    Place {
        name: "stentor-support",
        on: &[
            "stentor",
            "stentor-checker",
            "stentor-fabric",
            "stentor-fabric-ofi",
            "stentor-fabric-roce",
            "stentor-fabric-shm",
            "stentor-fabric-verbs",
            "stentor-host",
            "stentor-multicast",
            "stentor-soft-switch",
        ],
        tests_on: &[],
    },
    Place {
        name: "stentor-instructions",
        on: &[
            "stentor",
            "stentor-channel",
            "stentor-fabric",
            "stentor-fabric-shm",
            "stentor-neb",
            "stentor-session",
            "stentor-switch",
            "stentor-testutil",
            "stentor-wire",
        ],
        tests_on: &[],
    },
    Place {
        name: "stentor-soft-switch",
        on: &["stentor-fabric-net", "stentor-fabric", "stentor-fabric-roce", "stentor-switch", "stentor-wire"],
        tests_on: &["stentor-fabric-conformance"],
    },
    Place {
        name: "stentor",
        on: &[
            "stentor-fabric-net",
            "stentor-channel",
            "stentor-checker",
            "stentor-election",
            "stentor-fabric",
            "stentor-fabric-ofi",
            "stentor-fabric-roce",
            "stentor-fabric-shm",
            "stentor-fabric-sim",
            "stentor-fabric-verbs",
            "stentor-host",
            "stentor-multicast",
            "stentor-neb",
            "stentor-session",
            "stentor-simulation",
            "stentor-switch-host",
        ],
        tests_on: &[],
    },
    Place {
        name: "stentor-simulation",
        on: &[
            "stentor-channel",
            "stentor-checker",
            "stentor-election",
            "stentor-fabric",
            "stentor-fabric-conformance",
            "stentor-fabric-roce",
            "stentor-fabric-sim",
            "stentor-multicast",
            "stentor-neb",
            "stentor-session",
            "stentor-switch",
            "stentor-wire",
        ],
        tests_on: &[],
    },
    Place { name: "stentor-session", on: &["stentor-multicast", "stentor-fabric"], tests_on: &[] },
    Place {
        name: "stentor-multicast",
        on: &["stentor-link", "stentor-fabric"],
        tests_on: &["stentor-checker", "stentor-fabric-conformance", "stentor-fabric-shm", "stentor-fabric-sim"],
    },
    Place {
        name: "stentor-channel",
        on: &["stentor-link", "stentor-fabric", "stentor-atomic-copy"],
        tests_on: &[
            "stentor-fabric-conformance",
            "stentor-fabric-ofi",
            "stentor-fabric-roce",
            "stentor-fabric-shm",
            "stentor-fabric-sim",
        ],
    },
    Place { name: "stentor-election-zookeeper", on: &["stentor-election", "stentor-fabric"], tests_on: &[] },
    Place { name: "stentor-election", on: &["stentor-fabric"], tests_on: &[] },
    Place {
        name: "stentor-neb",
        on: &["stentor-link", "stentor-fabric"],
        tests_on: &["stentor-checker", "stentor-fabric-shm", "stentor-fabric-sim"],
    },
    Place { name: "stentor-link", on: &["stentor-fabric"], tests_on: &["stentor-fabric-sim"] },
    Place { name: "stentor-checker", on: &[], tests_on: &[] },
    Place {
        name: "stentor-fabric-ofi",
        on: &["stentor-fabric-net", "stentor-atomic-copy", "stentor-fabric", "stentor-libfabric-sys"],
        tests_on: &["stentor-fabric-conformance"],
    },
    Place {
        name: "stentor-fabric-verbs",
        on: &[
            "stentor-host",
            "stentor-fabric-net",
            "stentor-atomic-copy",
            "stentor-fabric",
            "stentor-ibverbs-sys",
            "stentor-switch-host",
        ],
        tests_on: &["stentor-fabric-conformance", "stentor-fabric-roce"],
    },
    Place {
        name: "stentor-fabric-roce",
        on: &[
            "stentor-host",
            "stentor-fabric-net",
            "stentor-fabric",
            "stentor-switch-host",
            "stentor-wire",
            "stentor-atomic-copy",
        ],
        tests_on: &["stentor-fabric-conformance", "stentor-switch"],
    },
    Place {
        name: "stentor-fabric-shm",
        on: &["stentor-fabric", "stentor-host"],
        tests_on: &["stentor-fabric-conformance"],
    },
    Place { name: "stentor-fabric-sim", on: &["stentor-fabric"], tests_on: &["stentor-fabric-conformance"] },
    Place {
        name: "stentor-switch-host",
        on: &["stentor-fabric-net", "stentor-fabric", "stentor-switch", "stentor-wire"],
        tests_on: &[],
    },
    Place { name: "stentor-fabric-net", on: &["stentor-fabric"], tests_on: &[] },
    Place { name: "stentor-fabric-conformance", on: &["stentor-fabric"], tests_on: &[] },
    Place { name: "stentor-atomic-copy", on: &["stentor-fabric"], tests_on: &[] },
    Place { name: "stentor-host", on: &["stentor-fabric"], tests_on: &[] },
    Place { name: "stentor-ibverbs-sys", on: &[], tests_on: &[] },
    Place { name: "stentor-libfabric-sys", on: &[], tests_on: &[] },
    Place { name: "stentor-switch", on: &["stentor-wire"], tests_on: &[] },
    Place { name: "stentor-wire", on: &[], tests_on: &[] },
    Place { name: "xtask", on: &["stentor-testutil"], tests_on: &[] },
    Place { name: TESTUTIL, on: &["stentor-fabric"], tests_on: &[] },
    Place { name: "stentor-fabric", on: &[], tests_on: &[] },
];

/// A dependency between two crates of the workspace, as declared in a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Arrow {
    from: String,
    to: String,
    tests_only: bool,
}

/// Compares the manifests with the map.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let workspace = Workspace::load(context)?;
    let crates: Vec<String> = workspace.members().map(|package| package.name.clone()).collect();
    let arrows = arrows(&workspace);
    println!("{} crates, {} dependencies between them", crates.len(), arrows.len());
    judge(&check(MAP, &crates, &arrows))?;
    Ok(Outcome::Passed)
}

fn arrows(workspace: &Workspace) -> Vec<Arrow> {
    let of = |package: &crate::workspace::Package| {
        let dependencies = package.dependencies.iter().filter(|it| it.path.is_some());
        // A crate whose tests need more of its features depends on itself.
        let dependencies = dependencies.filter(|it| it.name != package.name || it.kind.as_deref() != Some("dev"));
        let arrow = |dependency: &crate::workspace::Dependency| Arrow {
            from: package.name.clone(),
            to: dependency.name.clone(),
            tests_only: dependency.kind.as_deref() == Some("dev"),
        };
        dependencies.map(arrow).collect::<Vec<_>>()
    };
    workspace.members().flat_map(of).collect()
}

fn check(map: &[Place], crates: &[String], arrows: &[Arrow]) -> Vec<Violation> {
    let place = |name: &str| map.iter().find(|place| place.name == name);
    let row = |name: &str| map.iter().position(|place| place.name == name);
    let above = |name: &str, other: &str| row(name) < row(other);
    let unknown = crates.iter().filter(|name| place(name).is_none());
    let unknown =
        unknown.map(|name| Violation::of(name, "has no place on the map: add it to MAP in xtask/src/layers.rs"));
    let gone = map.iter().filter(|place| crates.iter().all(|name| name != place.name));
    let gone = gone.map(|place| Violation::of(place.name, "is on the map but not in the workspace: remove its row"));
    let forbidden = arrows.iter().filter_map(|arrow| {
        let from = place(&arrow.from)?;
        let allowed = from.on.contains(&arrow.to.as_str());
        let on_testutil = arrow.to == TESTUTIL && above(from.name, TESTUTIL);
        let in_tests = arrow.tests_only && (on_testutil || from.tests_on.contains(&arrow.to.as_str()));
        let how = if arrow.tests_only { "uses in its tests" } else { "depends on" };
        let what = format!("{how} {}, which the map does not allow", arrow.to);
        (!allowed && !in_tests).then(|| Violation::of(&arrow.from, what))
    });
    unknown.chain(gone).chain(forbidden).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn arrow(from: &str, to: &str, tests_only: bool) -> Arrow {
        Arrow { from: from.into(), to: to.into(), tests_only }
    }

    fn everybody() -> Vec<String> {
        MAP.iter().map(|place| place.name.to_owned()).collect()
    }

    #[test]
    fn a_protocol_may_use_a_fabric_in_its_tests_only() {
        let check =
            |tests_only| check(MAP, &everybody(), &[arrow("stentor-multicast", "stentor-fabric-sim", tests_only)]);
        assert_eq!(check(true), []);
        assert_eq!(check(false).len(), 1);
    }

    #[test]
    fn arrows_up_are_seen() {
        for (from, to) in [
            ("stentor-fabric", "stentor-fabric-sim"),
            ("stentor-wire", "stentor-fabric"),
            ("stentor-checker", "stentor-multicast"),
            ("stentor", "stentor-cli"),
            ("stentor-fabric", "xtask"),
        ] {
            for tests_only in [false, true] {
                let found = check(MAP, &everybody(), &[arrow(from, to, tests_only)]);
                assert_eq!(found.len(), 1, "{from} → {to}");
                assert!(found[0].what.contains(to), "{found:?}");
            }
        }
    }

    #[test]
    fn helpers_of_tests_are_for_tests_above_them_only() {
        let found = |from, tests_only| check(MAP, &everybody(), &[arrow(from, TESTUTIL, tests_only)]).len();
        assert_eq!(
            (found("stentor-wire", true), found("stentor-wire", false), found("stentor-fabric", true)),
            (0, 1, 1)
        );
    }

    #[test]
    fn the_map_itself_has_no_cycle_tests_included() {
        // A row may name only crates of later rows, so there are no cycles.
        for (n, place) in MAP.iter().enumerate() {
            for on in place.on.iter().chain(place.tests_on) {
                assert!(MAP[n + 1..].iter().any(|later| later.name == *on), "{} → {on} points up", place.name);
            }
        }
    }

    #[test]
    fn crates_without_a_row_and_rows_without_a_crate_are_seen() {
        let mut crates = everybody();
        crates.push("stentor-new".into());
        assert_eq!(check(MAP, &crates, &[]).len(), 1);
        assert_eq!(check(MAP, &everybody()[1..], &[]).len(), 1);
    }

    /// Returns the crates between backticks in a cell of a table.
    fn crates(cell: &str) -> BTreeSet<String> {
        let names = cell.split('`').skip(1).step_by(2);
        names
            .map(|name| if name == "stentor" || name == "xtask" { name.into() } else { format!("stentor-{name}") })
            .collect()
    }

    #[test]
    fn the_documented_map_is_this_one() {
        let text = include_str!("../../ARCHITECTURE.md");
        let table = text.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
        let mut documented = BTreeMap::new();
        for row in table.take_while(|line| line.starts_with('|')) {
            let cells: Vec<_> = row.split('|').map(crates).collect();
            documented.extend(cells[1].iter().map(|name| (name.clone(), (cells[2].clone(), cells[3].clone()))));
        }
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let map = MAP.iter().map(|place| (place.name.to_owned(), (owned(place.on), owned(place.tests_on)))).collect();
        assert_eq!(documented, map);
    }

    #[test]
    fn arrows_are_read_from_the_manifests() {
        let workspace = Workspace::parse(include_str!("fixtures/metadata.json")).unwrap();
        let expected = [
            arrow("stentor-multicast", "stentor-fabric", false),
            arrow("stentor-multicast", "stentor-fabric-sim", true),
        ];
        assert_eq!(arrows(&workspace), expected);
    }
}
