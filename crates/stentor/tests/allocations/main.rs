//! What allocates nothing in the steady state. The counter of allocations is each thread's own, so these tests run side by side.

mod channel;
mod client;
mod members;

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/log.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod log;
#[path = "../common/until.rs"]
#[allow(dead_code, reason = "other tests use it")]
mod until;
