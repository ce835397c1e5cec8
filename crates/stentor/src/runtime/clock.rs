//! Time for histories.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the host's monotonic clock: one clock for all its processes, which never goes back. Histories compare
/// times across processes; with processes of several hosts they could not.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
