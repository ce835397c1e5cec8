//! Arguments of `cargo xtask regression`.

use clap::Args;

use crate::regression::Bench;

/// The trees and the benches that are compared.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// The tree to compare with: a `stentor` binary, or a revision.
    #[arg(long, value_name = "BINARY|REVISION")]
    pub base: String,
    /// The `stentor` binary to compare, instead of the release build of this tree.
    #[arg(long, value_name = "BINARY")]
    pub new: Option<String>,
    /// The benches to run.
    #[arg(long = "bench", value_enum, value_delimiter = ',', default_value = "multicast,neb,channel")]
    pub benches: Vec<Bench>,
    /// Maximum number of pairs of runs for each bench; fewer than 6 have no 95 % interval.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(6..))]
    pub pairs: u64,
    /// The wait mode of idle processes, for benches that support several.
    #[arg(long, default_value = "adaptive", value_parser = ["poll", "yield", "block", "adaptive"])]
    pub wait: String,
}
