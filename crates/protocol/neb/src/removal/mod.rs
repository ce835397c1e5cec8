//! Taking processes out of a broadcast in mode `all`: an operator's agreed, fenced view change.
//!
//! In mode `all` everybody must answer, so one process that has stopped stops all deliveries. No error and no timeout takes
//! it out: two live processes could drop each other. An operator does, who talks to *all* that remain.
//!
//! # Who does what
//! The operator's side is [`Removal`], a member's is [`Seat`]; what they say to each other is [`Ask`] and [`Answer`]. How
//! that travels is not said here: [`Node::ask`](crate::Node::ask) answers, a simulation calls it, the command uses sockets.
//!
//! | operator | members that remain |
//! |---|---|
//! | *standing*: asks all how they stand. Refuses here, before anything changes | answer |
//! | *fencing*: a ballot above all that were promised | promise it; *fence* who is to go: take its access away and, when that took effect, take what it had written by then and *freeze* its stream: nothing of it is delivered any more. Then report what they have of it |
//! | *committing*: all have reported; where each stream ends, and with what, follows from the reports alone | take it over: deliver what they lack of it, then go on without the removed |
//!
//! A member is in one of these states for each process: *member*, *fenced* (and frozen), *removed* (and decided).
//! None ever goes back. Who is to go is told to leave as well: if it hears that, it delivers and broadcasts nothing more.
//!
//! # Invariants
//! - V1: a member reports a stream only when its sender can write to it no more and everything that it wrote was taken, and
//!   gives it no outcome between its report and the decision. So a report holds until the decision, whoever asks again.
//! - V2: an operator decides only when all that remain have promised its ballot; a member takes a decision only of the
//!   ballot that it promised last. Who remains is a majority of the members before. So of two operators one meets the
//!   other's promise at a member that remains for both.
//! - V3: where a member that remains has taken over a decision about a stream, every later operator finds it and uses it.
//! - V4: everything that a member which remains has delivered of the stream is in the decision: none of it is lost, and all
//!   that remain deliver the same of it (B1), in order (B4). Above that it goes on as far as all who hold a value hold the
//!   same one, so what a correct sender is known to have written to a majority is in it, too.
//! - V5: for the streams of those that remain nothing is decided. Each of them reads all others that remain, before the
//!   change and after it; only the removed need not answer any more (named: [`Replay::remove_member`](crate::Replay)).
//!
//! # After a crash of the operator
//! nothing is half done: members have promised, fenced or decided, which never goes back. The stream of a fenced process
//! stands still until somebody runs the removal again, of the same processes or of more; that comes to the same decision.
//!
//! # What is not promised
//! As in the pseudocode, a removed process should have stopped. If it lives, it is fenced: it reads from nobody that
//! remains and writes to nobody. But what it had read before, it may deliver until it hears that it is to leave; and if a
//! *remaining* sender lies, that may differ from what the others deliver. And those that remain must not lie about what
//! they hold of the removed one's stream, unless values are signed: then nobody takes over a forged one.

mod member;
mod operator;

pub use member::{Refusal, Seat};
pub use operator::{Removal, RemovalError};

use stentor_fabric::ProcessId;

use crate::ProcessSet;

/// Orders attempts of operators.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ballot {
    /// Above all that were promised when it began.
    pub round: u64,
    /// Tells operators apart.
    pub operator: u64,
}

/// How a member stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Standing {
    /// The last ballot that it promised.
    pub promised: Ballot,
    /// Who cannot reach it any more.
    pub fenced: ProcessSet,
    /// Who is no member any more; all of them are fenced.
    pub removed: ProcessSet,
}

/// An index and all words of its value.
pub type Kept = (u64, Vec<u64>);

/// What a member has of the stream of a process that is to go.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Holding {
    /// It was fenced, and the stream stands still.
    Frozen {
        /// Whose stream.
        sender: ProcessId,
        /// Everything below has an outcome.
        head: u64,
        /// Nothing from here on is good: the sender broke the protocol.
        ended: Option<u64>,
        /// What it delivered or holds, of the last window, by index.
        values: Vec<Kept>,
    },
    /// It was decided before.
    Decided(Cut),
}

/// Where the stream of a removed process ends, and what others may lack of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cut {
    /// Whose stream.
    pub sender: ProcessId,
    /// The first index that nobody delivers.
    pub upto: u64,
    /// Values below, by index. What is missing has left all windows, and is skipped by who lacks it.
    pub values: Vec<Kept>,
}

/// What an operator asks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ask {
    /// How do you stand?
    Stand,
    /// You are removed: stop.
    Leave,
    /// Promise this ballot, fence these, and report.
    Fence {
        /// The ballot.
        ballot: Ballot,
        /// Who was removed before, everywhere.
        base: ProcessSet,
        /// Who is to go.
        targets: ProcessSet,
    },
    /// This is decided.
    Commit {
        /// The ballot in which it was.
        ballot: Ballot,
        /// About whom.
        cuts: Vec<Cut>,
    },
}

/// What a process says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// So it stands.
    Standing(Standing),
    /// It delivers and broadcasts nothing more.
    Left,
    /// It promised, and the fence has not taken effect everywhere yet: ask again.
    Fencing,
    /// What it holds.
    Report {
        /// The ballot that it promised.
        ballot: Ballot,
        /// By process to go.
        holdings: Vec<Holding>,
    },
    /// It goes on without them.
    Committed,
    /// It does not, and nothing has changed.
    Refused(Refusal),
}
