//! The endpoint without a socket. Packets of captures, and of peers that the tests make, go in; the tests compare what comes out.

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
