//! The median of a sample, and a confidence interval of the true median.

/// A median and its interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Median {
    /// The median of the sample.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Median {
    /// Returns half of the interval's width, as a part of the median.
    pub(crate) fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.value
    }
}

/// Returns the sample's median with its 95 % interval, or `None` for fewer than six values, which have no such
/// interval.
///
/// The interval is between two order statistics. Each value is below the true median with a probability of one half. So
/// the number of values below it is binomial, whatever the distribution. The `k` smallest values can be left out if the
/// probability that at most `k` values are below the true median is at most 2.5 %. By symmetry, the `k` largest values
/// can then be left out, too.
pub(crate) fn median(sample: &[f64]) -> Option<Median> {
    let n = sample.len();
    let outside = left_out(n)?;
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let value = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
    Some(Median { value, low: sorted[outside], high: sorted[n - 1 - outside] })
}

/// Returns the number of values at each end of a sorted sample that are outside of the interval, or `None` if the
/// sample is too small for an interval.
fn left_out(n: usize) -> Option<usize> {
    // This sums P(X ≤ k) term by term, for the number X of heads of n fair coins.
    let mut term = 0.5_f64.powi(n as i32);
    let mut below = term;
    if below > 0.025 {
        return None;
    }
    let mut k = 0;
    loop {
        term *= (n - k) as f64 / (k + 1) as f64;
        below += term;
        if below > 0.025 {
            return Some(k);
        }
        k += 1;
    }
}

#[cfg(test)]
mod tests {
    use stentor_testutil::SplitMix64;

    use super::*;

    /// Tables of the sign test list the ranks of the interval's ends, counted from 1.
    #[test]
    fn ends_are_those_of_the_tables() {
        for (n, rank) in
            [(6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10), (50, 18), (60, 22)]
        {
            assert_eq!(left_out(n), Some(rank - 1), "{n}");
        }
        assert_eq!(left_out(5), None);
        assert_eq!(median(&[1.0; 5]), None);
    }

    #[test]
    fn median_of_an_even_number_is_between_two_values() {
        let ten: Vec<f64> = [3, 1, 2, 5, 4, 9, 6, 8, 7, 10].map(f64::from).into();
        assert_eq!(median(&ten), Some(Median { value: 5.5, low: 2.0, high: 9.0 }));
        assert!((median(&ten).unwrap().half_width() - 3.5 / 5.5).abs() < 1e-12);
    }

    #[test]
    fn one_outlier_does_not_change_the_interval() {
        let mut sample = vec![1.0; 11];
        sample.push(1000.0);
        assert_eq!(median(&sample), Some(Median { value: 1.0, low: 1.0, high: 1.0 }));
    }

    /// Returns a generator with a fixed seed, so that the test is deterministic.
    fn numbers(seed: u64) -> impl FnMut() -> f64 {
        let mut random = SplitMix64(seed);
        move || (random.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The samples are drawn from a skewed distribution whose median is known. The interval must contain this median in
    /// at least 95 % of the samples, and not in nearly all of them, since it would then be too wide.
    #[test]
    fn interval_contains_the_median_as_often_as_stated() {
        let mut next = numbers(7);
        for (n, most) in [(10, 0.99), (30, 0.98), (60, 0.98)] {
            let holds = |_: &u32| {
                let sample: Vec<f64> = (0..n).map(|_| -next().ln()).collect();
                let median = median(&sample).expect("enough values");
                (median.low..=median.high).contains(&std::f64::consts::LN_2)
            };
            let share = f64::from((0..4000_u32).filter(holds).count() as u32) / 4000.0;
            assert!((0.945..most).contains(&share), "{n} values: {share}");
        }
    }
}
