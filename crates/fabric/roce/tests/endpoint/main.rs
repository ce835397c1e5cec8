//! Tests of the endpoint without a socket. They feed it packets of captures and of simulated peers, and compare its
//! output.

#[path = "../common/mod.rs"]
mod common;

mod exact;
mod exhaustive;
mod golden;
mod links;
mod merging;
mod operational;
mod run_ids;
mod script;
mod stranger_exact;
