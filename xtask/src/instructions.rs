//! Compares the instructions per message of the hot paths with a recorded baseline.
//!
//! The crate `stentor-instructions` runs every path under callgrind, for two numbers of messages. The cost of a message
//! is the difference of the counts divided by the difference of these numbers. Two counts of the same program differ by
//! at most [`SCATTER`]. So a change of more than [`TOLERANCE`] comes from the code, the compiler or the machine. The
//! baseline names the environment in which it was recorded, and a comparison names the differences.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::tools::installed;
use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cargo::{Context, capture};
use crate::needs::Needs;
use crate::step::Outcome;

/// The program that counts instructions.
pub(crate) const NEEDS: Needs = Needs { things: &["valgrind"], sources: &[] };
/// The path of the baseline from the repository root.
const BASELINE: &str = "crates/verify/instructions/baseline.toml";
/// Maximum difference of a count from the baseline in both directions, as a fraction of the baseline.
const TOLERANCE: f64 = 0.03;
/// Maximum difference between two counts of the same program, as a fraction. It is not 0, because the loops of clients
/// read the clock.
const SCATTER: f64 = 0.01;
const HEAD: &str = "\
# Instructions per message of each path. Written by `cargo xtask instructions --record`.
# Counts depend on the environment in `recorded_with`. A comparison names the differences.
";
/// The processor flags that decide which variant of `memcpy`, of a checksum or of a hash runs.
const FLAGS: [&str; 9] = ["pclmulqdq", "sse4_2", "avx", "avx2", "avx512f", "bmi2", "erms", "fsrm", "sha_ni"];

/// The counts, and the environment in which they were recorded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Baseline {
    recorded_with: BTreeMap<String, String>,
    instructions_per_message: BTreeMap<String, f64>,
}

/// Compares the counts with the baseline.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let path = context.root.join(BASELINE);
    let text = fs::read_to_string(&path).with_context(|| format!("no baseline at {}", path.display()))?;
    let baseline: Baseline = toml::from_str(&text).with_context(|| format!("cannot parse {BASELINE}"))?;
    let now = Baseline { recorded_with: environment(context)?, instructions_per_message: count(context)? };
    let (table, problems) = compare(&baseline, &now);
    print!("{table}");
    if problems.is_empty() {
        return Ok(Outcome::Passed);
    }
    bail!(
        "{}; if this is intended, `cargo xtask instructions --record` writes a new {BASELINE}, which belongs in the change \
         that explains it",
        problems.join("; ")
    )
}

/// Counts twice, and writes the baseline if both counts agree except for the effects of the clock.
pub(crate) fn record(context: &Context) -> Result<()> {
    let (counts, again) = (count(context)?, count(context)?);
    let is_same =
        |path: &String, count: f64| again.get(path).is_some_and(|again| (again / count - 1.0).abs() <= SCATTER);
    let differ: Vec<_> = counts.iter().filter(|(path, count)| !is_same(path, **count)).collect();
    ensure!(
        differ.is_empty(),
        "these counts differ when they are measured again, so they are not reliable: {differ:?}"
    );
    let baseline = Baseline { recorded_with: environment(context)?, instructions_per_message: counts };
    let path = context.root.join(BASELINE);
    fs::write(&path, format!("{HEAD}{}", toml::to_string(&baseline)?))?;
    println!("wrote {}", path.display());
    Ok(())
}

/// Compares every path with its baseline. Returns the table and the problems.
fn compare(baseline: &Baseline, now: &Baseline) -> (String, Vec<String>) {
    let (mut text, mut problems) = (String::new(), Vec::new());
    let (old, new) = (&baseline.instructions_per_message, &now.instructions_per_message);
    let _ = writeln!(text, "\n{:<24} {:>12} {:>12} {:>8}", "path", "baseline", "now", "ratio");
    let cell = |count: Option<&f64>| count.map_or("missing".to_owned(), |count| format!("{count:.1}"));
    for path in old.keys().chain(new.keys().filter(|path| !old.contains_key(*path))) {
        let (before, after) = (old.get(path), new.get(path));
        let ratio = before.zip(after).map(|(before, after)| after / before);
        let problem = match (before, after, ratio) {
            (Some(before), Some(after), Some(ratio)) if (ratio - 1.0).abs() > TOLERANCE => {
                let percent = (ratio - 1.0) * 100.0;
                Some(format!("{path} takes {after:.1} instructions instead of {before:.1} ({percent:+.1} %)"))
            }
            (Some(_), None, _) => Some(format!("{path} is in the baseline and was not counted")),
            (None, _, _) => Some(format!("{path} was counted and is not in the baseline")),
            _ => None,
        };
        let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.4}"));
        let mark = if problem.is_some() { "  <--" } else { "" };
        let _ = writeln!(text, "{path:<24} {:>12} {:>12} {ratio:>8}{mark}", cell(before), cell(after));
        problems.extend(problem);
    }
    let (old, new) = (&baseline.recorded_with, &now.recorded_with);
    let none = String::new();
    for what in old.keys().chain(new.keys().filter(|what| !old.contains_key(*what))) {
        let (before, after) = (old.get(what).unwrap_or(&none), new.get(what).unwrap_or(&none));
        if before != after {
            let note = format!("{what} is `{after}`, and the baseline was recorded with `{before}`");
            let _ = writeln!(text, "note: {note}: counts may differ for that reason alone");
            if !problems.is_empty() {
                problems.push(note);
            }
        }
    }
    (text, problems)
}

