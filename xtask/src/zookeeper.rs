//! Runs the election's tests against a real ZooKeeper, which is installed as a Debian package.

use anyhow::Result;

use crate::cargo::{Context, run};
use crate::needs::Needs;
use crate::step::Outcome;

pub(crate) const NEEDS: Needs = Needs {
    things: &["zookeeper.jar", "java"],
    sources: &["crates/protocol/election-zookeeper/tests/server", "crates/bin/cli/tests/zookeeper"],
};
/// The features of the election's tests and of the command's tests with ZooKeeper.
const FEATURES: [&str; 2] = ["--features", "stentor-election-zookeeper/server-tests,stentor-cli/zookeeper-tests"];

/// Installs the package if that is possible, and runs the tests. Each test starts and stops its own servers.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    let mut clippy = context.cargo(["clippy", "--workspace", "--all-targets"]);
    run(clippy.args(FEATURES).args(["--", "-D", "warnings"]))?;
    // The servers mostly wait, so four tests run at once, even on fewer cores. One test makes the client panic, so
    // backtraces are disabled to keep the output short.
    let mut tests = context.test(&["server"]);
    tests.args(FEATURES).args(["--", "--nocapture", "--test-threads", "4"]);
    run(tests.env("RUST_BACKTRACE", "0"))?;
    // Six members, two clients and a server at a time load two cores, so one test runs at a time.
    run(context.test(&["zookeeper"]).args(FEATURES).args(["--", "--nocapture", "--test-threads", "1"]))?;
    Ok(Outcome::Passed)
}
