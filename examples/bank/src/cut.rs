//! The sums of all groups at one place in the order.

use std::fmt;

use stentor::{Answer, Client, Consistency, Group, Position};

use crate::teller::TellerError;
use crate::transfer::{WrongReply, verdict};
use crate::{Query, Totals, Verdict};

/// The sums of all groups at one place in their order.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The place.
    pub position: Position,
    /// The sums, by group.
    pub totals: Vec<(Group, Totals)>,
}

impl Cut {
    /// Reads the sums of these groups at one place.
    ///
    /// # Errors
    /// If they do not answer within the client's patience.
    pub fn read(client: &Client, groups: &[Group]) -> Result<Cut, TellerError> {
        let query = serde_json::to_vec(&Query::Totals).map_err(WrongReply::from)?;
        let answer: Answer = client.read(groups, &query, Consistency::Ordered).wait()?;
        Ok(Cut::of(answer.position(), answer.replies())?)
    }

    /// Takes the replies to [`Query::Totals`] of one read for a cut.
    ///
    /// # Errors
    /// If one of them is something else.
    pub fn of<'a>(position: Position, replies: impl Iterator<Item = (Group, &'a [u8])>) -> Result<Cut, WrongReply> {
        let total = |(group, bytes): (Group, &[u8])| match verdict(bytes)? {
            Verdict::Totals(totals) => Ok((group, totals)),
            other => Err(WrongReply::Verdict(other)),
        };
        Ok(Cut { position, totals: replies.map(total).collect::<Result<_, _>>()? })
    }

    /// Returns what is on all accounts and in flight.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.totals.iter().map(|(_, of)| u128::from(of.balances) + u128::from(of.held)).sum()
    }

    /// Returns what is in flight.
    #[must_use]
    pub fn held(&self) -> u128 {
        self.totals.iter().map(|(_, of)| u128::from(of.held)).sum()
    }

    /// Judges the cut: what is there must be what was deposited less what was withdrawn. Returns the sum.
    ///
    /// # Errors
    /// If it is more or less.
    pub fn check(&self) -> Result<u128, WrongCut> {
        let deposited: u128 = self.totals.iter().map(|(_, of)| u128::from(of.deposited)).sum();
        let withdrawn: u128 = self.totals.iter().map(|(_, of)| u128::from(of.withdrawn)).sum();
        let sum = self.sum();
        if sum + withdrawn == deposited { Ok(sum) } else { Err(WrongCut { cut: self.clone(), deposited, withdrawn }) }
    }
}

/// A cut at which money was made or lost.
#[derive(Clone, Debug)]
pub struct WrongCut {
    cut: Cut,
    deposited: u128,
    withdrawn: u128,
}

impl fmt::Display for WrongCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongCut { cut, deposited, withdrawn } = self;
        write!(
            f,
            "the groups have {} at {:?}, but {deposited} was deposited and {withdrawn} withdrawn",
            cut.sum(),
            cut.position
        )?;
        cut.totals.iter().try_for_each(|(group, totals)| write!(f, "; {group:?}: {totals:?}"))
    }
}

impl std::error::Error for WrongCut {}
