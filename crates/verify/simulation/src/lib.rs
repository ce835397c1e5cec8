//! Simulation runs: the real protocol code on simulated NICs, with many seeds, judged by the checker.
//!
//! One `u64` seed determines everything: the cluster ([`Scenario`]), the messages, every delay and every fault.
//! [`run_seed`] runs one seed of the multicast, and [`record_seed`] also records its events. [`neb`], [`channel`],
//! [`switch`] and [`sessions`] provide the same for the broadcast, channels, the switch and sessions. A
//! [`SimulationRun`] runs many seeds on all cores and keeps the lowest failing one. [`graphs::run`] simulates a group
//! with its real election, in which some members cannot reach each other.
#![forbid(unsafe_code)]

#[macro_use]
mod named;
mod actor;
mod catch_ups;
mod chance;
pub mod channel;
mod clocks;
mod counts;
mod faulty_run;
mod forgets;
pub mod graphs;
mod histories;
mod history;
mod judged;
pub mod neb;
mod nemesis;
mod progress;
mod record;
mod report;
mod run;
mod scenario;
pub mod sessions;
mod sets;
mod simulation_run;
pub mod switch;
mod transfers;

pub use counts::{RoleCounts, count_writes};
pub use faulty_run::RECOVERY_STEPS;
pub use forgets::ForgetCounts;
pub use nemesis::{Fault, Nemesis, NemesisCounts, Planned, Profile, Target, Told};
pub use record::{Record, Recorded, SeedHashes};
pub use report::RunReport;
pub use run::{record_seed, run_scenario, run_scenario_under, run_seed};
pub use scenario::Scenario;
pub use sets::Sets;
pub use simulation_run::{SimulationReport, SimulationRun, Violation};
pub use stentor_fabric_sim::FaultCounts;
pub use stentor_multicast::{Mutant, Variant};
pub use transfers::TransferCounts;
