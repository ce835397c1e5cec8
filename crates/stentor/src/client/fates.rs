//! Translation of the outcomes of the multicast and the session protocol to those of the public API.

use stentor_multicast::{GroupId, SubmitError};
use stentor_session::{Fate, NotApplied, Outcome as Answered, ReadOutcome, Reason};

use super::local::Replied;
use super::{Outcome, Refused, Replies, Why};
use crate::{Group, Position};

pub(super) fn refusal(error: &SubmitError) -> Refused {
    let of = |group: u16| Group(GroupId(group));
    match *error {
        SubmitError::Busy { group } => Refused::Busy(of(group)),
        SubmitError::NotConnected { group } | SubmitError::Crowded { group, .. } => Refused::Unavailable(of(group)),
        SubmitError::TooLong { bytes, limit } => Refused::TooLong { bytes, limit },
        SubmitError::Destinations => Refused::NoGroups,
        SubmitError::Time(_) => Refused::AheadOfTime,
        SubmitError::GroupReset { group } => Refused::GroupReset(of(group)),
        SubmitError::Exhausted { .. } | SubmitError::Superseded { .. } => Refused::ClientEnded,
    }
}

pub(super) fn outcome(fate: Fate<'_>) -> Outcome<'_> {
    match fate {
        Fate::Applied(replies) => {
            let long = replies.iter().find(|reply| reply.bytes.is_none()).map(|reply| Group(reply.group));
            long.map_or(Outcome::Applied(Replies(Replied::Ordered(replies))), Outcome::ReplyTooLong)
        }
        Fate::NotApplied(NotApplied::Refused(group, why)) => Outcome::NotApplied(not_applied(group, why)),
        Fate::NotApplied(_) => Outcome::NotApplied(Refused::Closed),
        Fate::Unknown(why) => Outcome::Unknown(unknown(why)),
    }
}

/// Translates the outcome of a read outside the order.
pub(super) fn read(outcome: ReadOutcome<'_>) -> Outcome<'_> {
    match outcome {
        ReadOutcome::Answered { group, position, heard, bytes: Some(bytes), .. } => {
            let position = Position { heard, ..Position::of(group, &position) };
            Outcome::Applied(Replies(Replied::Read { position, bytes }))
        }
        ReadOutcome::Answered { group, .. } => Outcome::ReplyTooLong(Group(group)),
        ReadOutcome::OtherHistory(group) => Outcome::NotApplied(Refused::GroupReset(Group(group))),
        _ => Outcome::NotApplied(Refused::Closed),
    }
}

pub(super) fn not_applied(group: GroupId, why: Answered) -> Refused {
    match why {
        Answered::Closed => Refused::Closed,
        Answered::TableFull => Refused::TooManySessions(Group(group)),
        Answered::WrongPairs => Refused::GroupReset(Group(group)),
        Answered::Halted => Refused::Halted(Group(group)),
        Answered::Refused(Reason::Superseded) => Refused::Superseded,
        _ => Refused::SessionNotOpen,
    }
}

fn unknown(why: stentor_session::Why) -> Why {
    use stentor_session::Why as Told;
    match why {
        Told::Superseded => Why::Superseded,
        Told::ClientEnded => Why::ClientEnded,
        Told::SessionEnded(_) => Why::SessionEnded,
        Told::Forgotten(_) => Why::Forgotten,
        Told::Skipped(group) => Why::Skipped(Group(group)),
        Told::GroupReset(group) => Why::GroupReset(Group(group)),
        Told::Halted(group) => Why::Halted(Group(group)),
        _ => Why::TimedOut,
    }
}
