//! Simulation of the ordered channel: real endpoints on simulated NICs, with completions in any order.

mod actor;
mod history;
mod run;
mod scenario;
mod watch;

pub use run::{RunReport, record_seed, run_scenario, run_seed};
pub use scenario::{Scenario, Trouble};
