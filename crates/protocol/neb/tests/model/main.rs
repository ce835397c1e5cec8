//! Exhaustive model checks of the real state machine with a Byzantine sender: every order that the fabric contract
//! permits, a crash or a false suspicion at any point, and two indices that share one slot.
//!
//! `STENTOR_MODEL=minutes` also searches the fast path of four processes with a lying sender. `STENTOR_MODEL=large`
//! searches that and the fast path with lying hosts, and quorums of four processes with a reused slot.

mod exhaustive;
#[cfg(feature = "plants")]
mod mutants;
mod network;
mod reduced;
