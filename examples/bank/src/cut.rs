//! The sums of all groups at one position of their order.

use std::fmt;

use stentor::{Answer, Client, Consistency, Group, Position};

use crate::teller::TellerError;
use crate::transfer::{WrongReply, verdict};
use crate::{Query, Totals, Verdict};

/// The sums of all groups at one position of their order.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The position in the order.
    pub position: Position,
    /// The sums, by group.
    pub totals: Vec<(Group, Totals)>,
}

impl Cut {
    /// Reads the sums of these groups at one position.
    ///
    /// # Errors
    /// Returns an error if the groups do not answer within the client's patience, or if a reply is invalid.
    pub fn read(client: &Client, groups: &[Group]) -> Result<Cut, TellerError> {
        let query = serde_json::to_vec(&Query::Totals).map_err(WrongReply::from)?;
        let answer: Answer = client.read(groups, &query, Consistency::Ordered).wait()?;
        Ok(Cut::of(answer.position(), answer.replies())?)
    }

    /// Makes a cut of the replies to [`Query::Totals`] of one read.
    ///
    /// # Errors
    /// Returns an error if a reply does not answer that query.
    pub fn of<'a>(position: Position, replies: impl Iterator<Item = (Group, &'a [u8])>) -> Result<Cut, WrongReply> {
        let total = |(group, bytes): (Group, &[u8])| match verdict(bytes)? {
            Verdict::Totals(totals) => Ok((group, totals)),
            other => Err(WrongReply::Verdict(other)),
        };
        Ok(Cut { position, totals: replies.map(total).collect::<Result<_, _>>()? })
    }

    /// Returns the sum of all balances and of all amounts in flight.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.totals.iter().map(|(_, of)| u128::from(of.balances) + u128::from(of.held)).sum()
    }

    /// Returns the sum of the amounts in flight.
    #[must_use]
    pub fn held(&self) -> u128 {
        self.totals.iter().map(|(_, of)| u128::from(of.held)).sum()
    }

    /// Checks the cut: the sum must equal the deposits less the withdrawals. Returns the sum.
    ///
    /// # Errors
    /// Returns an error if the sum is larger or smaller.
    pub fn check(&self) -> Result<u128, WrongCut> {
        let deposited: u128 = self.totals.iter().map(|(_, of)| u128::from(of.deposited)).sum();
        let withdrawn: u128 = self.totals.iter().map(|(_, of)| u128::from(of.withdrawn)).sum();
        let sum = self.sum();
        if sum + withdrawn == deposited { Ok(sum) } else { Err(WrongCut { cut: self.clone(), deposited, withdrawn }) }
    }
}

/// The error of a cut at which money has been created or lost.
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
