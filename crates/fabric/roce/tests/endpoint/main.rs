//! Tests of the endpoint without sockets. The tests pass packets of captures and of simulated peers to the endpoint,
//! and compare its output.

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
