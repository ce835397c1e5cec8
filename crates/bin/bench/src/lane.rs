//! How the processes of a bound for a rate tell each other of many messages.

use std::io;

/// What carries the records of a bound. Each record is about one message of one client, and messages of a client are told in
/// their order.
pub(super) trait Lane {
    /// Takes in all that came. Returns whether anything did.
    fn look(&mut self) -> io::Result<bool>;

    /// Writes a record of a step about message `n` of a client, from 1, with so many bytes, for another process.
    fn put(&mut self, reader: usize, step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()>;

    /// The same for several others.
    fn put_for(&mut self, readers: &[usize], step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()>;

    /// The newest message of a client of which `writer` has told this step to this process; 0: none.
    fn newest(&self, writer: usize, step: usize, client: usize) -> u64;

    /// Nothing that was put stays here, and whoever sleeps wakes.
    fn flush(&mut self);

    /// After every round.
    fn pause(&mut self, worked: bool) -> io::Result<()>;
}
