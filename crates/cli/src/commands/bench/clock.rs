//! Time, the same for all processes of a host.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
#[inline]
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What reading it costs, ns: the smallest mean of several batches, so that a time slice of somebody else's is not in it.
pub(super) fn read_cost() -> f64 {
    const READS: u32 = 2000;
    let batch = || {
        let start = now();
        for _ in 0..READS {
            std::hint::black_box(now());
        }
        (now() - start) as f64 / f64::from(READS + 1)
    };
    (0..20).map(|_| batch()).fold(f64::INFINITY, f64::min)
}
