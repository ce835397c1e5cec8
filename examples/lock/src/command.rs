//! Commands, queries and replies of the lock service. They are JSON, so that histories and observers can be read.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stentor::SessionId;

/// The longest name of a lock, in bytes.
pub const LONGEST_NAME: usize = 100;
/// The longest lease.
pub const LONGEST_LEASE: Duration = Duration::from_secs(86_400);

/// A change. Leases are nanoseconds of the order's time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Takes a lock if it is free.
    Acquire {
        /// The lock.
        name: String,
        /// For how long.
        lease: u64,
    },
    /// Prolongs a lease from now on. A lease is never shortened.
    Renew {
        /// The lock.
        name: String,
        /// The token that was granted.
        token: u64,
        /// For how long from now on.
        lease: u64,
    },
    /// Frees a lock.
    Release {
        /// The lock.
        name: String,
        /// The token that was granted.
        token: u64,
    },
    /// Notifies the session each time that this lock becomes free, until the session ends.
    Watch(String),
    /// Does not notify the session of this lock any more.
    Unwatch(String),
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Query {
    /// The holder of this lock.
    Lock(String),
    /// The locks that are held, in the order of their names: as many of those behind this one as an answer has room for.
    Held(Option<String>),
}

/// A lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The fencing token.
    pub token: u64,
    /// When the lease ends, nanoseconds of the order's time.
    pub ends: u64,
    /// The holder's session, as [`SessionId::to_bytes`] gives it.
    pub session: [u8; 16],
}

impl Held {
    /// Returns who has the lock.
    #[must_use]
    pub fn holder(&self) -> SessionId {
        SessionId::from_bytes(self.session)
    }
}

/// Why a lock became free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// Its holder released it.
    Released,
    /// Nobody renewed the lease in time.
    RanOut,
    /// The session of its holder ended, or ran out.
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
    /// Why.
    pub cause: Cause,
    /// When, nanoseconds of the order's time.
    pub at: u64,
}

/// Why a command makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The name is empty or too long.
    Name,
    /// The lease is 0 or too long.
    Lease,
    /// The command is no command of this service, or came without a session.
    NotUnderstood,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Name => write!(f, "the name of a lock has 1 to {LONGEST_NAME} bytes"),
            Refusal::Lease => write!(f, "a lease is longer than 0 and at most {LONGEST_LEASE:?}"),
            Refusal::NotUnderstood => {
                f.write_str("the service does not understand the command: do both run the same version?")
            }
        }
    }
}

/// A reply, or an answer to a question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// The session has the lock, as this says. The token is an earlier one if it had the lock already.
    Granted(Held),
    /// Another session has the lock.
    Taken(Held),
    /// The token is not valid any more; why, if that is known still.
    Lost(Option<End>),
    /// The lock is free.
    Released,
    /// The session watches the lock, or does not any more. Who has the lock now.
    Lock(Option<Held>),
    /// The answer to [`Query::Held`].
    Held(Vec<(String, Held)>),
    /// It makes no sense.
    Refused(Refusal),
}
