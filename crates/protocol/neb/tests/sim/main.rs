//! The real node on simulated NICs.

mod bad_input;
mod bed;
mod hops;
mod late_loads;
mod removal;
mod runs;
mod sets;
