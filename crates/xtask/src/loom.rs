//! Tests under loom, which runs every interleaving of a lock-free algorithm.

use anyhow::{Result, ensure};

use crate::cargo::{Context, run};
use crate::runner::Outcome;
use crate::workspace::Workspace;

/// Every crate with a `tests/loom.rs`, in a target directory of its own: the flag would rebuild everything twice.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let workspace = Workspace::load(context)?;
    let crates: Vec<_> = workspace.members().filter(|p| p.directory().join("tests/loom.rs").exists()).collect();
    ensure!(!crates.is_empty(), "no crate has a tests/loom.rs");
    for package in crates {
        let arguments = ["test", "--release", "--target-dir", "target/loom", "--test", "loom", "-p", &package.name];
        let mut command = context.cargo(arguments);
        command.env("RUSTFLAGS", "--cfg loom").env("CARGO_PROFILE_RELEASE_LTO", "off");
        command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        run(command.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"))?;
    }
    Ok(Outcome::Passed)
}
