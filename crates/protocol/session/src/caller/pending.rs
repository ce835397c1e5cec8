//! One request: its groups, their answers, and the fate that follows from all answers.

use stentor_multicast::GroupId;

use super::ticket::Ticket;
use crate::mutant::mutant;
use crate::{Kind, Mutant, Outcome, Position, Reason, ReplyRecord};

/// Reason why a request was certainly not applied in any group, and never will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotApplied {
    /// No message that carried the request was sent.
    NotSent,
    /// Every message that carried the request became a no-op.
    Void,
    /// This group refused the request.
    Refused(GroupId, Outcome),
}

/// Reason why it is not known whether a request was applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Why {
    /// The caller timed out.
    TimedOut,
    /// A later process has taken over the session or the client id.
    Superseded,
    /// The client ended.
    ClientEnded,
    /// The session has ended or expired in this group, or another process has taken it up there.
    SessionEnded(GroupId),
    /// This group has forgotten the fate of the request.
    Forgotten(GroupId),
    /// An operator skipped the request in this group.
    Skipped(GroupId),
    /// This group was reset.
    GroupReset(GroupId),
    /// This group is halted at a command that it cannot apply.
    Halted(GroupId),
}

/// Fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate<'a> {
    /// The request was applied once in each of its groups.
    Applied(Replies<'a>),
    /// The request was applied in no group, and never will be.
    NotApplied(NotApplied),
    /// It is not known whether the request was applied. Unless an operator skipped it or one of its groups was reset,
    /// all its groups apply it once, or none does. Resolving its ticket settles the request.
    Unknown(Why),
}

/// The replies of all groups of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replies<'a>(&'a [Answer]);

/// The reply of one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupReply<'a> {
    /// Group that replied.
    pub group: GroupId,
    /// Position at which the request was applied. The timestamp is equal in all groups.
    pub position: Position,
    /// The reply, or `None` if it was longer than the limit.
    pub bytes: Option<&'a [u8]>,
}

impl<'a> Replies<'a> {
    /// Returns the replies by ascending group.
    pub fn iter(self) -> impl Iterator<Item = GroupReply<'a>> {
        self.0.iter().map(|answer| GroupReply {
            group: answer.group,
            position: answer.position,
            bytes: (answer.outcome == Some(Outcome::Applied)).then_some(&answer.bytes[..]),
        })
    }
}

/// Answer of one group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Answer {
    group: GroupId,
    outcome: Option<Outcome>,
    position: Position,
    bytes: Vec<u8>,
}

/// Progress of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Progress {
    /// Answers of the request's groups are missing.
    Waiting,
    /// The request was given up, a group is halted, or the answers of all groups leave its fate open. A copy of it may
    /// still be applied, so `responded` does not pass it.
    InDoubt,
    /// No copy of the request can be applied any more, or all its groups have applied it.
    #[default]
    Settled,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) progress: Progress,
    /// Number of messages that carry the request and may be delivered.
    pub(super) copies: u32,
    /// `true` if the request's groups are asked for its fate.
    pub(super) resolves: bool,
    /// `true` if the request is a query.
    pub(super) is_query: bool,
    /// One answer for each pair of the ticket. Further elements are spare buffers.
    answers: Vec<Answer>,
}

impl Pending {
    /// Creates the question for the fate of a request about which this caller knows nothing else.
    pub(super) fn question(ticket: &Ticket) -> Pending {
        let mut pending = Pending { ticket: ticket.clone(), ..Pending::default() };
        pending.begin(0, true);
        pending
    }

    /// Begins the request of the ticket that was stored before.
    pub(super) fn begin(&mut self, copies: u32, resolves: bool) {
        (self.progress, self.copies, self.resolves) = (Progress::Waiting, copies, resolves);
        self.ask_again();
    }

    /// Forgets the answers, so that the groups can be asked again.
    pub(super) fn ask_again(&mut self) {
        let empty = |group| Answer { group, outcome: None, position: Position::default(), bytes: Vec::new() };
        for (index, pair) in self.ticket.pairs.iter().enumerate() {
            match self.answers.get_mut(index) {
                Some(answer) => {
                    (answer.group, answer.outcome, answer.position) = (pair.group, None, Position::default());
                    answer.bytes.clear();
                }
                None => self.answers.push(empty(pair.group)),
            }
        }
    }

