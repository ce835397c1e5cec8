//! When lives of processes began, file by file.

use crate::cluster::Clock;
use crate::ids::Process;

/// A life of a process, as one file has it.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) process: Process,
    /// The number of the life; `None` if the file has no event of its process.
    pub(crate) number: Option<u64>,
    /// The file, by its place among the inputs.
    pub(crate) file: usize,
    /// The clock of the file's times.
    pub(crate) clock: Option<Clock>,
    /// When the life began, ns: what the file says, or its first event.
    pub(crate) at: u64,
    /// Times of its first and last event, ns; `at` if it has none.
    pub(crate) events: (u64, u64),
    /// Whether the process did anything in this file. Otherwise only its crash is here, which another process recorded.
    pub(crate) acted: bool,
}
