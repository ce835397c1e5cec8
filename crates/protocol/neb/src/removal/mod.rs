//! Removal of processes from a broadcast in mode `all`: an agreed, fenced view change by an operator.
//!
//! In mode `all` every process must answer, so one stopped process stops all deliveries. No error and no timeout
//! removes it, because two live processes could remove each other. An operator removes it, and must reach *all*
//! processes that remain.
//!
//! # Phases
//! [`Removal`] is the operator's side and [`Seat`] a member's side. They exchange [`Ask`] and [`Answer`]. The transport
//! is not part of this module: [`Node::ask`](crate::Node::ask) answers, simulations call it, and the command uses
//! sockets.
//!
//! 1. *Standing*: the operator asks all processes except those to remove for their standing (last promise, fenced and
//!    removed processes). The operator can still refuse, before anything has changed.
//! 2. *Fencing*: the operator chooses a ballot above all that were promised. Each remaining member promises it and
//!    *fences* the processes to remove. That means: the member revokes their access. Once the revocation has taken
//!    effect, it accepts everything that they had written, and *freezes* their streams, so that it delivers no more of
//!    them. Then it reports which values of these streams it holds.
//! 3. *Committing*: once all have reported, and each process to remove was asked to leave or cannot be reached, the end
//!    and the content of each stream follow from the reports alone. Each remaining member accepts the decision,
//!    delivers the values of the streams that it lacks, and continues without the removed processes.
//!
//! For each process a member is in one of the states *member*, *fenced* (and frozen) and *removed* (and decided), and
//! never returns to an earlier state. A process to remove is also asked to leave. If it receives that request, it
//! delivers and broadcasts nothing more.
//!
//! # Invariants
//! - V1: a member reports a stream only after its sender has lost write access and everything that the sender wrote was
//!   accepted. Between the report and the decision no index of the stream has an outcome. So a report stays valid until
//!   the decision, whichever operator asks again.
//! - V2: an operator decides only after all processes that remain have promised its ballot. A member accepts only a
//!   decision of the ballot that it promised last. The processes that remain are a majority of the members before. Two
//!   operators therefore have a remaining member in common, at which one of them finds the other's promise.
//! - V3: if a member that remains has accepted a decision about a stream, every later operator finds and reuses it.
//! - V4: the decision ends after everything that a remaining member has delivered of the stream, and contains what
//!   others may lack of it. So all remaining members deliver the same values of the stream (B1), in order (B4). A
//!   member skips a delivered index only if no remaining member that has passed the index holds its value any more.
//!   Beyond these values, the decision contains each further index as long as all members that hold a value for it hold
//!   the same one and none has found a violation of the sender. It therefore also contains what a correct sender is
//!   known to have written to a majority.
//! - V5: nothing is decided about the streams of processes that remain. Each of them reads all other remaining
//!   processes before and after the change. Only removed processes need not answer any more:
//!   [`Replay::remove_member`](crate::Replay) removes each of them by its id, and lowers no threshold.
//!
//! # Crash of the operator
//! A member never undoes a promise, a fence or a decision. The stream of a fenced process makes no progress until an
//! operator runs the removal again, of the same processes or of more. The new run reaches the same decision.
//!
//! # Limits
//! A removed process should have stopped. If it is alive, it is fenced: it reads from no remaining process and writes
//! to none. But it may deliver what it had read before, until it receives the request to leave. If a *remaining* sender
//! lies, those deliveries may differ from the others'. Processes that remain must not lie about the values that they
//! hold of the removed process's stream, unless values are signed: no member accepts a forged value then.

mod member;
mod operator;

pub use member::{Refusal, Seat};
pub use operator::{Removal, RemovalError};

use stentor_fabric::ProcessId;

use crate::ProcessSet;

/// Number that orders the attempts of operators.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ballot {
    /// Round, larger than all that were promised when the attempt began.
    pub round: u64,
    /// Number that distinguishes operators.
    pub operator: u64,
}

/// The ballot that a member has promised, and the processes that it has fenced and removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Standing {
    /// Last ballot that the member promised.
    pub promised: Ballot,
    /// Processes whose access to the member is revoked or being revoked.
    pub fenced: ProcessSet,
    /// Processes that are no longer members. All of them are fenced.
    pub removed: ProcessSet,
}

/// An index and all words of its value.
pub type Kept = (u64, Vec<u64>);

/// Values that a member holds of the stream of a process to remove.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Holding {
    /// The sender is fenced, and the stream is frozen.
    Frozen {
        /// Sender of the stream.
        sender: ProcessId,
        /// Index below which every index has an outcome.
        head: u64,
        /// Index at which the stream ends because of a conflict or another violation. No value at or above this index
        /// is valid.
        ended: Option<u64>,
        /// Values of the last window that the member delivered or holds, by index.
        values: Vec<Kept>,
    },
    /// The end of the stream was decided before.
    Decided(Cut),
}

/// The end of a removed process's stream, and the values that members may lack.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cut {
    /// Sender of the stream.
    pub sender: ProcessId,
    /// First index that no member delivers.
    pub upto: u64,
    /// Values of indices below `upto`, by index. An index has no value here if all remaining members had an outcome for
    /// it, or if no member that had one keeps the value. A member without an outcome for such an index skips it.
    pub values: Vec<Kept>,
}

/// Request of an operator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ask {
    /// Asks for the member's [`Standing`].
    Stand,
    /// Informs a process that it is being removed, so that it stops.
    Leave,
    /// Asks to promise a ballot, to fence processes, and to report.
    Fence {
        /// Ballot to promise.
        ballot: Ballot,
        /// Processes that were removed before, everywhere.
        base: ProcessSet,
        /// Processes to remove.
        targets: ProcessSet,
    },
    /// Announces decisions.
    Commit {
        /// Ballot in which the decisions were made.
        ballot: Ballot,
        /// Decisions, one per removed process.
        cuts: Vec<Cut>,
    },
}

/// Answer of a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The process's [`Standing`], which [`Ask::Stand`] requested.
    Standing(Standing),
    /// The process delivers and broadcasts nothing more.
    Left,
    /// The process promised, and the fence has not taken effect for all of its regions yet. The operator must ask
    /// again.
    Fencing,
    /// The fence has taken effect, and this is the process's report.
    Report {
        /// Ballot that the process promised.
        ballot: Ballot,
        /// Values that the process holds, for each process to remove.
        holdings: Vec<Holding>,
    },
    /// The process continues without the removed ones.
    Committed,
    /// The process refuses. Nothing has changed, except with [`Refusal::Access`].
    Refused(Refusal),
}
