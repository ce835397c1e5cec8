//! From numbers that count from 0 to the sequences of tags, and back.

use crate::window::number_of;
use crate::{Config, planted};

/// The sequence of a number.
pub(crate) fn sequence_of(config: &Config, number: u64) -> u32 {
    if planted!(config.plant, SequenceWraps) {
        return number as u32 % PLANTED_SEQUENCES;
    }
    config.first_sequence.wrapping_add(number as u32)
}

/// The number that a sequence stands for: one of the `window` numbers from `expected` on.
pub(crate) fn numbered(config: &Config, sequence: u32, expected: u64, window: u64) -> Option<u64> {
    if planted!(config.plant, SequenceWraps) {
        let ahead = sequence.wrapping_sub(expected as u32) % PLANTED_SEQUENCES;
        return Some(expected + u64::from(ahead));
    }
    number_of(sequence, config.first_sequence, expected, window)
}

/// How many sequences there are with the planted bug.
const PLANTED_SEQUENCES: u32 = 4;
