//! Exhaustive model checks of the real state machine with a Byzantine sender: every order that the fabric contract
//! permits, a crash or a false suspicion at any point, and two indices that share one slot.
//!
//! `STENTOR_MODEL=minutes` also searches the fast path with four processes. `STENTOR_MODEL=large` runs all long
//! searches.

mod exhaustive;
#[cfg(feature = "plants")]
mod mutants;
mod network;
mod reduced;
