//! Tests of the state machines alone: scripts, random runs, and exhaustive searches.

mod exhaustive;
mod fast;
mod forged;
mod pair;
#[cfg(feature = "plants")]
mod planted;
mod random;
mod script;
mod wide;
