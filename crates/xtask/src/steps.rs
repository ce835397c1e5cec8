//! The steps of `cargo xtask test`, in the order in which they run.

use anyhow::Result;

use crate::cargo::{Context, run};
use crate::runner::{Outcome, Step};
use crate::workspace::Workspace;
use crate::{bindings, campaign, failover, layers, lengths, licences, loom, purity, roce, unsafety, verbs, zookeeper};

/// Everything that must hold before a change is merged. Quick ones first.
pub(crate) const TEST: &[Step] = &[
    Step { name: "format", what: "rustfmt has nothing to change", run: format },
    Step { name: "layers", what: "crates depend only on what the map allows", run: layers::step },
    Step { name: "unsafe", what: "no `unsafe` outside the fabric crates that need it", run: unsafety::step },
    Step { name: "lengths", what: "files and functions stay short", run: lengths::step },
    Step { name: "licences", what: "no copyleft and no foreign registry among the dependencies", run: licences::step },
    Step { name: "clippy", what: "clippy on all targets, warnings denied", run: clippy },
    Step { name: "clippy-plants", what: "the same with the planted bugs compiled in", run: clippy_plants },
    Step { name: "docs", what: "rustdoc, warnings denied", run: docs },
    Step {
        name: "purity",
        what: "protocols do no I/O, start no threads, read no clock, draw no numbers",
        run: purity::step,
    },
    Step { name: "tests", what: "all tests of all crates", run: tests },
    Step { name: "tests-plants", what: "tests of the crates that have planted bugs, with them", run: tests_plants },
    Step {
        name: "model",
        what: "every order of three messages, a leader change and a crash; of four messages of a channel",
        run: model,
    },
    Step {
        name: "campaign",
        what: "1000 simulated seeds: every property holds, every fault happens",
        run: campaign::campaign,
    },
    Step {
        name: "campaign-failures",
        what: "300 simulated seeds with crashes, rejoin, partitions, elections that lie, dying clients",
        run: campaign::campaign_failures,
    },
    Step {
        name: "campaign-neb",
        what: "300 simulated seeds of the broadcast, with processes that lie: every property holds, every fault happens",
        run: campaign::campaign_neb,
    },
    Step {
        name: "campaign-channel",
        what: "300 simulated seeds of channels, with completions in any order: every property holds",
        run: campaign::campaign_channel,
    },
    Step { name: "plants", what: "every planted bug is found by name", run: campaign::plants },
    Step { name: "traces", what: "one seed gives one trace, in debug and release builds", run: campaign::traces },
    Step { name: "demo", what: "real processes, a real text, every property", run: campaign::demo },
    Step {
        name: "failover",
        what: "20 kills of real processes under load, each started again: every property; simulated fail-over in 1 ms",
        run: failover::step,
    },
    Step {
        name: "failover-full",
        what: "leaders killed while windows and rings are full, with the default limits: every property",
        run: failover::full,
    },
    Step {
        name: "zookeeper",
        what: "the election, and the command with it, against a real ZooKeeper",
        run: zookeeper::step,
    },
    Step { name: "demo-neb", what: "five processes, one of which lies, every property", run: campaign::demo_neb },
    Step { name: "roce-peer", what: "RoCEv2 with the Linux kernel's Soft-RoCE as the peer", run: roce::peer },
    Step {
        name: "roce-namespaces",
        what: "a cluster on RoCEv2 in three network namespaces, also with 1 % loss: every property",
        run: roce::namespaces,
    },
    Step { name: "roce-tshark", what: "Wireshark reads every operation as we mean it", run: roce::tshark },
    Step { name: "roce-fuzz", what: "mutated packets, and an adversary who knows every number", run: roce::fuzz },
    Step { name: "bindings", what: "fabric-verbs' bindings are what rdma-core's headers say", run: bindings::step },
    Step {
        name: "verbs",
        what: "queue pairs through libibverbs on the Linux kernel's Soft-RoCE, and what the doctor says there",
        run: verbs::step,
    },
    Step { name: "loom", what: "lock-free algorithms in every interleaving", run: loom::step },
    Step { name: "miri", what: "undefined behaviour in the fabric contract's tests", run: miri },
];

fn format(context: &Context) -> Result<Outcome> {
    run(&mut context.cargo(["fmt", "--all", "--", "--check"]))?;
    Ok(Outcome::Passed)
}

fn clippy(context: &Context) -> Result<Outcome> {
    run(&mut context.cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    Ok(Outcome::Passed)
}

/// `-p` and `--features` for the crates that have the feature `plants`.
fn planted(context: &Context) -> Result<Vec<String>> {
    let workspace = Workspace::load(context)?;
    let planted = workspace.members().filter(|package| package.features.contains_key("plants"));
    Ok(planted.flat_map(|p| ["-p".into(), p.name.clone(), "--features".into(), format!("{}/plants", p.name)]).collect())
}

fn clippy_plants(context: &Context) -> Result<Outcome> {
    let mut command = context.cargo(["clippy", "--all-targets"]);
    run(command.args(planted(context)?).args(["--", "-D", "warnings"]))?;
    Ok(Outcome::Passed)
}

/// Libraries and binaries apart: the command and the library it stands on have the same name, and so the same page.
fn docs(context: &Context) -> Result<Outcome> {
    for targets in ["--lib", "--bins"] {
        run(context.cargo(["doc", "--workspace", "--no-deps", targets]).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(Outcome::Passed)
}

fn tests(context: &Context) -> Result<Outcome> {
    run(&mut context.cargo(["test", "--workspace"]))?;
    Ok(Outcome::Passed)
}

fn tests_plants(context: &Context) -> Result<Outcome> {
    run(context.cargo(["test"]).args(planted(context)?))?;
    Ok(Outcome::Passed)
}

/// Optimised, or it would take an hour.
fn model(context: &Context) -> Result<Outcome> {
    for (package, test) in [("stentor-multicast", "model"), ("stentor-neb", "model"), ("stentor-channel", "pure")] {
        let mut command = context.cargo(["test", "--profile", "release-tests", "-p", package, "--test", test]);
        run(command.args(["--", "that_take_minutes", "--nocapture"]).env("STENTOR_MODEL", "minutes"))?;
    }
    Ok(Outcome::Passed)
}

fn miri(context: &Context) -> Result<Outcome> {
    if !context.succeeds(&mut context.cargo(["miri", "--version"])) {
        return Ok(Outcome::NotRun("component miri is not installed".into()));
    }
    // The property tests look for a file of earlier failures, which Miri's isolation forbids.
    let mut command = context.cargo(["miri", "test", "-p", "stentor-fabric", "--lib"]);
    run(command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "4"))?;
    Ok(Outcome::Passed)
}
