//! Why a simulation did not pass.

use thiserror::Error;

use super::failure::{SEED_VARIABLE, SimFailure};
use super::report::SimReport;
use crate::debug::debug_as_display;

debug_as_display!(SimError);

/// Why a simulation did not pass.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum SimError {
    /// A number is not possible.
    #[error("`{name}` is {given}: from {least} to {most} are possible")]
    Argument {
        /// The method that sets it.
        name: &'static str,
        /// What was given.
        given: u64,
        /// The least possible number.
        least: u64,
        /// The largest one.
        most: u64,
    },
    /// There is no seed to run.
    #[error("there is no seed: give `run` some, 0..200 for example")]
    NoSeeds,
    /// The environment variable `STENTOR_SIM_SEED` is no number.
    #[error("{SEED_VARIABLE} is \"{0}\": it must be a seed, 42 or 0x2a for example")]
    Variable(String),
    /// The members could not be made.
    #[error("the simulated processes do not start: {0}; smaller commands, replies or clusters may help")]
    Start(String),
    /// A seed failed.
    #[error("{0}")]
    Failed(Box<SimFailure>),
    /// No seed failed, and something never happened: the seeds test less than they seem to.
    #[error(
        "in {} seeds these never happened: {}; run more seeds, or let clients call more and longer\n{}", .report.seeds(), .missing.join(", "),
        .report
    )]
    NotReached {
        /// What never happened, as [`SimReport::counts`] names it.
        missing: Vec<&'static str>,
        /// What did.
        report: Box<SimReport>,
    },
}

impl SimError {
    /// Returns the failure of a seed, if that is what it is.
    #[must_use]
    pub fn failure(&self) -> Option<&SimFailure> {
        match self {
            SimError::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}
