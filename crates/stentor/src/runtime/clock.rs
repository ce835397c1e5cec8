//! The clocks of this host: for histories, and for the times that groups give.

use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the host's monotonic clock: one clock for all its processes, which never goes back. Histories compare
/// times across processes that name the same [clock](clock_name).
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Names the clock of [`now_ns`]: the start of this host's kernel, and the time namespace where there are any. `None` where the
/// system does not say; then times are compared within one process only.
#[must_use]
pub fn clock_name() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(format!("{} {}", boot.trim(), namespace.display()).trim().to_owned())
}

/// Names the life of its process that a history begins now, if nobody counts them: milliseconds of the calendar, and at
/// least 1. It is a name and no order: the calendar may be set back between two lives, so the times of a history
/// ([`now_ns`]) order them.
#[must_use]
pub fn life_now() -> u64 {
    (incarnation() / 1_000_000).max(1)
}

/// Tells a process from those that had its place before: the time of its start, nanoseconds of the calendar. Two are
/// alike only if the clock is set back to the very nanosecond.
pub(super) fn incarnation() -> u64 {
    wall_ns()
}

/// The wall clock of this host, nanoseconds since 1970; 0 before that.
pub(crate) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}

/// The longest time between two looks at the monotonic clock, with one at the wall clock between them, that belong together.
const ONE_MOMENT: Duration = Duration::from_millis(1);

/// The time since `start`, and the wall clock at that moment: nanoseconds since 1970, 0 before that. `None` if this process
/// was interrupted between the looks.
pub(super) fn wall_clock(start: Instant) -> Option<(Duration, u64)> {
    let before = Instant::now();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Instant::now();
    let wall = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    (now - before < ONE_MOMENT).then(|| (now - start, wall))
}
