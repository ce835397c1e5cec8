//! Output of a command, as text or as one JSON document. A reader that closes the stream is not an error.

use std::io::{self, ErrorKind, IsTerminal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Serialize, Serializer};
use stentor_fabric::OsError;

use crate::Style;
use crate::live::is_asked_to_end;
use crate::streams::{Screen, complain, flush_errors, write_until};
use crate::{Failure, Verdict};

/// A result in a readable form. [`Serialize`] is the form for programs.
pub trait Human {
    /// Returns the text. Every line ends with a line feed.
    fn human(&self, style: Style) -> String;
}

/// The form of a command's output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
    quiet: bool,
}

/// A number of 64 bits in a document, written as a string because most JSON parsers round numbers above 2^53.
#[derive(Clone, Copy, Debug)]
pub struct Digits(pub u64);

impl Serialize for Digits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Serialize)]
struct FailureDocument<'a> {
    ok: bool,
    error: &'a Failure,
}

impl Output {
    /// Returns the form that `--json` and `--quiet` select.
    pub fn new(json: bool, quiet: bool) -> Self {
        Output { json, quiet }
    }

    /// Prints the result of a command: a document, or text unless `--quiet` is set.
    ///
    /// # Errors
    /// Returns an error if standard output cannot be written. A reader that closed the stream is not an error.
    pub fn report(self, report: &(impl Human + Serialize)) -> Result<(), Failure> {
        if self.quiet && !self.json { Ok(()) } else { self.payload(report) }
    }

    /// Prints the result at the end of a command and returns its verdict.
    ///
    /// # Errors
    /// Returns the errors of [`report`](Self::report).
    pub fn conclude(self, report: &(impl Human + Serialize), verdict: Verdict) -> Result<Verdict, Failure> {
        self.report(report).map(|()| verdict)
    }

    /// Prints a result that the user asked for explicitly. `--quiet` does not silence it.
    ///
    /// # Errors
    /// Returns the errors of [`report`](Self::report).
    pub fn payload(self, report: &(impl Human + Serialize)) -> Result<(), Failure> {
        let text = if self.json { document(report) } else { report.human(Style::of(&io::stdout())) };
        match print(&text) {
            Ok(0) => Ok(()),
            Ok(left) => {
                let what = format_args!("nobody reads the result: its last {left} bytes were not printed");
                Err(Failure::run(what, "standard output", "let the reader go on before stopping this command"))
            }
            Err(error) => Err(unprinted(&error)),
        }
    }

    /// Returns whether the output is one document.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Prints a line on standard error about the progress of a command, unless `--quiet` is set.
    pub fn note(self, text: &str) {
        if !self.quiet {
            complain(format!("{text}\n"));
        }
    }

    /// Prints a line with the time on standard error, for a process that runs for long.
    pub fn log(self, level: Level, process: &str, text: &str) {
        if !self.quiet {
            complain(log_line(level, process, text));
        }
    }

    /// Prints the failure that ended a command: a block on standard error and, with `--json`, a document on standard
    /// output.
    pub fn failure(self, failure: &Failure) {
        let style = Style::of(&io::stderr());
        complain(format!("{}: {failure}\n", style.bad("error")));
        if self.json {
            // If this fails, no stream is left for the error. The exit code still reports the failure.
            let _ = print(&document(&FailureDocument { ok: false, error: failure }));
        }
    }

    /// Returns a progress bar over bytes on standard error. It is drawn only on a terminal, and neither with `--quiet`
    /// nor with `--json`.
    pub fn progress(self, what: &'static str, bytes: u64) -> ProgressBar {
        self.bar(what, bytes, "{msg} {bar:30} {bytes}/{total_bytes}")
    }

    /// Returns a progress bar over a number of items.
    pub fn progress_count(self, what: &'static str, count: u64) -> ProgressBar {
        self.bar(what, count, "{msg} {bar:30} {pos}/{len} {eta}")
    }

    /// Returns a progress bar over bytes that shows the speed. `bytes` is `None` if the total is not known yet.
    pub fn transfer(self, what: &'static str, bytes: Option<u64>) -> ProgressBar {
        let bar = self.bar(what, bytes.unwrap_or(0), "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
        if bytes.is_none() {
            bar.unset_length();
        }
        bar
    }

    fn bar(self, what: &'static str, length: u64, template: &str) -> ProgressBar {
        if self.quiet || self.json {
            return ProgressBar::hidden();
        }
        if !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let screen = ProgressDrawTarget::term_like_with_hz(Box::new(Screen::default()), DRAWS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(Some(length), screen);
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        bar.set_message(what);
        bar
    }
}

/// Maximum rate at which a progress bar is drawn, per second.
const DRAWS_PER_SECOND: u8 = 20;
/// Time without progress after which a result no longer waits for earlier lines on standard error.
const ORDER: Duration = Duration::from_millis(200);

/// Severity of a line of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Normal operation.
    Info,
    /// A problem that an operator should look at.
    Warn,
    /// The process has given up a task.
    Error,
}

impl From<log::Level> for Level {
    fn from(level: log::Level) -> Level {
        match level {
            log::Level::Error => Level::Error,
            log::Level::Warn => Level::Warn,
            log::Level::Info | log::Level::Debug | log::Level::Trace => Level::Info,
        }
    }
}

/// Returns a line of a log: time (UTC), level, process, text.
pub fn log_line(level: Level, process: &str, text: &str) -> String {
    let level = match level {
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{} {level} {process}: {}\n", utc(now), text.trim_end().replace('\n', "; "))
}

/// Returns a time since 1970 in the format of RFC 3339, to the millisecond.
fn utc(since: Duration) -> String {
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    // The computation uses years that begin in March, so that the leap day is the last day of a year. 719468 days lie
    // between 1 March of year 0 and 1 January 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year + u64::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Returns the failure of standard output that cannot be written.
pub fn unprinted(error: &io::Error) -> Failure {
    let remedy = OsError::remedy_for(error).unwrap_or("write to another file or device");
    Failure::run(format_args!("cannot write: {error}"), "standard output", remedy)
}

fn document(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("documents have string keys and finite numbers");
    text.push('\n');
    text
}

/// Prints to standard output. Returns the number of bytes that were not written, because nobody read them and this
/// process was asked to end. Returns 0 if the reader has closed the stream.
pub fn print(text: &str) -> io::Result<usize> {
    flush_errors(ORDER);
    match write_until(text.as_bytes(), &is_asked_to_end) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_log_are_those_of_the_calendar() {
        let at = |seconds: u64, millis| utc(Duration::from_millis(seconds * 1000 + millis));
        for (seconds, millis, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000Z"),
            (951_868_800, 7, "2000-03-01T00:00:00.007Z"),
            (1_767_225_599, 0, "2025-12-31T23:59:59.000Z"),
            (1_767_225_600, 0, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(at(seconds, millis), text);
        }
    }

    #[test]
    fn text_of_several_lines_is_one_line_of_a_log() {
        let line = log_line(Level::Warn, "g1.1", "one\ntwo\n");
        assert!(line.ends_with("Z warn g1.1: one; two\n"), "{line}");
    }
}
