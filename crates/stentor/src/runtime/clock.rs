//! The clocks of this host, for histories and for the times that groups assign.

use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of the host's monotonic clock, in nanoseconds. All processes of one host and one time namespace
/// share this clock, and it never decreases. Histories compare times of processes that name the same
/// [clock](clock_name).
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Returns a name of the clock of [`now_ns`]: the boot id of the host's kernel, and the time namespace if there are
/// any. Returns `None` if the system does not reveal the boot id; then times are comparable within one process only.
#[must_use]
pub fn clock_name() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(format!("{} {}", boot.trim(), namespace.display()).trim().to_owned())
}

/// Returns a name for the life of a process whose history starts now, for a caller that does not number the lives of
/// the process. The name is the number of milliseconds since 1970, and at least 1. The name does not order lives,
/// because the calendar may be set back between two of them. The times of a history ([`now_ns`]) order them.
#[must_use]
pub fn life_now() -> u64 {
    (incarnation() / 1_000_000).max(1)
}

/// Returns a number that distinguishes this process from earlier ones with the same id: the present time, in
/// nanoseconds since 1970. Two processes have the same number only if both read the same nanosecond, for example
/// because the clock was set back.
pub(super) fn incarnation() -> u64 {
    wall_ns()
}

/// Returns the wall clock of this host, in nanoseconds since 1970; 0 before that.
pub(crate) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}

/// Longest time between two readings of the monotonic clock for which a reading of the wall clock between them is
/// accepted.
const ONE_MOMENT: Duration = Duration::from_millis(1);

/// Returns the time since `start`, and the wall clock at that moment in nanoseconds since 1970 (0 before that). Returns
/// `None` if this process was interrupted for 1 ms or longer between the readings.
pub(super) fn wall_clock(start: Instant) -> Option<(Duration, u64)> {
    let before = Instant::now();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Instant::now();
    let wall = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    (now - before < ONE_MOMENT).then(|| (now - start, wall))
}
