//! Measures 10 000 idle clients at a gateway of the store, and the speed of other clients meanwhile.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stentor_testutil::median;

use super::Server;
use super::compare::{NEEDS, benchmark};
use crate::cargo::Context;
use crate::programs;
use crate::step::Outcome;

const IDLE: usize = 10_000;
/// Number of measurements with idle clients and without them, in turns.
const RUNS: usize = 9;
/// Time after which opening and closing connections no longer affects a measurement.
const SETTLED: Duration = Duration::from_millis(500);

pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(most > IDLE as u64 + 100, "{most} open files at most: raise the hard limit, `ulimit -Hn`");
    let server = Server::store(&programs::store(context, true)?, &["demo", "--groups", "1"])?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        without.push(benchmark(server.1, "set", 16, 50)?.rate);
        let before = resident(server.0.id())?;
        let idle = connect(server.1)?;
        if run == 0 {
            let (memory, began) = (resident(server.0.id())?, processor_time(server.0.id())?);
            thread::sleep(Duration::from_secs(10));
            let used = processor_time(server.0.id())? - began;
            println!(
                "{IDLE} idle clients: {} KiB more of memory, {used} ticks of 10 ms in 10 s",
                memory.saturating_sub(before)
            );
        }
        thread::sleep(SETTLED);
        with.push(benchmark(server.1, "set", 16, 50)?.rate);
        drop(idle);
        thread::sleep(SETTLED);
    }
    let (least, most) =
        without.iter().fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
    let (alone, beside) = (median(without.iter().copied()), median(with.iter().copied()));
    println!(
        "SET, 50 clients, 16 in a pipeline: {alone:.0}/s without them ({least:.0} to {most:.0}), {beside:.0}/s with them"
    );
    ensure!(beside >= least, "SET with idle clients is slower than in every run without them");
    Ok(Outcome::Passed)
}

/// Connects the clients, and waits until each has received one reply.
fn connect(port: u16) -> Result<Vec<TcpStream>> {
    let mut all = Vec::with_capacity(IDLE);
    for n in 0..IDLE {
        let mut client = TcpStream::connect(("127.0.0.1", port)).with_context(|| format!("client {n}"))?;
        client.set_read_timeout(Some(Duration::from_secs(10)))?;
        client.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        client.read_exact(&mut reply).with_context(|| format!("client {n} is not answered"))?;
        all.push(client);
    }
    Ok(all)
}

/// Returns the resident memory of a process in KiB.
fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).context("no VmRSS")
}

/// Returns the processor time of a process in ticks.
fn processor_time(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    ticks(11).zip(ticks(12)).map(|(user, system)| user + system).context("no times")
}
