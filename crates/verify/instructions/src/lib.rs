//! Hot paths, run one message at a time so that their instructions can be counted.
//!
//! Every path except `client_call` runs all of its processes in one thread and in lock step, on shared memory or
//! without a fabric. Nothing spins, and outside of the module `client` no clock advances, so such a path executes the
//! same instructions in every run. The loops of clients read the clock, so their counts vary by less than one percent.
//! [`counted_section`] marks the code of the measured role; callgrind counts nothing else.
//!
//! `cargo xtask nightly --only instructions` counts every path for two numbers of messages. The cost of one message is
//! the difference of the counts divided by the difference of the numbers. It is compared with `baseline.toml` beside
//! this crate's manifest.
#![forbid(unsafe_code)]

pub mod channel;
pub mod client;
pub mod multicast;
pub mod neb;
pub mod shm;
pub mod switch;
pub mod wire;

use std::hint::black_box;

/// Number of messages that are sent on each path before instructions are counted, so that rings are warm and
/// connections are in their steady state.
pub const WARM_UP: u64 = 300;

/// Runs `section`, whose instructions callgrind counts. Calls must not be nested, because callgrind toggles at every
/// entry and exit.
#[inline(never)]
pub fn counted_section<R>(section: impl FnOnce() -> R) -> R {
    let result = section();
    // Without work after the call, the call would be compiled to a jump, and callgrind would miss the exit.
    black_box(&result);
    result
}

/// Runs `work`, and counts it if it belongs to the measured role.
#[inline]
fn counted_if<R>(measured: bool, work: impl FnOnce() -> R) -> R {
    if measured { counted_section(work) } else { work() }
}
