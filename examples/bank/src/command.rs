//! Commands, queries and replies of the bank. They are JSON, so that histories and observers can be read.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stentor::SessionId;

use crate::Account;

/// The accounts and the amount of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The account that pays.
    pub from: Account,
    /// The account that is paid.
    pub to: Account,
    /// How much, in the bank's smallest unit.
    pub amount: u64,
}

/// The name of a transfer between two groups: the session that reserved it, and that session's number for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TransferId {
    session: [u8; 16],
    number: u64,
}

impl TransferId {
    /// Names a transfer.
    #[must_use]
    pub fn new(session: SessionId, number: u64) -> TransferId {
        TransferId { session: session.to_bytes(), number }
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{}", u128::from_be_bytes(self.session), self.number)
    }
}

impl From<TransferId> for String {
    fn from(id: TransferId) -> String {
        id.to_string()
    }
}

impl FromStr for TransferId {
    type Err = String;

    fn from_str(text: &str) -> Result<TransferId, String> {
        let parse = || {
            let (session, number) = text.split_once('-')?;
            let session = u128::from_str_radix(session, 16).ok()?.to_be_bytes();
            Some(TransferId { session, number: number.parse().ok()? })
        };
        parse().ok_or_else(|| format!("`{text}` names no transfer: a session in hexadecimal digits, `-` and a number"))
    }
}

impl TryFrom<String> for TransferId {
    type Error = String;

    fn try_from(text: String) -> Result<TransferId, String> {
        text.parse()
    }
}

/// A change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Opens an empty account. To the account's group.
    Open(Account),
    /// Pays money in. To the account's group.
    Deposit(Account, u64),
    /// Pays money out. To the account's group.
    Withdraw(Account, u64),
    /// Transfers between two accounts of the group that gets this.
    Pay(Order),
    /// Begins a transfer between two groups. To both. The number is the sender's own, and another one for each transfer of its session.
    Reserve(u64, Order),
    /// Ends a transfer that one group holds and the other one expects. To both.
    Settle(TransferId),
    /// Takes a transfer back. To both.
    Cancel(TransferId),
}

/// A question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Query {
    /// The sums of a group.
    Totals,
    /// The balance of an account.
    Balance(Account),
    /// The group's leg of a transfer that is not closed.
    Leg(TransferId),
    /// The transfers that are not closed, in the order of their names: as many of those behind this one as a reply has room for.
    Legs(Option<TransferId>),
}

/// The part of a transfer that one group keeps until the transfer is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leg {
    /// The accounts and the amount.
    pub order: Order,
    /// The part of this group.
    pub side: Side,
    /// When it was reserved, nanoseconds of the order's time.
    pub since: u64,
}

/// The part of a group in a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Side {
    /// It holds the amount.
    Held,
    /// It credits the amount if the transfer is settled.
    Expected,
    /// Nothing, for this reason.
    Refused(Refusal),
}

/// Why a group does not do what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// It has no such account.
    NoAccount(Account),
    /// It has the account already.
    Exists(Account),
    /// The account has only this balance.
    Insufficient(u64),
    /// The amount is 0, or more than a group takes.
    Amount(u64),
    /// Another transfer with this number is not closed.
    NumberInUse(u64),
    /// Both accounts are of this group: use `Pay`.
    OneGroup,
    /// The command is no command of a bank, or came without a session.
    NotUnderstood,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoAccount(account) => write!(f, "there is no account {account}: open it first"),
            Refusal::Exists(account) => write!(f, "account {account} is open already"),
            Refusal::Insufficient(balance) => write!(f, "the account has {balance}: ask for less"),
            Refusal::Amount(amount) => {
                write!(f, "{amount} is not an amount: 1 to {} in all deposits of a group", crate::DEPOSITS)
            }
            Refusal::NumberInUse(number) => {
                write!(f, "transfer {number} of this session is under way: take another number")
            }
            Refusal::OneGroup => f.write_str("both accounts are of one group: send `Pay` to it"),
            Refusal::NotUnderstood => {
                f.write_str("the bank does not understand the command: do both run the same version?")
            }
        }
    }
}

/// A reply, or an answer to a question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// It was done, and so much is on the account now. After [`Command::Pay`], on the account that paid.
    Balance(u64),
    /// The payer's group holds the amount.
    Held,
    /// The payee's group expects the amount.
    Expected,
    /// This group has done its part of the end of a transfer.
    Settled,
    /// This group has taken back its part of a transfer.
    Cancelled,
    /// This group has no such transfer any more: another process closed it before.
    Closed,
    /// It was not done.
    Refused(Refusal),
    /// The answer to [`Query::Totals`].
    Totals(Totals),
    /// The answer to [`Query::Leg`].
    Leg(Option<Leg>),
    /// The answer to [`Query::Legs`].
    Legs(Vec<(TransferId, Leg)>),
}

/// The sums of one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The number of accounts.
    pub accounts: u64,
    /// The sum of their balances.
    pub balances: u64,
    /// The sum of the amounts that are held for transfers that are not closed.
    pub held: u64,
    /// The sum of all deposits ever made.
    pub deposited: u64,
    /// The sum of all withdrawals ever made.
    pub withdrawn: u64,
    /// The number of transfers that are not closed.
    pub legs: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_transfers_are_read_again() {
        let id = TransferId::new(SessionId::from_bytes([7; 16]), u64::MAX);
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "-", "1", "x-1", "1-x", "123456789012345678901234567890123-1", "1-1-1"] {
            assert!(wrong.parse::<TransferId>().is_err(), "{wrong}");
        }
    }
}
