//! Tests that nothing is allocated in the steady state. Allocations are counted per thread, so these tests run in
//! parallel.

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
