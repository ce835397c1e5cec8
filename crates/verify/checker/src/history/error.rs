//! What can be wrong with a history file.

use thiserror::Error;

use super::{MAX_LINE_BYTES, VERSION};
use crate::cluster::ClusterError;

/// A history that cannot be read: where, and what is wrong there.
#[derive(Debug, Error)]
#[error("{file}:{line}: {fault}")]
pub struct HistoryError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1; 0 if the file could not be opened.
    pub line: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a line.
#[derive(Debug, Error)]
pub enum Fault {
    /// The system refused.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// Nothing in it.
    #[error("the history is empty: its first line is the cluster")]
    Empty,
    /// No file at all.
    #[error("no history was given: name at least one file")]
    NothingGiven,
    /// Not a JSON object, or a field of the wrong kind.
    #[error("not an event: {reason} (column {column})")]
    Garbage {
        /// Where in the line, from 1.
        column: usize,
        /// What the JSON reader said.
        reason: String,
    },
    /// The file ends in the middle of a line.
    #[error("the last line is cut off: its producer was stopped while writing, or had no room")]
    Truncated,
    /// Longer than any event.
    #[error("the line is longer than {MAX_LINE_BYTES} bytes: this is not a history")]
    TooLong,
    /// The first line is something else.
    #[error("the first line is not a cluster: begin with {{\"e\":\"cluster\",\"groups\":{{…}}}}")]
    NotACluster,
    /// A cluster in the middle.
    #[error("a second cluster line: give files of several runs or processes one by one")]
    SecondCluster,
    /// Written by another version.
    #[error("version {0} of the schema: this program reads version {VERSION}")]
    Version(u64),
    /// A clock that is not known.
    #[error(
        "clock `{0}`: write \"global\" if all times come from one clock, \"host:\" and up to 128 bytes of a name for a host's, else leave it out"
    )]
    Clock(String),
    /// An impossible cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Files of different clusters.
    #[error("`{field}` of the cluster differs from that in {other}: check files of one run together")]
    ClusterDiffers {
        /// The field.
        field: &'static str,
        /// The file that was read first.
        other: String,
    },
    /// An event that the schema does not have.
    #[error("unknown event `{0}`: the schema of version {VERSION} does not have it")]
    UnknownEvent(String),
    /// A field that this event needs.
    #[error("`{event}` without `{field}`")]
    Missing {
        /// The event.
        event: String,
        /// The field.
        field: &'static str,
    },
    /// A field beyond its limits.
    #[error("`{field}` {reason}")]
    BadField {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A process records what another one sends.
    #[error("`{event}` of a message of `{owner}`, recorded by `{process}`: only its sender records it")]
    NotItsOwn {
        /// The event.
        event: &'static str,
        /// Whose message it is.
        owner: String,
        /// Who recorded it.
        process: String,
    },
    /// A process that the cluster line does not have.
    #[error("process `{0}` is not in the cluster line")]
    UnknownProcess(String),
    /// A group that the cluster line does not have.
    #[error("group `{0}` is not in the cluster line")]
    UnknownGroup(String),
    /// Time goes back at one process.
    #[error("time goes back at `{process}`: {t} after {before}")]
    TimeBack {
        /// The process.
        process: String,
        /// This event's time, ns.
        t: u64,
        /// The time of the event before, ns.
        before: u64,
    },
    /// Incarnations go back at one process.
    #[error("incarnation goes back at `{process}`: {incarnation} after {before}")]
    IncarnationBack {
        /// The process.
        process: String,
        /// This event's incarnation.
        incarnation: u64,
        /// That of the event before.
        before: u64,
    },
    /// A process acts after its crash.
    #[error("`{process}` acts in incarnation {incarnation}, in which it crashed: raise `i` when it comes back")]
    AfterCrash {
        /// The process.
        process: String,
        /// The incarnation.
        incarnation: u64,
    },
    /// Two histories are of the same life of a process.
    #[error(
        "`{process}` is in incarnation {incarnation} here and in `{other}`: each life needs its own, larger `i`; leave out what is a copy"
    )]
    SameLife {
        /// The process.
        process: String,
        /// The incarnation.
        incarnation: u64,
        /// The other file.
        other: String,
    },
}
