//! How the two ends of a connection talk; the same at both.

use thiserror::Error;

use crate::{Mutant, mutant};

/// How messages become messages of the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Scheme {
    /// As the notes have it: the length, then the payload, each with the message's id in its tag.
    LengthPayload = 1,
    /// Short messages go instead of their length, which their tag says ([`Tag::WHOLE`](crate::Tag::WHOLE)); so do those of one
    /// piece for which the peer has a receive. The pieces of longer ones are numbered for themselves.
    #[default]
    Eager = 2,
    /// By WRITE_WITH_IMM into places that the receiver owns, for fabrics without tags: short messages go behind their length.
    Counted = 3,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 3] = [Scheme::LengthPayload, Scheme::Eager, Scheme::Counted];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::LengthPayload => "length+payload",
            Scheme::Eager => "eager",
            Scheme::Counted => "counted",
        }
    }

    /// The scheme of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }
}

/// The longest message that can be asked for, bytes.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 30;
/// The most messages of one kind in flight. Far below half of the 2³² sequences, and below half of the 2¹⁵ of messages that are
/// one piece ([`Tag::PIECE_BITS`](crate::Tag::PIECE_BITS)), so none of two that are in flight together can be taken for the other.
pub const MAX_WINDOW: u32 = 1 << 12;
/// Control messages of one direction in flight.
pub const CONTROLS: u32 = 16;
/// Bytes of a control message.
pub const CONTROL_BYTES: u32 = 64;
/// Bytes of a length.
pub const LENGTH_BYTES: u32 = 8;

/// Parameters of a connection; the two ends refuse each other if they differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// How messages are sent.
    pub scheme: Scheme,
    /// The longest message, bytes.
    pub message_bytes: u64,
    /// Messages up to this go with or instead of their length, bytes, a multiple of 8; nothing does with [`Scheme::LengthPayload`].
    pub eager_bytes: u32,
    /// The longest piece of a message, bytes, a multiple of 64. At most what the fabric sends at once.
    pub piece_bytes: u32,
    /// Lengths in flight, and receives for them posted ahead.
    pub lengths: u32,
    /// Pieces in flight, and receives for them posted ahead.
    pub pieces: u32,
    /// Where sequences begin: near their end, to see them wrap.
    pub first_sequence: u32,
    /// A mutant, for tests.
    #[doc(hidden)]
    pub mutant: Mutant,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            scheme: Scheme::default(),
            message_bytes: MAX_MESSAGE_BYTES,
            eager_bytes: 4096,
            piece_bytes: 64 << 10,
            lengths: 32,
            pieces: 16,
            first_sequence: 0,
            mutant: Mutant::None,
        }
    }
}

/// Why a connection cannot be made with these parameters.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// A number is out of bounds.
    #[error("{what} is {value}: it must be between {least} and {most}")]
    OutOfBounds {
        /// Which.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// The least possible.
        least: u64,
        /// The most possible.
        most: u64,
    },
    /// A size is not a multiple of what it must be one of.
    #[error("{what} is {value}: it must be a multiple of {of}")]
    NotAMultiple {
        /// Which.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// Of what.
        of: u64,
    },
    /// The fabric has no tags.
    #[error("{scheme} needs tagged messages, which `{fabric}` does not have; use the scheme `counted` there")]
    NoTags {
        /// The scheme.
        scheme: &'static str,
        /// The fabric.
        fabric: &'static str,
    },
}

fn within(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), ConfigError> {
    let fine = (least..=most).contains(&value);
    if fine { Ok(()) } else { Err(ConfigError::OutOfBounds { what, value, least, most }) }
}

fn multiple(what: &'static str, value: u64, of: u64) -> Result<(), ConfigError> {
    if value.is_multiple_of(of) { Ok(()) } else { Err(ConfigError::NotAMultiple { what, value, of }) }
}

impl Config {
    /// The default with another scheme.
    #[must_use]
    pub fn with(scheme: Scheme) -> Self {
        Config { scheme, ..Config::default() }.normal()
    }

    /// What the scheme leaves no choice about is as it must be.
    #[must_use]
    pub fn normal(self) -> Self {
        let eager_bytes = if self.scheme == Scheme::LengthPayload { 0 } else { self.eager_bytes };
        Config { eager_bytes, ..self }
    }

