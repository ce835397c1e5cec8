//! A user's own state machine and clients under simulation: all faults, virtual time, and one seed that decides a run.
//!
//! A [`SimCluster`] runs the members' real protocol and the clients' real sessions on simulated NICs, on one thread. Members crash and come back
//! without memory, processes stand still, links are cut, leaders change, packets are lost and sent again, and clients die and take their
//! sessions up. The same seed gives the same run, bit for bit.
//!
//! Every run is judged by what Stentor promises: each group is linearizable, and over groups there is one serial order that respects sessions.
//! So the replies that clients got must be those of some such order of their calls, applied to a *model* one after the other. The model is the
//! machine itself, if no other is [given](SimCluster::model). Besides, members of a group must have equal values and timers after the same calls, a read
//! must not change the value, and every client must come to its end when the faults have stopped. A read that is not
//! [ordered](crate::Consistency) must show the value at the place that its answer names, and [notifications](crate::Context::notify) must
//! come once and in order, or be told as missed.
//!
//! ```
//! use std::io::{self, Read, Write};
//! use stentor::sim::{Next, SimCluster, Turn};
//! use stentor::{Context, Frozen, ReadContext, Reply, StateMachine};
//!
//! #[derive(Clone, Copy, Default)]
//! struct Counter(u64);
//!
//! impl StateMachine for Counter {
//!     type Frozen = Counter;
//!
//!     fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
//!         self.0 += command.len() as u64;
//!         reply.extend(&self.0.to_le_bytes());
//!     }
//!
//!     fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
//!         reply.extend(&self.0.to_le_bytes());
//!     }
//!
//!     fn freeze(&self) -> Counter {
//!         *self
//!     }
//!
//!     fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
//!         let mut bytes = [0; 8];
//!         from.read_exact(&mut bytes)?;
//!         self.0 = u64::from_le_bytes(bytes);
//!         Ok(())
//!     }
//! }
//!
//! impl Frozen for Counter {
//!     fn write(self, out: &mut dyn Write) -> io::Result<()> {
//!         out.write_all(&self.0.to_le_bytes())
//!     }
//! }
//!
//! // In a test of your own: `#[test] fn the_counter_survives() -> Result<(), SimError>`.
//! let cluster = SimCluster::new(Counter::default, |_client| {
//!     |turn: &mut Turn<'_>| {
//!         let group = turn.groups()[0];
//!         if turn.random().percent(30) { Next::read(group, "") } else { Next::call(group, "three") }
//!     }
//! });
//! let report = cluster.clients(3).run(0..10)?;
//! assert!(report.count("answered") > 300);
//! # Ok::<(), stentor::sim::SimError>(())
//! ```
//!
//! [Timers](crate::Context::set_timer) fire and sessions end as in a cluster: where nobody calls, the leader of a group orders time entries. The
//! model's timers fire at the places that members passed.
//!
//! # When a seed fails
//! The error names the seed, what was violated, what shows it, and the last lines of the trace. The environment variable `STENTOR_SIM_SEED` has
//! the test run that seed alone.
//!
//! # What is not simulated
//! Groups that lose all their members at once, resets by operators, and [`CallError::Unknown`](crate::CallError::Unknown) by a caller's
//! patience: a simulated client resolves what is under way before its script hears of it.

mod applies;
mod clients;
mod cluster;
mod error;
mod failure;
mod hosted;
mod judge;
mod random;
mod replay;
mod report;
mod run;
mod script;
mod seen;
mod sequential;
mod wrongs;

pub use cluster::SimCluster;
pub use error::SimError;
pub use failure::{SimFailure, SimProperty};
pub use random::SimRandom;
pub use report::SimReport;
pub use run::SimRun;
pub use script::{Next, Script, Turn};
pub use seen::{Fate, Seen};
