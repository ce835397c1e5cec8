//! The real state machines of all members, in every order in which channels can deliver.
//!
//! `exhaustive` searches small clusters wholly (stateright, breadth first; states are told apart by a 64-bit hash);
//! `plants` proves that it finds what it should; `walk` goes through larger ones at random; `failing` searches with
//! failures. Every search prints what it did, captured or not. `STENTOR_MODEL=large` adds configurations that take
//! minutes; `STENTOR_MODEL=minutes` only those with failures that end in a few.
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

/// Prints a line, also when the test passes.
fn say(line: &str) {
    use std::io::Write;
    writeln!(std::io::stderr(), "model: {line}").expect("standard error takes a line");
}

/// What `STENTOR_MODEL` in the environment asks for: `minutes` or `large`, which includes it.
pub(crate) fn asked(minutes: bool) -> bool {
    let asked = std::env::var("STENTOR_MODEL");
    let asked = asked.as_deref() == Ok("large") || minutes && asked.as_deref() == Ok("minutes");
    if !asked {
        let least = if minutes { "minutes" } else { "large" };
        say(&format!("NOT RUN: configurations that take long; STENTOR_MODEL={least} runs them"));
    }
    asked
}
