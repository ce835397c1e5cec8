//! Runs tests under loom, which explores every interleaving of a lock-free algorithm.

use anyhow::{Result, ensure};

use crate::cargo::{Context, run};
use crate::step::Outcome;
use crate::workspace::Workspace;

/// Runs the tests of every crate with a `tests/loom.rs`.
///
/// The tests have a separate target directory, because loom's flag would rebuild everything twice. One command builds
/// them all. Otherwise loom would be built with different features for each crate.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let workspace = Workspace::load(context)?;
    let crates: Vec<_> = workspace.members().filter(|p| p.directory().join("tests/loom.rs").exists()).collect();
    ensure!(!crates.is_empty(), "no crate has a tests/loom.rs");
    let mut command =
        context.cargo(["test", "--release", "--no-fail-fast", "--target-dir", "target/loom", "--test", "loom"]);
    command.args(crates.iter().flat_map(|package| ["-p", &package.name]));
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    run(command.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"))?;
    Ok(Outcome::Passed)
}
