//! The real node on simulated NICs.

mod bed;
mod hops;
mod runs;
