//! Exhaustive model checks of the switch. They run the real step function and real endpoints in every order of arrivals
//! from different links, passes of the loop and timeouts. Faults are lost, duplicated and overtaken packets, lost
//! mirror copies, early timeouts, expired leases and restarts. Some searches have several senders or changes of
//! members.
//!
//! `STENTOR_MODEL=minutes` enables searches that take minutes in an optimised build. `STENTOR_MODEL=large` enables all
//! long searches.

mod model;
#[cfg(feature = "plants")]
mod mutants;
mod searches;
