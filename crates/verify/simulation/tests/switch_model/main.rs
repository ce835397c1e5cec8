//! Exhaustive model checks of the switch. They run the real step function and real endpoints in every order of
//! arrivals, passes of the loop and timeouts. Faults are losses, duplicates, lost mirror copies, contention, expired
//! leases and changes of members.
//!
//! `STENTOR_MODEL=minutes` enables searches that take minutes in an optimised build. `STENTOR_MODEL=large` enables all
//! long searches.

mod model;
#[cfg(feature = "plants")]
mod mutants;
mod searches;
