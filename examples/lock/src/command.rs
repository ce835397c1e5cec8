//! Commands, queries and replies of the lock service. Their encoding is JSON, so that the histories of a simulation and
//! the output of observers are readable.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stentor::SessionId;

/// Maximum length of a lock's name, in bytes.
pub const LONGEST_NAME: usize = 100;
/// Maximum length of a lease.
pub const LONGEST_LEASE: Duration = Duration::from_secs(86_400);

/// A command that changes the locks. Lengths of leases are in nanoseconds of the order's time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Acquires a lock if it is free.
    Acquire {
        /// The lock.
        name: String,
        /// Length of the lease, in nanoseconds.
        lease: u64,
    },
    /// Renews a lease. It then ends `lease` after this command, or at its previous end if that is later.
    Renew {
        /// The lock.
        name: String,
        /// The token that was granted.
        token: u64,
        /// Length of the lease, which begins at this command, in nanoseconds.
        lease: u64,
    },
    /// Releases a lock.
    Release {
        /// The lock.
        name: String,
        /// The token that was granted.
        token: u64,
    },
    /// Subscribes the session to this lock: it is notified each time that the lock becomes free, until the session ends
    /// or sends `Unwatch`.
    Watch(String),
    /// Ends the session's subscription to this lock.
    Unwatch(String),
}

/// A query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Query {
    /// The holder of this lock.
    Lock(String),
    /// The held locks whose names follow the given one, ordered by name. The answer lists as many of them as surely
    /// fit, but at least one.
    Held(Option<String>),
}

/// A held lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The fencing token.
    pub token: u64,
    /// Time at which the lease ends, in nanoseconds of the order's time.
    pub ends: u64,
    /// The holder's session, encoded by [`SessionId::to_bytes`].
    pub session: [u8; 16],
}

impl Held {
    /// Returns the session that holds the lock.
    #[must_use]
    pub fn holder(&self) -> SessionId {
        SessionId::from_bytes(self.session)
    }
}

/// The reason for which a lock became free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// The holder released the lock.
    Released,
    /// The holder did not renew the lease in time.
    RanOut,
    /// The session of the holder ended or expired.
    SessionEnded,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Released => "was released",
            Cause::RanOut => "ran out",
            Cause::SessionEnded => "ended with the session of its holder",
        })
    }
}

/// The end of a lease. Watchers are notified of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// The lock.
    pub name: String,
    /// The token that is not valid any more.
    pub token: u64,
    /// The reason.
    pub cause: Cause,
    /// Time of the end, in nanoseconds of the order's time.
    pub at: u64,
}

/// The reason for which a command is not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The name is empty or too long.
    Name,
    /// The lease is 0 or too long.
    Lease,
    /// The bytes are not a command or a query of this service, or the command was sent without a session.
    NotUnderstood,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Name => write!(f, "the name of a lock has 1 to {LONGEST_NAME} bytes"),
            Refusal::Lease => write!(f, "a lease is longer than 0 and at most {LONGEST_LEASE:?}"),
            Refusal::NotUnderstood => {
                f.write_str("the service does not understand the command: do client and nodes run the same version?")
            }
        }
    }
}

/// A reply to a command, or an answer to a query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// The session holds the lock. If it held the lock already, the token is the one that was granted then.
    Granted(Held),
    /// Another session has the lock.
    Taken(Held),
    /// The token is not valid any more. The field is the end of its lease, if the service still remembers it.
    Lost(Option<End>),
    /// The lock has been released.
    Released,
    /// The present holder of the lock: the answer to [`Query::Lock`], or the reply to `Watch` and `Unwatch`.
    Lock(Option<Held>),
    /// The answer to [`Query::Held`].
    Held(Vec<(String, Held)>),
    /// The command is not valid.
    Refused(Refusal),
}
