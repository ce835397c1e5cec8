//! Parameters of a connection, which must be equal at both ends.

use thiserror::Error;

use crate::{Mutant, mutant};

/// The mapping of the channel's messages to messages of the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Scheme {
    /// The length, then the payload, each with the message's id in its tag.
    LengthPayload = 1,
    /// A short message is sent in place of its length, marked by [`Tag::WHOLE`](crate::Tag::WHOLE) in its tag. A
    /// message of one piece is also sent without its length if the peer has a receive and this end a free slot for the
    /// piece. Pieces of longer messages are numbered separately from lengths.
    #[default]
    Eager = 2,
    /// Each message is a WRITE_WITH_IMM into a slot in the receiver's memory, for fabrics without tags. A short message
    /// is sent after its length, in the same WRITE.
    Counted = 3,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Scheme; 3] = [Scheme::LengthPayload, Scheme::Eager, Scheme::Counted];

    /// Returns the scheme's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::LengthPayload => "length+payload",
            Scheme::Eager => "eager",
            Scheme::Counted => "counted",
        }
    }

    /// Returns the scheme with that name, or `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }
}

/// Upper bound of [`Config::message_bytes`], in bytes.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 30;
/// Largest valid value of [`Config::lengths`] and of [`Config::pieces`]. It is far below half of the 2³² sequences, and
/// below half of the 2¹⁵ numbers for messages of one piece ([`Tag::PIECE_BITS`](crate::Tag::PIECE_BITS)). Two numbers
/// that are in flight at the same time therefore never have the same sequence.
pub const MAX_WINDOW: u32 = 1 << 12;
/// Largest number of control messages in flight per direction.
pub const CONTROLS: u32 = 16;
/// Size of a control message, in bytes.
pub const CONTROL_BYTES: u32 = 64;
/// Size of a length, in bytes.
pub const LENGTH_BYTES: u32 = 8;

/// Parameters of a connection. Two ends whose parameters differ refuse each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// The mapping of the channel's messages to messages of the fabric.
    pub scheme: Scheme,
    /// Length of the longest message, in bytes.
    pub message_bytes: u64,
    /// Length of the longest message that is sent with or in place of its length, in bytes, a multiple of 8. It is 0
    /// with [`Scheme::LengthPayload`].
    pub eager_bytes: u32,
    /// Length of the longest piece of a message, in bytes, a multiple of 64. It may not exceed the fabric's longest
    /// message.
    pub piece_bytes: u32,
    /// Largest number of lengths in flight per direction, and number of receives for lengths that are posted ahead.
    pub lengths: u32,
    /// Largest number of pieces in flight per direction, and largest number of receives for pieces that are posted
    /// ahead.
    pub pieces: u32,
    /// Sequence of the number 0 in each stream. Tests choose one near 2³² to see sequences wrap.
    pub first_sequence: u32,
    /// Mutant that is switched on, for tests.
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

/// Reason why parameters of a connection are invalid.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// A parameter is out of bounds.
    #[error("{what} is {value}: it must be between {least} and {most}")]
    OutOfBounds {
        /// Name of the parameter.
        what: &'static str,
        /// Value of the parameter.
        value: u64,
        /// Smallest valid value.
        least: u64,
        /// Largest valid value.
        most: u64,
    },
    /// A size is not a multiple of the required unit.
    #[error("{what} is {value}: it must be a multiple of {of}")]
    NotAMultiple {
        /// Name of the parameter.
        what: &'static str,
        /// Value of the parameter.
        value: u64,
        /// Required unit.
        of: u64,
    },
    /// The scheme needs tags and the fabric has none.
    #[error("{scheme} needs tagged messages, which `{fabric}` does not have; use the scheme `counted` there")]
    NoTags {
        /// Name of the scheme.
        scheme: &'static str,
        /// Name of the fabric.
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
    /// Returns the default parameters for `scheme`.
    #[must_use]
    pub fn with(scheme: Scheme) -> Self {
        Config { scheme, ..Config::default() }.normal()
    }

    /// Returns the parameters with every field that the scheme determines set to the required value.
    #[must_use]
    pub fn normal(self) -> Self {
        let eager_bytes = if self.scheme == Scheme::LengthPayload { 0 } else { self.eager_bytes };
        Config { eager_bytes, ..self }
    }

    /// Checks that every parameter is valid.
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

    /// Returns whether a message of `bytes` bytes is sent together with its length or in place of it.
    #[inline]
    #[must_use]
    pub(crate) fn is_inline(&self, bytes: u64) -> bool {
        let never = mutant!(self.mutant, NeverInline);
        self.scheme != Scheme::LengthPayload && bytes <= u64::from(self.eager_bytes) && !never
    }

    /// Returns whether a message of `bytes` bytes is sent in place of its length.
    #[inline]
    #[must_use]
    pub(crate) fn is_whole(&self, bytes: u64) -> bool {
        self.scheme == Scheme::Eager && self.is_inline(bytes)
    }

    /// Returns whether a message of `bytes` bytes may be sent as one piece without a length in front ([`Scheme::Eager`]
    /// only).
    #[inline]
    #[must_use]
    pub(crate) fn is_alone(&self, bytes: u64) -> bool {
        let fits = bytes <= u64::from(self.piece_bytes) && !self.is_inline(bytes);
        fits && self.scheme == Scheme::Eager && !mutant!(self.mutant, NeverInline)
    }

    /// Returns the number of pieces of a message of `bytes` bytes. With [`Scheme::LengthPayload`] an empty message has
    /// one piece.
    #[inline]
    #[must_use]
    pub(crate) fn pieces_of(&self, bytes: u64) -> u64 {
        if self.is_inline(bytes) { 0 } else { bytes.div_ceil(u64::from(self.piece_bytes)).max(1) }
    }

    /// Returns the number of extra receives for lengths that are posted for control messages. With tags, control
    /// messages arrive in receives for lengths, and the tag identifies what arrived.
    #[inline]
    pub(crate) fn spare(&self) -> u32 {
        if self.scheme == Scheme::Counted { 0 } else { CONTROLS }
    }

    /// Returns the number of lengths that may be in flight.
    #[inline]
    pub(crate) fn lengths_ahead(&self) -> u32 {
        if mutant!(self.mutant, OneAhead) { 1 } else { self.lengths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_parameters_are_valid() {
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
    fn invalid_parameters_are_refused() {
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
    fn only_length_payload_sends_a_piece_for_an_empty_message() {
        let count = |scheme, bytes| {
            Config { piece_bytes: 64, eager_bytes: 8, ..Config::with(scheme) }.normal().pieces_of(bytes)
        };
        let counts =
            [0, 8, 9, 64, 65, 128].map(|bytes| (count(Scheme::LengthPayload, bytes), count(Scheme::Eager, bytes)));
        assert_eq!(counts, [(1, 0), (1, 0), (1, 1), (1, 1), (2, 2), (2, 2)]);
    }
}
