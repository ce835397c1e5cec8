//! Lines of an input, which a thread reads ahead so that a polling loop never blocks on it.

use std::io::{BufRead, ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use super::thread;
use crate::Failure;

/// Maximum number of lines that are read ahead.
const AHEAD: usize = 256;

/// One line of the input.
#[derive(Debug)]
pub enum Line {
    /// A line without its line feed. It need not be valid UTF-8.
    Text(Vec<u8>),
    /// Line `number`, counted from 1, is longer than the limit. [`TooLong`] says whether it ends the input or is
    /// skipped.
    TooLong {
        /// Number of the line.
        number: u64,
    },
    /// Reading line `number` failed. Nothing is read after it.
    Unreadable {
        /// Number of the line.
        number: u64,
        /// Error of the system.
        error: std::io::Error,
    },
}

/// Handling of a line that is longer than the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooLong {
    /// The line ends the input.
    Ends,
    /// The line is skipped, whatever its length, and reading continues with the next line.
    Skipped,
}

/// State of the input at the time of a call.
#[derive(Debug)]
pub enum Input {
    /// The next line.
    Line(Line),
    /// No line is available yet.
    Later,
    /// The input has ended.
    End,
}

/// Lines that a thread reads ahead, up to a bounded number.
#[derive(Debug)]
pub struct Lines(Receiver<Line>);

impl Lines {
    /// Starts the thread that reads lines of at most `limit` bytes.
    pub fn read(
        input: impl FnOnce() -> Box<dyn BufRead> + Send + 'static,
        limit: usize,
        too_long: TooLong,
    ) -> Result<Self, Failure> {
        let (sender, receiver) = sync_channel(AHEAD);
        thread("that reads the input", move || forward(&mut *input(), limit, too_long, &sender))?;
        Ok(Lines(receiver))
    }

    /// Returns the next line if one is available.
    pub fn next(&self) -> Input {
        match self.0.try_recv() {
            Ok(line) => Input::Line(line),
            Err(TryRecvError::Empty) => Input::Later,
            Err(TryRecvError::Disconnected) => Input::End,
        }
    }

    /// Waits for the next line for at most `longest`.
    pub fn wait(&self, longest: Duration) -> Input {
        match self.0.recv_timeout(longest) {
            Ok(line) => Input::Line(line),
            Err(RecvTimeoutError::Timeout) => Input::Later,
            Err(RecvTimeoutError::Disconnected) => Input::End,
        }
    }
}

fn forward(input: &mut dyn BufRead, limit: usize, too_long: TooLong, lines: &SyncSender<Line>) {
    for number in 1.. {
        let next = next_line(input, number, limit, too_long);
        let last = match next {
            Some(Line::Text(_)) => false,
            Some(Line::TooLong { .. }) => too_long == TooLong::Ends,
            Some(Line::Unreadable { .. }) | None => true,
        };
        // If the send fails, the receiver was dropped, because the command has ended.
        if next.is_none_or(|line| lines.send(line).is_err()) || last {
            return;
        }
    }
}

fn next_line(input: &mut dyn BufRead, number: u64, limit: usize, too_long: TooLong) -> Option<Line> {
    let mut line = Vec::new();
    // This is one byte more than the longest permitted line with its line feed. So a line is recognised as too long
    // before all of it is read.
    match input.take(limit as u64 + 2).read_until(b'\n', &mut line) {
        Ok(0) => return None,
        Ok(_) => {}
        Err(error) => return Some(Line::Unreadable { number, error }),
    }
    let whole = line.last() == Some(&b'\n');
    if whole {
        line.pop();
    }
    if line.len() <= limit {
        return Some(Line::Text(line));
    }
    let skipped = if whole || too_long == TooLong::Ends { Ok(()) } else { skip_line(input) };
    Some(match skipped {
        Ok(()) => Line::TooLong { number },
        Err(error) => Line::Unreadable { number, error },
    })
}

/// Skips the rest of a line piece by piece, because it may be larger than the memory.
fn skip_line(input: &mut dyn BufRead) -> std::io::Result<()> {
    loop {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = piece.iter().position(|byte| *byte == b'\n');
        let skipped = end.map_or(piece.len(), |at| at + 1);
        input.consume(skipped);
        if end.is_some() || skipped == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static [u8], limit: usize) -> Vec<String> {
        lines_of(move || Box::new(text), limit, TooLong::Ends)
    }

    fn lines_of(
        input: impl FnOnce() -> Box<dyn BufRead> + Send + 'static,
        limit: usize,
        too_long: TooLong,
    ) -> Vec<String> {
        let lines = Lines::read(input, limit, too_long).unwrap();
        std::iter::from_fn(|| match lines.wait(Duration::from_secs(10)) {
            Input::Line(Line::Text(line)) => Some(String::from_utf8(line).unwrap()),
            Input::Line(Line::TooLong { number }) => Some(format!("line {number} is too long")),
            Input::Line(Line::Unreadable { number, error }) => Some(format!("line {number}: {error}")),
            Input::Later => Some("later".to_owned()),
            Input::End => None,
        })
        .collect()
    }

    #[test]
    fn lines_come_without_their_ends_and_the_last_needs_none() {
        assert_eq!(lines(b"one\n\nthree", 5), ["one", "", "three"]);
        assert_eq!(lines(b"one\n", 3), ["one"]);
        assert_eq!(lines(b"", 3), Vec::<String>::new());
    }

    #[test]
    fn a_line_longer_than_the_limit_ends_the_input() {
        assert_eq!(lines(b"1234\n12345\n1\n", 4), ["1234", "line 2 is too long"]);
        assert_eq!(lines(b"12345", 4), ["line 1 is too long"]);
    }

    #[test]
    fn overlong_line_is_skipped_on_request() {
        let skipped = |text: &'static [u8]| lines_of(move || Box::new(text), 4, TooLong::Skipped);
        // Lines that are one byte too long, with and without the line feed in the first read; much longer lines; and
        // one at the end of the input.
        assert_eq!(skipped(b"1234\n12345\n1\n"), ["1234", "line 2 is too long", "1"]);
        assert_eq!(skipped(b"123456\n1\n"), ["line 1 is too long", "1"]);
        assert_eq!(skipped(b"1234567890\n\n12345678\n2"), ["line 1 is too long", "", "line 3 is too long", "2"]);
        assert_eq!(skipped(b"1\n12345678"), ["1", "line 2 is too long"]);
        // A line that is longer than any buffer.
        let endless = || std::io::repeat(b'x').take(1 << 20).chain(&b"\nafter\n"[..]);
        let found = lines_of(move || Box::new(std::io::BufReader::new(endless())), 5, TooLong::Skipped);
        assert_eq!(found, ["line 1 is too long", "after"]);
    }
}
