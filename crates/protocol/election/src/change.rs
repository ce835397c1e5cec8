//! What an election says, and how it is asked.

use std::fmt;
use std::time::Duration;

use stentor_fabric::ProcessId;
use thiserror::Error;

/// A change of leadership, as one process sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// No leader is known: at the start, or because the last one is doubted and no other has come forward. What was
    /// agreed under the last epoch stays valid; nothing has to be undone.
    Pending,
    /// A process leads. If it is the polling process itself, it should now run phase 1 under a ballot of at least this
    /// epoch. Directly after an epoch of its own it leads on, under a newer ballot.
    Leader {
        /// The number of the reign, from 1; below 2^46, so that it fits a ballot.
        epoch: u64,
        /// Who leads.
        process: ProcessId,
    },
    /// The polling process leads no longer.
    Resigned {
        /// The epoch under which it led.
        epoch: u64,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Pending => write!(f, "no leader known"),
            Change::Leader { epoch, process } => write!(f, "{process} leads in epoch {epoch}"),
            Change::Resigned { epoch } => write!(f, "resigned from epoch {epoch}"),
        }
    }
}

/// A source of leadership for one group, polled by one process of it.
///
/// The crate's documentation has the rules of the stream and an example.
pub trait Election {
    /// The next change, if there is one: poll until there is none. Never blocks.
    ///
    /// `now` is the time since some start, the same for all calls. It should not go back; an implementation copes if it
    /// does.
    fn poll(&mut self, now: Duration) -> Option<Change>;

    /// Asks to hand leadership to another member, for maintenance, without waiting for a timeout. On success the polling
    /// process resigns with one of the next polls; who leads after that is told by the stream as always.
    ///
    /// # Errors
    /// See [`HandOverError`]. Nothing has changed then.
    fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError>;

    /// A ballot (epoch, process) of another reign that the protocol has met. Epochs that this process announces for
    /// itself from now on are above it. If it leads under a smaller pair already, it announces itself again; so never
    /// pass a ballot of the process's own present reign.
    fn witness(&mut self, epoch: u64, process: ProcessId);
}

impl<E: Election + ?Sized> Election for Box<E> {
    fn poll(&mut self, now: Duration) -> Option<Change> {
        (**self).poll(now)
    }

    fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError> {
        (**self).hand_over(to)
    }

    fn witness(&mut self, epoch: u64, process: ProcessId) {
        (**self).witness(epoch, process);
    }
}

/// Why leadership was not handed over.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum HandOverError {
    /// Only the leader can hand over.
    #[error("this process does not lead its group: ask the leader")]
    NotLeader,
    /// The other is not in the group.
    #[error("{process} is not a member of this group: name one of its members")]
    NotAMember {
        /// Who was named.
        process: ProcessId,
    },
    /// The other would not take over.
    #[error(
        "{process} does not answer or does not stand for leader: start it, wait until it has caught up, or name another"
    )]
    NotReady {
        /// Who was named.
        process: ProcessId,
    },
    /// This election cannot be told whom to name.
    #[error("this election cannot be told whom to name")]
    Unsupported,
}
