//! Arguments of `cargo xtask compare`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::table::SYSTEMS;

/// The systems to measure, the number of runs, and the output files.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// Measures only these systems.
    #[arg(long, value_name = "NAME", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(SYSTEMS.iter().map(|system| system.name)))]
    pub only: Vec<String>,
    /// Number of runs of each system; the systems take turns, and the report has the medians.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Runs each system once with a tenth of the messages, to check that it works.
    #[arg(long, conflicts_with = "runs")]
    pub quick: bool,
    /// Writes a document with all figures and ratios to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes the printed tables to this file.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Draws latencies and rates by payload to this file, with panels for each place.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
