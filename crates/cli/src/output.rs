//! What a command prints, as text or as one JSON document. A reader that went away is not an error.

use std::io::{self, ErrorKind, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;
use crate::style::Style;

/// A result that can be told to a person; [`Serialize`] tells it to a program.
pub(crate) trait Human {
    /// Writes the text; every line ends.
    fn human(&self, style: Style) -> String;
}

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
}

#[derive(Serialize)]
struct FailureDocument<'a> {
    ok: bool,
    error: &'a Failure,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Output { json, quiet }
    }

    /// The result of a command: a document, or text unless quiet.
    ///
    /// # Errors
    /// When standard output cannot be written, other than by a reader that went away.
    pub(crate) fn report(self, report: &(impl Human + Serialize)) -> Result<(), Failure> {
        if self.quiet && !self.json { Ok(()) } else { self.payload(report) }
    }

    /// The same for what was asked to be printed: `-q` does not silence it.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub(crate) fn payload(self, report: &(impl Human + Serialize)) -> Result<(), Failure> {
        let text = if self.json { document(report) } else { report.human(Style::of(&io::stdout())) };
        print(&text).map_err(|error| Failure::run(format_args!("cannot write: {error}"), "standard output", DISK))
    }

    /// Whether one document was asked for.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// A line on standard error about what goes on; not when quiet.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            // Nobody has to read it.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// What ended a command early: a block on standard error, and with `--json` a document on standard output.
    pub(crate) fn failure(self, failure: &Failure) {
        let style = Style::of(&io::stderr());
        // Nowhere is left to complain to when these fail; the exit code still tells.
        let _ = writeln!(io::stderr(), "{}: {failure}", style.bad("error"));
        if self.json {
            let _ = print(&document(&FailureDocument { ok: false, error: failure }));
        }
    }

    /// A progress bar over bytes on standard error: only on a terminal, and neither quiet nor with `--json`.
    pub(crate) fn progress(self, what: &'static str, bytes: u64) -> ProgressBar {
        self.bar(what, bytes, "{msg} {bar:30} {bytes}/{total_bytes}")
    }

    /// The same over a number of things.
    pub(crate) fn progress_count(self, what: &'static str, count: u64) -> ProgressBar {
        self.bar(what, count, "{msg} {bar:30} {pos}/{len} {eta}")
    }

    /// The same with the speed, over bytes of which nobody may know yet how many there are.
    pub(crate) fn transfer(self, what: &'static str, bytes: Option<u64>) -> ProgressBar {
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
        // Draws nothing unless standard error is a terminal.
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        bar.set_message(what);
        bar
    }
}

const DISK: &str = "make room on the disk, or write somewhere else";

fn document(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("documents have string keys and finite numbers");
    text.push('\n');
    text
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
