//! The list of recorded calls, ordered by step and within a step by process. The order of calls of two processes
//! depends on the scheduler and is therefore not recorded.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Environment variable. If it is set, the test replaces the recorded file by the calls of this run.
const RECORD: &str = "STENTOR_RECORD";

struct Log {
    done: String,
    lines: [Vec<String>; 2],
}

static LOG: Mutex<Log> = Mutex::new(Log { done: String::new(), lines: [Vec::new(), Vec::new()] });

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    fn close(&mut self) {
        for (process, lines) in self.lines.iter_mut().enumerate() {
            for line in lines.drain(..) {
                writeln!(self.done, "p{process} {line}").unwrap();
            }
        }
    }
}

/// Begins a step.
pub(crate) fn step(name: &str) {
    let mut log = log();
    log.close();
    writeln!(log.done, "\n== {name}").unwrap();
}

/// Records a line for a process.
pub(crate) fn say(process: usize, line: impl Into<String>) {
    log().lines[process].push(line.into());
}

/// Returns the last lines of both processes.
pub(crate) fn last() -> String {
    let log = log();
    let step = log.done.lines().rev().find(|line| line.starts_with("==")).unwrap_or_default();
    let of =
        |process: usize| log.lines[process].iter().rev().take(8).rev().map(move |line| format!("\np{process} {line}"));
    format!("{step}{}", (0..2).flat_map(of).collect::<String>())
}

/// Compares all lines so far with the recorded file. `crate_name` and `test` are for the command that records it again.
pub(crate) fn compare(file: &Path, crate_name: &str, test: &str) {
    let mut log = log();
    log.close();
    let fresh = std::mem::take(&mut log.done);
    let fresh = fresh.trim_start();
    if std::env::var_os(RECORD).is_some() {
        std::fs::write(file, fresh).unwrap();
    }
    let recorded = std::fs::read_to_string(file).unwrap_or_default();
    let how = format!("If the change is intended, run {RECORD}=1 cargo test -p {crate_name} --test {test}");
    let mut step = "";
    let (mut was, mut is) = (recorded.lines(), fresh.lines());
    for number in 1.. {
        match (was.next(), is.next()) {
            (None, None) => return,
            (was, is) if was == is => step = is.filter(|line| line.starts_with("==")).unwrap_or(step),
            (was, is) => {
                let (was, is) = (was.unwrap_or("nothing"), is.unwrap_or("nothing"));
                panic!("{}:{number}, in step \"{step}\"\nrecorded: {was}\nnow:      {is}\n{how}", file.display());
            }
        }
    }
}
