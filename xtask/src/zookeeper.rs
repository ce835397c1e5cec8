//! Runs the election's tests against a real ZooKeeper, which is installed as a Debian package.

use anyhow::Result;

use crate::cargo::{Context, run};
use crate::needs::Needs;
use crate::programs;
use crate::step::Outcome;

pub(crate) const NEEDS: Needs = Needs {
    things: &["zookeeper.jar", "java"],
    sources: &["crates/protocol/election-zookeeper/tests/server", "crates/bin/cli/tests/zookeeper"],
};
/// Arguments that select the tests. The candidate is a process that tests start.
const TESTS: [&str; 5] = ["--", "--ignored", "--skip", "candidate_process", "--nocapture"];

/// Installs the package if that is possible, and runs the tests. Each test starts and stops its own servers.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    // The servers mostly wait, so four tests run at once, even on fewer cores. One test makes the client panic, so
    // backtraces are disabled to keep the output short.
    let mut tests = context.test(&["server"]);
    tests.args(TESTS).args(["--test-threads", "4"]).env("RUST_BACKTRACE", "0");
    programs::ensure_some(context.test(&["server", "zookeeper"]).args(TESTS))?;
    run(&mut tests)?;
    // Six members, two clients and a server at a time load two cores, so one test runs at a time.
    run(context.test(&["zookeeper"]).args(TESTS).args(["--test-threads", "1"]))?;
    Ok(Outcome::Passed)
}
