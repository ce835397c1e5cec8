//! The example services: their tests that take long, a client library's own tests, and the store beside others.

pub(crate) mod compare;
mod idle;
pub(crate) mod redis_py;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

pub(crate) use self::compare::step as compare;
pub(crate) use self::idle::step as idle;
pub(crate) use self::redis_py::step as redis_py;
use crate::cargo::{Context, capture, run};
use crate::step::Outcome;

/// A server that ends with this.
struct Server(Child, u16);

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM lets a demonstration end its nodes.
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts the store, and waits until it says its port.
    fn store(program: &Path, arguments: &[&str]) -> Result<Server> {
        let mut child = Command::new(program)
            .args(arguments)
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let output = BufReader::new(child.stdout.take().context("it is piped")?);
        let mut server = Server(child, 0);
        for line in output.lines() {
            let line = line?;
            if let Some(port) = line.strip_prefix("ready").and_then(|rest| rest.rsplit(' ').next()) {
                server.1 = port.parse().with_context(|| format!("no port in `{line}`"))?;
                return Ok(server);
            }
        }
        bail!("{} {arguments:?} ended before it was ready", program.display())
    }
}

/// The store, built as users have it if `optimised`.
fn store(context: &Context, optimised: bool) -> Result<PathBuf> {
    let mut build = context.cargo(["build", "-p", "stentor-kv"]);
    built(if optimised { build.arg("--release") } else { &mut build }, "stentor-kv")
}

/// Builds a program. Returns where it is.
fn built(build: &mut Command, name: &str) -> Result<PathBuf> {
    let (good, text) = capture(build.args(["--message-format", "json-render-diagnostics"]))?;
    ensure!(good, "{name} does not compile; the message is above");
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == name);
    let path = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.with_context(|| format!("cargo did not say where {name} is"))
}

/// 100 runs of a minute with faults, a seed each.
pub(crate) fn store_long(context: &Context) -> Result<Outcome> {
    for seed in 1..=100u64 {
        let arguments = ["test", "-p", "stentor-kv", "--test", "kv", "every_key", "--", "--nocapture"];
        run(context.cargo(arguments).env("STENTOR_KV_SECONDS", "60").env("STENTOR_KV_SEED", seed.to_string()))?;
    }
    Ok(Outcome::Passed)
}
