//! Compares the store with a Redis server, with etcd, and with a gateway that serves a store in its own process.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use stentor_testutil::median;

use super::Server;
use crate::cargo::{Context, capture};
use crate::compare::{LOOPBACK, Programs, SYSTEMS, Shape, System};
use crate::needs::Needs;
use crate::programs;
use crate::step::Outcome;

pub(crate) const NEEDS: Needs =
    Needs { things: &["redis-benchmark", "redis-server"], sources: &["xtask/src/services/compare.rs"] };

/// Starts Redis without persistence.
fn redis(port: u16) -> Result<Server> {
    let child = Command::new("redis-server")
        .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", &port.to_string()])
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start redis-server")?;
    let server = Server(child, port);
    for _ in 0..100 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(server);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    bail!("redis-server does not listen at {port}")
}

/// The figures of a run of `redis-benchmark`.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) rate: f64,
    /// The percentiles 50, 99 and 99.9 of the latency, in ms.
    ms: [f64; 3],
}

/// Parses the output of `redis-benchmark`.
fn figures(text: &str) -> Result<Figures> {
    let rate = text.lines().find_map(|line| line.trim().strip_prefix("throughput summary: "));
    let rate = rate.and_then(|rest| rest.split(' ').next()).and_then(|rate| rate.parse().ok());
    let at = |percent: f64| {
        text.lines().find_map(|line| {
            let (part, rest) = line.split_once("% <= ")?;
            let reached = part.trim().parse::<f64>().ok()? >= percent;
            if reached { rest.split(' ').next()?.parse().ok() } else { None }
        })
    };
    let ms = [at(50.0), at(99.0), at(99.9)].map(Option::unwrap_or_default);
    Ok(Figures { rate: rate.with_context(|| format!("no throughput in {text:?}"))?, ms })
}

pub(super) fn benchmark(port: u16, test: &str, pipeline: u32, clients: u32) -> Result<Figures> {
    let requests = if pipeline == 1 { 100_000 } else { 800_000 };
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string(), "-t", test, "-P", &pipeline.to_string(), "-c", &clients.to_string()]);
    let (good, text) = capture(command.args(["-n", &requests.to_string(), "-r", "10000", "--precision", "3"]))?;
    ensure!(good && !text.contains("Error"), "redis-benchmark printed: {text}");
    figures(&text)
}

/// Number of runs of each system. The systems take turns.
const RUNS: usize = 5;
const TESTS: [&str; 4] = ["set", "get", "incr", "mset"];

/// Compares the store with a Redis server, with etcd, and with a gateway that serves a store in its own process.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    let program = programs::store(context, true)?;
    let etcd = SYSTEMS.iter().find(|system| system.name == "etcd").context("etcd is not among the compared systems")?;
    let mut programs = Programs::new(context);
    etcd.ensure(context, &mut programs)?;
    let mut all: BTreeMap<(u32, u32, &str, &str), Vec<Figures>> = BTreeMap::new();
    let mut puts: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for turn in 0..RUNS {
        println!("run {} of {RUNS}", turn + 1);
        for system in ["redis", "bound", "shm", "roce"] {
            let server = match system {
                "redis" => redis(6391)?,
                "bound" => Server::store(&program, &["gateway", "--alone", "1"])?,
                fabric => Server::store(&program, &["demo", "--groups", "1", "--fabric", fabric])?,
            };
            for (pipeline, clients) in [(1, 50), (16, 50), (1, 500), (16, 500)] {
                for test in TESTS {
                    let found = benchmark(server.1, test, pipeline, clients)
                        .with_context(|| format!("{system}, {test} with -P {pipeline} -c {clients}"))?;
                    all.entry((pipeline, clients, test, system)).or_default().push(found);
                }
            }
        }
        for outstanding in [50, 800] {
            puts.entry(outstanding).or_default().push(etcd_rate(&programs, etcd, outstanding)?);
        }
    }
    print_table(&all, &puts);
    Ok(Outcome::Passed)
}

/// Returns the puts per second into three nodes whose logs are in memory.
fn etcd_rate(programs: &Programs, etcd: &System, outstanding: u64) -> Result<f64> {
    let setting = etcd.settings.iter().find(|setting| setting.place == LOOPBACK).context("a setting on one host")?;
    let figures = etcd.run(programs, setting, &[Shape { bytes: 8, outstanding, messages: 40_000 }])?;
    figures.iter().find_map(|figures| figures.msgs_per_s).context("etcd's client reports no rate")
}

fn print_table(all: &BTreeMap<(u32, u32, &str, &str), Vec<Figures>>, puts: &BTreeMap<u64, Vec<f64>>) {
    println!("\n-P  -c   test  system  requests/s     of redis  p50 / p99 / p99.9 ms");
    for ((pipeline, clients, test, system), runs) in all {
        let rate = median(runs.iter().map(|run| run.rate));
        let redis = all.get(&(*pipeline, *clients, *test, "redis"));
        let part = redis.map_or(0.0, |redis| rate / median(redis.iter().map(|run| run.rate)));
        let [half, most, nearly] = [0, 1, 2].map(|at| median(runs.iter().map(|run| run.ms[at])));
        println!(
            "{pipeline:2}  {clients:3}  {test:4}  {system:6}  {rate:12.0}  {part:7.2}  {half:.3} / {most:.3} / {nearly:.3}"
        );
    }
    for (outstanding, rates) in puts {
        println!("etcd, three nodes, {outstanding} outstanding: {:.0} puts/s", median(rates.iter().copied()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_redis_benchmark_is_parsed() {
        let text = "Latency by percentile distribution:\n0.000% <= 0.100 milliseconds (cumulative count 1)\n\
                    50.000% <= 0.407 milliseconds (cumulative count 50)\n99.219% <= 0.9 milliseconds\n99.902% <= 1.5 milliseconds\n\
                    100.000% <= 2.0 milliseconds\n\nSummary:\n  throughput summary: 100704.94 requests per second\n";
        let found = figures(text).unwrap();
        assert_eq!((found.rate, found.ms), (100_704.94, [0.407, 0.9, 1.5]));
        assert!(figures("nothing").is_err());
    }
}
