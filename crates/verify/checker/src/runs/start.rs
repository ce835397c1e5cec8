//! The beginnings of lives, as recorded in each file.

use crate::cluster::Clock;
use crate::ids::Process;

/// The beginning of a process's life, as recorded in one file.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) process: Process,
    /// The number of the life, or `None` if the file has no event of its process.
    pub(crate) number: Option<u64>,
    /// The index of the file among the inputs.
    pub(crate) file: usize,
    /// The clock of the file's times.
    pub(crate) clock: Option<Clock>,
    /// Time at which the life began, in nanoseconds: the recorded time, or the time of the life's first event.
    pub(crate) at: u64,
    /// Times of the first and last event of the life, in nanoseconds. Both are `at` if the life has no event.
    pub(crate) events: (u64, u64),
    /// `true` if the life has events in this file other than its crash, which another process may have recorded.
    pub(crate) acted: bool,
}
