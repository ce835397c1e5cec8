//! Commands, queries and replies of the bank. They are encoded as JSON, so that the histories of a simulation and the
//! output of observers are readable.

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
    /// The amount, in the bank's smallest unit.
    pub amount: u64,
}

/// The name of a transfer between two groups: the session that reserved the transfer, the number that the client has
/// assigned to the transfer, and the two accounts.
///
/// The accounts determine the groups. So if a client uses a number again for other groups, these groups cannot mistake
/// the second transfer for the first one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TransferId {
    session: [u8; 16],
    number: u64,
    from: Account,
    to: Account,
}

impl TransferId {
    /// Returns the name of a transfer.
    #[must_use]
    pub fn new(session: SessionId, number: u64, order: &Order) -> TransferId {
        TransferId { session: session.to_bytes(), number, from: order.from, to: order.to }
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransferId { session, number, from, to } = self;
        write!(f, "{:032x}-{number}-{from}-{to}", u128::from_be_bytes(*session))
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
            let (session, rest) = text.split_once('-')?;
            let session = u128::from_str_radix(session, 16).ok()?.to_be_bytes();
            let numbers = rest.split('-').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
            let [number, from, to] = numbers[..] else { return None };
            Some(TransferId { session, number, from: Account(from), to: Account(to) })
        };
        parse().ok_or_else(|| {
            format!("`{text}` is no transfer name: expected a hexadecimal session, a number and two accounts, with `-`")
        })
    }
}

impl TryFrom<String> for TransferId {
    type Error = String;

    fn try_from(text: String) -> Result<TransferId, String> {
        text.parse()
    }
}

/// A command that changes the accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Opens an empty account. The client sends this command to the account's group.
    Open(Account),
    /// Pays money in. The client sends this command to the account's group.
    Deposit(Account, u64),
    /// Pays money out. The client sends this command to the account's group.
    Withdraw(Account, u64),
    /// Transfers between two accounts of the group that applies this command.
    Pay(Order),
    /// Begins a transfer between two groups. The client sends this command to both groups. The client assigns the
    /// number, which differs for each transfer of its session.
    Reserve(u64, Order),
    /// Settles a transfer whose amount one group holds and the other one expects. The client sends this command to both
    /// groups.
    Settle(TransferId),
    /// Cancels a transfer. The client sends this command to both groups.
    Cancel(TransferId),
}

/// A query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Query {
    /// The sums of a group.
    Totals,
    /// The balance of an account.
    Balance(Account),
    /// The group's leg of a transfer that is not closed.
    Leg(TransferId),
    /// The transfers that are not closed and whose names follow the given one, ordered by name. The reply lists as many
    /// of them as surely fit.
    Legs(Option<TransferId>),
}

/// The part of a transfer that one group keeps until the transfer is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leg {
    /// The accounts and the amount.
    pub order: Order,
    /// The role of this group.
    pub side: Side,
    /// Time of the reservation, in nanoseconds of the order's time.
    pub since: u64,
}

/// The role of a group in a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Side {
    /// The group holds the amount.
    Held,
    /// The group credits the amount if the transfer is settled.
    Expected,
    /// The group has refused the transfer for this reason, and holds nothing.
    Refused(Refusal),
}

/// The reason for which a group refuses a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The group has no such account.
    NoAccount(Account),
    /// The group has the account already.
    Exists(Account),
    /// The account has less than the amount. The field is its balance.
    Insufficient(u64),
    /// The amount is 0, or larger than a group accepts.
    Amount(u64),
    /// Another transfer with this number is not closed.
    NumberInUse(u64),
    /// Both accounts belong to this group. The client has to send `Pay`.
    OneGroup,
    /// The bytes are not a command or a query of the bank, or the command was sent without a session.
    NotUnderstood,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoAccount(account) => write!(f, "there is no account {account}: open it first"),
            Refusal::Exists(account) => write!(f, "account {account} is open already"),
            Refusal::Insufficient(balance) => write!(f, "the account has {balance}, which is less than the amount"),
            Refusal::Amount(amount) => {
                write!(
                    f,
                    "{amount} is not a valid amount: an amount is at least 1, and all deposits of a group are at most {}",
                    crate::DEPOSITS
                )
            }
            Refusal::NumberInUse(number) => {
                write!(f, "transfer {number} of this session is under way: use another number")
            }
            Refusal::OneGroup => f.write_str("both accounts belong to one group: send `Pay` to that group"),
            Refusal::NotUnderstood => {
                f.write_str("the bank does not understand the command: do client and nodes run the same version?")
            }
        }
    }
}

/// A reply to a command, or an answer to a query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// The balance of the account: the answer to [`Query::Balance`], or the balance after the command. After
    /// [`Command::Pay`] it is the payer's balance.
    Balance(u64),
    /// The payer's group holds the amount.
    Held,
    /// The payee's group expects the amount.
    Expected,
    /// The group has settled its part of a transfer.
    Settled,
    /// The group has cancelled its part of a transfer.
    Cancelled,
    /// The group has no leg of the transfer. Normally an earlier command has closed the transfer.
    Closed,
    /// The group has refused the command or the query.
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
    /// The sum of the balances of all accounts.
    pub balances: u64,
    /// The sum of the amounts that the group holds for open transfers.
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
    fn names_of_transfers_are_parsed_as_printed() {
        let order = Order { from: Account(8), to: Account(u64::MAX), amount: 1 };
        let id = TransferId::new(SessionId::from_bytes([7; 16]), u64::MAX, &order);
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "-", "1-1", "x-1-1-1", "1-x-1-1", "123456789012345678901234567890123-1-1-1", "1-1-1-1-1"] {
            assert!(wrong.parse::<TransferId>().is_err(), "{wrong}");
        }
    }
}
