//! Time for histories.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970, from one clock for all processes of a host. Histories compare them across processes; a step
/// back of the system clock shows as an error when the history is read, never as a wrong verdict.
#[must_use]
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
