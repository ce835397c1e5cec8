//! The steps of `cargo xtask nightly`, which take too long for every change.

use anyhow::Result;

use crate::cargo::{Context, run};
use crate::step::{Outcome, Step};

/// The long steps.
pub(crate) const NIGHTLY: &[Step] = &[
    Step { name: "release-tests", what: "all tests, optimised and without debug assertions", run: release_tests },
    Step {
        name: "shipped",
        what: "the steps of `test` that run the command, with the release build of the command",
        run: shipped,
    },
    Step {
        name: "streams",
        what: "streams and signals × commands and stages: every cell of the table",
        run: |context| cells(context, "streams::"),
    },
    Step {
        name: "limits",
        what: "limits of resources × commands: every cell of `crates/bin/cli/tests/cli/limits/matrix.txt`",
        run: |context| cells(context, "limits::"),
    },
    Step { name: "properties", what: "the property tests with 4096 cases each instead of 256", run: properties },
    Step {
        name: "namespaces",
        what: "members in separate namespaces: every cell of `crates/bin/cli/tests/cli/namespaces.txt`",
        run: namespaces,
    },
    Step {
        name: "model",
        what: "the model check's large configurations",
        run: |context| model(context, "stentor-multicast", "model"),
    },
    Step {
        name: "campaign",
        what: "20 000 simulated runs",
        run: |context| simulate(context, "multicast", "0..20000", &[]),
    },
    Step {
        name: "campaign-failures",
        what: "100 000 simulated runs under all failures",
        run: |context| simulate(context, "multicast", "0..100000", &["--profile", "all"]),
    },
    Step {
        name: "campaign-services",
        what: "20 000 simulated runs of a service, and 20 000 with reads of all kinds at the same time",
        run: simulate_services,
    },
    Step { name: "checker", what: "the checker of calls finds each fault in 1000 simulated histories", run: checker },
    Step { name: "failover", what: "200 kills and restarts of real processes under load", run: failover },
    Step {
        name: "losses",
        what: "100 seeds on shm and on roce, in which real groups lose their memory: they are released and settled, and every history is correct",
        run: losses,
    },
    Step {
        name: "chaos-long",
        what: "`stentor chaos` for half an hour on shm and on roce, with groups of three and of five",
        run: crate::chaos::long,
    },
    Step {
        name: "chaos-service",
        what: "100 seeds of `stentor chaos --service` on shm and on roce, with wrong clocks and killed clients",
        run: crate::chaos::service_long,
    },
    Step {
        name: "store",
        what: "100 seeds of the example store, a minute of faults each, every second one with partitions of three hosts",
        run: crate::services::store_long,
    },
    Step {
        name: "bank",
        what: "100 runs of the example bank, a minute of killed leaders and clients each: the sum is right at every cut",
        run: crate::services::bank_long,
    },
    Step {
        name: "lock",
        what: "100 runs of the example lock service, a minute of stopped holders and killed nodes each: no lock has two holders",
        run: crate::services::lock_long,
    },
    Step {
        name: "store-compare",
        what: "the example store beside a Redis server and etcd, five runs in turns",
        run: crate::services::compare,
    },
    Step {
        name: "store-idle",
        what: "10 000 idle clients at a gateway of the example store: its memory and processor time are bounded, and other clients are not slower",
        run: crate::services::idle,
    },
    Step { name: "book", what: "mdBook builds the book", run: crate::book::build },
    Step {
        name: "observers",
        what: "an observer stopped for a minute, and 100 observers with idle priority: no member is slowed down, no observer has a gap",
        run: observers,
    },
    Step {
        name: "demo-failover",
        what: "20 demonstrations: at most 100 ms from the kill of the leader to the next delivery, in the median",
        run: crate::campaign::demo_failover,
    },
    Step {
        name: "model-neb",
        what: "the complete model check of the broadcast with four processes",
        run: |context| model(context, "stentor-neb", "model"),
    },
    Step { name: "stream-neb", what: "10 million broadcasts through rings of fixed size", run: stream_neb },
    Step {
        name: "campaign-neb",
        what: "20 000 simulated runs of the broadcast, half of them harsh",
        run: |context| {
            simulate(context, "neb", "0..10000", &["--profile", "usual"])?;
            simulate(context, "neb", "0..10000", &["--profile", "harsh"])
        },
    },
    Step {
        name: "campaign-channel",
        what: "20000 simulated seeds of channels: every property holds, every fault happens",
        run: |context| simulate(context, "channel", "0..20000", &[]),
    },
    Step {
        name: "campaign-sessions",
        what: "20 000 simulated seeds of sessions: every property holds, every rare state is visited",
        run: |context| simulate(context, "sessions", "0..20000", &[]),
    },
    Step {
        name: "model-switch",
        what: "all model checks of the switch",
        run: |context| model(context, "stentor-simulation", "switch_model"),
    },
    Step {
        name: "switch-speed",
        what: "a pass of the switch takes at most 100 ns, and n receivers take n times as long as one",
        run: switch_speed,
    },
    Step {
        name: "model-channel",
        what: "model check: every order of four operations of a channel in flight at both ends",
        run: model_channel,
    },
    Step {
        name: "channel-long",
        what: "1 GiB in one message, and 1 GiB from file to file over shm and roce",
        run: channel_long,
    },
    Step {
        name: "ofi-long",
        what: "10 GiB from pipe to pipe through `channel cat` on libfabric: every byte is correct, memory is bounded",
        run: crate::ofi::long,
    },
    Step {
        name: "ofi-speed",
        what: "`bench channel --fabric ofi` beside the provider itself and fi_pingpong: fails below the bars",
        run: crate::ofi::speed,
    },
    Step {
        name: "roce-speed",
        what: "RoCEv2 beside plain sockets and a bare CRC: fails below the bars",
        run: roce_speed,
    },
    Step {
        name: "roce-lossy",
        what: "RoCEv2 over lossy links, over slow links, and beside a TCP connection: fails below the bars",
        run: crate::lossy::step,
    },
    Step {
        name: "roce-beside-kernel",
        what: "RoCEv2 beside the Linux kernel's Soft-RoCE, measured by one program in one guest",
        run: crate::roce::beside_kernel,
    },
    Step {
        name: "verbs-speed",
        what: "`bench fabric --fabric verbs` beside a plain program, in turns, on Soft-RoCE",
        run: crate::verbs::speed,
    },
    Step {
        name: "critical-path",
        what: "the computed latency of a client and a group of one is within 10 % of the measured one, in the median of five runs",
        run: crate::critical_path::step,
    },
    Step {
        name: "bounds",
        what: "no figure of the benches multicast, neb, fabric and channel is better than its bound, in the median of five runs",
        run: crate::bounds::step,
    },
    Step {
        name: "compare",
        what: "Stentor beside other systems: the programs of `compare` build without warnings, pass their tests, and are measured",
        run: crate::compare::step,
    },
    Step {
        name: "instructions",
        what: "instructions per message of the hot paths: within 3 % of the baseline",
        run: crate::instructions::step,
    },
    Step {
        name: "mutants",
        what: "mutation testing of protocols, checker, wire and switch: the crate's tests catch 95 % of a sample of one mutant in 20",
        run: crate::mutants::step,
    },
    Step { name: "roce-fuzz-long", what: "two hours of mutated packets and an adversary", run: roce_fuzz },
];

