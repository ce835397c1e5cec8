//! Simulation campaigns: the real protocol code on simulated NICs, many seeds, judged by the checker.
//!
//! One `u64` seed decides everything: the cluster ([`Scenario`]), the messages, every delay and every fault.
//! [`run_seed`] runs one, [`record_seed`] also records what happens; [`Campaign`] runs many on all cores and keeps the lowest seed that failed. The same for the
//! broadcast, [`neb::run_seed`], [`NebCampaign`], for channels, [`channel::run_seed`],
//! [`ChannelCampaign`], and for the switch, [`switch::run_seed`], [`SwitchCampaign`]. [`graphs::run`] is a group whose
//! members do not all reach each other, with its real election.
#![forbid(unsafe_code)]

mod actor;
mod campaign;
mod catch_ups;
mod chance;
pub mod channel;
mod counts;
pub mod graphs;
mod history;
mod judged;
pub mod neb;
mod nemesis;
mod ordeal;
mod progress;
mod record;
mod report;
mod run;
mod scenario;
mod sets;
pub mod switch;

pub use campaign::{Campaign, CampaignReport, ChannelCampaign, NebCampaign, SwitchCampaign, Violation};
pub use counts::{RoleCounts, count_writes};
pub use nemesis::{Fault, Nemesis, NemesisCounts, Planned, Profile, Target, Told};
pub use ordeal::RECOVERY_STEPS;
pub use record::{Record, Recorded, SeedHashes};
pub use report::RunReport;
pub use run::{record_seed, run_scenario, run_scenario_under, run_seed};
pub use scenario::Scenario;
pub use sets::Sets;
pub use stentor_fabric_sim::FaultCounts;
pub use stentor_multicast::{Plant, Variant};
