//! Exhaustive model checks of the switch: the real step function and real endpoints, in every order of arrivals, passes of the
//! loop and timeouts, with losses, repetitions, lost mirror copies, contention, leases that end and members that change.
//!
//! `STENTOR_MODEL=minutes` searches what takes minutes, optimised; `STENTOR_MODEL=large` all that takes long.

mod model;
#[cfg(feature = "plants")]
mod mutants;
mod searches;
