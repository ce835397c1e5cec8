//! Runs commands under a limited resource: a matrix of limits × commands, one cell per line, in `matrix.txt`.
//!
//! The step `operators` runs the cells that are marked `ci`. With `STENTOR_MATRIX=whole` all cells run (`cargo xtask
//! nightly`). If the test runs as root, the commands of each cell run as a separate user. Each cell first shows that
//! its limit is effective, and fails if the machine does not allow the limit.

mod bound;
mod play;
mod scene;

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bound::Bound;

/// Environment variable that is set in the process that was started to have a separate mount namespace, even if it
/// could not get one.
const INSIDE: &str = "STENTOR_LIMITS_INSIDE";
/// Value of `INSIDE` in a user namespace. The user that seems to be root there cannot become any other user.
const USER: &str = "user";

/// A cell of the matrix: one line of the file.
struct Cell<'a> {
    line: &'a str,
    part: &'a str,
    bound: Bound,
    command: &'a str,
    code: i32,
    said: String,
}

impl<'a> Cell<'a> {
    fn read(line: &'a str) -> Self {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [part, bound, command, code, said] = columns[..] else { panic!("five columns: {line}") };
        assert!(["ci", "nightly"].contains(&part), "{line}");
        let said = if said == "-" { String::new() } else { said.replace('_', " ") };
        let code = code.parse().unwrap_or_else(|_| panic!("an exit code: {line}"));
        Cell { line, part, bound: Bound::read(bound), command, code, said }
    }

    /// Runs the cell. Returns an error that describes how the result differs from the matrix.
    fn judge(&self, number: u32) -> Result<(), String> {
        let scene = scene::Scene::new(number, self.bound)
            .map_err(|why| format!("this machine does not allow its limit: {why}"))?;
        scene.check_is_effective()?;
        let ended = play::play(self.command, &scene)?;
        let (code, signal, said) = (ended.code, ended.signal, ended.said.as_str());
        if let Some(signal) = signal {
            return Err(format!("the command was ended by signal {signal}; {said}"));
        }
        if code != Some(self.code) {
            return Err(format!("the command ended with {code:?}; {said}"));
        }
        if !said.contains(&self.said) {
            return Err(format!("the command does not print `{}`; {said}", self.said));
        }
        if self.code != 0 && !said.contains("remedy: ") {
            return Err(format!("the command names no remedy; {said}"));
        }
        if said.contains("panicked") {
            return Err(format!("the command panicked; {said}"));
        }
        Ok(())
    }
}

fn cells() -> impl Iterator<Item = Cell<'static>> {
    let lines = include_str!("matrix.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(Cell::read)
}

/// Runs the cells, two at a time, because they spend most of their time waiting.
fn all(cells: &[Cell<'_>]) {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(number) else { return };
                    let since = Instant::now();
                    match cell.judge(number as u32) {
                        Ok(()) => println!("right, {:.1?}: {}", since.elapsed(), cell.line),
                        Err(why) => wrong.lock().unwrap().push(format!("{}\n  {why}", cell.line)),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} cells:\n{}", wrong.len(), cells.len(), wrong.join("\n"));
}

/// Runs a test again in another process, which has a separate mount namespace if the machine allows one. Returns
/// whether the caller is that process and has to run the test itself.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let flags: &[&str] = if bound::is_root() { &["-m", "--propagation", "private"] } else { &["-r", "-m"] };
    let allowed = Command::new("unshare").args(flags).args(["mount", "-t", "tmpfs", "none", "/dev/shm"]).output();
    let mut again = if allowed.is_ok_and(|tried| tried.status.success()) {
        let mut again = Command::new("unshare");
        again.args(flags).arg(std::env::current_exe().unwrap());
        again.env(INSIDE, if bound::is_root() { "mounts" } else { USER });
        again
    } else {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.env(INSIDE, "none");
        again
    };
    let output = again.args(["--exact", test, "--nocapture", "--include-ignored"]).output().expect("`unshare` starts");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    println!("{said}");
    assert!(output.status.success(), "{said}");
    false
}

#[test]
#[ignore = "half a minute: cargo xtask test --only operators"]
fn every_cell_of_the_matrix_ends_as_expected() {
    if !inside("limits::every_cell_of_the_matrix_ends_as_expected") {
        return;
    }
    let whole = std::env::var("STENTOR_MATRIX").is_ok_and(|part| part == "whole");
    let only = std::env::var("STENTOR_LIMITS_ONLY").unwrap_or_default();
    let cells: Vec<_> = cells().filter(|cell| (whole || cell.part == "ci") && cell.line.contains(&only)).collect();
    assert!(!only.is_empty() || cells.len() >= 20, "{} cells", cells.len());
    all(&cells);
}

/// A cell whose expectation is wrong, or whose limit is not effective, fails.
#[test]
fn wrong_cell_is_found() {
    if !inside("limits::wrong_cell_is_found") {
        return;
    }
    for line in ["ci fsize=64 config-init 1 -", "ci nofile=64 sim 0 such_words", "ci fsize=0 sim-trace 0 -"] {
        assert!(Cell::read(line).judge(900).is_err(), "{line}");
    }
}