    /// Checks every number.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        within("the longest message (bytes)", self.message_bytes, 0, MAX_MESSAGE_BYTES)?;
        let most = if self.scheme == Scheme::LengthPayload { 0 } else { 1 << 20 };
        within("the longest eager message (bytes)", u64::from(self.eager_bytes), 0, most)?;
        multiple("the longest eager message (bytes)", u64::from(self.eager_bytes), 8)?;
        within("the longest piece (bytes)", u64::from(self.piece_bytes), 64, 1 << 30)?;
        multiple("the longest piece (bytes)", u64::from(self.piece_bytes), 64)?;
        within("lengths in flight", u64::from(self.lengths), 1, u64::from(MAX_WINDOW))?;
        within("pieces in flight", u64::from(self.pieces), 1, u64::from(MAX_WINDOW))
    }

    /// Whether a message goes with its length, or instead of it.
    #[inline]
    #[must_use]
    pub(crate) fn is_inline(&self, bytes: u64) -> bool {
        let never = mutant!(self.mutant, NeverInline);
        self.scheme != Scheme::LengthPayload && bytes <= u64::from(self.eager_bytes) && !never
    }

    /// Whether a message goes alone, with nothing that says its length.
    #[inline]
    #[must_use]
    pub(crate) fn is_whole(&self, bytes: u64) -> bool {
        self.scheme == Scheme::Eager && self.is_inline(bytes)
    }

    /// Whether a message is one piece that goes alone, if the peer has a receive for it.
    #[inline]
    #[must_use]
    pub(crate) fn is_alone(&self, bytes: u64) -> bool {
        let fits = bytes <= u64::from(self.piece_bytes) && !self.is_inline(bytes);
        fits && self.scheme == Scheme::Eager && !mutant!(self.mutant, NeverInline)
    }

    /// How many pieces a message has. The notes send a payload for an empty message, too.
    #[inline]
    #[must_use]
    pub(crate) fn pieces_of(&self, bytes: u64) -> u64 {
        if self.is_inline(bytes) { 0 } else { bytes.div_ceil(u64::from(self.piece_bytes)).max(1) }
    }

    /// Receives for lengths that are there for control messages: both come into the same ones, where the tag says what came.
    #[inline]
    pub(crate) fn spare(&self) -> u32 {
        if self.scheme == Scheme::Counted { 0 } else { CONTROLS }
    }

    /// Lengths that may be in flight.
    #[inline]
    pub(crate) fn lengths_ahead(&self) -> u32 {
        if mutant!(self.mutant, OneAhead) { 1 } else { self.lengths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_possible() {
        for scheme in Scheme::ALL {
            assert_eq!(Config::with(scheme).check(), Ok(()));
            assert_eq!(Scheme::named(scheme.name()), Some(scheme));
        }
    }

    #[test]
    fn a_window_is_far_below_half_of_the_sequences() {
        let config = Config { lengths: MAX_WINDOW + 1, ..Config::default() };
        assert!(config.check().unwrap_err().to_string().contains("between 1 and 4096"));
        assert!(u64::from(MAX_WINDOW) * 1000 < 1 << 31);
        assert!(u64::from(MAX_WINDOW) * 2 < 1 << (31 - crate::Tag::PIECE_BITS));
    }

    #[test]
    fn what_is_impossible_is_refused() {
        let config = Config::default();
        for bad in [
            Config { pieces: 0, ..config },
            Config { piece_bytes: 100, ..config },
            Config { piece_bytes: 0, ..config },
            Config { eager_bytes: 4, ..config },
            Config { message_bytes: MAX_MESSAGE_BYTES + 1, ..config },
            Config { scheme: Scheme::LengthPayload, ..config },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_empty_message_of_the_notes_has_a_payload() {
        let count = |scheme, bytes| {
            Config { piece_bytes: 64, eager_bytes: 8, ..Config::with(scheme) }.normal().pieces_of(bytes)
        };
        let counts =
            [0, 8, 9, 64, 65, 128].map(|bytes| (count(Scheme::LengthPayload, bytes), count(Scheme::Eager, bytes)));
        assert_eq!(counts, [(1, 0), (1, 0), (1, 1), (1, 1), (2, 2), (2, 2)]);
    }
}