/// Counts every path. The first run takes minutes, because it builds the programs.
fn count(context: &Context) -> Result<BTreeMap<String, f64>> {
    NEEDS.ensure()?;
    let runner = runner(context)?;
    let bench = ["bench", "--package", "stentor-instructions", "--features", "callgrind", "--bench", "paths"];
    let mut command = context.cargo(bench);
    command.args(["--", "--output-format=json"]).env("GUNGRAUN_RUNNER", runner);
    let (good, text) = capture(&mut command)?;
    ensure!(good, "a path cannot be counted; the message is above");
    per_message(&text)
}

/// Parses the output of the runner: the totals of all paths, each for several numbers of messages.
fn per_message(text: &str) -> Result<BTreeMap<String, f64>> {
    let mut totals: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let document: Value = serde_json::from_str(line).context("cannot parse the output of the runner")?;
        let total = document.pointer("/profiles/0/data/total/metrics/Ir/values/new").and_then(Value::as_f64);
        let messages = document["id"].as_str().and_then(|id| id.strip_prefix('n')?.parse().ok());
        let (Some(path), Some(messages), Some(total)) = (document["function_name"].as_str(), messages, total) else {
            bail!("the runner's document lacks a name, a number of messages or a count: {line}");
        };
        totals.entry(path.to_owned()).or_default().insert(messages, total);
    }
    let each = |(path, totals): (String, BTreeMap<u64, f64>)| {
        let (Some((few, least)), Some((many, most))) = (totals.first_key_value(), totals.last_key_value()) else {
            bail!("{path} was not counted");
        };
        ensure!(few < many, "{path} was counted for one number of messages only");
        let count = (most - least) / (many - few) as f64;
        ensure!(count > 0.0, "{path} takes no instructions: its section is not found in the program");
        Ok((path, count))
    };
    totals.into_iter().map(each).collect()
}

/// Installs the bench's runner below `target`. Its version must be that of the library.
fn runner(context: &Context) -> Result<PathBuf> {
    let lock = fs::read_to_string(context.root.join("Cargo.lock"))?;
    let version = locked(&lock, "gungraun-runner").context("Cargo.lock has no gungraun-runner")?;
    installed(context, "gungraun-runner", &version)
}

/// Returns the version of a package in a lock file.
fn locked(lock: &str, name: &str) -> Option<String> {
    let lock: toml::Table = toml::from_str(lock).ok()?;
    let packages = lock.get("package")?.as_array()?;
    let found = packages.iter().find(|package| package.get("name").and_then(toml::Value::as_str) == Some(name))?;
    Some(found.get("version")?.as_str()?.to_owned())
}

