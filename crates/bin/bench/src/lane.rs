//! The transport of a bound on a rate.

use std::io;

/// Carries the records of a bound. Each record is about one message of one client. Records about the messages of a
/// client are sent in order.
pub(super) trait Lane {
    /// Receives all records that have arrived. Returns whether there was at least one.
    fn look(&mut self) -> io::Result<bool>;

    /// Writes a record of `step` about message `n` of a client, counted from 1, with `bytes` bytes for another process.
    fn put(&mut self, reader: usize, step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()>;

    /// Writes a record of `step` about message `n` of a client, counted from 1, with `bytes` bytes for several
    /// processes.
    fn put_for(&mut self, readers: &[usize], step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()>;

    /// Returns the newest message of a client for which `writer` has sent this step to this process, or 0.
    fn newest(&self, writer: usize, step: usize, client: usize) -> u64;

    /// Sends all records that were written, and wakes sleeping readers.
    fn flush(&mut self);

    /// Pauses after a round.
    fn pause(&mut self, worked: bool) -> io::Result<()>;
}
