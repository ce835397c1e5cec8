//! The switch with real endpoints around it: what may happen, step by step, and simulation runs that draw it.

pub mod ablation;
mod host;
mod program;
mod run;
mod scenario;
mod step;
mod tape;
mod world;

pub use host::{Flight, Host, Setup};
pub use program::{Kind, Op};
pub use run::{RunReport, record_seed, run_seed};
pub use scenario::{Scenario, Trouble};
pub use step::Step;
pub use world::World;
