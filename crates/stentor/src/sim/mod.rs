//! Simulation of a user's state machine and clients: injected faults, virtual time, and one seed that determines a run.
//!
//! A [`SimCluster`] runs the members' real protocol and the clients' real sessions on simulated NICs, on one thread.
//! Members crash and return without memory, processes pause, links are cut, leaders change, packets are lost and
//! retransmitted, and clients die and resume their sessions. The same seed produces the same run, bit for bit.
//!
//! Every run is checked against Stentor's guarantees: each group is linearizable, and over several groups there is one
//! serial order that respects sessions. The replies that clients received must therefore be those of some such order of
//! their calls, applied to a *model* one after the other. The model is the machine itself, unless another one is
//! [set](SimCluster::model).
//!
//! In addition:
//! - Members of a group must have equal values and timers after the same calls.
//! - A read must not change the value.
//! - Every client must finish after the faults have stopped.
//! - A read that is not [ordered](crate::Consistency) must return the value at the position that its answer names.
//! - [Notifications](crate::Context::notify) must arrive once and in order, or be reported as missed.
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
//! [Timers](crate::Context::set_timer) fire and sessions end as in a real cluster: if no client calls, the leader of a
//! group orders time entries. The model's timers fire at the positions that members passed.
//!
//! # When a seed fails
//! The error names the seed, the violated property and the evidence, and shows the lines of the trace up to the
//! violation. To run that seed alone, set the environment variable `STENTOR_SIM_SEED`.
//!
//! # Limits of the simulation
//! The simulation does not cover groups that lose all their members at once, resets by operators, and
//! [`CallError::Unknown`](crate::CallError::Unknown) after a caller's timeout: a simulated client resolves its calls in
//! flight before its script learns their fate.

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
