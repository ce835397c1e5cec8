//! A simulated fabric: many processes in one thread, virtual time, one seed.
//!
//! [`World`] holds NICs, links and memory; [`World::fabric`] is one process's [`Fabric`](stentor_fabric::Fabric). A run
//! is a function of its configuration with the seed, bit for bit and in every build, because time and randomness come
//! only from the world.
//!
//! # Driving a run
//! ```
//! use stentor_fabric_sim::{Due, NetworkModel, SimConfig, World};
//!
//! let world = World::new(SimConfig::new(3, 42, NetworkModel::adversarial()));
//! // let mut processes = … each made with world.fabric(ProcessId(i)) …
//! while let Some(due) = world.next(1_000_000) {
//!     match due {
//!         Due::Step { process, now_ns } => {
//!             let worked = false; // processes[process].step(now_ns)
//!             world.stepped(process, worked);
//!         }
//!         Due::Crashed(_process) => { /* drop it */ }
//!         Due::Restart(process) => { let _fabric = world.restart(process); }
//!     }
//! }
//! ```
//! [`World::run`] does this for a slice of [`Actor`]s, but restarts no process. A process runs when something became
//! visible in its memory, when a completion or an event arrived, after a step in which it worked, or when a timeout
//! that it passed to `wait` has elapsed. Except after a timeout, it runs after a scheduling delay, so that steps fall
//! between the partial landings of a write. A harness may call [`World::wake_at`] to run a process at a given time. It
//! calls [`World::stop_faults`] to end all faults before a phase in which it checks liveness.
//!
//! # Faults
//! [`NetworkModel`] has switches for the liberties that the contract leaves. [`Fault`]s affect processes and links;
//! they come from a [`FaultPlan`] or a [`FaultMix`]. [`FaultCounts::named`] reports how often each one really happened:
//! a simulation run prints it and fails if one is zero. [`World::process_counts`] counts posts by verb and target.
//!
//! # Crashes and cuts
//! [`World::crash`] and [`World::restart`], [`World::cut`], [`World::cut_one_way`] and [`World::heal`], and
//! [`World::stall`] act at once, any number of times; a [`FaultPlan`] does the same at fixed times. Their effects are
//! the worst that the contract permits:
//! - A message that left the NIC of a crashed process, or that a cut held, arrives and lands until its target revokes
//!   the access or connects again ([`NetworkModel::late_after_break`]), and its initiator may get a success.
//! - The two ends of a connection learn of its end at different times.
//! - When a process restarts, the surviving processes may still be connected to its last life.
//!
//! # Sets
//! With [`NetworkModel::hardware_multicast`] the network copies the writes of sets. Each copy has its own delay, and a
//! write is done when all copies have landed. A target that refuses its copy breaks the set; copies in flight then land
//! late at some targets and never at other targets. [`World::set_counts`] reports this.
//!
//! # Limits of the model
//! Memory is sequentially consistent for the owner's CPU, so the simulator does not detect a missing fence between a
//! store and a READ (loom and real hardware do). There is one NIC for each process and one path for each pair of
//! processes; congestion inside the network is only random delay. Registering memory takes no time and has no limit.
//!
//! # Observing a run
//! With [`SimConfig::trace`], [`World::trace_json`] is a Chrome trace for `ui.perfetto.dev`; [`World::mark`] and
//! [`World::name`] add to it. With [`SimConfig::transcript`], [`World::take_transcript`] returns a [`Transcript`] of
//! posts with their data, landings, grants, connections and faults. Its hash identifies the behaviour of the run.
#![forbid(unsafe_code)]

mod config;
mod control;
mod counts;
mod event;
mod fabric;
mod fault;
mod membership;
mod memory;
mod model;
mod network;
mod process;
mod qp;
mod responder;
mod rng;
mod set;
mod state;
mod teardown;
mod trace;
mod tracing;
mod transcript;
mod visibility;
mod world;

pub use config::{Due, SimConfig};
pub use counts::{FaultCounts, ProcessCounts, SetCounts, VerbCounts};
pub use fabric::SimFabric;
pub use fault::{Fault, FaultMix, FaultPlan};
pub use model::{Delay, NetworkModel};
pub use rng::{MILLION, SimRng};
pub use transcript::Transcript;
pub use world::{Actor, World};
