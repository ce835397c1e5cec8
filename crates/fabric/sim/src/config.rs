//! What a world is made of, and what it asks of its harness.

use stentor_fabric::ProcessId;

use crate::fault::{FaultMix, FaultPlan};
use crate::model::NetworkModel;
use crate::transcript::Transcript;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Processes, numbered from 0.
    pub processes: usize,
    /// Decides everything that is random.
    pub seed: u64,
    /// Delays and liberties.
    pub network: NetworkModel,
    /// Faults at fixed times.
    pub faults: FaultPlan,
    /// Faults drawn from the seed.
    pub mix: FaultMix,
    /// Whether a trace is recorded.
    pub trace: bool,
    /// The transcript that is to be written, if any.
    pub transcript: Option<Transcript>,
}

impl SimConfig {
    /// No faults of processes or links, no trace, no transcript.
    #[must_use]
    pub fn new(processes: usize, seed: u64, network: NetworkModel) -> Self {
        let (faults, mix) = (FaultPlan::new(), FaultMix::default());
        SimConfig { processes, seed, network, faults, mix, trace: false, transcript: None }
    }
}

/// What the harness is to do now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Due {
    /// Let the process run one round of its loop, then call [`World::stepped`](crate::World::stepped).
    Step {
        /// Who.
        process: ProcessId,
        /// Virtual time by the process's own clock, ns.
        now_ns: u64,
    },
    /// The process crashed: drop what it was made of. Its fabric is dead; calls to it do nothing.
    Crashed(ProcessId),
    /// A planned fault wants the process back: [`World::restart`](crate::World::restart).
    Restart(ProcessId),
}
