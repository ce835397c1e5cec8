//! The example services: their tests that take long, a client library's own tests, and the store beside others.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo::{Context, capture, run};
use crate::needs::Needs;
use crate::step::Outcome;

/// What the tests of a client library need.
pub(crate) const NEEDS_PYTHON: Needs = Needs { things: &["python3", "ensurepip"], sources: &["xtask/src/services.rs"] };
/// What the comparison needs.
pub(crate) const NEEDS_COMPARE: Needs = Needs {
    things: &["redis-benchmark", "redis-server", "etcd", "unshare", "ip"],
    sources: &["compare/etcd/nodes.sh"],
};

/// The version of the client library whose tests are run.
const REDIS_PY: &str = "redis==5.2.1";
/// The tests that pass, one in each line. The others are about commands that are not there.
const PASSING: &str = "examples/kv/redis-py.txt";
const FILES: [&str; 4] =
    ["tests/test_commands.py", "tests/test_connection_pool.py", "tests/test_encoding.py", "tests/test_pipeline.py"];

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

    /// Starts Redis without a disk.
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

/// The tests of redis-py for the commands that the store has.
pub(crate) fn redis_py(context: &Context) -> Result<Outcome> {
    NEEDS_PYTHON.ensure()?;
    let program = store(context, false)?;
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

/// Compares the tests that passed with those that do.
fn judge(text: &str, expected: &str) -> Result<Outcome> {
    let passed = |line: &str| line.strip_prefix("PASSED ").map(str::to_owned);
    let passed: Vec<String> = text.lines().filter_map(passed).collect();
    let missing: Vec<&str> = expected.lines().filter(|line| !passed.iter().any(|test| test == line)).collect();
    println!("{} tests of {REDIS_PY} pass", passed.len());
    ensure!(missing.is_empty(), "these do not pass any more:\n{}", missing.join("\n"));
    let new: Vec<&String> = passed.iter().filter(|test| !expected.lines().any(|line| line == *test)).collect();
    ensure!(new.is_empty(), "these pass and are not in {PASSING}: {new:#?}");
    Ok(Outcome::Passed)
}

/// 100 runs of a minute with faults, a seed each.
pub(crate) fn store_long(context: &Context) -> Result<Outcome> {
    for seed in 1..=100u64 {
        let arguments = ["test", "-p", "stentor-kv", "--test", "kv", "every_key", "--", "--nocapture"];
        run(context.cargo(arguments).env("STENTOR_KV_SECONDS", "60").env("STENTOR_KV_SEED", seed.to_string()))?;
    }
    Ok(Outcome::Passed)
}

/// A run of `redis-benchmark`.
#[derive(Clone, Debug, Default)]
struct Figures {
    rate: f64,
    /// p50, p99 and p99.9, ms.
    ms: [f64; 3],
}

/// Reads what `redis-benchmark` prints.
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

fn benchmark(port: u16, test: &str, pipeline: u32, clients: u32) -> Result<Figures> {
    let requests = if pipeline == 1 { 100_000 } else { 800_000 };
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string(), "-t", test, "-P", &pipeline.to_string(), "-c", &clients.to_string()]);
    let (good, text) = capture(command.args(["-n", &requests.to_string(), "-r", "10000", "--precision", "3"]))?;
    ensure!(good && !text.contains("Error"), "redis-benchmark says: {text}");
    figures(&text)
}

/// Runs in turns of each system.
const RUNS: usize = 5;
const TESTS: [&str; 4] = ["set", "get", "incr", "mset"];

/// The store beside a Redis server and etcd.
pub(crate) fn compare(context: &Context) -> Result<Outcome> {
    NEEDS_COMPARE.ensure()?;
    let program = store(context, true)?;
    let etcd = etcd_program(context)?;
    let mut all: BTreeMap<(u32, u32, &str, &str), Vec<Figures>> = BTreeMap::new();
    let mut puts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for turn in 0..RUNS {
        println!("run {} of {RUNS}", turn + 1);
        for system in ["redis", "bound", "shm", "roce"] {
            let server = match system {
                "redis" => Server::redis(6391)?,
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
            puts.entry(outstanding).or_default().push(etcd_rate(context, &etcd, outstanding)?);
        }
    }
    print_table(&all, &puts);
    Ok(Outcome::Passed)
}

fn etcd_program(context: &Context) -> Result<PathBuf> {
    let manifest = context.root.join("compare/Cargo.toml");
    let mut build = context.cargo(["build", "--release", "-p", "compare-etcd", "--manifest-path"]);
    built(build.arg(manifest), "compare-etcd")
}

/// Puts a second into three nodes whose logs are in memory.
fn etcd_rate(context: &Context, program: &Path, outstanding: u32) -> Result<f64> {
    let script = context.root.join("compare/etcd/nodes.sh");
    let mut command = Command::new("unshare");
    command.arg("-rnm").arg(script).arg(program).args(["put", "0", &format!("8:{outstanding}:40000")]);
    let (good, text) = capture(&mut command)?;
    ensure!(good, "etcd: {text}");
    let line: serde_json::Value = serde_json::from_str(text.trim())?;
    line["msgs_per_s"].as_f64().with_context(|| format!("no rate in {text}"))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_table(all: &BTreeMap<(u32, u32, &str, &str), Vec<Figures>>, puts: &BTreeMap<u32, Vec<f64>>) {
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
    fn figures_are_read_from_what_the_benchmark_prints() {
        let text = "Latency by percentile distribution:\n0.000% <= 0.100 milliseconds (cumulative count 1)\n\
                    50.000% <= 0.407 milliseconds (cumulative count 50)\n99.219% <= 0.9 milliseconds\n99.902% <= 1.5 milliseconds\n\
                    100.000% <= 2.0 milliseconds\n\nSummary:\n  throughput summary: 100704.94 requests per second\n";
        let found = figures(text).unwrap();
        assert_eq!((found.rate, found.ms), (100_704.94, [0.407, 0.9, 1.5]));
        assert!(figures("nothing").is_err());
    }

    #[test]
    fn tests_that_fail_and_tests_that_pass_unexpectedly_are_named() {
        let text = "PASSED tests/a.py::one\nFAILED tests/a.py::two\n";
        assert!(judge(text, "tests/a.py::one\n").is_ok());
        for expected in ["tests/a.py::one\ntests/a.py::two\n", ""] {
            assert!(judge(text, expected).is_err());
        }
    }
}
