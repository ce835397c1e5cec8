//! Simulation of the broadcast: real nodes and Byzantine processes on simulated NICs.

mod actor;
mod history;
mod operator;
mod run;
mod scenario;

pub(crate) use run::SLOW;
pub use run::{RunReport, record_seed, run_scenario, run_seed};
pub use scenario::{Profile, Removals, Scenario, Severity};
