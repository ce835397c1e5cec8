//! Which runs write by sets, where the network makes the copies.

use stentor_fabric_sim::{Fault, FaultPlan};

use crate::chance::Chance;

/// Which runs write by sets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sets {
    /// One in four, as the seed says.
    #[default]
    Drawn,
    /// All.
    Always,
    /// None: the runs are what they were before there were sets.
    Never,
}

/// Of so many runs one has sets.
const WITH_SETS: u64 = 4;

/// What simulation runs claim of sets, as [`SetCounts`](stentor_fabric_sim::SetCounts) names it.
pub(crate) const CLAIMS: [&str; 6] =
    ["set_lives", "set_breaks", "set_copies", "unfinished_set_writes", "partial_set_writes", "late_copies"];

named!(Sets { Drawn = "drawn", Always = "always", Never = "never" });

impl Sets {
    /// Whether the run of a seed has them. The stream of choices is its own, so that everything else is what it is without.
    pub(crate) fn has(self, seed: u64, stream: u64) -> bool {
        match self {
            Sets::Drawn => Chance::new(seed, stream).between(0, WITH_SETS - 1) == 0,
            Sets::Always => true,
            Sets::Never => false,
        }
    }
}

/// When the sets of a run break, beside what its other faults do to them.
pub(crate) fn breaks(seed: u64, stream: u64, until_ns: u64) -> FaultPlan {
    let mut chance = Chance::new(seed, stream);
    (0..chance.between(0, 6)).map(|_| (chance.between(20_000, until_ns), Fault::SetsBreak)).collect()
}
