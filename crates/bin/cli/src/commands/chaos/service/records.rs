//! The records of the processes of a service: one JSON document per line, each written before the next step. A process
//! that is killed therefore loses only an incomplete last line.
//!
//! Times are those of the host's monotonic clock, in nanoseconds. All processes share that clock, and no fault changes
//! it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stentor::Position;
use stentor_support::Failure;

/// A place in the order. Places compare as the order does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) time: u64,
    /// The group that assigned the time.
    pub(super) of: u16,
    /// The index in the group that applies it.
    pub(super) index: u64,
}

impl Place {
    /// Returns the place of a position. `number` returns the number of a group.
    pub(super) fn of(position: Position, number: impl Fn(stentor::Group) -> u16) -> Self {
        Place { time: position.time, of: number(position.group), index: position.index }
    }
}

/// An input of a member's machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// A command, and the reply of the machine.
    Applied { session: String, operation: String, reply: String },
    /// A timer has fired.
    Timer(u64),
    /// A session has ended.
    Ended(String),
    /// The value was replaced by that of another member. This input has no place.
    Restored,
}

/// A record of a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct MemberRecord {
    pub(super) at: u64,
    pub(super) place: Option<Place>,
    pub(super) told: Told,
    /// The sessions that were notified.
    pub(super) notified: Vec<String>,
}

/// Kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallKind {
    Command,
    Ordered,
    Leader,
    After,
    Local,
}

/// Outcome of a call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    Answered { place: Place, replies: Vec<(u16, String)> },
    NotApplied(String),
    Unknown(String),
}

/// A record of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientRecord {
    /// The client has its session. Notifications can arrive after this record.
    Session { at: u64, session: String },
    /// Begin of a call, recorded before the first message of the call is sent.
    Begin {
        at: u64,
        call: u64,
        to: Vec<u16>,
        kind: CallKind,
        operation: String,
        /// The place that a read must include.
        after: Option<Place>,
    },
    /// The ticket of a call, recorded before the command is sent.
    Ticket { call: u64, ticket: String },
    /// End of a call. If the process that made the call was killed before, a later process of the session records it,
    /// provided that the call has a ticket.
    End { at: u64, call: u64, how: How },
    /// A notification.
    Note { at: u64, group: u16, place: Place },
    /// Notifications were lost.
    Missed { at: u64, group: u16, count: u64 },
    /// The client ended. Earlier records contain all notifications that had arrived.
    Closed { at: u64 },
}

/// A file of records.
#[derive(Debug)]
pub(super) struct Journal(File);

impl Journal {
    /// Opens the file to append to it.
    ///
    /// # Errors
    /// Returns an error if it cannot be created.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(Journal).map_err(|error| Failure::cannot_write(path, &error))
    }

    /// Writes a record at once.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub(super) fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// Reads the records of a file, or none if it does not exist. An incomplete last line is skipped.
///
/// # Errors
/// Returns an error if the file cannot be read, or a line is not a record.
pub(super) fn read<R: DeserializeOwned>(path: &Path) -> Result<Vec<R>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| unreadable(path, &error))?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parsed = whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other));
    parsed.collect::<Result<_, _>>().map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::system("cannot read the records of a process", error, path.display(), "report this as a bug")
}
