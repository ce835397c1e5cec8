//! The two patterns that both bounds measure: messages in turn, and a stream of messages.

use stentor_fabric::memory::Ordering;
use stentor_support::Failure;

use super::super::clock::now;
use super::super::plain::Exchange;
use super::super::worker_spec::Task;

/// Short messages on their way at most, and places for them.
pub(super) const WINDOW: u64 = 16;
/// The same of long ones: with so many a channel begins.
pub(super) const LONG_WINDOW: u64 = 4;
/// What is longer is long, bytes.
const SHORT_BYTES: usize = 4 << 10;
/// What says that some of a stream have come.
const CREDIT_BYTES: usize = 8;

/// Messages of so many bytes on their way at most, and as many places to send from and to receive into, which take turns. More
/// memory than a processor's caches hold would make long messages slower than a program that sends nothing else.
#[inline]
pub(super) fn window(bytes: usize) -> u64 {
    if bytes <= SHORT_BYTES { WINDOW } else { LONG_WINDOW }
}

/// One end of what messages go over.
pub(super) trait Line {
    /// Sends so many bytes, the message of that number: from one of as many places as may be on their way.
    fn send(&mut self, bytes: usize, number: u64) -> Result<(), Failure>;
    /// Spins until the next message has come, one of messages of so many bytes at most.
    fn receive(&mut self, bytes: usize) -> Result<(), Failure>;
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
        self.line.receive(self.bytes)
    }
}

/// Process 0 sends one message after the other; who receives says so after each half of the window.
pub(super) fn stream(task: &Task<'_>, line: &mut impl Line) -> Result<(), Failure> {
    let Task { me, command, .. } = *task;
    let bytes = command.bytes as usize;
    let window = window(bytes);
    let half = window / 2;
    for count in [command.warmup, command.iterations] {
        // Whole halves, so that the last one is answered.
        let count = count.next_multiple_of(half).max(half);
        let (start, mut answered) = (now(), 0);
        for n in 0..count {
            if me == 0 {
                if n - answered == window {
                    line.receive(bytes)?;
                    answered += half;
                }
                line.send(bytes, n)?;
            } else {
                line.receive(bytes)?;
                if (n + 1).is_multiple_of(half) {
                    line.send(CREDIT_BYTES, n)?;
                }
            }
        }
        while me == 0 && answered < count {
            line.receive(bytes)?;
            answered += half;
        }
        // As if it had been as many as were asked for.
        tell(task, ((now() - start) as f64 * command.iterations as f64 / count as f64) as u64);
    }
    Ok(())
}

/// The time of the measured messages, ns.
pub(super) fn tell(task: &Task<'_>, time_ns: u64) {
    task.area.results(task.me)[0].store(time_ns, Ordering::Release);
}
