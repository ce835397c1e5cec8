//! Tests of comparisons with programs that print the documents of a bench.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use stentor_testutil::TempDir;

use super::*;

/// A folder with programs in place of `stentor`.
struct Programs(TempDir);

impl Programs {
    fn new() -> Self {
        Programs(TempDir::new())
    }

    /// Adds a program whose times are `factor` times those of a plain one, and whose rates are lower by the same
    /// factor. Each run draws its factor uniformly from the range `factor` · (1 ± `scatter`). The program counts its
    /// runs in a file, so the figures differ between runs, but are the same in each execution of a test.
    fn add(&self, name: &str, factor: f64, scatter: f64) -> PathBuf {
        let text = format!(
            r#"runs="$0.runs"
n=$(cat "$runs" 2>/dev/null || echo {seed})
echo $((n + 1)) > "$runs"
awk -v n="$n" 'BEGIN {{
    srand(n * 7919); rand(); factor = {factor} * (1 + {scatter} * (2 * rand() - 1))
    printf "{{\"environment\": {{\"profile\": \"release\", \"wait\": \"adaptive\"}}, \"rows\": ["
    printf "{{\"name\": \"one\", \"bytes\": 64, \"p50_us\": %.6f, \"bound\": {{\"unit\": \"us\"}}}}, ", 20 * factor
    printf "{{\"name\": \"many\", \"bytes\": 64, \"msgs_per_s\": %.6f, \"bound\": {{\"unit\": \"msgs/s\"}}}}]}}", 4e5 / factor
}}'
"#,
            seed = name.len() * 1000,
        );
        self.plain(name, &text)
    }

    /// Adds a program, which another process writes. A file that is open for writing cannot be executed, and a child
    /// that this process forks at the same time would inherit the open file.
    fn plain(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let mut install =
            Command::new("install").args(["-m", "755", "/dev/stdin"]).arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        install.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
        assert!(install.wait().unwrap().success());
        path
    }
}

fn options() -> Options {
    Options { base: "x".into(), new: None, benches: vec![Bench::Multicast], pairs: 60, wait: "adaptive".into() }
}

fn ended(factor: f64, scatter: f64) -> (Ended, Pairs) {
    let programs = Programs::new();
    let (old, new) = (programs.add("old", 1.0, scatter), programs.add("new-one", factor, scatter));
    let pairs = pairs([&old, &new], Bench::Multicast, &options()).unwrap();
    println!("{}", table(Bench::Multicast, &pairs));
    (compare([&old, &new], &options()).unwrap(), pairs)
}

#[test]
fn ten_percent_more_are_found_in_times_and_in_rates() {
    let (ended, pairs) = ended(1.1, 0.02);
    assert_eq!(ended, Ended::Slower);
    for ratios in pairs.rows.values() {
        assert_eq!(verdict(ratios), Ended::Slower, "{ratios:?}");
        let median = median(ratios).unwrap();
        assert!((1.07..1.13).contains(&median.value), "{median:?}");
    }
}

#[test]
fn equal_ones_pass_before_all_pairs_are_used() {
    let (ended, pairs) = ended(1.0, 0.02);
    assert_eq!(ended, Ended::NotSlower);
    assert!(pairs.rows.values().all(|ratios| (FIRST_PAIRS..60).contains(&ratios.len())), "{pairs:?}");
}

#[test]
fn a_faster_one_passes() {
    assert_eq!(ended(0.8, 0.02).0, Ended::NotSlower);
}

#[test]
fn scattered_rows_are_undecided() {
    let (ended, pairs) = ended(1.0, 0.6);
    assert_eq!(ended, Ended::CannotBeTold);
    assert!(pairs.rows.values().all(|ratios| ratios.len() == 60), "as many as allowed");
    assert!(table(Bench::Multicast, &pairs).contains("cannot be told"));
}

#[test]
fn verdict_depends_on_the_ends_of_the_interval() {
    let around = |middle: f64, width: f64| -> Vec<f64> {
        (0..20).map(|n| middle * (1.0 + width * (f64::from(n) / 9.5 - 1.0))).collect()
    };
    assert_eq!(verdict(&around(1.045, 0.01)), Ended::Slower);
    assert_eq!(verdict(&around(1.032, 0.01)), Ended::NotSlower, "narrow, and its lower end is below the bar");
    assert_eq!(verdict(&around(1.2, 0.1)), Ended::Slower, "wide, and all of it above the bar");
    assert_eq!(verdict(&around(1.0, 0.2)), Ended::CannotBeTold);
    assert_eq!(verdict(&around(0.8, 0.2)), Ended::NotSlower, "wide, and all of it below the bar");
    assert_eq!(verdict(&[1.0; 5]), Ended::CannotBeTold, "too few for an interval");
}

/// The order of the runs is old, new, new, old, so that a drift affects both alike.
#[test]
fn old_and_new_take_turns() {
    let programs = Programs::new();
    let log = programs.0.join("log");
    let row = r#"{"name": "one", "bytes": 64, "p50_us": 20.0}"#;
    let document = format!(r#"{{"environment": {{"profile": "release", "wait": "yield"}}, "rows": [{row}]}}"#);
    let script = |who: &str| format!("echo {who} $* >> {}\necho '{document}'", log.display());
    let (old, new) = (programs.plain("old", &script("old")), programs.plain("new", &script("new")));
    compare([&old, &new], &options()).unwrap();
    let log = fs::read_to_string(log).unwrap();
    let order: String = log.lines().take(8).filter_map(|line| line.chars().next()).collect();
    assert_eq!(order, "onnoonno");
    assert_eq!(log.lines().count(), 2 * FIRST_PAIRS, "equal ones need no more");
    assert!(
        log.lines().all(|line| line.contains("bench multicast --json") && line.ends_with("--wait adaptive")),
        "{log}"
    );
}

#[test]
fn rows_that_differ_and_programs_that_fail_are_named() {
    let programs = Programs::new();
    let document = |name: &str| {
        let row = format!(r#"{{"name": "{name}", "bytes": 64, "p50_us": 20.0}}"#);
        format!(r#"echo '{{"environment": {{"profile": "release", "wait": "yield"}}, "rows": [{row}]}}'"#)
    };
    let (old, other) = (programs.plain("old", &document("one")), programs.plain("other", &document("another")));
    let error = compare([&old, &other], &options()).unwrap_err().to_string();
    assert!(error.contains("one, 64 B") && error.contains("another, 64 B"), "{error}");
    let fails = programs.plain("fails", "echo 'no ring' >&2; exit 3");
    let error = format!("{:#}", compare([&old, &fails], &options()).unwrap_err());
    assert!(error.contains("no ring") && error.contains("fails bench multicast"), "{error}");
}
