//! The steps of `cargo xtask nightly`: what takes too long for every change.

use anyhow::Result;

use crate::cargo::{Context, run};
use crate::runner::{Outcome, Step};

/// The long steps.
pub(crate) const NIGHTLY: &[Step] = &[
    Step { name: "release-tests", what: "all tests, optimised as shipped", run: release_tests },
    Step { name: "properties", what: "the property tests with 4096 cases each instead of 256", run: properties },
    Step { name: "ignored", what: "the tests marked as too long for every change", run: ignored },
];

fn release_tests(context: &Context) -> Result<Outcome> {
    run(&mut context.cargo(["test", "--workspace", "--release"]))?;
    Ok(Outcome::Passed)
}

fn properties(context: &Context) -> Result<Outcome> {
    run(context.cargo(["test", "--workspace", "--release"]).env("PROPTEST_CASES", "4096"))?;
    Ok(Outcome::Passed)
}

fn ignored(context: &Context) -> Result<Outcome> {
    run(&mut context.cargo(["test", "--workspace", "--release", "--", "--ignored"]))?;
    Ok(Outcome::Passed)
}
