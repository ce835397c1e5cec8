//! Latencies of messages.

use hdrhistogram::Histogram;
use serde::Serialize;

/// A histogram of latencies with three significant digits.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

/// Percentiles of latencies, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Micros {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency(Histogram::new(3).expect("three digits are possible"))
    }
}

impl Latency {
    /// Records one latency, in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.0.record(ns).expect("the histogram grows as needed");
    }

    /// Returns the percentiles, or `None` if no latency was recorded.
    pub fn micros(&self) -> Option<Micros> {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |quantile| us(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| Micros { p50: at(0.5), p99: at(0.99), max: us(self.0.max()) })
    }
}

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs", self.p50, self.p99, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_microseconds_whatever_the_size() {
        let mut latency = Latency::default();
        assert_eq!(latency.micros(), None);
        for us in 1..=100 {
            latency.record(us * 1000);
        }
        latency.record(60_000_000_000);
        let Micros { p50, p99, max } = latency.micros().unwrap();
        assert!((50.0..52.0).contains(&p50) && (99.0..101.0).contains(&p99), "{p50} {p99}");
        assert!((60_000_000.0..60_100_000.0).contains(&max), "{max}");
    }
}
