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

impl Sets {
    /// All, in the order in which they are told.
    pub const ALL: [Sets; 3] = [Sets::Drawn, Sets::Always, Sets::Never];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["drawn", "always", "never"][self as usize]
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Sets::ALL.into_iter().find(|sets| sets.name() == name)
    }

    /// Whether the run of a seed has them. The stream of choices is its own, so that everything else is what it is without.
    pub(crate) fn has(self, seed: u64, stream: u64) -> bool {
        match self {
            Sets::Drawn => Chance::new(seed, stream).between(0, WITH_SETS - 1) == 0,
            Sets::Always => true,
            Sets::Never => false,
        }
    }
}

impl std::fmt::Display for Sets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// When the sets of a run break, beside what its other faults do to them.
pub(crate) fn breaks(seed: u64, stream: u64, until_ns: u64) -> FaultPlan {
    let mut chance = Chance::new(seed, stream);
    (0..chance.between(0, 6)).map(|_| (chance.between(20_000, until_ns), Fault::SetsBreak)).collect()
}
