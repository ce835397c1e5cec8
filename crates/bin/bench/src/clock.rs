//! Time on a clock that all processes of a host share.

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Returns the monotonic clock, in nanoseconds.
#[inline]
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Cost and resolution of the clock.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Grain {
    /// Cost of one reading in nanoseconds: the smallest mean of several batches, so that it contains no time slice of
    /// another process.
    pub(super) cost_ns: f64,
    /// Resolution in nanoseconds: all readings differ by multiples of this value.
    pub(super) step_ns: u64,
}

impl Grain {
    pub(super) fn measure() -> Self {
        const READS: u32 = 200;
        /// Smallest and largest number of batches. After the smallest number, the measurement ends once it has taken
        /// [`LONGEST`].
        const BATCHES: [u32; 2] = [20, 200];
        /// Time limit in nanoseconds, for hosts where reading the clock is a system call.
        const LONGEST: u64 = 10_000_000;
        let batch = || {
            let start = now();
            for _ in 0..READS {
                std::hint::black_box(now());
            }
            (now() - start) as f64 / f64::from(READS + 1)
        };
        let start = now();
        let goes_on = |done: &u32| *done < BATCHES[0] || *done < BATCHES[1] && now() - start < LONGEST;
        let cost_ns = (0..).take_while(goes_on).map(|_| batch()).fold(f64::INFINITY, f64::min);
        let mut last = now();
        let step_ns = (0..READS).fold(0, |step, _| divisor(step, now() - std::mem::replace(&mut last, now())));
        Grain { cost_ns, step_ns: step_ns.max(1) }
    }
}

/// Returns the greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_the_clock_takes_less_than_its_upper_limit() {
        let grain = Grain::measure();
        assert!(grain.cost_ns > 0.0 && grain.cost_ns < 100_000.0, "{grain:?}");
        assert_eq!([divisor(0, 30), divisor(30, 20), divisor(10, 0), divisor(9, 5)], [30, 10, 10, 1]);
    }
}
