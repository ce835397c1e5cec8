//! Latencies: a histogram over all rounds, and the medians of rounds.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::clock::Grain;

/// Longest latency that the histogram distinguishes, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// Latencies of one row, or of its bound.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    all: Histogram<u64>,
    /// Median, 99th percentile and mean of each round, in nanoseconds.
    rounds: Vec<(f64, f64, f64)>,
    /// Factor by which a recorded value is multiplied, such as one half for a round trip.
    scale: f64,
    /// The clock, whose cost is subtracted from each recorded value.
    clock: Grain,
}

/// One step of a distribution: a share of the latencies and their upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Percentile {
    pub(super) us: f64,
    /// Share of the latencies, from 0 to 1.
    pub(super) quantile: f64,
    /// Number of latencies up to this step.
    pub(super) count: u64,
}

/// Number of steps of a distribution in which the share of longer latencies halves.
const TICKS: u32 = 5;

/// Summary of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    pub(super) iterations: u64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Median of the rounds' medians.
    pub(super) typical: f64,
    pub(super) avg: f64,
    /// Median of the rounds' means, for comparison with programs that report only a mean.
    pub(super) round_avg: f64,
    pub(super) stdev: f64,
    /// Median of the rounds' 99th percentiles.
    pub(super) p99: f64,
    /// 99.9th percentile over all rounds.
    pub(super) p999: f64,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds and digits that the histogram takes")
}

/// Returns the median, which is the mean of the two middle values if there is an even number of them, and 0 if there
/// are none.
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

/// Returns the median. If the step of the clock is about as long as the latencies, values on the middle step are
/// treated as spread evenly over it (the median of grouped data).
fn middle(round: &Histogram<u64>, step: u64) -> f64 {
    let value = round.value_at_quantile(0.5);
    let half = step / 2;
    if half == 0 || value >= 100 * step || value <= half {
        return value as f64;
    }
    let below = round.count_between(0, value - half - 1) as f64;
    let on = round.count_between(value - half, value + half) as f64;
    let wanted = round.len() as f64 / 2.0 - below;
    value as f64 + ((wanted / on).clamp(0.0, 1.0) - 0.5) * step as f64
}

impl Samples {
    pub(super) fn new(scale: f64, clock: Grain) -> Self {
        Samples { all: histogram(), rounds: Vec::new(), scale, clock }
    }

    /// Creates samples that are reported as they were recorded.
    pub(super) fn plain() -> Self {
        Samples::new(1.0, Grain::default())
    }

    /// Records the latencies of one round, in nanoseconds.
    pub(super) fn round(&mut self, latencies: impl IntoIterator<Item = u64>) {
        let mut round = histogram();
        for latency in latencies {
            round.saturating_record(latency.max(1));
        }
        if !round.is_empty() {
            let middle = middle(&round, self.clock.step_ns);
            let (p99, mean) = (self.ns(round.value_at_quantile(0.99) as f64), self.ns(round.mean()));
            self.rounds.push((self.ns(middle), p99, mean));
            self.all.add(&round).expect("equal bounds");
        }
    }

    /// Returns the medians of the rounds, in their order, in nanoseconds.
    pub(super) fn medians(&self) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(|round| round.0)
    }

    /// Returns the means of the rounds, in their order, in microseconds.
    pub(super) fn means(&self) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(|round| round.2 / 1000.0)
    }

    fn ns(&self, recorded: f64) -> f64 {
        ((recorded - self.clock.cost_ns) * self.scale).max(0.0)
    }

    /// Returns the medians of the rounds, in their order, in microseconds.
    pub(super) fn medians_us(&self) -> Vec<f64> {
        self.medians().map(|ns| ns / 1000.0).collect()
    }

    /// Returns the distribution of the latencies of all rounds, in steps that become finer towards the longest.
    pub(super) fn distribution(&self) -> Vec<Percentile> {
        let steps = self.all.iter_quantiles(TICKS).scan(0, |count, step| {
            *count += step.count_since_last_iteration();
            let us = self.ns(step.value_iterated_to() as f64) / 1000.0;
            Some(Percentile { us, quantile: step.quantile_iterated_to(), count: *count })
        });
        steps.collect()
    }

    pub(super) fn summary(&self) -> Summary {
        let us = |ns: f64| ns / 1000.0;
        Summary {
            iterations: self.all.len(),
            min: us(self.ns(self.all.min() as f64)),
            max: us(self.ns(self.all.max() as f64)),
            typical: us(median(self.rounds.iter().map(|round| round.0))),
            avg: us((self.all.mean() - self.clock.cost_ns) * self.scale),
            round_avg: us(median(self.rounds.iter().map(|round| round.2))),
            stdev: us(self.all.stdev() * self.scale),
            p99: us(median(self.rounds.iter().map(|round| round.1))),
            p999: us(self.ns(self.all.value_at_quantile(0.999) as f64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_rounds_not_of_all_samples() {
        let mut samples = Samples::new(0.5, Grain { cost_ns: 10.0, step_ns: 1 });
        samples.round(vec![110; 1000]);
        samples.round(vec![210; 10]);
        samples.round(vec![310; 10]);
        let summary = samples.summary();
        assert_eq!(summary.iterations, 1020);
        assert!((summary.typical - 0.1).abs() < 1e-9, "{summary:?}");
        assert!((summary.round_avg - 0.1).abs() < 1e-9 && summary.avg < 0.06, "{summary:?}");
        assert!((summary.min - 0.05).abs() < 1e-9, "{summary:?}");
        assert!((summary.max - 0.15).abs() < 1e-3, "{summary:?}");
    }

    #[test]
    fn a_distribution_rises_to_the_longest_and_counts_all() {
        let mut samples = Samples::new(1.0, Grain::default());
        samples.round(1..=1000);
        samples.round([9_000_000]);
        let steps = samples.distribution();
        assert!(steps.is_sorted_by(|a, b| a.us <= b.us && a.quantile <= b.quantile && a.count <= b.count), "{steps:?}");
        let half = steps.iter().find(|step| step.quantile >= 0.5).expect("a median");
        assert!((half.us - 0.5).abs() < 0.01, "{half:?}");
        let last = steps.last().expect("a longest");
        assert!(last.count == 1001 && last.quantile == 1.0 && (last.us - 9000.0).abs() < 9.0, "{last:?}");
        assert_eq!(samples.medians_us(), [0.5, 9003.007].map(|us| us));
    }

    #[test]
    fn median_on_a_coarse_clock_is_interpolated() {
        // A clock with steps of ten reads 112 as 110 in four fifths of the cases, and as 120 in one fifth.
        let mut round = histogram();
        round.record_n(110, 800).unwrap();
        round.record_n(120, 200).unwrap();
        assert!((middle(&round, 10) - 111.25).abs() < 0.01, "{}", middle(&round, 10));
        assert!((middle(&round, 1) - 110.0).abs() < 0.01);
    }

    #[test]
    fn the_median_of_two_is_between_them() {
        assert_eq!(median([3.0, 1.0]), 2.0);
        assert_eq!(median([5.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([]), 0.0);
    }
}
