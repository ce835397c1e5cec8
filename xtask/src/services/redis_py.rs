//! Runs the tests of a Redis client for the requests that the store supports.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Server;
use crate::cargo::{Context, capture, run};
use crate::needs::Needs;
use crate::programs;
use crate::step::Outcome;

pub(crate) const NEEDS: Needs =
    Needs { things: &["python3", "ensurepip"], sources: &["xtask/src/services/redis_py.rs"] };

/// The version of the client library whose tests are run.
const REDIS_PY: &str = "redis==5.2.1";
/// File with the names of the tests that pass, one on each line. All other tests concern commands that the store does
/// not support.
const PASSING: &str = "examples/kv/redis-py.txt";
const FILES: [&str; 4] =
    ["tests/test_commands.py", "tests/test_connection_pool.py", "tests/test_encoding.py", "tests/test_pipeline.py"];

/// Runs the tests of redis-py for the commands that the store supports.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    let program = programs::store(context, false)?;
    let folder = program.parent().and_then(Path::parent).context("a folder for build products")?.join("redis-py");
    let python = folder.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let sources = folder.join("sources");
    if !sources.exists() {
        let pip = || {
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "-q", "--disable-pip-version-check"]);
            pip
        };
        run(pip().args(["install", REDIS_PY, "pytest==8.3.4", "pytest-asyncio==0.25.0", "pytest-timeout==2.3.1"]))?;
        run(pip().args(["download", "--no-binary", ":all:", "--no-deps", "-d"]).arg(&folder).arg(REDIS_PY))?;
        let archive = folder.join(format!("{}.tar.gz", REDIS_PY.replace("==", "-")));
        let unpacked = folder.join("unpacked");
        fs::create_dir_all(&unpacked)?;
        run(Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(&unpacked).arg("--strip-components=1"))?;
        fs::rename(&unpacked, &sources)?;
    }
    let server = Server::store(&program, &["demo", "--groups", "1"])?;
    let url = format!("redis://127.0.0.1:{}/0", server.1);
    let mut tests = Command::new(&python);
    tests.current_dir(&sources).args(["-m", "pytest", "-q", "-rA", "--tb=no", "--timeout=20", "--redis-url", &url]);
    let (_, text) = capture(tests.args(FILES))?;
    judge(&text, &fs::read_to_string(context.root.join(PASSING))?)
}

/// Compares the tests that passed with the expected ones.
fn judge(text: &str, expected: &str) -> Result<Outcome> {
    let passed = |line: &str| line.strip_prefix("PASSED ").map(str::to_owned);
    let passed: Vec<String> = text.lines().filter_map(passed).collect();
    let missing: Vec<&str> = expected.lines().filter(|line| !passed.iter().any(|test| test == line)).collect();
    println!("{} tests of {REDIS_PY} pass", passed.len());
    ensure!(missing.is_empty(), "these tests of redis-py do not pass any more:\n{}", missing.join("\n"));
    let new: Vec<&String> = passed.iter().filter(|test| !expected.lines().any(|line| line == *test)).collect();
    ensure!(new.is_empty(), "these tests of redis-py pass, but {PASSING} does not list them: {new:#?}");
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_fail_and_tests_that_pass_unexpectedly_are_named() {
        let text = "PASSED tests/a.py::one\nFAILED tests/a.py::two\n";
        assert!(judge(text, "tests/a.py::one\n").is_ok());
        for expected in ["tests/a.py::one\ntests/a.py::two\n", ""] {
            assert!(judge(text, expected).is_err());
        }
    }
}
