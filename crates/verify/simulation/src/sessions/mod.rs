//! Simulation of exactly-once sessions: real members and clients on simulated NICs, with tables of sessions above them, under the faults of
//! the multicast's profiles.
//!
//! A drawn run ([`run_seed`]) has a small service and clients of its own. [`Service::run`] runs any other [`Machine`] under any other
//! [`Workload`]; the properties are the same, but for the second half of X9.
//!
//! Members apply commands to the service through `Sessions`, and say replies by `Answers`, as nodes do. Clients use `Caller` as the
//! library's client does: they ask for replies that do not come, renew and widen their session, write down tickets before they send, and a
//! later process takes the session up and resolves what is open. Some send copies of commands, some give commands up, some never ask.
//!
//! # Properties
//! | name | what |
//! |---|---|
//! | X1 | a command is applied at most once in each of its groups, and in no other |
//! | X2 | it is applied in all of its groups or in none |
//! | X3 | the reply that a caller gets is that of the first application of its own command |
//! | X4 | what was said to be not applied is applied nowhere, before or after |
//! | X5 | a command whose fate stays unknown has a reason that `docs/sessions.md` names, and that reason is true |
//! | X6 | members of a group have equal tables and services after the same deliveries |
//! | X7 | when the faults have stopped every client comes to its end |
//! | X8 | a command comes after everything that its caller had heard of when it began, in whatever groups |
//! | X9 | a query is answered by the state after the commands before it, and changes nothing |
//! | X10 | a read outside the order has what its guarantee says: see `read_ledger.rs` |
//! | X11 | machines of a group send the same notifications; a session gets each once, in order, as it was sent, or is told that it was lost: see `note_ledger.rs` |

mod client;
mod client_reads;
mod counts;
mod disk;
mod drawn;
mod keeping;
mod ledger;
mod machine;
mod member;
mod mutant;
mod note_ledger;
mod notified;
mod read_ledger;
mod reading;
mod run;
mod scenario;
mod scripted;
mod served;
mod service;
mod shared;
mod story;
mod tally;
mod told;
mod workload;

pub use counts::SessionCounts;
pub use ledger::{Applied, AppliedCalls, Passed};
pub use machine::{Machine, Place};
pub use mutant::Mutant;
pub use note_ledger::Notes;
pub use run::{RunReport, record_seed, run_seed, run_seed_without_reads};
pub use scenario::{Scenario, Shape};
pub use service::{Service, ServiceRun};
pub use told::{News, Told};
pub use workload::{Begun, Next, Turn, Workload};
