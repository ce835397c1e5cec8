//! Helpers shared by the tests of several crates: temporary directories, random numbers, medians. `xtask` and the
//! instruction counter link it, too; no shipped program does.

#![forbid(unsafe_code)]

mod directory;

pub use directory::TempDir;
pub use stentor_fabric::SplitMix64;

/// Returns the median. An even number of values has the upper of the middle two as its median.
///
/// # Panics
/// Panics if there is no value.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Reads a number from an environment variable, such as the seed of a longer run. Returns `default` if the variable is
/// not set, or is not UTF-8.
///
/// # Panics
/// Panics if the variable is UTF-8 but not a number.
#[must_use]
pub fn number_of_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: not a number: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 3.0);
    }

    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut random = SplitMix64(1_234_567);
        let first = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first.map(|_| random.word()), first);
    }
}
