//! The steps of one transfer from the client's point of view.

use serde::{Deserialize, Serialize};
use stentor::{Group, Groups, SessionId};

use crate::{Account, Command, Order, Refusal, TransferId, Verdict};

/// The outcome of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// The money has moved.
    Done,
    /// Nothing has changed. The transfer was refused for this reason.
    Refused(Refusal),
    /// Another process has settled or cancelled the transfer, in both groups alike.
    ClosedByAnother,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Stage {
    /// The first command is due: `Pay` for one group, `Reserve` for two.
    Begin,
    Settle(TransferId),
    Cancel(TransferId, Refusal),
    Ended(Outcome),
}

/// The state of one transfer. This type sends nothing itself: [`next`](Transfer::next) returns the command that is due,
/// and [`answered`](Transfer::answered) processes the replies. A command stays due until its replies are processed.
///
/// The bank's invariant depends on this type: it settles a transfer only if one group holds the amount and the other
/// group expects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Transfer {
    order: Order,
    number: u64,
    stage: Stage,
}

impl Transfer {
    /// Begins a transfer. The number must differ for each transfer of a session.
    #[must_use]
    pub fn new(order: Order, number: u64) -> Transfer {
        Transfer { order, number, stage: Stage::Begin }
    }

    /// Returns the command that is due and its groups, or `None` if the transfer has ended or `groups` is empty.
    #[must_use]
    pub fn next(&self, groups: &[Group]) -> Option<(Groups, Command)> {
        let home = |account: Account| account.home(groups);
        let (from, to) = (home(self.order.from)?, home(self.order.to)?);
        let both = Groups::from([from, to]);
        Some(match self.stage {
            Stage::Begin if from == to => (Groups::from(from), Command::Pay(self.order)),
            Stage::Begin => (both, Command::Reserve(self.number, self.order)),
            Stage::Settle(id) => (both, Command::Settle(id)),
            Stage::Cancel(id, _) => (both, Command::Cancel(id)),
            Stage::Ended(_) => return None,
        })
    }

    /// Processes the replies to the command that was due. `session` is the session under which the command was sent.
    ///
    /// # Errors
    /// Returns an error if the replies are not replies of the bank. In that case the transfer does not change.
    pub fn answered<'a>(
        &mut self,
        session: SessionId,
        replies: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), WrongReply> {
        let verdicts = replies.map(verdict).collect::<Result<Vec<_>, _>>()?;
        let id = TransferId::new(session, self.number, &self.order);
        self.stage = match (self.stage, &verdicts[..]) {
            (Stage::Begin, [Verdict::Balance(_)]) => Stage::Ended(Outcome::Done),
            (Stage::Begin, [Verdict::Refused(why)]) => Stage::Ended(Outcome::Refused(*why)),
            (Stage::Begin, [Verdict::Held, Verdict::Expected] | [Verdict::Expected, Verdict::Held]) => {
                Stage::Settle(id)
            }
            (Stage::Begin, [Verdict::Refused(why @ Refusal::NumberInUse(_)), Verdict::Refused(other)])
                if why == other =>
            {
                Stage::Ended(Outcome::Refused(*why))
            }
            // Both legs of the other transfer are created and removed together. A cancellation would close it.
            (
                Stage::Begin,
                [Verdict::Refused(Refusal::NumberInUse(_)), _] | [_, Verdict::Refused(Refusal::NumberInUse(_))],
            ) => {
                return Err(WrongReply::Together(verdicts));
            }
            // Normally the payee's group has neither account. It names the payer's account in its refusal, because it
            // cannot know which of the two it should have.
            (Stage::Begin, [Verdict::Held, Verdict::Refused(_)] | [Verdict::Refused(_), Verdict::Held]) => {
                Stage::Cancel(id, Refusal::NoAccount(self.order.to))
            }
            (Stage::Begin, [Verdict::Refused(why), _] | [_, Verdict::Refused(why)]) => Stage::Cancel(id, *why),
            (Stage::Settle(_), [Verdict::Settled, Verdict::Settled]) => Stage::Ended(Outcome::Done),
            (Stage::Cancel(_, why), [Verdict::Cancelled, Verdict::Cancelled]) => Stage::Ended(Outcome::Refused(why)),
            // A refused transfer is never settled, so the process that closed it has cancelled it.
            (Stage::Cancel(_, why), [Verdict::Closed, Verdict::Closed]) => Stage::Ended(Outcome::Refused(why)),
            (Stage::Settle(_), [Verdict::Closed, Verdict::Closed]) => Stage::Ended(Outcome::ClosedByAnother),
            _ => return Err(WrongReply::Together(verdicts)),
        };
        Ok(())
    }

    /// Returns the outcome if the transfer has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self.stage {
            Stage::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Returns whether the command that is due may be sent again under another session, whatever the outcome of an
    /// earlier attempt. A command that names the transfer may be sent again, because it has no effect once the transfer
    /// is closed.
    #[must_use]
    pub fn may_be_sent_again(&self) -> bool {
        matches!(self.stage, Stage::Settle(_) | Stage::Cancel(..))
    }
}

/// The error of a reply that a bank cannot have sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrongReply {
    /// The reply cannot be parsed.
    #[error("a reply of the bank cannot be read: {0}: do nodes and clients run the same version?")]
    Json(#[from] serde_json::Error),
    /// The reply does not belong to the request.
    #[error("the bank replied {0:?}, which does not answer the request: do nodes and clients run the same version?")]
    Verdict(Verdict),
    /// The groups of a transfer disagree about it.
    #[error(
        "the groups of a transfer replied {0:?}, and these replies contradict each other: do nodes and clients run the same version?"
    )]
    Together(Vec<Verdict>),
}

/// Parses a reply.
pub(crate) fn verdict(bytes: &[u8]) -> Result<Verdict, WrongReply> {
    Ok(serde_json::from_slice(bytes)?)
}
