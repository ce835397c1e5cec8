//! What both floors do alike: messages in turn, and in a stream.

use super::super::clock::now;
use super::super::plain::Exchange;
use super::super::stage::Command;
use crate::failure::Failure;

/// Messages on their way in a stream, and places for them.
pub(super) const WINDOW: u64 = 16;
/// What says that some of a stream have come.
const CREDIT_BYTES: usize = 8;

/// One end of what messages go over.
pub(super) trait Line {
    /// Sends so many bytes, from the place of that number.
    fn send(&mut self, bytes: usize, number: u64) -> Result<(), Failure>;
    /// Spins until the next message has come.
    fn receive(&mut self) -> Result<(), Failure>;
}

/// Messages of one size.
pub(super) struct Messages<'a, L: Line> {
    pub(super) line: &'a mut L,
    pub(super) bytes: usize,
}

impl<L: Line> Exchange for Messages<'_, L> {
    #[inline]
    fn send(&mut self, number: u64) -> Result<(), Failure> {
        self.line.send(self.bytes, number)
    }

    #[inline]
    fn receive(&mut self, _: u64) -> Result<(), Failure> {
        self.line.receive()
    }
}

/// Process 0 sends one message after the other; who receives says so after each half of the window.
pub(super) fn stream(line: &mut impl Line, me: usize, command: &Command, tell: impl Fn(u64)) -> Result<(), Failure> {
    let half = WINDOW / 2;
    for count in [command.warmup, command.iterations] {
        // Whole halves, so that the last one is answered.
        let count = count.next_multiple_of(half).max(half);
        let (start, mut answered) = (now(), 0);
        for n in 0..count {
            if me == 0 {
                if n - answered == WINDOW {
                    line.receive()?;
                    answered += half;
                }
                line.send(command.bytes as usize, n)?;
            } else {
                line.receive()?;
                if (n + 1).is_multiple_of(half) {
                    line.send(CREDIT_BYTES, n)?;
                }
            }
        }
        while me == 0 && answered < count {
            line.receive()?;
            answered += half;
        }
        // As if it had been as many as were asked for.
        tell(((now() - start) as f64 * command.iterations as f64 / count as f64) as u64);
    }
    Ok(())
}
