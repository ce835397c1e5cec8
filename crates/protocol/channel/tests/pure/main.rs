//! The state machines alone: scripts, random runs, every run.

mod exhaustive;
mod fast;
mod forged;
mod pair;
#[cfg(feature = "plants")]
mod planted;
mod random;
mod script;
mod wide;
