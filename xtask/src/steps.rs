//! The steps of `cargo xtask test`, in the order in which they run.

use anyhow::{Context as _, Result, bail};

use crate::cargo::{Context, FEATURES, run};
use crate::step::{Component, Outcome, Step};
use crate::workspace::{Package, Workspace};
use crate::{
    api, bindings, book, campaign, chaos, failover, features, layers, lengths, licences, loom, modules, ofi, oracle,
    programs, prose, purity, roce, services, slow, unsafety, verbs, zookeeper,
};

/// The steps that must pass before a change is merged. Quick steps come first.
pub(crate) const TEST: &[Step] = &[
    Step { name: "format", what: "rustfmt changes nothing", run: format },
    Step { name: "layers", what: "crates depend only on the crates that the map allows", run: layers::step },
    Step { name: "unsafe", what: "no `unsafe` outside the fabric crates that need it", run: unsafety::step },
    Step { name: "modules", what: "no two modules of a crate import each other", run: modules::step },
    Step { name: "lengths", what: "files have at most 800 lines, or state a reason", run: lengths::step },
    Step { name: "prose", what: "sentences of comments begin with their subject", run: prose::step },
    Step { name: "licences", what: "no copyleft and no foreign registry among the dependencies", run: licences::step },
    Step { name: "clippy", what: "clippy on all targets, warnings denied", run: clippy },
    Step {
        name: "clippy-plants",
        what: "clippy on all targets with the mutants and the election by ZooKeeper compiled in, warnings denied",
        run: clippy_plants,
    },
    Step {
        name: "features",
        what: "the crate `stentor` builds in every combination of features, warnings denied, and fails without a fabric",
        run: features::step,
    },
    Step { name: "docs", what: "rustdoc, warnings denied", run: docs },
    Step { name: "api", what: "the public items of the crate `stentor` are those of their list", run: api::step },
    Step {
        name: "purity",
        what: "protocols do no I/O, start no threads, read no clock, draw no random numbers",
        run: purity::step,
    },
    Step { name: "tests", what: "all tests of all crates, with the mutants compiled in", run: tests },
    Step { name: "slow", what: "the tests that take seconds and that plain `cargo test` ignores", run: slow::step },
    Step {
        name: "model",
        what: "model checks: every order of three messages, a leader change and a crash, and of four messages of a channel",
        run: model,
    },
    Step {
        name: "campaign",
        what: "1000 simulated seeds: every property holds, every fault happens",
        run: campaign::campaign,
    },
    Step {
        name: "campaign-switch",
        what: "2000 seeds of the switch with up to 32 receivers: every property holds",
        run: campaign::campaign_switch,
    },
    Step {
        name: "campaign-sessions",
        what: "500 seeds of sessions under all faults: every property holds, every rare state is visited",
        run: campaign::campaign_sessions,
    },
    Step { name: "plants", what: "the simulation finds every mutant", run: campaign::plants },
    Step { name: "traces", what: "one seed gives one trace, in debug and release builds", run: campaign::traces },
    Step {
        name: "oracle",
        what: "4300 simulated seeds under all failures: every property holds, every fault happens, and each behaves to the byte as recorded",
        run: oracle::step,
    },
    Step {
        name: "demo",
        what: "a demonstration with real processes and a real text: every property holds, fail-over within 1 s",
        run: campaign::demo,
    },
    Step {
        name: "book",
        what: "the pages have no dead links and no misspelt words, and the commands that they show work",
        run: book::step,
    },
    Step {
        name: "failover",
        what: "20 kills and restarts of real processes under load: every property holds; simulated fail-over in 1 ms",
        run: failover::step,
    },
    Step {
        name: "failover-full",
        what: "leaders killed while windows and rings are full, with the default limits: every property holds",
        run: failover::full,
    },
    Step {
        name: "chaos",
        what: "half a minute of kills, stops, cuts, losses, moves and restarts on shm and on roce, and some seconds of them in a service: every property holds, nothing hangs",
        run: chaos::step,
    },
    Step {
        name: "store",
        what: "the example store on three hosts, 15 s of kills, stops and cuts: every key has an order that explains all replies",
        run: services::store,
    },
    Step {
        name: "redis-py",
        what: "the tests of a Redis client for the commands that the example store supports",
        run: services::redis_py,
    },
    Step {
        name: "operators",
        what: "the command under limits of resources, on all kinds of streams, under signals, and on ten broken clusters",
        run: operators,
    },
    Step {
        name: "zookeeper",
        what: "the election, and the command with it, against a real ZooKeeper",
        run: zookeeper::step,
    },
    Step {
        name: "demo-switch",
        what: "a demonstration with real processes and copies by a software switch: every property holds",
        run: campaign::demo_switch,
    },
    Step {
        name: "demo-neb",
        what: "a demonstration with five processes, one of them Byzantine: every property holds",
        run: campaign::demo_neb,
    },
    Step { name: "roce-peer", what: "RoCEv2 with the Linux kernel's Soft-RoCE as the peer", run: roce::peer },
    Step {
        name: "roce-namespaces",
        what: "a cluster on RoCEv2 in network namespaces, also with 1 % loss or with links cut: every property holds",
        run: roce::namespaces,
    },
    Step { name: "roce-tshark", what: "Wireshark decodes every RoCEv2 operation as intended", run: roce::tshark },
    Step {
        name: "verbs-guests",
        what: "the demos on verbs; multicast over two guests with a switch, and over three guests while one loses its link or its power: every property holds",
        run: verbs::guests,
    },
    Step {
        name: "ofi",
        what: "libfabric's providers on one host meet the needs of fabric-ofi: channels, demos and a transfer of 1 GiB over them",
        run: ofi::step,
    },
    Step {
        name: "verbs",
        what: "queue pairs through libibverbs on the Linux kernel's Soft-RoCE, and the findings of `stentor doctor` there",
        run: verbs::step,
    },
    Step {
        name: "verbs-conformance",
        what: "the conformance suite on verbs in a guest, and between verbs and RoCEv2 in both roles",
        run: verbs::conformance,
    },
    Step {
        name: "switch-guests",
        what: "the software switch between the RoCEv2 endpoint and a kernel's queue pairs, also with 1 % loss; Wireshark decodes the capture; fan-out sets on verbs",
        run: roce::switch_guests,
    },
    Step {
        name: "roce-fuzz",
        what: "mutated packets, and an adversary that knows every key, number and address",
        run: roce::fuzz,
    },
    Step { name: "loom", what: "lock-free algorithms in every interleaving", run: loom::step },
    Step {
        name: "bindings",
        what: "the committed bindings match the headers of rdma-core and libfabric",
        run: bindings::step,
    },
    Step { name: "miri", what: "undefined behaviour in the fabric contract's tests", run: miri },
];

