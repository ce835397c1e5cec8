//! Simulation of exactly-once sessions: real members and clients on simulated NICs, with tables of sessions, under the
//! faults of the multicast's profiles.
//!
//! A drawn run ([`run_seed`]) uses a small service and its own clients. [`Service::run`] runs any other [`Machine`]
//! under any other [`Workload`]. The properties are the same, but states in answers, times and versions are judged only
//! in drawn runs: for another machine X9, X12 and X13 are reported as not checked, and X10 is judged without the states
//! of reads.
//!
//! Members apply commands to the service through `Sessions` and send replies by `Answers`, as nodes do. Clients use
//! `Caller` as the library's client does. They ask for missing replies, renew and widen their session, and write
//! tickets before they send commands. A later process takes up the session and resolves open commands. Some clients
//! send copies of commands, some give commands up, and some never ask.
//!
//! # Properties
//! | name | meaning |
//! |---|---|
//! | X1 | a command is applied at most once in each of its groups, and in no other |
//! | X2 | a command is applied in all of its groups or in none |
//! | X3 | a caller's reply is that of the first application of its own command |
//! | X4 | a command reported as not applied is applied nowhere, before or after |
//! | X5 | an unknown fate has a true reason that `docs/sessions.md` names |
//! | X6 | members of a group have equal tables and services after the same deliveries |
//! | X7 | every client completes after the faults have stopped |
//! | X8 | a command is ordered after everything that its caller had observed when it began |
//! | X9 | a query is answered from the state after earlier commands, and changes nothing |
//! | X10 | a read outside the order fulfils its guarantee: see `read_ledger.rs` |
//! | X11 | sessions get their notifications once and in order: see `note_ledger.rs` |
//! | X12 | sessions end and timers fire at their positions, once and in order: see `time_ledger.rs` |
//! | X13 | members of a group apply a position in the same version, which all their programs have |

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
mod time_ledger;
mod told;
mod workload;

pub use counts::SessionCounts;
pub use ledger::{Applied, AppliedCalls, Passed};
pub use machine::{Machine, Place, TimeEvent};
pub use mutant::Mutant;
pub use note_ledger::Notes;
pub use run::{RunReport, record_seed, run_seed, run_seed_with_timers, run_seed_without_reads};
pub use scenario::{Scenario, Shape};
pub use service::{Service, ServiceRun};
pub use told::{News, Told};
pub use workload::{Begun, Next, Turn, Workload};
