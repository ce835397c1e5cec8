//! The runs that write by fan-out sets, for which the network makes the copies.

use stentor_fabric_sim::{Fault, FaultPlan};

use crate::chance::Chance;

/// The runs that write by fan-out sets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sets {
    /// One in four runs uses fan-out sets, depending on the seed.
    #[default]
    Drawn,
    /// All runs use fan-out sets.
    Always,
    /// No run uses fan-out sets. All other choices are unchanged.
    Never,
}

/// One in `WITH_SETS` runs uses fan-out sets.
const WITH_SETS: u64 = 4;

/// Names of the [`SetCounts`](stentor_fabric_sim::SetCounts) that must not be 0 after a simulation run of enough seeds,
/// unless fan-out sets are off.
pub(crate) const CLAIMS: [&str; 6] =
    ["set_lives", "set_breaks", "set_copies", "unfinished_set_writes", "partial_set_writes", "late_copies"];

named!(Sets { Drawn = "drawn", Always = "always", Never = "never" });

impl Sets {
    /// Returns whether the run of a seed uses fan-out sets. The choice has its own stream, so that all other choices
    /// are unchanged.
    pub(crate) fn has(self, seed: u64, stream: u64) -> bool {
        match self {
            Sets::Drawn => Chance::new(seed, stream).between(0, WITH_SETS - 1) == 0,
            Sets::Always => true,
            Sets::Never => false,
        }
    }
}

/// Returns the times at which the fan-out sets of a run break, independent of its other faults.
pub(crate) fn breaks(seed: u64, stream: u64, until_ns: u64) -> FaultPlan {
    let mut chance = Chance::new(seed, stream);
    (0..chance.between(0, 6)).map(|_| (chance.between(20_000, until_ns), Fault::SetsBreak)).collect()
}
