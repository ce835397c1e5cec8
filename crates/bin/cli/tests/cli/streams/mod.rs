//! Tests of commands at their stages, with standard streams that are non-blocking, full or closed, or whose reader has
//! ended, and with one or several signals. The file `matrix.txt` has the expected outcomes.

mod pipes;
mod stage;

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::signal;
use stage::{Actor, Theatre};

/// Upper bound of the time that a command takes to end.
const ENDING: Duration = Duration::from_secs(8);
/// Pause between two signals.
const PAUSE: Duration = Duration::from_millis(700);

/// A cell: one line of the matrix.
struct Cell<'a> {
    line: &'a str,
    part: &'a str,
    command: &'a str,
    stage: &'a str,
    streams: Vec<&'a str>,
    signals: Vec<&'a str>,
    outcome: &'a str,
    said: String,
}

impl<'a> Cell<'a> {
    fn read(line: &'a str) -> Self {
        let [part, command, stage, streams, signals, outcome, said] =
            line.split_whitespace().collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("seven columns: {line}"));
        let list = |text: &'a str| if text == "-" { Vec::new() } else { text.split(',').collect() };
        let said = if said == "-" { String::new() } else { said.replace('_', " ") };
        Cell { line, part, command, stage, streams: list(streams), signals: list(signals), outcome, said }
    }

    fn has(&self, stream: &str) -> bool {
        self.streams.contains(&stream)
    }
}

fn cells() -> impl Iterator<Item = Cell<'static>> {
    let lines = include_str!("matrix.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(Cell::read)
}

fn named(name: &str) -> Signal {
    match name {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "HUP" => Signal::HUP,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        other => panic!("no signal {other}"),
    }
}

/// Runs a cell. Returns an error that describes how the result differs from the matrix.
fn play(cell: &Cell<'_>) -> Result<(), String> {
    let mut theatre = Theatre::new();
    let mut actor = theatre.bring(cell);
    for (n, name) in cell.signals.iter().filter(|name| **name != "nohup").enumerate() {
        if n > 0 {
            std::thread::sleep(PAUSE);
        }
        match actor.child.try_wait().unwrap() {
            None => signal(actor.child.id(), named(name)),
            // The second signal may come too late.
            Some(_) if n > 0 => break,
            Some(status) => return Err(format!("ended before the first signal: {status}; {}", actor.printed())),
        }
    }
    judge(cell, &mut actor)?;
    theatre.check_no_file_is_left(cell)
}

fn judge(cell: &Cell<'_>, actor: &mut Actor) -> Result<(), String> {
    let since = Instant::now();
    if cell.has("out-slow") {
        std::thread::sleep(PAUSE);
        actor.read_slowly();
    }
    let status = loop {
        if let Some(status) = actor.child.try_wait().unwrap() {
            break status;
        }
        if since.elapsed() > ENDING {
            return Err(format!("does not end; {}", actor.printed()));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => code.to_string(),
        (None, Some(number)) => {
            let all = ["INT", "TERM", "HUP", "USR1", "USR2"];
            all.iter().find(|name| named(name).as_raw() == number).map_or(number.to_string(), |name| (*name).to_owned())
        }
        (None, None) => panic!("{status}"),
    };
    if ended != cell.outcome {
        return Err(format!("ended with {ended}; {}", actor.printed()));
    }
    if !actor.printed().contains(&cell.said) {
        return Err(format!("does not say `{}`; {}", cell.said, actor.printed()));
    }
    actor.look_at_output(cell)
}

#[test]
#[ignore = "a quarter of a minute: cargo xtask test --only operators"]
fn every_cell_of_the_matrix_ends_as_expected() {
    let whole = std::env::var("STENTOR_MATRIX").is_ok_and(|part| part == "whole");
    let cells: Vec<_> = cells().filter(|cell| whole || cell.part == "ci").collect();
    assert!(cells.len() >= 20, "{} cells", cells.len());
    // Two cells run at a time, because they spend most of their time waiting.
    let next = std::sync::atomic::AtomicUsize::new(0);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    if let Err(why) = play(cell) {
                        wrong.lock().unwrap().push(format!("{}\n  {why}", cell.line));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} cells:\n{}", wrong.len(), cells.len(), wrong.join("\n"));
}

/// A cell with a wrong expectation fails.
#[test]
fn wrong_cell_is_found() {
    for line in [
        "ci man printing out-gone - 3 -",
        "ci man printing - - 0 such_words",
        "ci sim running - TERM 0 -",
        "ci channel-receive meeting - INT 0 -",
    ] {
        assert!(play(&Cell::read(line)).is_err(), "{line}");
    }
}
