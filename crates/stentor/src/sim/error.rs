//! The errors of a simulation.

use thiserror::Error;

use super::failure::{SEED_VARIABLE, SimFailure};
use super::report::SimReport;
use crate::debug::debug_as_display;

debug_as_display!(SimError);

/// The reason why a simulation did not pass.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum SimError {
    /// A number is out of range.
    #[error("`{name}` is {given}: it must be from {least} to {most}")]
    Argument {
        /// Method that sets the number.
        name: &'static str,
        /// The number.
        given: u64,
        /// Smallest possible number.
        least: u64,
        /// Largest possible number.
        most: u64,
    },
    /// `run` received no seed.
    #[error("there is no seed: pass seeds to `run`, for example 0..200")]
    NoSeeds,
    /// The environment variable `STENTOR_SIM_SEED` is not a number.
    #[error("{SEED_VARIABLE} is \"{0}\": it must be a seed, for example 42 or 0x2a")]
    Variable(String),
    /// The members could not be created.
    #[error("the simulated processes do not start: {0}; smaller commands, replies or clusters may help")]
    Start(String),
    /// A seed failed.
    #[error("{0}")]
    Failed(Box<SimFailure>),
    /// No seed failed, but some event never happened: the seeds test less than they seem to.
    #[error(
        "in {} seeds, these events never happened: {}; run more seeds, or let clients make more calls over a longer time\n{}", .report.seeds(), .missing.join(", "),
        .report
    )]
    NotReached {
        /// Events that never happened, as [`SimReport::counts`] names them.
        missing: Vec<&'static str>,
        /// The events that happened.
        report: Box<SimReport>,
    },
}

impl SimError {
    /// Returns the failure of a seed, if the error is one.
    #[must_use]
    pub fn failure(&self) -> Option<&SimFailure> {
        match self {
            SimError::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}
