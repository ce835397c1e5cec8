//! The steps on the example services: their long tests, a client library's tests, and a comparison of the store with
//! other systems.

pub(crate) mod compare;
mod idle;
pub(crate) mod redis_py;

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

pub(crate) use self::compare::step as compare;
pub(crate) use self::idle::step as idle;
pub(crate) use self::redis_py::step as redis_py;
use crate::cargo::{Context, run};
use crate::needs::Needs;
use crate::programs;
use crate::step::Outcome;

/// A server process with its port. Dropping it ends the process.
struct Server(Child, u16);

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM permits a demonstration to end its nodes.
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts the store, and waits until it prints its port.
    fn store(program: &Path, arguments: &[&str]) -> Result<Server> {
        let mut child = Command::new(program)
            .args(arguments)
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let output = BufReader::new(child.stdout.take().context("the process has no output pipe")?);
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

/// The programs that the store's test on hosts needs.
pub(crate) const HOSTS: Needs =
    Needs { things: &["ip", "unshare"], sources: &["examples/kv/tests/kv", "xtask/src/services/mod.rs"] };

/// Returns the command for the test of the store under faults: on shared memory, or on three hosts with partitions.
fn torment(context: &Context, on_hosts: bool) -> Command {
    let name = if on_hosts { "hosts_that_are_cut_off" } else { "every_key_has_an_order" };
    let mut test = context.test(&["kv"]);
    test.args([name, "--", "--nocapture", "--include-ignored"]);
    test
}

/// Tests the store on three hosts for 15 s.
pub(crate) fn store(context: &Context) -> Result<Outcome> {
    HOSTS.ensure()?;
    programs::ensure_some(&mut torment(context, true))?;
    run(&mut torment(context, true))?;
    Ok(Outcome::Passed)
}

/// Returns the seeds of the long runs: those of `STENTOR_SERVICES=FIRST..END`, or 1..101.
fn seeds() -> Result<Range<u64>> {
    let text = std::env::var("STENTOR_SERVICES").unwrap_or_else(|_| "1..101".to_owned());
    let ends = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    ends.filter(|seeds| !seeds.is_empty())
        .with_context(|| format!("STENTOR_SERVICES is `{text}`: set it to FIRST..END, as in 1..101"))
}

/// Tests the store for a minute with each seed, on shared memory and on three hosts in turns.
pub(crate) fn store_long(context: &Context) -> Result<Outcome> {
    HOSTS.ensure()?;
    for seed in seeds()? {
        let mut test = torment(context, seed.is_multiple_of(2));
        run(test.env("STENTOR_KV_SECONDS", "60").env("STENTOR_KV_SEED", seed.to_string()))?;
    }
    Ok(Outcome::Passed)
}

/// Runs demonstrations of the bank, on shared memory and on RoCEv2 in turns. Each takes about a minute, and repeatedly
/// kills leaders and clients.
pub(crate) fn bank_long(context: &Context) -> Result<Outcome> {
    let program = programs::example(context, "bank", "bank")?;
    for seed in seeds()? {
        let fabric = if seed.is_multiple_of(2) { "roce" } else { "shm" };
        run(Command::new(&program).args(["demo", "--kills", "30", "--transfers", "40000", "--fabric", fabric]))?;
    }
    Ok(Outcome::Passed)
}

/// Runs demonstrations of the lock service. Each takes about a minute, stops forty holders, and kills nodes.
pub(crate) fn lock_long(context: &Context) -> Result<Outcome> {
    let program = programs::example(context, "lock", "lock")?;
    for _ in seeds()? {
        run(Command::new(&program).args(["demo", "--rounds", "40"]))?;
    }
    Ok(Outcome::Passed)
}
