//! Who leads a group: leadership as a stream of epochs.
//!
//! An [`Election`] is polled by the process that takes part in it and tells, change by change, who leads ([`Change`]).
//! It is never a one-shot event: leaders come, go and come back. Nothing here does I/O, reads a clock or draws a number;
//! time comes in as the [`Duration`](std::time::Duration) since some start, seeds as arguments.
//!
//! **Safety never depends on an election.** It may name two leaders at once, name a dead one or change its mind each
//! millisecond ([`Flapping`] does); what is written under a ballot is protected by ballots and majorities. A wrong
//! election costs time.
//!
//! # What every stream keeps
//! At one process ([`Audit`] checks it, for implementations of your own too):
//! 1. The pairs (epoch, process) never go down. The same pair comes again only after [`Change::Pending`] (the leader was
//!    doubted and the doubt was wrong), and never at the process that it names.
//! 2. A process that was told that it leads gets [`Change::Resigned`] with that epoch before anything else, except a
//!    newer epoch of its own.
//! 3. [`Change::Resigned`] comes only to who leads that epoch.
//!
//! So a process leads under each epoch at most once, and (epoch, process) is a ballot that nobody else uses, as long as
//! epochs are above those of the process's earlier lives ([`Heartbeat`] says how it sees to that).
//!
//! # Provided
//! - [`Heartbeat`]: counters in the fabric that the others read one-sided; no servers; the embedded default.
//! - `stentor-election-zookeeper`: an ensemble of servers, for who has one.
//! - [`Scripted`] and [`Flapping`]: for tests.
//!
//! # An election of your own
//! ```
//! use std::collections::VecDeque;
//! use std::time::Duration;
//!
//! use stentor_election::{Audit, Change, Election, HandOverError};
//! use stentor_fabric::ProcessId;
//!
//! /// An operator appoints; `appoint` is called by whatever the operator talks to.
//! struct Appointed {
//!     me: ProcessId,
//!     members: Vec<ProcessId>,
//!     epoch: u64,
//!     leading: Option<u64>,
//!     changes: VecDeque<Change>,
//! }
//!
//! impl Appointed {
//!     fn appoint(&mut self, process: ProcessId) {
//!         self.epoch += 1;
//!         if process != self.me && let Some(epoch) = self.leading.take() {
//!             self.changes.push_back(Change::Resigned { epoch });
//!         }
//!         if process == self.me {
//!             self.leading = Some(self.epoch);
//!         }
//!         self.changes.push_back(Change::Leader { epoch: self.epoch, process });
//!     }
//! }
//!
//! impl Election for Appointed {
//!     fn poll(&mut self, _now: Duration) -> Option<Change> {
//!         self.changes.pop_front()
//!     }
//!
//!     fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError> {
//!         if self.leading.is_none() {
//!             return Err(HandOverError::NotLeader);
//!         }
//!         if !self.members.contains(&to) {
//!             return Err(HandOverError::NotAMember { process: to });
//!         }
//!         self.appoint(to);
//!         Ok(())
//!     }
//!
//!     // A ballot met elsewhere: what is announced from now on is above it.
//!     fn witness(&mut self, epoch: u64, _process: ProcessId) {
//!         self.epoch = self.epoch.max(epoch);
//!     }
//! }
//!
//! let (p0, p1) = (ProcessId(0), ProcessId(1));
//! let changes = VecDeque::from([Change::Pending]);
//! let mut election = Appointed { me: p0, members: vec![p0, p1], epoch: 0, leading: None, changes };
//! election.appoint(p0);
//! election.hand_over(p1)?;
//! election.witness(7, p1);
//! election.appoint(p0);
//!
//! let mut audit = Audit::new(p0);
//! let stream: Vec<Change> = std::iter::from_fn(|| election.poll(Duration::ZERO)).collect();
//! for change in &stream {
//!     audit.check(*change)?;
//! }
//! assert_eq!(
//!     stream,
//!     [
//!         Change::Pending,
//!         Change::Leader { epoch: 1, process: p0 },
//!         Change::Resigned { epoch: 1 },
//!         Change::Leader { epoch: 2, process: p1 },
//!         Change::Leader { epoch: 8, process: p0 },
//!     ]
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod audit;
mod change;
mod heartbeat;
mod mutant;
mod scripted;

pub use audit::{Audit, AuditError};
pub use change::{Change, Election, HandOverError};
pub use heartbeat::{Beat, BeatError, Claim, Heartbeat, HeartbeatConfig, HeartbeatError, Kind, Life};
#[doc(hidden)]
pub use mutant::Mutant;
pub use scripted::{Flapping, Scripted};
