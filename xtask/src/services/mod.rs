//! The example services: their tests that take long, a client library's own tests, and the store beside others.

pub(crate) mod compare;
mod idle;
pub(crate) mod redis_py;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

pub(crate) use self::compare::step as compare;
pub(crate) use self::idle::step as idle;
pub(crate) use self::redis_py::step as redis_py;
use crate::cargo::{Context, run};
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

/// 100 runs of a minute with faults, a seed each.
pub(crate) fn store_long(context: &Context) -> Result<Outcome> {
    for seed in 1..=100u64 {
        let mut test = context.test(&["kv"]);
        test.args(["every_key", "--", "--nocapture"]).env("STENTOR_KV_SECONDS", "60");
        run(test.env("STENTOR_KV_SEED", seed.to_string()))?;
    }
    Ok(Outcome::Passed)
}
