//! Lines of an input, read beside a polling loop.

use std::io::{BufRead, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// Lines that are read ahead.
const AHEAD: usize = 256;

/// What comes next.
#[derive(Debug)]
pub(crate) enum Line {
    /// A line without its end, in UTF-8 or not.
    Text(Vec<u8>),
    /// Line `number`, from 1, is longer than the limit. Nothing is read after it.
    TooLong {
        /// Which.
        number: u64,
    },
    /// Reading line `number` failed. Nothing is read after it.
    Unreadable {
        /// Which.
        number: u64,
        /// What the system said.
        error: std::io::Error,
    },
}

/// What there is of an input now.
#[derive(Debug)]
pub(crate) enum Input {
    /// The next line.
    Line(Line),
    /// Nothing yet.
    Later,
    /// Nothing any more.
    End,
}

/// Lines that a thread of its own reads, a bounded number ahead.
#[derive(Debug)]
pub(crate) struct Lines(Receiver<Line>);

impl Lines {
    /// Begins to read; lines have at most `limit` bytes.
    pub(crate) fn read(input: impl FnOnce() -> Box<dyn BufRead> + Send + 'static, limit: usize) -> Self {
        let (sender, receiver) = sync_channel(AHEAD);
        std::thread::spawn(move || forward(&mut *input(), limit, &sender));
        Lines(receiver)
    }

    /// The next line, if there is one.
    pub(crate) fn next(&self) -> Input {
        match self.0.try_recv() {
            Ok(line) => Input::Line(line),
            Err(TryRecvError::Empty) => Input::Later,
            Err(TryRecvError::Disconnected) => Input::End,
        }
    }

    /// The same, but waits.
    pub(crate) fn wait(&self, longest: Duration) -> Input {
        match self.0.recv_timeout(longest) {
            Ok(line) => Input::Line(line),
            Err(RecvTimeoutError::Timeout) => Input::Later,
            Err(RecvTimeoutError::Disconnected) => Input::End,
        }
    }
}

fn forward(input: &mut dyn BufRead, limit: usize, lines: &SyncSender<Line>) {
    for number in 1.. {
        let next = next_line(input, number, limit);
        let last = !matches!(next, Some(Line::Text(_)));
        // Nobody listens any more: the command has ended otherwise.
        if next.is_none_or(|line| lines.send(line).is_err()) || last {
            return;
        }
    }
}

fn next_line(input: &mut dyn BufRead, number: u64, limit: usize) -> Option<Line> {
    let mut line = Vec::new();
    // One byte more than a line of the limit with its end: what is longer is never read whole.
    match input.take(limit as u64 + 2).read_until(b'\n', &mut line) {
        Ok(0) => return None,
        Ok(_) => {}
        Err(error) => return Some(Line::Unreadable { number, error }),
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Some(if line.len() > limit { Line::TooLong { number } } else { Line::Text(line) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static [u8], limit: usize) -> Vec<String> {
        let lines = Lines::read(move || Box::new(text), limit);
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
}
