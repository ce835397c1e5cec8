//! A bank whose accounts are spread over several groups.
//!
//! Account `n` belongs to group number `n mod G` of the `G` groups of the cluster ([`Account::home`]). A group sees its own accounts only.
//!
//! # A transfer between two groups
//! One command to both groups has one place in the order of both, but each of them decides by its own value: the group of the payer knows
//! the balance, and the group of the payee does not. So one command cannot both ask for the money and pay it out. A transfer takes two commands, each
//! to both groups:
//!
//! 1. [`Command::Reserve`]: the group of the payer takes the amount out of the account and **holds** it, or refuses. The group of the payee notes that it
//!    **expects** the amount, or refuses because it has no such account. Each group keeps a [`Leg`] for the transfer, also where it refuses.
//! 2. If one replied [`Verdict::Held`] and the other one [`Verdict::Expected`], [`Command::Settle`]: the first drops what it holds, and the second
//!    credits it. Otherwise [`Command::Cancel`]: what is held goes back to its account. Both remove the leg.
//!
//! The second command cannot fail. Accounts are never closed, so what was expected can be credited later, and credits cannot overflow
//! ([`DEPOSITS`]).
//!
//! Both legs of a transfer are made at one place in the order and removed at one place. So of several processes that settle and cancel the same
//! transfer the first decides, in both groups alike, and the others are replied [`Verdict::Closed`].
//!
//! A client that dies between the two commands leaves the money in flight. It is counted, and it is not lost: the client's next process goes on
//! from its journal ([`Teller`]), or anybody finishes what is old ([`finish_old`]).
//!
//! # Invariants
//! At every cut, which is one place in the order of all groups, over all groups:
//!
//! - The balances and what is held are together what was deposited less what was withdrawn ([`Cut::check`]). Transfers change neither side.
//! - No balance is below zero. Its type has no such value, and each subtraction is checked.
//! - A transfer has a leg in both of its groups, or in none.
//!
//! # What the groups trust their clients with
//! The group of the payee cannot know what the group of the payer replied. A client that settles a transfer which was refused makes money. [`Transfer`]
//! decides that in one place, for tellers and for simulated clients. Where clients are strangers, a server that is a
//! member of a group would run it for them (`Node::client` of the crate `stentor`).
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
