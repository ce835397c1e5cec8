//! Runs cargo and other commands from the repository root.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The features of all programs and tests that steps build without optimisation: the mutants, which a test selects by
/// name, and the election by ZooKeeper.
pub(crate) const FEATURES: &str = "stentor-cli/plants,stentor-cli/zookeeper,stentor/plants";
/// The feature of the programs and tests that steps build with the profile `release-tests`. The release build that users
/// have contains no mutants.
const MUTANTS: &str = "stentor-cli/plants";

/// The environment of the steps.
#[derive(Debug)]
pub(crate) struct Context {
    /// The repository root.
    pub root: PathBuf,
    /// The cargo profile of the command that the steps run.
    pub profile: Profile,
    cargo: OsString,
}

/// The optimisation of the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// The release build that users have, with link-time optimisation.
    Release,
    /// A build without link-time optimisation. Tests, mutants and the command share one compilation of all
    /// dependencies.
    ReleaseTests,
}

impl Profile {
    /// Returns the profile's name in `Cargo.toml`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::ReleaseTests => "release-tests",
        }
    }
}

impl Context {
    /// Returns the context that `cargo xtask` sets in the environment.
    pub(crate) fn new() -> Self {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&package).ancestors().nth(1).map_or_else(|| PathBuf::from("."), Path::to_owned);
        Context {
            root,
            profile: Profile::ReleaseTests,
            cargo: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        }
    }

    /// Returns a context in which the steps run the release build of the command `stentor`.
    pub(crate) fn shipped() -> Self {
        Context { profile: Profile::Release, ..Context::new() }
    }

    /// Returns a cargo command in the repository root.
    pub(crate) fn cargo<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// Returns the cargo command of this name for the whole workspace, without optimisation, with [`FEATURES`]. If a
    /// crate were built alone or with other features, cargo would compile all crates again.
    pub(crate) fn debug(&self, command: &str) -> Command {
        self.cargo([command, "--workspace", "--features", FEATURES])
    }

    /// Returns the command `cargo test` for these test targets of all crates: see [`debug`](Self::debug).
    pub(crate) fn test(&self, targets: &[&str]) -> Command {
        let mut command = self.debug("test");
        command.args(targets.iter().flat_map(|target| ["--test", target]));
        command
    }

    /// Returns the cargo command of this name for the whole workspace, with the profile `release-tests` and with the
    /// mutants. One compilation of all crates then serves the model checks, the search for mutants, and the steps that
    /// run the command.
    pub(crate) fn release_tests(&self, command: &str) -> Command {
        self.cargo([command, "--profile", Profile::ReleaseTests.name(), "--workspace", "--features", MUTANTS])
    }

    /// Runs a command without output, and returns whether it succeeded.
    pub(crate) fn succeeds(&self, command: &mut Command) -> bool {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

/// Maximum number of last lines of a failed command's output that the summary repeats. Before them, it repeats at most
/// as many earlier lines that name a failure.
const LAST_LINES: usize = 20;
/// Maximum time between two lines of output that are read after a command has ended. A process that the command left
/// behind may keep the output open.
const LEFT_OPEN: Duration = Duration::from_secs(2);

/// The error of a command that ended without success.
#[derive(Debug)]
pub(crate) struct Unsuccessful {
    line: String,
    status: ExitStatus,
    /// The lines that name a failure, and the last lines of the output.
    pub last_lines: Vec<String>,
}

impl fmt::Display for Unsuccessful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended with {}", self.line, self.status)
    }
}

impl std::error::Error for Unsuccessful {}

impl Unsuccessful {
    /// Names the command by `what` in the error, instead of by its whole line.
    pub(crate) fn named(self, what: &str) -> Self {
        Unsuccessful { line: what.to_owned(), ..self }
    }

    /// Returns the error of a process whose output was captured.
    pub(crate) fn of_output(line: String, status: ExitStatus, output: &str) -> Self {
        Unsuccessful { line, status, last_lines: last_lines(output.lines().map(str::to_owned)) }
    }
}

