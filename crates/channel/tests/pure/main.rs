//! The state machines alone: scripts, random runs, every run.

mod exhaustive;
mod fast;
mod pair;
#[cfg(feature = "plants")]
mod planted;
mod random;
mod script;
