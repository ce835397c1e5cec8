//! The changes that an election reports, and the trait of elections.

use std::fmt;
use std::time::Duration;

use stentor_fabric::ProcessId;
use thiserror::Error;

/// A change of leadership, as one process sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// No leader is known: at the start, or because the previous leader is doubted or has resigned and no process has
    /// replaced it. Decisions of the previous epoch stay valid, and nothing has to be undone.
    Pending,
    /// A process leads. If it is the polling process itself, that process must now run phase 1 of Paxos with a ballot
    /// of at least this epoch. If it led already, it continues to lead, with a newer ballot.
    Leader {
        /// Epoch, from 1. It is below 2^46, so that it fits a ballot.
        epoch: u64,
        /// The leader.
        process: ProcessId,
    },
    /// The polling process no longer leads.
    Resigned {
        /// Epoch under which the process led.
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

/// An election of the leader of one group, as one process of the group takes part in it.
///
/// The process polls the election and gets a stream of changes. The crate's documentation has the rules that the stream
/// keeps, and an example.
pub trait Election {
    /// Returns the next change, or `None` if there is no further one. Callers poll until `None`. It never blocks.
    ///
    /// `now` is the time since some origin, which is the same for all calls. It should not decrease, but an
    /// implementation tolerates a decrease.
    fn poll(&mut self, now: Duration) -> Option<Change>;

    /// Asks to hand leadership to another member without waiting for a timeout, for example for maintenance. On success
    /// the polling process resigns in one of the next polls, and the stream then reports the next leader. A leader may
    /// name itself, which does not have to change anything.
    ///
    /// # Errors
    /// See [`HandOverError`]. An error leaves the election unchanged.
    fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError>;

    /// Reports a ballot (epoch, process) that the protocol has seen. Epochs that this process announces for itself
    /// afterwards are larger. If this process leads under a smaller ballot, it announces itself again, under a larger
    /// epoch. The caller must therefore not pass ballots under which this process itself leads.
    ///
    /// Only a protocol whose ballots are the epochs of the election calls this. A node of Stentor does not: it follows
    /// the name of the leader, and its member numbers the ballots.
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

/// Reason why leadership was not handed over.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum HandOverError {
    /// This process is not the leader, which alone can hand over.
    #[error("this process does not lead its group: ask the leader")]
    NotLeader,
    /// The other process is not a member of the group.
    #[error("{process} is not a member of this group: name one of its members")]
    NotAMember {
        /// The process that was named.
        process: ProcessId,
    },
    /// The other process is not ready to take over.
    #[error(
        "{process} does not answer or does not stand for leader: start it, wait until it has caught up, or name another"
    )]
    NotReady {
        /// The process that was named.
        process: ProcessId,
    },
    /// This election has no way to name a successor.
    #[error("this election has no way to name a successor")]
    Unsupported,
}
