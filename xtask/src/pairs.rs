//! Runs two steps at a time.
//!
//! Each step is a separate process. Its output is printed as a whole when the step ends.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};

use crate::cargo::Unsuccessful;
use crate::step::Step;

/// Number of steps that run at the same time.
const AT_ONCE: usize = 2;

/// A step with its outcome and duration.
pub(crate) type Ran = (&'static str, Result<()>, Duration);

/// The path of the running program. The program's file itself may be replaced meanwhile, because a step that runs
/// `cargo test --workspace` also builds this program.
const ITSELF: &str = "/proc/self/exe";

/// Returns the command that runs one step of `cargo xtask test`.
pub(crate) fn alone(step: &str) -> Command {
    let mut command = Command::new(ITSELF);
    command.args(["step", step]);
    command
}

/// Runs all steps in their order, two at a time. Returns their outcomes in the same order.
pub(crate) fn run(steps: &[&Step], command: impl Fn(&str) -> Command + Sync) -> Vec<Ran> {
    let names: Vec<_> = steps.iter().map(|step| step.name).collect();
    println!("\n=== two at a time: {}", names.join(", "));
    let (left, ended) = (Mutex::new(steps.iter().enumerate()), Mutex::new(Vec::new()));
    let worker = || {
        while let Some((n, step)) = next(&left) {
            let start = Instant::now();
            let result = logged(step, &mut command(step.name));
            let took = start.elapsed();
            ended.lock().unwrap_or_else(PoisonError::into_inner).push((n, (step.name, result, took)));
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(worker))));
    let mut ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    ended.sort_by_key(|(n, _)| *n);
    ended.into_iter().map(|(_, ran)| ran).collect()
}

fn next<T>(left: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    left.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Runs a step's command, and then prints its output.
fn logged(step: &Step, command: &mut Command) -> Result<()> {
    let path = std::env::temp_dir().join(format!("stentor-xtask-{}-{}.log", std::process::id(), step.name));
    let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let status = command.status().with_context(|| format!("cannot start {:?}", command.get_program()));
    let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    fs::remove_file(&path)?;
    let mut out = io::stdout().lock();
    writeln!(out, "\n=== {}: {}\n{}", step.name, step.what, text.trim_end())?;
    let status = status?;
    if status.success() {
        return Ok(());
    }
    let failed = Unsuccessful::of_output("the process of the step".to_owned(), status, &text);
    Err(match reason(&text) {
        Some(reason) => Error::new(failed).context(reason.to_owned()),
        None => failed.into(),
    })
}

/// Returns the error in the output of a step's process: the text from the last line that begins with `error: ` to the
/// end, without that prefix. Returns `None` if there is no such line.
fn reason(text: &str) -> Option<&str> {
    let text = text.trim_end();
    text.rfind("\nerror: ").map_or(text, |at| &text[at + 1..]).strip_prefix("error: ")
}

#[cfg(test)]
mod tests {
    use stentor_testutil::TempDir;

    use super::*;
    use crate::step::Outcome;

    const fn step(name: &'static str) -> Step {
        Step { name, what: "", run: |_| Ok(Outcome::Passed) }
    }

    /// Each of the first two steps waits until the other has begun. The third may begin only when the first has ended.
    #[test]
    fn two_steps_run_at_a_time_and_the_reason_of_a_failure_is_kept() {
        let folder = TempDir::new();
        let script = |name: &str| {
            let wait = |file: &str| {
                format!("n=0; until [ -e {file} ]; do sleep 0.01; n=$((n + 1)); [ $n -lt 3000 ] || exit 9; done")
            };
            let text = match name {
                "one" => format!("touch one; {}; sleep 0.1; touch one-ended", wait("two")),
                "two" => format!("touch two; {}; {}; touch two-ended", wait("one"), wait("one-ended")),
                _ => "[ -e one-ended ] || exit 9; echo 'error: another one'; echo 'error: as it should' >&2; exit 1"
                    .into(),
            };
            let mut command = Command::new("sh");
            command.args(["-c", &text]).current_dir(&folder);
            command
        };
        let ran = run(&[&step("one"), &step("two"), &step("fails")], script);
        let ended: Vec<_> =
            ran.iter().map(|(name, result, _)| (*name, result.as_ref().err().map(|e| e.to_string()))).collect();
        assert_eq!(ended, [("one", None), ("two", None), ("fails", Some("as it should".into()))]);
        let failed = ran[2].1.as_ref().unwrap_err().downcast_ref::<Unsuccessful>().unwrap();
        assert_eq!(failed.last_lines, ["error: another one", "error: as it should"]);
    }

    #[test]
    fn a_process_that_ends_without_a_reason_has_failed() {
        let ran = run(&[&step("silent")], |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "exit 3"]);
            command
        });
        assert!(ran[0].1.as_ref().unwrap_err().to_string().contains("exit status: 3"), "{ran:?}");
        assert_eq!(reason("a\nerror: b\nc: d\n"), Some("b\nc: d"));
        assert_eq!(reason("error: b"), Some("b"));
        assert_eq!(reason("no error: b"), None);
    }
}