/// Returns the parts of the environment on which the counts depend.
fn environment(context: &Context) -> Result<BTreeMap<String, String>> {
    let first = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
    let says = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).current_dir(&context.root).args(arguments).output();
        let output = output.with_context(|| format!("cannot start {program}"))?;
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let verbose = says(&rustc, &["-vV"])?;
    let host = verbose.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned();
    let features = says(&rustc, &["--print", "cfg"])?;
    let features =
        features.lines().filter_map(|line| Some(line.strip_prefix("target_feature=\"")?.trim_end_matches('"')));
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let all = [
        ("rustc", first(verbose)),
        ("host", host),
        ("target_features", features.collect::<Vec<_>>().join(" ")),
        ("rustflags", std::env::var("RUSTFLAGS").unwrap_or_default()),
        ("valgrind", first(says("valgrind", &["--version"])?)),
        ("libc", first(says("ldd", &["--version"])?)),
        ("cpu_flags", cpu_flags(&cpu)),
    ];
    Ok(all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn cpu_flags(cpuinfo: &str) -> String {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |wanted: &&str| flags.split_whitespace().any(|flag| flag == *wanted);
    FLAGS.into_iter().filter(has).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(rustc: &str, counts: &[(&str, f64)]) -> Baseline {
        Baseline {
            recorded_with: [("rustc".to_owned(), rustc.to_owned())].into(),
            instructions_per_message: counts.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect(),
        }
    }

    fn problems(now: &[(&str, f64)]) -> Vec<String> {
        compare(&baseline("1.95.0", &[("post", 1000.0), ("poll", 500.0)]), &baseline("1.95.0", now)).1
    }

    #[test]
    fn three_percent_either_way_are_the_bound() {
        assert_eq!(problems(&[("post", 1029.0), ("poll", 486.0)]), [""; 0]);
        let more = problems(&[("post", 1031.0), ("poll", 500.0)]);
        assert!(more.len() == 1 && more[0].contains("post takes 1031.0 instructions instead of 1000.0 (+3.1 %)"));
        assert_eq!(problems(&[("post", 1000.0), ("poll", 484.0)]).len(), 1, "fewer make the baseline stale");
    }

    #[test]
    fn a_path_on_one_side_only_is_a_problem() {
        assert!(problems(&[("post", 1000.0)])[0].contains("poll is in the baseline and was not counted"));
        let new = problems(&[("post", 1000.0), ("poll", 500.0), ("step", 7.0)]);
        assert!(new[0].contains("step was counted and is not in the baseline"));
    }

    #[test]
    fn another_compiler_is_named() {
        let old = baseline("1.95.0", &[("post", 1000.0)]);
        let (table, none) = compare(&old, &baseline("1.96.0", &[("post", 1000.0)]));
        assert!(table.contains("rustc is `1.96.0`, and the baseline was recorded with `1.95.0`"), "{table}");
        assert_eq!(none, [""; 0], "the same counts pass");
        let (_, problems) = compare(&old, &baseline("1.96.0", &[("post", 2000.0)]));
        assert!(problems[1].contains("1.96.0"), "{problems:?}");
    }

    fn line(path: &str, id: &str, total: u64) -> String {
        format!(
            r#"{{"function_name": "{path}", "id": "{id}", "profiles": [{{"data": {{"total": {{"metrics": {{"Ir": {{"values": {{"new": {total}}}}}}}}}}}}}]}}"#
        )
    }

    #[test]
    fn the_fixed_part_cancels() {
        let text = ["running".to_owned(), line("post", "n200", 50_200), line("post", "n1200", 51_200)].join("\n");
        assert_eq!(per_message(&text).unwrap(), [("post".to_owned(), 1.0)].into());
    }

    #[test]
    fn meaningless_counts_are_refused() {
        for text in [
            line("post", "n200", 50),
            [line("post", "n200", 0), line("post", "n1200", 0)].join("\n"),
            line("post", "few", 50),
        ] {
            assert!(per_message(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_runner_has_the_librarys_version() {
        let root = Context::new().root;
        let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap();
        assert_eq!(locked(&lock, "gungraun-runner"), locked(&lock, "gungraun"));
        assert_eq!(locked(&lock, "nobody"), None);
    }

    /// A path that is added to the bench or removed from it must change the baseline in the same commit.
    #[test]
    fn the_baseline_has_every_path_of_the_bench() {
        let root = Context::new().root;
        let baseline: Baseline = toml::from_str(&fs::read_to_string(root.join(BASELINE)).unwrap()).unwrap();
        let bench = fs::read_to_string(root.join("crates/verify/instructions/benches/paths.rs")).unwrap();
        let paths = bench.lines().filter_map(|line| line.strip_prefix("path!(")?.split(',').next());
        let mut paths: Vec<_> = paths.collect();
        paths.sort_unstable();
        assert_eq!(baseline.instructions_per_message.keys().collect::<Vec<_>>(), paths);
    }

    #[test]
    fn flags_of_the_processor_are_whole_words() {
        assert_eq!(cpu_flags("model\t: x\nflags\t\t: fpu avx2 avx512fx erms\nflags\t\t: avx"), "avx2 erms");
    }
}
