//! Runs steps, most of them one after the other, and prints their outcomes.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::cargo::{Context, Unsuccessful};
use crate::pairs;
use crate::step::{Component, Outcome, Step};

#[derive(Clone, PartialEq, Eq, Debug)]
enum Ended {
    As(Outcome),
    /// The reason, and the last lines of the command that failed.
    Failed(String, Vec<String>),
}

/// Runs all steps, even after a failure, and prints the summary. Returns whether there are steps and none failed.
///
/// Neighbouring steps that are named in `paired` run two at a time, if there are two processors.
pub(crate) fn run(title: &str, context: &Context, steps: &[&Step], available: usize, paired: &[&str]) -> bool {
    let begin = Instant::now();
    let mut results = Vec::new();
    let two = std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
    let mut rest = steps;
    while !rest.is_empty() {
        let together = rest.iter().take_while(|step| two && paired.contains(&step.name)).count();
        let (batch, after) = rest.split_at(together.max(1));
        if batch.len() > 1 {
            for (name, result, took) in pairs::run(batch, pairs::alone) {
                let ended = result.map_or_else(|error| failed(&error), |()| Ended::As(Outcome::Passed));
                results.push(told(name, ended, took));
            }
        } else {
            let (step, n) = (batch[0], steps.len() - rest.len() + 1);
            println!("\n=== {} ({n} of {}): {}", step.name, steps.len(), step.what);
            let start = Instant::now();
            let ended = (step.run)(context).map_or_else(|error| failed(&error), Ended::As);
            results.push(told(step.name, ended, start.elapsed()));
        }
        rest = after;
    }
    print!("{}", summary(title, &results, available, begin.elapsed()));
    good(&results)
}

fn failed(error: &anyhow::Error) -> Ended {
    let last_lines = error.downcast_ref::<Unsuccessful>().map_or_else(Vec::new, |error| error.last_lines.clone());
    Ended::Failed(format!("{error:#}"), last_lines)
}

/// Prints the outcome of a step.
fn told(name: &'static str, ended: Ended, took: Duration) -> (&'static str, Ended, Duration) {
    println!("=== {name}: {} in {}", describe(&ended), seconds(took));
    (name, ended, took)
}

/// Returns whether a step has passed and none has failed.
fn good(results: &[(&str, Ended, Duration)]) -> bool {
    let any = |wanted: fn(&Ended) -> bool| results.iter().any(|(_, ended, _)| wanted(ended));
    any(|ended| matches!(ended, Ended::As(Outcome::Passed | Outcome::PassedWithout(_))))
        && !any(|ended| matches!(ended, Ended::Failed(..)))
}

fn describe(ended: &Ended) -> String {
    match ended {
        Ended::As(Outcome::Passed) => "ok".into(),
        Ended::As(Outcome::PassedWithout(Component { name, .. })) => format!("ok, without {name}"),
        Ended::As(Outcome::NotRun(Component { name, .. })) => format!("not run: without {name}"),
        Ended::Failed(why, _) => format!("FAILED: {why}"),
    }
}

fn summary(title: &str, results: &[(&str, Ended, Duration)], available: usize, took: Duration) -> String {
    let mut text = format!("\n{:<16} {:>9}  result\n", "step", "time");
    for (name, ended, took) in results {
        let _ = writeln!(text, "{name:<16} {:>9}  {}", seconds(*took), describe(ended));
    }
    let count = |wanted: fn(&Ended) -> bool| results.iter().filter(|(_, ended, _)| wanted(ended)).count();
    let passed = count(|ended| matches!(ended, Ended::As(Outcome::Passed | Outcome::PassedWithout(_))));
    let failed = count(|ended| matches!(ended, Ended::Failed(..)));
    let not_run = count(|ended| matches!(ended, Ended::As(Outcome::NotRun(_))));
    for (name, ended, _) in results {
        if let Ended::As(Outcome::PassedWithout(component) | Outcome::NotRun(component)) = ended {
            let _ = writeln!(text, "{name}: {} is not installed: {}", component.name, component.remedy);
        }
        if let Ended::Failed(_, last_lines) = ended
            && !last_lines.is_empty()
        {
            let _ = writeln!(text, "{name} printed last:\n  {}", last_lines.join("\n  "));
        }
    }
    let verdict = if good(results) { "ok" } else { "FAILED" };
    let _ = write!(text, "xtask {title}: {verdict}. {passed} passed; {failed} failed; {not_run} not run");
    if results.len() < available {
        let _ = write!(text, "; {} not asked for", available - results.len());
    }
    let _ = writeln!(text, "; in {}", seconds(took));
    text
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(ended: &[Ended]) -> Vec<(&'static str, Ended, Duration)> {
        ended.iter().map(|ended| ("step", ended.clone(), Duration::from_millis(1500))).collect()
    }

    #[test]
    fn steps_that_did_not_run_neither_passed_nor_failed() {
        let miri = Component { name: "miri", remedy: "get it" };
        let wasm = Component { name: "wasm", remedy: "fetch it" };
        let results = [Outcome::Passed, Outcome::NotRun(miri), Outcome::PassedWithout(wasm)].map(Ended::As);
        let results = self::results(&results);
        assert!(good(&results));
        let text = summary("test", &results, 4, Duration::from_secs(3));
        assert!(text.contains("2 passed; 0 failed; 1 not run; 1 not asked for; in 3.0 s"), "{text}");
        for part in [
            "not run: without miri",
            "ok, without wasm",
            "miri is not installed: get it",
            "wasm is not installed: fetch it",
        ] {
            assert!(text.contains(part), "`{part}` is not in {text}");
        }
    }

    #[test]
    fn one_failure_fails_and_nothing_at_all_too() {
        let results =
            self::results(&[Ended::Failed("why".into(), vec!["last words".into()]), Ended::As(Outcome::Passed)]);
        assert!(!good(&results));
        let text = summary("test", &results, 2, Duration::ZERO);
        assert!(text.contains("xtask test: FAILED. 1 passed; 1 failed; 0 not run;"), "{text}");
        assert!(text.contains("step printed last:\n  last words\n"), "{text}");
        assert!(!good(&[]));
        let miri = Component { name: "miri", remedy: "get it" };
        assert!(!good(&self::results(&[Ended::As(Outcome::NotRun(miri))])));
    }

    #[test]
    fn the_steps_after_a_failure_still_run() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let fails = Step { name: "fails", what: "", run: |_| anyhow::bail!("as it should") };
        let counts = Step {
            name: "counts",
            what: "",
            run: |_| {
                RUNS.fetch_add(1, Ordering::Relaxed);
                Ok(Outcome::Passed)
            },
        };
        assert!(!run("test", &Context::new(), &[&fails, &counts], 2, &[]));
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    }
}
