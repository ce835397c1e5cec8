//! Conversion between numbers, which count from 0, and the sequences in tags.

use crate::window::number_of;
use crate::{Config, Scheme, Tag, mutant};

/// Returns the sequence of a number.
#[inline]
pub(crate) fn sequence_of(config: &Config, number: u64) -> u32 {
    if mutant!(config.mutant, SequenceWraps) {
        return number as u32 % PLANTED_SEQUENCES;
    }
    config.first_sequence.wrapping_add(number as u32)
}

/// Returns the number that a sequence stands for, among the `window` numbers that begin with `expected`.
#[inline]
pub(crate) fn numbered(config: &Config, sequence: u32, expected: u64, window: u64) -> Option<u64> {
    if mutant!(config.mutant, SequenceWraps) {
        let ahead = sequence.wrapping_sub(expected as u32) % PLANTED_SEQUENCES;
        return Some(expected + u64::from(ahead));
    }
    number_of(sequence, config.first_sequence, expected, window)
}

/// Returns the sequence of a length, or of a whole message that is sent in place of its length.
#[inline]
pub(crate) fn length_sequence(config: &Config, number: u64, whole: bool) -> u32 {
    let sequence = sequence_of(config, number);
    if config.scheme != Scheme::Eager {
        return sequence;
    }
    if whole { sequence | Tag::WHOLE } else { sequence & !Tag::WHOLE }
}

/// Returns the number of a length, or of a message in place of its length, from its sequence; see [`numbered`].
#[inline]
pub(crate) fn numbered_length(config: &Config, sequence: u32, expected: u64, window: u64) -> Option<u64> {
    if config.scheme != Scheme::Eager {
        return numbered(config, sequence, expected, window);
    }
    modulo(config, sequence, expected, window, !Tag::WHOLE)
}

/// Returns the sequence of a piece of a message whose length is sent in front.
#[inline]
pub(crate) fn piece_sequence(config: &Config, piece: u64) -> u32 {
    let sequence = sequence_of(config, piece);
    if config.scheme == Scheme::Eager { sequence & PIECES } else { sequence }
}

/// Returns the sequence of a piece that is a whole message without a length in front.
#[inline]
pub(crate) fn alone_sequence(config: &Config, message: u64, piece: u64) -> u32 {
    let message = sequence_of(config, message) & MESSAGES;
    Tag::WHOLE | message << Tag::PIECE_BITS | piece_sequence(config, piece)
}

/// Returns the number of a piece from its sequence; see [`numbered`].
#[inline]
pub(crate) fn numbered_piece(config: &Config, sequence: u32, expected: u64, window: u64) -> Option<u64> {
    if config.scheme != Scheme::Eager {
        return numbered(config, sequence, expected, window);
    }
    if sequence & Tag::WHOLE == 0 && sequence & !PIECES != 0 {
        return None;
    }
    modulo(config, sequence, expected, window, PIECES)
}

/// Returns the number of a message from the sequence of the piece that is the whole message; see [`numbered`].
#[inline]
pub(crate) fn numbered_alone(config: &Config, sequence: u32, expected: u64, window: u64) -> Option<u64> {
    modulo(config, sequence >> Tag::PIECE_BITS, expected, window, MESSAGES)
}

/// Mask for the sequence bits that number a piece.
const PIECES: u32 = (1 << Tag::PIECE_BITS) - 1;
/// Mask for the number of a message of one piece, after its sequence is shifted right by [`Tag::PIECE_BITS`].
const MESSAGES: u32 = (1 << (31 - Tag::PIECE_BITS)) - 1;

#[inline]
fn modulo(config: &Config, sequence: u32, expected: u64, window: u64, bits: u32) -> Option<u64> {
    if mutant!(config.mutant, SequenceWraps) {
        return numbered(config, sequence & bits, expected, window);
    }
    let ahead = u64::from(sequence.wrapping_sub(sequence_of(config, expected)) & bits);
    (ahead < window).then(|| expected + ahead)
}

/// Number of distinct sequences with the mutant `SequenceWraps`.
const PLANTED_SEQUENCES: u32 = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MAX_WINDOW;

    proptest! {
        /// The first sequence and the numbers are arbitrary, and the distance reaches up to the widest window.
        #[test]
        fn single_piece_sequence_holds_both_numbers(
            first_sequence: u32, (message, piece) in (0_u64..1 << 40, 0_u64..1 << 40),
            (ahead, further) in (0..u64::from(MAX_WINDOW), 0..u64::from(MAX_WINDOW)),
        ) {
            let (config, window) = (Config { first_sequence, ..Config::default() }, u64::from(MAX_WINDOW));
            let sequence = alone_sequence(&config, message + ahead, piece + further);
            prop_assert_eq!(numbered_alone(&config, sequence, message, window), Some(message + ahead));
            prop_assert_eq!(numbered_piece(&config, sequence, piece, window), Some(piece + further));
            prop_assert_eq!(numbered_alone(&config, sequence, message + ahead + 1, window), None);
            prop_assert_eq!(numbered_piece(&config, sequence, piece + further + 1, window), None);
            let low = first_sequence.wrapping_add((message + ahead) as u32) & 0x7fff;
            prop_assert_eq!(sequence >> Tag::PIECE_BITS, 1 << 15 | low);
            let announced = piece_sequence(&config, piece + further);
            prop_assert_eq!(numbered_piece(&config, announced, piece, window), Some(piece + further));
            prop_assert_eq!(announced, sequence & PIECES);
        }
    }
}
