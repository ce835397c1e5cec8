//! The election's tests against a real ZooKeeper, which comes as a Debian package.

use anyhow::Result;

use crate::cargo::{Context, run};
use crate::needs::Needs;
use crate::step::Outcome;

pub(crate) const NEEDS: Needs = Needs {
    things: &["zookeeper.jar", "java"],
    sources: &["crates/protocol/election-zookeeper/tests/server", "crates/bin/cli/tests/zookeeper"],
};
/// Its tests, and the command with it and the tests of that.
const FEATURES: [&str; 2] = ["--features", "stentor-election-zookeeper/server-tests,stentor-cli/zookeeper-tests"];

/// Installs the package where that is possible, and runs the tests: each starts and ends servers of its own.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    let mut clippy = context.cargo(["clippy", "--workspace", "--all-targets"]);
    run(clippy.args(FEATURES).args(["--", "-D", "warnings"]))?;
    // The servers mostly wait, so more of them run than there are cores. One test makes the client panic: in two lines.
    let mut tests = context.test(&["server"]);
    tests.args(FEATURES).args(["--", "--nocapture", "--test-threads", "4"]);
    run(tests.env("RUST_BACKTRACE", "0"))?;
    // Six members, two clients and a server at a time are enough for two cores.
    run(context.test(&["zookeeper"]).args(FEATURES).args(["--", "--nocapture", "--test-threads", "1"]))?;
    Ok(Outcome::Passed)
}
