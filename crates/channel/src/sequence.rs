//! From numbers that count from 0 to the sequences of tags, and back.

use crate::window::number_of;
use crate::{Config, Scheme, Tag, planted};

/// The sequence of a number.
#[inline]
pub(crate) fn sequence_of(config: &Config, number: u64) -> u32 {
    if planted!(config.plant, SequenceWraps) {
        return number as u32 % PLANTED_SEQUENCES;
    }
    config.first_sequence.wrapping_add(number as u32)
}

/// The number that a sequence stands for: one of the `window` numbers from `expected` on.
#[inline]
pub(crate) fn numbered(config: &Config, sequence: u32, expected: u64, window: u64) -> Option<u64> {
    if planted!(config.plant, SequenceWraps) {
        let ahead = sequence.wrapping_sub(expected as u32) % PLANTED_SEQUENCES;
        return Some(expected + u64::from(ahead));
    }
    number_of(sequence, config.first_sequence, expected, window)
}

/// The sequence of a length, which may be a whole message.
#[inline]
pub(crate) fn length_sequence(config: &Config, number: u64, whole: bool) -> u32 {
    let sequence = sequence_of(config, number);
    if config.scheme != Scheme::Eager {
        return sequence;
    }
    if whole { sequence | Tag::WHOLE } else { sequence & !Tag::WHOLE }
}

/// The number that the sequence of a length stands for, as [`numbered`].
#[inline]
pub(crate) fn numbered_length(config: &Config, sequence: u32, expected: u64, window: u64) -> Option<u64> {
    if config.scheme != Scheme::Eager {
        return numbered(config, sequence, expected, window);
    }
    if planted!(config.plant, SequenceWraps) {
        return numbered(config, sequence & !Tag::WHOLE, expected, window);
    }
    // Modulo 2^31.
    let ahead = u64::from(sequence.wrapping_sub(sequence_of(config, expected)) & !Tag::WHOLE);
    (ahead < window).then(|| expected + ahead)
}

/// How many sequences there are with the planted bug.
const PLANTED_SEQUENCES: u32 = 4;
