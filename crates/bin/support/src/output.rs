//! What a command prints, as text or as one JSON document. A reader that went away is not an error.

use std::io::{self, ErrorKind, IsTerminal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Serialize, Serializer};
use stentor_fabric::OsError;

use crate::Style;
use crate::live::is_asked_to_end;
use crate::streams::{Screen, complain, flush_errors, write_until};
use crate::{Failure, Verdict};

/// A result that can be told to a person; [`Serialize`] tells it to a program.
pub trait Human {
    /// Writes the text; every line ends.
    fn human(&self, style: Style) -> String;
}

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
    quiet: bool,
}

/// A number of 64 bits in a document: as a string of its digits, because most readers of JSON round numbers above 2^53.
#[derive(Clone, Copy, Debug)]
pub struct Digits(pub u64);

impl Serialize for Digits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Bytes that are not UTF-8, in a document.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Serialize)]
struct FailureDocument<'a> {
    ok: bool,
    error: &'a Failure,
}

impl Output {
    /// Takes `--json` and `--quiet`.
    pub fn new(json: bool, quiet: bool) -> Self {
        Output { json, quiet }
    }

    /// The result of a command: a document, or text unless quiet.
    ///
    /// # Errors
    /// When standard output cannot be written, other than by a reader that went away.
    pub fn report(self, report: &(impl Human + Serialize)) -> Result<(), Failure> {
        if self.quiet && !self.json { Ok(()) } else { self.payload(report) }
    }

    /// The same at the end of a command.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn conclude(self, report: &(impl Human + Serialize), verdict: Verdict) -> Result<Verdict, Failure> {
        self.report(report).map(|()| verdict)
    }

    /// The same for what was asked to be printed: `-q` does not silence it.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn payload(self, report: &(impl Human + Serialize)) -> Result<(), Failure> {
        let text = if self.json { document(report) } else { report.human(Style::of(&io::stdout())) };
        match print(&text) {
            Ok(0) => Ok(()),
            Ok(left) => {
                let what = format_args!("nobody reads the result: its last {left} bytes were not printed");
                Err(Failure::run(what, "standard output", "let the reader go on before this is stopped"))
            }
            Err(error) => Err(unprinted(&error)),
        }
    }

    /// Whether one document was asked for.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// A line on standard error about what goes on; not when quiet. Nobody has to read it.
    pub fn note(self, text: &str) {
        if !self.quiet {
            complain(format!("{text}\n"));
        }
    }

    /// The same about a process that runs for long, with the time.
    pub fn log(self, level: Level, process: &str, text: &str) {
        if !self.quiet {
            complain(log_line(level, process, text));
        }
    }

    /// What ended a command early: a block on standard error, and with `--json` a document on standard output.
    pub fn failure(self, failure: &Failure) {
        let style = Style::of(&io::stderr());
        complain(format!("{}: {failure}\n", style.bad("error")));
        if self.json {
            // Nowhere is left to complain to when this fails; the exit code still tells.
            let _ = print(&document(&FailureDocument { ok: false, error: failure }));
        }
    }

    /// A progress bar over bytes on standard error: only on a terminal, and neither quiet nor with `--json`.
    pub fn progress(self, what: &'static str, bytes: u64) -> ProgressBar {
        self.bar(what, bytes, "{msg} {bar:30} {bytes}/{total_bytes}")
    }

    /// The same over a number of things.
    pub fn progress_count(self, what: &'static str, count: u64) -> ProgressBar {
        self.bar(what, count, "{msg} {bar:30} {pos}/{len} {eta}")
    }

    /// The same with the speed, over bytes of which nobody may know yet how many there are.
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

/// How often a progress bar is drawn.
const DRAWS_PER_SECOND: u8 = 20;
/// How long a result waits for the lines on standard error that were said before it.
const ORDER: Duration = Duration::from_millis(200);

/// How much a line matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// As it should be.
    Info,
    /// Somebody should look.
    Warn,
    /// Something was given up.
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

/// A line of a log: time (UTC), level, process, text.
pub fn log_line(level: Level, process: &str, text: &str) -> String {
    let level = match level {
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{} {level} {process}: {}\n", utc(now), text.trim_end().replace('\n', "; "))
}

/// Time since 1970 as RFC 3339 has it, to the millisecond.
fn utc(since: Duration) -> String {
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    // Years that begin in March have their leap day at their end; 719468 days are from such a year 0 to 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year + u64::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Standard output that cannot be written.
pub fn unprinted(error: &io::Error) -> Failure {
    let remedy = OsError::remedy_for(error).unwrap_or("write somewhere else");
    Failure::run(format_args!("cannot write: {error}"), "standard output", remedy)
}

fn document(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("documents have string keys and finite numbers");
    text.push('\n');
    text
}

/// Returns the bytes that nobody read until this process was asked to end.
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
