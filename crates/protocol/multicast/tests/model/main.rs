//! The real state machines of all members, in every order in which channels can deliver.
//!
//! `exhaustive` searches small clusters completely (stateright, breadth first; states are identified by a 64-bit hash).
//! `mutants` proves that it detects dropped rules. `walk` runs larger clusters at random. `failing` searches with
//! failures. Every search prints its result, even if the output of tests is captured. `STENTOR_MODEL=large` adds
//! configurations that take minutes; `STENTOR_MODEL=minutes` adds only those that end in a few minutes.
#![forbid(unsafe_code)]

mod exhaustive;
mod failing;
mod machine;
#[cfg(feature = "plants")]
mod mutants;
mod network;
mod scenario;
mod store;
mod verdict;
mod walk;

/// Prints a line, even if the test passes.
fn say(line: &str) {
    use std::io::Write;
    writeln!(std::io::stderr(), "model: {line}").expect("standard error takes a line");
}

/// Returns whether `STENTOR_MODEL` in the environment enables long configurations: all of them if it is `large`, and
/// those that end in a few minutes (`minutes` is `true`) also if it is `minutes`.
pub(crate) fn asked(minutes: bool) -> bool {
    let asked = std::env::var("STENTOR_MODEL");
    let asked = asked.as_deref() == Ok("large") || minutes && asked.as_deref() == Ok("minutes");
    if !asked {
        let least = if minutes { "minutes" } else { "large" };
        say(&format!("NOT RUN: configurations that take long; STENTOR_MODEL={least} runs them"));
    }
    asked
}
