//! Latencies: a histogram over all rounds, and the medians of rounds.

use hdrhistogram::Histogram;

/// Longest latency that is told apart, ns.
const LONGEST: u64 = 60_000_000_000;

/// Latencies of one row, or of its floor.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    all: Histogram<u64>,
    /// Of each round: median and 99th percentile, ns.
    rounds: Vec<(f64, f64)>,
    /// Multiplied to what was recorded: one half for half the round trip.
    scale: f64,
    /// Subtracted from what was recorded, ns: what reading the clock costs.
    clock: f64,
}

/// What is told of them, microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    pub(super) iterations: u64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Median of the rounds' medians.
    pub(super) typical: f64,
    pub(super) avg: f64,
    pub(super) stdev: f64,
    /// Median of the rounds' 99th percentiles.
    pub(super) p99: f64,
    /// Over all rounds.
    pub(super) p999: f64,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds and digits that the histogram takes")
}

/// The middle one; the mean of both when there are two. 0 of nothing.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

impl Samples {
    pub(super) fn new(scale: f64, clock: f64) -> Self {
        Samples { all: histogram(), rounds: Vec::new(), scale, clock }
    }

    /// Takes the latencies of one round, ns.
    pub(super) fn round(&mut self, latencies: impl IntoIterator<Item = u64>) {
        let mut round = histogram();
        for latency in latencies {
            round.saturating_record(latency.max(1));
        }
        if !round.is_empty() {
            self.rounds.push((self.ns(round.value_at_quantile(0.5)), self.ns(round.value_at_quantile(0.99))));
            self.all.add(&round).expect("equal bounds");
        }
    }

    fn ns(&self, recorded: u64) -> f64 {
        ((recorded as f64 - self.clock) * self.scale).max(0.0)
    }

    pub(super) fn summary(&self) -> Summary {
        let us = |ns: f64| ns / 1000.0;
        Summary {
            iterations: self.all.len(),
            min: us(self.ns(self.all.min())),
            max: us(self.ns(self.all.max())),
            typical: us(median(self.rounds.iter().map(|round| round.0))),
            avg: us((self.all.mean() - self.clock) * self.scale),
            stdev: us(self.all.stdev() * self.scale),
            p99: us(median(self.rounds.iter().map(|round| round.1))),
            p999: us(self.ns(self.all.value_at_quantile(0.999))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_rounds_not_of_all_samples() {
        let mut samples = Samples::new(0.5, 10.0);
        samples.round(vec![110; 1000]);
        samples.round(vec![210; 10]);
        samples.round(vec![310; 10]);
        let summary = samples.summary();
        assert_eq!(summary.iterations, 1020);
        assert!((summary.typical - 0.1).abs() < 1e-9, "{summary:?}");
        assert!((summary.min - 0.05).abs() < 1e-9, "{summary:?}");
        assert!((summary.max - 0.15).abs() < 1e-3, "{summary:?}");
    }

    #[test]
    fn the_median_of_two_is_between_them() {
        assert_eq!(median([3.0, 1.0]), 2.0);
        assert_eq!(median([5.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([]), 0.0);
    }
}
