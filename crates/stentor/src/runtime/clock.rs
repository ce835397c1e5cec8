//! Time for histories.

use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the host's monotonic clock: one clock for all its processes, which never goes back. Histories compare
/// times across processes; with processes of several hosts they could not.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Which life of its process a history begins now, if nobody counts them: milliseconds of the calendar, so that the lives of
/// a process rise as long as the clock is not set back.
#[must_use]
pub fn life_now() -> u64 {
    incarnation() / 1_000_000
}

/// Tells a process from those that had its place before: the time of its start, nanoseconds of the calendar. Two are
/// alike only if the clock is set back to the very nanosecond.
pub(super) fn incarnation() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}
