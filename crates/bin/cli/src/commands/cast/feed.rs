//! The input of a cast.

use std::io::BufReader;
use std::time::Duration;

use stentor_session::COMMAND_OVERHEAD;
use stentor_support::Failure;
use stentor_support::live::{Input, Line, Lines, TooLong};
use stentor_support::streams::StandardInput;

/// The lines of standard input.
pub(super) struct Feed {
    lines: Lines,
    limit: usize,
    /// A line that was read and is not sent yet.
    pub(super) next: Option<Vec<u8>>,
    /// The outcome of the input once it has ended, or `None`.
    pub(super) ended: Option<Result<(), Failure>>,
}

impl Feed {
    /// Begins to read standard input, in a cluster whose messages have at most `message_bytes` bytes.
    pub(super) fn read(message_bytes: usize) -> Result<Self, Failure> {
        let limit = message_bytes.saturating_sub(COMMAND_OVERHEAD);
        let lines = Lines::read(|| Box::new(BufReader::new(StandardInput)), limit, TooLong::Ends)?;
        Ok(Feed { lines, limit, next: None, ended: None })
    }

    /// Ends the input. No further line is sent.
    pub(super) fn end(&mut self, ended: Result<(), Failure>) {
        (self.next, self.ended) = (None, Some(ended));
    }

    /// Returns the next line, if one is available.
    pub(super) fn line(&mut self) -> Option<&[u8]> {
        if self.next.is_none() && self.ended.is_none() {
            self.take(self.lines.next());
        }
        self.next.as_deref()
    }

    /// Waits for a line, for at most `longest`.
    pub(super) fn wait(&mut self, longest: Duration) {
        self.take(self.lines.wait(longest));
    }

    fn take(&mut self, input: Input) {
        let limit = self.limit;
        let outcome = match input {
            Input::Later => return,
            Input::Line(Line::Text(line)) => {
                self.next = Some(line);
                return;
            }
            Input::End => Ok(()),
            Input::Line(Line::TooLong { number }) => Err(Failure::usage(
                format_args!(
                    "line {number} is longer than {limit} bytes; all lines before it were multicast, it was not"
                ),
                format_args!("standard input:{number}"),
                format_args!(
                    "split the line, or raise `message_bytes` in [limits] ({COMMAND_OVERHEAD} more than the longest line)"
                ),
            )),
            Input::Line(Line::Unreadable { number, error }) => Err(Failure::run(
                format_args!("cannot read: {error}; all lines before were multicast"),
                format_args!("standard input:{number}"),
                "connect standard input to a file or a pipe that can be read",
            )),
        };
        self.ended = Some(outcome);
    }
}