/// Runs a command and prints its output.
///
/// # Errors
/// Returns [`Unsuccessful`] if the command ends without success.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    announce(command)?;
    let (reader, writer) = io::pipe()?;
    let spawned = command.stdout(writer.try_clone()?).stderr(writer).spawn();
    // `command` keeps its ends of the pipe. If they were not replaced, the reader would never see the end of the
    // output.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut child = spawned.with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let (line_sender, lines) = mpsc::channel();
    thread::spawn(move || print_lines(reader, &line_sender));
    let status = child.wait()?;
    if !status.success() {
        let lines = iter::from_fn(|| lines.recv_timeout(LEFT_OPEN).ok());
        return Err(Unsuccessful { line: line(command), status, last_lines: last_lines(lines) }.into());
    }
    Ok(())
}

/// Prints all output from `reader`, and sends each line to `lines`.
fn print_lines(reader: io::PipeReader, lines: &mpsc::Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // Printing fails if the standard output of this process is closed. The command's last lines are needed even
        // then.
        let _ = io::stdout().write_all(&line);
        // The receiver is dropped if the command has succeeded.
        let _ = lines.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}

fn last_lines(lines: impl Iterator<Item = String>) -> Vec<String> {
    let (mut named, mut last) = (Vec::new(), VecDeque::new());
    let mut panicked = false;
    for line in lines {
        last.push_back(line);
        if last.len() > LAST_LINES
            && let Some(line) = last.pop_front()
        {
            // The message of a panic is on the line after its location.
            let is_named = panicked || names_failure(&line);
            panicked = line.contains(" panicked at ");
            if is_named && named.len() < LAST_LINES {
                named.push(line);
            }
        }
    }
    named.extend(last);
    named
}

/// Returns whether a line names a failure. Thousands of lines of other tests may follow it.
fn names_failure(line: &str) -> bool {
    line.contains(" panicked at ") || (line.starts_with("test ") && line.ends_with(" ... FAILED"))
}

/// Runs a command and returns its standard output, whatever its exit code. The command's standard error is printed.
pub(crate) fn capture(command: &mut Command) -> Result<(bool, String)> {
    announce(command)?;
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let text = String::from_utf8(output.stdout).with_context(|| format!("{} does not print text", line(command)))?;
    Ok((output.status.success(), text))
}

fn announce(command: &Command) -> io::Result<()> {
    println!("$ {}", line(command));
    io::stdout().flush()
}

/// Returns the command as a line of a shell.
pub(crate) fn line(command: &Command) -> String {
    let environment = command.get_envs().filter_map(|(key, value)| {
        let value = value?.to_string_lossy();
        let quote = if value.contains(' ') { "\"" } else { "" };
        Some(format!("{}={quote}{value}{quote}", key.to_string_lossy()))
    });
    let program = Path::new(command.get_program()).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    environment.chain([program]).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_that_fails_leaves_its_last_lines() {
        let error = run(&mut shell("seq 30; echo why >&2; exit 3")).unwrap_err();
        assert_eq!(error.to_string(), "sh -c seq 30; echo why >&2; exit 3 ended with exit status: 3");
        let last_lines = &error.downcast_ref::<Unsuccessful>().unwrap().last_lines;
        assert_eq!(last_lines.len(), LAST_LINES);
        assert_eq!((last_lines[0].as_str(), last_lines[LAST_LINES - 1].as_str()), ("12", "why"));
    }

    #[test]
    fn failures_are_named_after_much_later_output() {
        let told = ["test a ... ok", "test b ... FAILED", "thread 'b' (7) panicked at b.rs:1:2:", "why", "more"];
        let behind = (1..=30).map(|line| line.to_string());
        let last_lines = last_lines(told.map(str::to_owned).into_iter().chain(behind));
        let expected = ["test b ... FAILED", "thread 'b' (7) panicked at b.rs:1:2:", "why", "11"];
        assert_eq!(last_lines[..expected.len()], expected);
        assert_eq!(last_lines.len(), 3 + LAST_LINES);
    }

    #[test]
    fn processes_left_behind_are_not_waited_for() {
        let start = std::time::Instant::now();
        run(&mut shell("sleep 20 &")).unwrap();
        run(&mut shell("sleep 20 & echo why; exit 1")).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}