/// Runs a model check with its large configurations.
fn model(context: &Context, package: &str, test: &str) -> Result<Outcome> {
    let model = ["test", "--release", "-p", package, "--test", test, "--", "--nocapture"];
    run(context.cargo(model).env("STENTOR_MODEL", "large"))?;
    Ok(Outcome::Passed)
}

fn simulate(context: &Context, simulation: &str, seeds: &str, more: &[&str]) -> Result<Outcome> {
    let sim = ["run", "--release", "-p", "stentor-cli", "--", "sim", simulation, "--seeds", seeds];
    run(context.cargo(sim).args(more))?;
    Ok(Outcome::Passed)
}

/// Runs all cells of a table of the command's tests. This takes long, because each cell waits for processes that start
/// and stop. A resource limit that this machine does not allow is an error.
fn cells(context: &Context, table: &str) -> Result<Outcome> {
    let cells = ["test", "--profile", "release-tests", "-p", "stentor-cli", "--test", "cli", "--", table];
    run(context.cargo(cells).args(["--nocapture", "--include-ignored"]).env("STENTOR_MATRIX", "whole"))?;
    Ok(Outcome::Passed)
}

fn model_channel(context: &Context) -> Result<Outcome> {
    let model = [
        "test",
        "--profile",
        "release-tests",
        "-p",
        "stentor-channel",
        "--test",
        "pure",
        "--",
        "in_flight_that_take_minutes",
    ];
    run(context.cargo(model).arg("--nocapture").env("STENTOR_MODEL", "large"))?;
    Ok(Outcome::Passed)
}

fn channel_long(context: &Context) -> Result<Outcome> {
    for (package, test) in [("stentor-channel", "fabric"), ("stentor-cli", "cli")] {
        let mut command = context.cargo(["test", "--profile", "release-tests", "-p", package, "--test", test]);
        run(command.args(["--", "a_gibibyte", "--ignored", "--nocapture"]))?;
    }
    Ok(Outcome::Passed)
}

