//! The election's tests against a real ZooKeeper, which comes as a Debian package.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cargo::{Context, capture, run};
use crate::runner::Outcome;

const JAR: &str = "/usr/share/java/zookeeper.jar";
const INSTALL: [&str; 4] = ["install", "--yes", "zookeeper", "default-jre-headless"];
/// Its tests, and the command with it and the tests of that.
const FEATURES: [&str; 2] = ["--features", "stentor-election-zookeeper/server-tests,stentor-cli/zookeeper-tests"];

/// Installs the package where that is possible, and runs the tests: each starts and ends servers of its own.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    if !Path::new(JAR).exists() {
        install(is_root()?)?;
    }
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

fn is_root() -> Result<bool> {
    Ok(capture(Command::new("id").arg("-u"))?.1.trim() == "0")
}

fn install(root: bool) -> Result<()> {
    if !root {
        bail!("{JAR} is missing: apt-get {}", INSTALL.join(" "));
    }
    run(Command::new("apt-get").arg("update"))?;
    run(Command::new("apt-get").args(INSTALL).env("DEBIAN_FRONTEND", "noninteractive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_install_is_told_what_to_run() {
        let error = install(false).unwrap_err().to_string();
        assert!(error.ends_with("apt-get install --yes zookeeper default-jre-headless"), "{error}");
    }
}
