//! The two patterns that both bounds measure: ping-pong, and a stream of messages.

use stentor_fabric::memory::Ordering;
use stentor_support::Failure;

use super::super::clock::now;
use super::super::plain::Exchange;
use super::super::worker_spec::Task;

/// Largest number of short messages in flight. There are as many buffers for short messages.
pub(super) const WINDOW: u64 = 16;
/// Largest number of long messages in flight. A channel begins with the same window.
pub(super) const LONG_WINDOW: u64 = 4;
/// Largest size of a short message, in bytes.
const SHORT_BYTES: usize = 4 << 10;
/// Size of the message that acknowledges a part of a stream, in bytes.
const CREDIT_BYTES: usize = 8;

/// Returns the largest number of messages of `bytes` in flight. Each end uses that many send buffers and receive
/// buffers in turn. Long messages have fewer buffers, so that these fit into a processor's caches.
#[inline]
pub(super) fn window(bytes: usize) -> u64 {
    if bytes <= SHORT_BYTES { WINDOW } else { LONG_WINDOW }
}

/// One end of the transport that carries the messages.
pub(super) trait Line {
    /// Sends message `number`, with `bytes` bytes, from one of the window's buffers.
    fn send(&mut self, bytes: usize, number: u64) -> Result<(), Failure>;
    /// Spins until the next message has arrived. No message is longer than `bytes`.
    fn receive(&mut self, bytes: usize) -> Result<(), Failure>;
}

/// An exchange of messages of one size over a [`Line`].
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

/// Runs a stream: process 0 sends one message after the other, and process 1 acknowledges after each half of a window.
pub(super) fn stream(task: &Task<'_>, line: &mut impl Line) -> Result<(), Failure> {
    let Task { me, command, .. } = *task;
    let bytes = command.bytes as usize;
    let window = window(bytes);
    let half = window / 2;
    for count in [command.warmup, command.iterations] {
        // The count must be a multiple of half a window, so that the last message is acknowledged.
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
        // The time is scaled to the requested number of iterations.
        tell(task, ((now() - start) as f64 * command.iterations as f64 / count as f64) as u64);
    }
    Ok(())
}

/// Stores the time of the measured messages, in nanoseconds, as the result of this process.
pub(super) fn tell(task: &Task<'_>, time_ns: u64) {
    task.area.results(task.me)[0].store(time_ns, Ordering::Release);
}
