//! Configuration of a world, and the actions that it requests from its harness.

use stentor_fabric::ProcessId;

use crate::fault::{FaultMix, FaultPlan};
use crate::model::NetworkModel;
use crate::transcript::Transcript;

/// Configuration of a world.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Number of processes, which are numbered from 0.
    pub processes: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// Delays and liberties of the network.
    pub network: NetworkModel,
    /// Faults at fixed times.
    pub faults: FaultPlan,
    /// Faults drawn from the seed.
    pub mix: FaultMix,
    /// `true` if a trace is recorded.
    pub trace: bool,
    /// Transcript to write, if any.
    pub transcript: Option<Transcript>,
}

impl SimConfig {
    /// Returns a configuration without faults of processes or links, without a trace and without a transcript.
    #[must_use]
    pub fn new(processes: usize, seed: u64, network: NetworkModel) -> Self {
        let (faults, mix) = (FaultPlan::new(), FaultMix::default());
        SimConfig { processes, seed, network, faults, mix, trace: false, transcript: None }
    }
}

/// The next action of the harness.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Due {
    /// Let the process run one round of its loop, then call [`World::stepped`](crate::World::stepped).
    Step {
        /// The process to run.
        process: ProcessId,
        /// Virtual time on the process's own clock, in nanoseconds.
        now_ns: u64,
    },
    /// The process crashed. Drop its actor; calls to its fabric have no effect any more.
    Crashed(ProcessId),
    /// A planned fault requests a restart of the process: [`World::restart`](crate::World::restart).
    Restart(ProcessId),
}