/// Measures times, so no other program should run on a machine with two processors.
fn roce_speed(context: &Context) -> Result<Outcome> {
    let speed = ["test", "--release", "-p", "stentor-fabric-roce", "--test", "speed", "--"];
    run(context.cargo(speed).args(["--ignored", "--nocapture", "--test-threads", "1"]))?;
    let icrc = ["test", "--release", "-p", "stentor-wire", "--test", "speed", "--"];
    run(context.cargo(icrc).args(["--ignored", "--nocapture"]))?;
    run(&mut context.cargo(["bench", "-p", "stentor-wire", "--bench", "icrc"]))?;
    run(&mut context.cargo(["bench", "-p", "stentor-fabric-roce", "--bench", "endpoint"]))?;
    Ok(Outcome::Passed)
}

fn roce_fuzz(context: &Context) -> Result<Outcome> {
    crate::roce::fuzz_for(context, "1800")
}

/// Runs all tests with the profile of a release, but without link-time optimisation, which would take minutes for each
/// test program.
fn release_tests(context: &Context) -> Result<Outcome> {
    run(&mut context.cargo(["test", "--workspace", "--no-fail-fast", "--profile", "release-tests"]))?;
    Ok(Outcome::Passed)
}

/// Runs steps of `test` again with the release build of the command. `test` runs them with a command without link-time
/// optimisation.
fn shipped(context: &Context) -> Result<Outcome> {
    let steps: [fn(&Context) -> Result<Outcome>; 7] = [
        crate::campaign::traces,
        crate::campaign::demo_switch,
        crate::campaign::demo_neb,
        crate::failover::full,
        crate::chaos::step,
        crate::roce::namespaces,
        crate::ofi::step,
    ];
    for step in steps {
        step(context)?;
    }
    Ok(Outcome::Passed)
}

/// Runs all tests, with more cases of the property tests, with debug assertions and overflow checks.
fn properties(context: &Context) -> Result<Outcome> {
    run(context.cargo(["test", "--workspace"]).env("PROPTEST_CASES", "4096"))?;
    Ok(Outcome::Passed)
}

fn namespaces(context: &Context) -> Result<Outcome> {
    crate::ofi::NEEDS.ensure()?;
    let mut cells = context.test(&["cli"]);
    cells.args(["--", "members_in_namespaces", "--nocapture", "--include-ignored"]);
    run(cells.env("STENTOR_MATRIX", "whole"))?;
    Ok(Outcome::Passed)
}

fn simulate_services(context: &Context) -> Result<Outcome> {
    for test in ["a_correct_service_passes_many_seeds", "concurrent_reads_pass"] {
        let runs = ["test", "--profile", "release-tests", "-p", "stentor", "--features", "sim", "--test", "sim", "--"];
        run(context.cargo(runs).args([test, "--include-ignored", "--nocapture"]).env("SIM_SEEDS", "20000"))?;
    }
    Ok(Outcome::Passed)
}

fn checker(context: &Context) -> Result<Outcome> {
    let faults = ["test", "--profile", "release-tests", "-p", "stentor-checker", "--test", "calls", "--"];
    let faults = &mut context.cargo(faults);
    run(faults.args(["each_fault", "--ignored", "--nocapture"]).env("CHECKER_SEEDS", "1000"))?;
    Ok(Outcome::Passed)
}

/// Runs the seeds 0..100, or the seeds that `STENTOR_LOSSES=FIRST..END` names.
fn losses(context: &Context) -> Result<Outcome> {
    let test = "groups_that_lose_their_memory";
    let losses = ["test", "--profile", "release-tests", "-p", "stentor-cli", "--test", "cli", "--", test];
    let seeds = std::env::var("STENTOR_LOSSES").unwrap_or_else(|_| "0..100".to_owned());
    run(context.cargo(losses).args(["--nocapture", "--include-ignored"]).env("STENTOR_LOSSES", seeds))?;
    Ok(Outcome::Passed)
}

/// Measures times, so no other program should run.
fn observers(context: &Context) -> Result<Outcome> {
    let observers =
        ["test", "--profile", "release-tests", "-p", "stentor", "--test", "library", "--", "observers_apart"];
    run(context.cargo(observers).args(["--include-ignored", "--nocapture", "--test-threads", "1"]))?;
    Ok(Outcome::Passed)
}

/// Measures times, so no other program should run.
fn switch_speed(context: &Context) -> Result<Outcome> {
    let speed = ["test", "--release", "-p", "stentor-switch", "--test", "speed", "--", "--ignored", "--nocapture"];
    run(&mut context.cargo(speed))?;
    Ok(Outcome::Passed)
}

fn stream_neb(context: &Context) -> Result<Outcome> {
    let stream = ["test", "--release", "-p", "stentor-neb", "--test", "shm", "endless", "--", "--nocapture"];
    run(context.cargo(stream).env("STENTOR_NEB_STREAM", "3400000"))?;
    Ok(Outcome::Passed)
}

fn failover(context: &Context) -> Result<Outcome> {
    crate::failover::rounds(context, 200, 2)
}
