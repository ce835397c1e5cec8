//! What the tests of several crates share. No program is linked with it, but `xtask` and the counter of instructions.

#![forbid(unsafe_code)]

mod directory;

pub use directory::TempDir;
pub use stentor_fabric::SplitMix64;

/// Returns the median; of an even number of values, the upper of the two in the middle.
///
/// # Panics
/// If there is no value.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Reads a number from the environment, such as the seed of a longer run.
///
/// # Panics
/// If the variable holds something else.
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
