//! Hot paths, one message at a time, arranged so that their instructions can be counted.
//!
//! Every path but `client_call` runs all of its processes in one thread and in lock step, on shared memory or on no fabric at all. Nothing
//! spins, and outside of the module `client` no clock advances: such a path executes the same instructions in every run. The loops of clients
//! look at the clock, so theirs scatter by less than one percent. [`counted_section`] marks what belongs to the measured role; callgrind
//! counts nothing else.
//!
//! `cargo xtask nightly --only instructions` counts every path for two numbers of messages. The difference, divided by the
//! difference of the numbers, is the cost of a message, compared with `baseline.toml` beside this crate's manifest.
#![forbid(unsafe_code)]

pub mod channel;
pub mod client;
pub mod multicast;
pub mod neb;
pub mod shm;
pub mod switch;
pub mod wire;

use std::hint::black_box;

/// Messages that every path passes before it is counted, so that rings are warm and connections are in their steady state.
pub const WARM_UP: u64 = 300;

/// Runs `section`, whose instructions callgrind counts. It must not be nested: callgrind toggles at every entry and exit.
#[inline(never)]
pub fn counted_section<R>(section: impl FnOnce() -> R) -> R {
    let result = section();
    // Without something left to do here the call above would be a jump, and callgrind would miss the exit.
    black_box(&result);
    result
}

/// Runs `work`, counted if it is the measured role's.
#[inline]
fn counted_if<R>(measured: bool, work: impl FnOnce() -> R) -> R {
    if measured { counted_section(work) } else { work() }
}
