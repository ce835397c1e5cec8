//! A bank whose accounts are spread over several groups.
//!
//! Account `n` belongs to group number `n mod G` of the `G` groups of the cluster ([`Account::home`]). A group sees
//! only its own accounts.
//!
//! # A transfer between two groups
//! One command to both groups has one position in the order of both, but each group decides by its own value. Only the
//! payer's group knows the balance. So one command cannot both check for the money and pay it out. A transfer takes two
//! commands, each to both groups:
//!
//! 1. [`Command::Reserve`]: the payer's group takes the amount out of the account and **holds** it, or refuses. The
//!    payee's group notes that it **expects** the amount, or refuses, for example because it has no such account. Each
//!    group keeps a [`Leg`] for the transfer, even if it refuses.
//! 2. If one group replied [`Verdict::Held`] and the other one [`Verdict::Expected`], the client sends
//!    [`Command::Settle`]: the first group drops the held amount, and the second group credits it. Otherwise the client
//!    sends [`Command::Cancel`]: the held amount goes back to its account. Both commands remove the legs.
//!
//! The second command cannot fail. Accounts are never closed, so an expected amount can be credited later, and credits
//! cannot overflow ([`DEPOSITS`]).
//!
//! Both legs of a transfer are created at one position of the order and removed at one position. If several processes
//! settle and cancel the same transfer, the first command decides in both groups alike. The other processes receive
//! [`Verdict::Closed`].
//!
//! A client that dies between the two commands leaves the money in flight. The money is counted at every cut, and it is
//! not lost. Either the client's next process continues from its journal ([`Teller`]), or any process finishes old
//! transfers ([`finish_old`]).
//!
//! # Invariants
//! A cut is one position of the order of all groups. At every cut, over all groups:
//!
//! - The sum of the balances and of the held amounts equals the deposits less the withdrawals ([`Cut::check`]).
//!   Transfers change neither side.
//! - No balance is below zero. The type has no negative values, and each subtraction is checked.
//! - A transfer has a leg in both of its groups or in none.
//!
//! # Trust in clients
//! The payee's group cannot know what the payer's group replied. A client that settles a refused transfer creates
//! money. Only [`Transfer`] and [`finish_old`] make this decision; tellers and simulated clients use [`Transfer`]. If
//! clients are not trusted, a server that is a member of a group would run the transfers for them (`Node::client` of
//! the crate `stentor`).
#![forbid(unsafe_code)]

mod account;
mod bank;
mod command;
mod cut;
mod finish;
mod journal;
mod ledger;
mod teller;
mod transfer;

pub use account::Account;
pub use bank::Bank;
pub use command::{Command, Leg, Order, Query, Refusal, Side, Totals, TransferId, Verdict};
pub use cut::{Cut, WrongCut};
pub use finish::{Finished, finish_old};
pub use journal::Journal;
pub use ledger::{DEPOSITS, Ledger};
pub use teller::{Counts, Teller, TellerError, ask, call};
pub use transfer::{Outcome, Transfer, WrongReply};
