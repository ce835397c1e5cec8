//! The ratio of two samples, with a confidence interval.

/// Sample size above which the normal distribution approximates the rank statistic.
const LARGE: usize = 20;
/// The 97.5 % quantile of the normal distribution, in standard deviations.
const DEVIATIONS: f64 = 1.959_964;

/// Ratio of the values of one sample to those of another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ratio {
    /// Median of the ratios of all pairs.
    pub(super) value: f64,
    /// Bounds of the 95 % interval.
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ratio {
    /// Returns the ratio of `after` to `before`, or `None` if one of them has fewer than four values, which are too few
    /// for a 95 % interval. All values must be larger than 0.
    ///
    /// The ratio is the Hodges–Lehmann estimate for the logarithms. The interval is that of the Mann–Whitney test,
    /// which makes no assumption about the distributions. At each end, the interval excludes a number of pair ratios.
    /// This number is the largest value of the test's statistic whose cumulative probability is at most 2.5 %.
    pub(super) fn of(before: &[f64], after: &[f64]) -> Option<Self> {
        if before.len().min(after.len()) < 4 {
            return None;
        }
        let outside = left_out(before.len(), after.len());
        let pairs = after.iter().flat_map(|after| before.iter().map(move |before| after / before));
        let mut pairs: Vec<f64> = pairs.collect();
        pairs.sort_unstable_by(f64::total_cmp);
        let n = pairs.len();
        let value = f64::midpoint(pairs[(n - 1) / 2], pairs[n / 2]);
        Some(Ratio { value, low: pairs[outside], high: pairs[n - 1 - outside] })
    }
}

/// Returns the number of sorted ratios at each end that lie outside the interval.
fn left_out(n: usize, m: usize) -> usize {
    if n.max(m) > LARGE {
        return about_left_out(n as f64, m as f64);
    }
    let ways = ways(n, m);
    let most = ways.iter().sum::<u64>() as f64 * 0.025;
    let mut below = 0;
    let fits = ways.iter().take_while(|ways| {
        below += **ways;
        below as f64 <= most
    });
    // The value 0 of the statistic always fits: with four values in each sample, its probability is 1/70.
    fits.count().saturating_sub(1)
}

/// Returns the normal approximation of [`left_out`].
fn about_left_out(n: f64, m: f64) -> usize {
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    (n * m / 2.0 - DEVIATIONS * deviation - 0.5).max(0.0) as usize
}

/// Returns the number of orders of `n` values among `m` others for which the Mann–Whitney statistic is 0, 1, 2 and so
/// on. These are the coefficients of a Gaussian binomial, and exact: with 20 values each, their sum is below 2^38.
fn ways(n: usize, m: usize) -> Vec<u64> {
    let mut ways = vec![0; n * m + 1];
    ways[0] = 1;
    for i in 1..=n {
        // Multiplies by 1 - q^(m + i) and divides by 1 - q^i. Intermediate values may wrap below 0; the results do not.
        for u in (m + i..ways.len()).rev() {
            ways[u] = u64::wrapping_sub(ways[u], ways[u - m - i]);
        }
        for u in i..ways.len() {
            ways[u] = u64::wrapping_add(ways[u], ways[u - i]);
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use stentor_testutil::SplitMix64;

    use super::*;

    #[test]
    fn ways_count_all_orders() {
        assert_eq!(ways(2, 2), [1, 1, 2, 1, 1]);
        assert_eq!(ways(20, 20).iter().sum::<u64>(), 137_846_528_820, "40 over 20");
    }

    /// Published tables of the test list the greatest statistic that is significant at 5 %, two-sided.
    #[test]
    fn interval_ends_match_the_tables() {
        for (n, m, critical) in [(4, 4, 0), (5, 5, 2), (7, 7, 8), (5, 8, 6), (10, 10, 23), (20, 20, 127)] {
            assert_eq!((left_out(n, m), left_out(m, n)), (critical, critical), "{n} and {m}");
        }
        assert!(about_left_out(20.0, 20.0).abs_diff(left_out(20, 20)) <= 1, "where both can be used they agree");
    }

    #[test]
    fn few_values_have_no_interval() {
        assert_eq!(Ratio::of(&[1.0; 3], &[1.0; 9]), None);
        assert_eq!(Ratio::of(&[2.0; 4], &[3.0; 4]), Some(Ratio { value: 1.5, low: 1.5, high: 1.5 }));
    }

    #[test]
    fn one_wild_round_moves_little() {
        let before = [10.0, 10.1, 10.2, 9.9, 9.8, 10.0, 10.1];
        let mut after = before.map(|value| value * 1.2);
        after[3] = 900.0;
        let ratio = Ratio::of(&before, &after).unwrap();
        assert!((1.15..1.25).contains(&ratio.value) && ratio.low > 1.15 && ratio.high < 1.3, "{ratio:?}");
    }

    /// The interval contains the known ratio of samples from skewed distributions in about 95 % of the cases.
    #[test]
    fn interval_contains_the_ratio_as_often_as_claimed() {
        let mut random = SplitMix64(11);
        let mut next = |scale: f64| {
            let uniform = (random.word() >> 11) as f64 / (1_u64 << 53) as f64;
            scale * (1.0 - (1.0 - uniform).ln())
        };
        for n in [4, 7, 25] {
            let mut held = 0;
            for _ in 0..4000 {
                let before: Vec<f64> = (0..n).map(|_| next(1.0)).collect();
                let after: Vec<f64> = (0..n).map(|_| next(1.5)).collect();
                let ratio = Ratio::of(&before, &after).unwrap();
                held += u32::from((ratio.low..=ratio.high).contains(&1.5));
            }
            assert!(f64::from(held) / 4000.0 > 0.94, "{n} values: {held}");
        }
    }
}