    fn answers(&self) -> &[Answer] {
        &self.answers[..self.ticket.pairs.len()]
    }

    /// Records a group's first answer. Returns whether it was the last missing one.
    pub(super) fn take(&mut self, group: GroupId, record: &ReplyRecord<'_>) -> bool {
        let is_final =
            matches!(record.outcome, Outcome::Applied | Outcome::Overflow | Outcome::Skipped | Outcome::Closed);
        let is_asked = record.answers == if self.resolves { Kind::Resolve } else { Kind::Command };
        let asked = self.ticket.pairs.len();
        let Some(answer) = self.answers[..asked].iter_mut().find(|answer| answer.group == group) else { return false };
        if answer.outcome.is_some() || !(is_final || is_asked) {
            return false;
        }
        (answer.outcome, answer.position) = (Some(record.outcome), record.position);
        answer.bytes.clear();
        answer.bytes.extend_from_slice(record.bytes);
        self.answers().iter().all(|answer| answer.outcome.is_some())
    }

    /// Returns whether a group has answered that the request was applied.
    pub(super) fn is_applied_somewhere(&self) -> bool {
        self.answers().iter().any(|answer| matches!(answer.outcome, Some(Outcome::Applied | Outcome::Overflow)))
    }

    /// Returns the replies. Must be called only after all groups have applied the request.
    pub(super) fn replies(&self) -> Replies<'_> {
        Replies(self.answers())
    }

    fn first(&self, is: impl Fn(Outcome) -> bool) -> Option<(GroupId, Outcome)> {
        self.answers().iter().find_map(|answer| Some((answer.group, answer.outcome.filter(|outcome| is(*outcome))?)))
    }

    /// Returns the first group that was reset. Its answer names another incarnation than the ticket.
    fn reset(&self) -> Option<GroupId> {
        let other = self.answers().iter().zip(&self.ticket.pairs);
        let mut other = other.filter(|(answer, pair)| answer.position.incarnation != pair.incarnation);
        other.next().map(|(answer, _)| answer.group)
    }

    /// Combines the answers of all groups.
    ///
    /// All groups reach the same verdict about a message, so a refusal of the *only* message that carried the request
    /// is valid for all of them. If several messages carried the request, another one may have been applied before. In
    /// that case only two answers decide, because they are valid for every copy: `Closed`, and a refusal for the
    /// request's end or window by a table that would remember an earlier copy.
    pub(super) fn combined(&self, mutant: Mutant) -> Result<(), Combined> {
        let applied = |outcome| matches!(outcome, Outcome::Applied | Outcome::Overflow);
        let Some((group, outcome)) = self.first(|outcome| !applied(outcome)) else { return Ok(()) };
        let nowhere = !self.is_applied_somewhere();
        let is_only = (self.copies <= 1 && !self.resolves) || mutant!(mutant, OneCopySpeaksForAll);
        if let Some((group, _)) = self.first(|outcome| outcome == Outcome::Skipped) {
            return Err(Combined::Unknown(Why::Skipped(group)));
        }
        if nowhere && is_only {
            return Err(Combined::NotApplied(NotApplied::Refused(group, outcome)));
        }
        if let Some(group) = self.reset() {
            return Err(Combined::Unknown(Why::GroupReset(group)));
        }
        let for_all = |outcome| {
            let by_itself = matches!(outcome, Outcome::Refused(Reason::TooLate | Reason::OutsideWindow));
            outcome == Outcome::Closed || (by_itself && !self.resolves)
        };
        if let (true, Some((group, outcome))) = (nowhere, self.first(for_all)) {
            return Err(Combined::NotApplied(NotApplied::Refused(group, outcome)));
        }
        let why = match outcome {
            _ if let Some((group, _)) = self.first(|outcome| outcome == Outcome::Forgotten) => Why::Forgotten(group),
            Outcome::Refused(Reason::Superseded) => Why::Superseded,
            Outcome::Halted => Why::Halted(group),
            _ => Why::SessionEnded(group),
        };
        Err(Combined::Unknown(why))
    }
}

/// A fate without replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Combined {
    NotApplied(NotApplied),
    Unknown(Why),
}

impl From<Combined> for Fate<'_> {
    fn from(combined: Combined) -> Self {
        match combined {
            Combined::NotApplied(why) => Fate::NotApplied(why),
            Combined::Unknown(why) => Fate::Unknown(why),
        }
    }
}
