//! The errors of reading a history file.

use thiserror::Error;

use super::{MAX_LINE_BYTES, VERSION};
use crate::cluster::ClusterError;

/// An error in a history file, with its location.
#[derive(Debug, Error)]
#[error("{file}:{line}: {fault}")]
pub struct HistoryError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1, or 0 if the file could not be opened or no file was given.
    pub line: u64,
    /// The fault in this line.
    pub fault: Fault,
}

/// A fault of a file or of a line.
#[derive(Debug, Error)]
pub enum Fault {
    /// The operating system reported an error.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// The file is empty.
    #[error("the history is empty: its first line must be the cluster line")]
    Empty,
    /// No file was given.
    #[error("no history was given: name at least one file")]
    NothingGiven,
    /// The line is not a JSON object, or a field has a wrong type.
    #[error("not an event: {reason} (column {column})")]
    Garbage {
        /// The position in the line, from 1.
        column: usize,
        /// The message of the JSON parser.
        reason: String,
    },
    /// The file ends in the middle of a line.
    #[error("the last line is cut off: its producer was stopped while writing, or had no room")]
    Truncated,
    /// The line is longer than any event can be.
    #[error("the line is longer than {MAX_LINE_BYTES} bytes: this is not a history")]
    TooLong,
    /// The first line is not a cluster line.
    #[error("the first line is not a cluster: begin with {{\"e\":\"cluster\",\"groups\":{{…}}}}")]
    NotACluster,
    /// There is a cluster line after the first line.
    #[error("a second cluster line: give files of several runs or processes one by one")]
    SecondCluster,
    /// The file has another version of the schema.
    #[error("version {0} of the schema: this program reads version {VERSION}")]
    Version(u64),
    /// The clock is unknown.
    #[error(
        "unknown clock `{0}`: write \"global\" if all times come from one clock, \"host:\" and up to 128 bytes of a name for the clock of a host, or leave it out"
    )]
    Clock(String),
    /// The cluster is invalid.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The files are of different clusters.
    #[error("`{field}` of the cluster differs from that in {other}: check files of one run together")]
    ClusterDiffers {
        /// The field.
        field: &'static str,
        /// The file that was read first.
        other: String,
    },
    /// The schema has no such event.
    #[error("unknown event `{0}`: the schema of version {VERSION} does not have it")]
    UnknownEvent(String),
    /// The event lacks a required field.
    #[error("`{event}` without `{field}`")]
    Missing {
        /// The event.
        event: String,
        /// The field.
        field: &'static str,
    },
    /// The value of a field is outside of its limits.
    #[error("`{field}` {reason}")]
    BadField {
        /// The field.
        field: &'static str,
        /// The reason why the value is wrong.
        reason: &'static str,
    },
    /// A process records the multicast or the broadcast of another process.
    #[error("`{event}` of a message of `{owner}`, recorded by `{process}`: only its sender records it")]
    NotItsOwn {
        /// The event.
        event: &'static str,
        /// The sender of the message.
        owner: String,
        /// The process that recorded the event.
        process: String,
    },
    /// The process is not in the cluster line.
    #[error("process `{0}` is not in the cluster line")]
    UnknownProcess(String),
    /// The group is not in the cluster line.
    #[error("group `{0}` is not in the cluster line")]
    UnknownGroup(String),
    /// Time decreases at one process.
    #[error("time goes back at `{process}`: {t} after {before}")]
    TimeBack {
        /// The process.
        process: String,
        /// Time of this event, in nanoseconds.
        t: u64,
        /// Time of the previous event, in nanoseconds.
        before: u64,
    },
    /// The number of the life decreases at one process.
    #[error("incarnation goes back at `{process}`: {incarnation} after {before}")]
    IncarnationBack {
        /// The process.
        process: String,
        /// The life of this event.
        incarnation: u64,
        /// The life of the previous event.
        before: u64,
    },
    /// A process acts after its crash, in the same life.
    #[error("`{process}` acts in incarnation {incarnation}, in which it crashed: raise `i` at each start")]
    AfterCrash {
        /// The process.
        process: String,
        /// The life that had ended.
        incarnation: u64,
    },
    /// Two files contain the same life of a process.
    #[error(
        "`{process}` is in incarnation {incarnation} here and in `{other}`: each life needs its own, larger `i`; leave out files that are copies"
    )]
    SameLife {
        /// The process.
        process: String,
        /// The number of the life.
        incarnation: u64,
        /// The other file.
        other: String,
    },
}