/// The steps that run two at a time. They are neighbours in [`TEST`].
///
/// Each of them keeps one processor busy most of the time, and checks no measured times. A guest has only one
/// processor, so the programs in a guest always take turns. The longest steps come first. Products that other steps of
/// [`TEST`] also need are built before these steps begin.
pub(crate) const PAIRED: &[&str] = &["verbs", "verbs-conformance", "switch-guests", "roce-fuzz", "loom", "bindings"];

/// Runs one step without a summary.
///
/// # Errors
///
/// Returns an error if the step fails. Also returns an error if a component is missing, because this process cannot
/// report the component to the process that started it.
pub(crate) fn alone(context: &Context, name: &str) -> Result<()> {
    let step = TEST.iter().find(|step| step.name == name).with_context(|| format!("there is no step `{name}`"))?;
    match (step.run)(context)? {
        Outcome::Passed => Ok(()),
        other => bail!("`{name}` does not run everywhere ({other:?}): remove it from PAIRED in xtask/src/steps.rs"),
    }
}

fn format(context: &Context) -> Result<Outcome> {
    run(&mut context.cargo(["fmt", "--all", "--", "--check"]))?;
    Ok(Outcome::Passed)
}

fn clippy(context: &Context) -> Result<Outcome> {
    run(&mut context.cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    Ok(Outcome::Passed)
}

/// Checks only the crates that have one of these features. The code of all others is the same as in the step `clippy`.
fn clippy_plants(context: &Context) -> Result<Outcome> {
    let workspace = Workspace::load(context)?;
    let optional = |package: &&Package| ["plants", "zookeeper"].iter().any(|name| package.features.contains_key(*name));
    let crates = workspace.members().filter(optional).flat_map(|package| ["-p", &package.name]);
    let mut command = context.cargo(["clippy", "--features", FEATURES, "--all-targets"]);
    run(command.args(crates).args(["--", "-D", "warnings"]))?;
    Ok(Outcome::Passed)
}

/// Documents libraries and binaries separately: the command and the crate `stentor` have the same name, and so the same
/// page.
fn docs(context: &Context) -> Result<Outcome> {
    for targets in ["--lib", "--bins"] {
        run(context.cargo(["doc", "--workspace", "--no-deps", targets]).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(Outcome::Passed)
}

/// Runs three tests at once, even on fewer processors, because many tests wait.
fn tests(context: &Context) -> Result<Outcome> {
    run(context.debug("test").arg("--no-fail-fast").env("RUST_TEST_THREADS", "3"))?;
    Ok(Outcome::Passed)
}

/// Runs tests of the command that mostly wait. Four of them run at once, even on fewer processors.
fn operators(context: &Context) -> Result<Outcome> {
    let mut cells = context.test(&["cli"]);
    cells.args(["--", "--ignored", "--test-threads", "4", "limits::", "streams::", "broken::"]);
    run(&mut cells)?;
    Ok(Outcome::Passed)
}

/// The model checks of the crates. They are optimised, because they would take an hour otherwise.
const SEARCHES: [&str; 3] = ["model", "pure", "switch_model"];

fn model(context: &Context) -> Result<Outcome> {
    let command = || {
        let mut command = context.release_tests("test");
        command.args(SEARCHES.iter().flat_map(|search| ["--test", search]));
        command.args(["--", "that_take_minutes"]).env("STENTOR_MODEL", "minutes");
        command
    };
    programs::ensure_some(&mut command())?;
    run(command().arg("--nocapture"))?;
    Ok(Outcome::Passed)
}

const MIRI: Component = Component {
    name: "component miri",
    remedy: "rustup toolchain install nightly --component miri, and run the step by cargo +nightly xtask test --only miri",
};

fn miri(context: &Context) -> Result<Outcome> {
    if !context.succeeds(&mut context.cargo(["miri", "--version"])) {
        return Ok(Outcome::NotRun(MIRI));
    }
    // Miri's isolation forbids access to files, but the property tests read a file of earlier failures.
    let mut command = context.cargo(["miri", "test", "-p", "stentor-fabric", "--lib"]);
    run(command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "4"))?;
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn steps_that_run_two_at_a_time_are_neighbours_in_the_same_order() {
        let first = TEST.iter().position(|step| step.name == PAIRED[0]).expect("a step");
        let neighbours: Vec<_> = TEST.iter().skip(first).take(PAIRED.len()).map(|step| step.name).collect();
        assert_eq!(neighbours, PAIRED);
    }

    #[test]
    fn tests_are_built_with_the_mutants_of_every_crate() {
        let workspace = Workspace::load(&Context::new()).unwrap();
        let mut left: Vec<String> = FEATURES.split(',').map(str::to_owned).collect();
        let mut enabled = BTreeSet::new();
        while let Some(feature) = left.pop() {
            let (name, of_it) = feature.split_once('/').expect("a feature of a crate");
            let package = workspace.members().find(|package| package.name == name);
            let implied = package.and_then(|package| package.features.get(of_it)).into_iter().flatten();
            left.extend(implied.filter(|other| other.contains('/')).cloned());
            enabled.insert(feature);
        }
        let with_mutants = workspace.members().filter(|package| package.features.contains_key("plants"));
        let wanted: BTreeSet<_> = with_mutants.map(|package| format!("{}/plants", package.name)).collect();
        assert!(wanted.len() > 5 && wanted.is_subset(&enabled), "{wanted:?} are not all in {enabled:?}");
    }
}
