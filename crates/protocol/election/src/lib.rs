//! Leader election of a group: leadership as a stream of epochs.
//!
//! A process that takes part in an [`Election`] polls it and gets a stream of changes that name the leader
//! ([`Change`]). An election is never a one-shot event: leaders fail, resign and return. This crate does no I/O, reads
//! no clock and draws no random numbers. Time is an argument, the [`Duration`](std::time::Duration) since some origin,
//! and so are seeds.
//!
//! **Safety never depends on an election.** An election may name two leaders at once, name a crashed one, or change its
//! leader every millisecond ([`Flapping`] can). Ballots and majorities protect what is written under a ballot. A wrong
//! election costs only time.
//!
//! # Rules of every stream
//! The stream of one process keeps these rules. [`Audit`] checks them, also for other implementations.
//!
//! 1. The pairs (epoch, process) never decrease. The same pair is repeated only after [`Change::Pending`] (the leader
//!    was doubted wrongly), and never in the stream of the process that it names.
//! 2. After a change that names the polling process as leader, the next change is [`Change::Resigned`] with that epoch,
//!    or a newer epoch of the same process.
//! 3. [`Change::Resigned`] is reported only to the process that leads under that epoch.
//!
//! A process therefore leads under each epoch at most once. So (epoch, process) is a ballot that no other process uses,
//! provided that epochs are larger than those of the process's earlier lives. [`Heartbeat`] documents how it ensures
//! that.
//!
//! # Implementations
//! - [`Heartbeat`]: counters in fabric memory that the other members read one-sided. It needs no servers and is the
//!   default.
//! - `stentor-election-zookeeper`: an ensemble of ZooKeeper servers.
//! - [`Scripted`] and [`Flapping`]: for tests.
//!
//! # Example of an implementation
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
