//! The switch with real endpoints around it: a model of all possible steps, and simulation runs that draw them.
//! `tests/switch_model` explores the same model exhaustively.

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
