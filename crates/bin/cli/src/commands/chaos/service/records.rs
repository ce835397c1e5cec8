//! What processes of a service write down: one JSON document per line, each written before the next step. So a process that is killed
//! loses nothing but the end of its last line.
//!
//! Times are those of the host's monotonic clock, ns: one clock for all processes, which no fault touches.

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
    /// The group that gave the time.
    pub(super) of: u16,
    /// Its number in the group that applies it.
    pub(super) index: u64,
}

impl Place {
    /// Returns the place of a position; `number` counts groups.
    pub(super) fn of(position: Position, number: impl Fn(stentor::Group) -> u16) -> Self {
        Place { time: position.time, of: number(position.group), index: position.index }
    }
}

/// What the machine of a member was told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// A command, and what the machine replied.
    Applied { session: String, operation: String, reply: String },
    /// A timer has come due.
    Timer(u64),
    /// A session has ended.
    Ended(String),
    /// The value was replaced by that of another member. It has no place.
    Restored,
}

/// A line of a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct MemberRecord {
    pub(super) at: u64,
    pub(super) place: Option<Place>,
    pub(super) told: Told,
    /// The sessions that were notified.
    pub(super) notified: Vec<String>,
}

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallKind {
    Command,
    Ordered,
    Leader,
    After,
    Local,
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    Answered { place: Place, replies: Vec<(u16, String)> },
    NotApplied(String),
    Unknown(String),
}

/// A line of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientRecord {
    /// It has its session, and notifications come from here on.
    Session { at: u64, session: String },
    /// Written before anything of the call is sent.
    Begin {
        at: u64,
        call: u64,
        to: Vec<u16>,
        kind: CallKind,
        operation: String,
        /// What a read is to be after.
        after: Option<Place>,
    },
    /// Written before the command is sent.
    Ticket { call: u64, ticket: String },
    /// Also by the next process of the session.
    End { at: u64, call: u64, how: How },
    /// A notification.
    Note { at: u64, group: u16, place: Place },
    /// Notifications were lost.
    Missed { at: u64, group: u16, count: u64 },
    /// All notifications that came are above.
    Closed { at: u64 },
}

/// A file of records.
#[derive(Debug)]
pub(super) struct Journal(File);

impl Journal {
    /// Opens the file to append to it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(Journal).map_err(|error| Failure::cannot_write(path, &error))
    }

    /// Writes a record at once.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// Reads the records of a file; none if it does not exist. The end of a last line that was not finished is left out.
///
/// # Errors
/// If the file cannot be read, or a line is no record.
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
    Failure::system("cannot read what a process recorded", error, path.display(), "report this as a bug")
}
