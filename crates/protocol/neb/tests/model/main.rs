//! Exhaustive model checks of the real state machine, with a sender that lies: every order of what the contract leaves
//! open, a crash or a false suspicion anywhere, two indices that share one slot.
//!
//! `STENTOR_MODEL=minutes` also searches the fast path with four processes, `STENTOR_MODEL=large` all that takes long.

mod exhaustive;
#[cfg(feature = "plants")]
mod mutants;
mod network;
mod reduced;
