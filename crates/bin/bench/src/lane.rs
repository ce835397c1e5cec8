//! Transport of records between the processes that measure the bound of a rate.

use std::io;

/// Carries records between processes. Each record is about one step of one message of a client. The messages of each
/// client are numbered from 1, and the records about them are sent in order.
pub(super) trait Lane {
    /// Receives all records that have arrived. Returns whether there was at least one.
    fn look(&mut self) -> io::Result<bool>;

    /// Writes a record of `step` about message `n` of a client for the process `reader`. The payload of the record has
    /// `bytes` bytes.
    fn put(&mut self, reader: usize, step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()>;

    /// Does what [`put`](Self::put) does, for several processes.
    fn put_for(&mut self, readers: &[usize], step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()>;

    /// Returns the largest message number in the records of `step` that this process has received from `writer` about
    /// the messages of `client`. Returns 0 if there is no such record.
    fn newest(&self, writer: usize, step: usize, client: usize) -> u64;

    /// Sends all records that were written, and wakes sleeping readers.
    fn flush(&mut self);

    /// Pauses after a round.
    fn pause(&mut self, worked: bool) -> io::Result<()>;
}
