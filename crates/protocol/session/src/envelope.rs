//! The envelope in front of every command of a session. The crate's header has its layout.

use thiserror::Error;

use crate::SessionId;
use crate::bytes::{put, u32_at, u64_at, u128_at};

/// Kind of an enveloped message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Kind {
    /// Applies the command that follows the envelope.
    #[default]
    Command = 1,
    /// Opens a session.
    Open = 2,
    /// Extends the session's end in one group.
    Renew = 3,
    /// Replaces the session's pairs by more, or newer, ones.
    Widen = 4,
    /// Begins the next generation of the session.
    TakeUp = 5,
    /// Ends the session.
    End = 6,
    /// Asks for the outcome of a request, or closes the request for good.
    Resolve = 7,
    /// Answers the query that follows the envelope. A query does not change the state, but it is ordered and answered
    /// like a command.
    Query = 8,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::{Command, End, Open, Query, Renew, Resolve, TakeUp, Widen};
        [Command, Open, Renew, Widen, TakeUp, End, Resolve, Query].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The envelope: the sender's session, the request, and the fields by which all destination groups reach the same
/// verdict.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Envelope {
    /// Session that the message belongs to.
    pub session: SessionId,
    /// `Command`, `Query`: number of the request, from 1. `Resolve`: the request in question. `Renew`: number of the
    /// renewal. Others: a random word that distinguishes this command from others of its kind and is equal in all
    /// copies.
    pub request: u64,
    /// `Command`, `Query`: the smallest of the ends that the destination groups have acknowledged. `Resolve`: the end
    /// that the request named. `Renew`: the end that the group has acknowledged. `Open`, `Widen`, `TakeUp`: the last
    /// time at which they may take effect. `End`: 0.
    pub end: u64,
    /// Hash over the random word of the generation, and over the destination groups with their incarnations
    /// ([`pairs_tag`](crate::pairs_tag)).
    pub pairs: u64,
    /// Generation of the sending process. In a `TakeUp` it is the generation that begins.
    pub generation: u32,
    /// `request` − responded, where every request below `responded` is settled. 0 except for `Command`, `Query` and
    /// `Resolve`.
    pub behind: u32,
    /// Kind of the message.
    pub kind: Kind,
}

/// Reason why bytes are not a valid envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// There are fewer bytes than an envelope has.
    #[error("{0} bytes are shorter than an envelope of {len}", len = Envelope::BYTES)]
    Short(usize),
    /// The envelope has another version.
    #[error("envelope of version {0}; this process reads {version}", version = Envelope::VERSION)]
    Version(u8),
    /// The kind is unknown.
    #[error("no kind of envelope has the number {0}")]
    Kind(u8),
    /// Reserved bytes are not 0.
    #[error("reserved bytes of the envelope are not 0")]
    Reserved,
    /// A command or question has no request number.
    #[error("request 0: requests count from 1")]
    Request,
    /// `behind` reaches below the first request.
    #[error("request {request} is {behind} ahead of the first unanswered one, which would be below 1")]
    Behind {
        /// Number of the request.
        request: u64,
        /// Value of `behind`.
        behind: u32,
    },
    /// The generation is 0, although generations count from 1.
    #[error("generation 0: generations count from 1")]
    Generation,
}

impl Envelope {
    /// Size of an envelope, in bytes.
    pub const BYTES: usize = 64;
    /// Version that is written and accepted.
    pub const VERSION: u8 = 1;

    /// Returns the first request that is not known to be settled, or 0 for kinds that name none.
    #[must_use]
    pub fn responded(&self) -> u64 {
        if self.names_request() { self.request.saturating_sub(u64::from(self.behind)) } else { 0 }
    }

    fn names_request(&self) -> bool {
        matches!(self.kind, Kind::Command | Kind::Query | Kind::Resolve)
    }

    /// Serializes the envelope.
    pub fn write(&self, out: &mut [u8; Envelope::BYTES]) {
        *out = [0; Envelope::BYTES];
        put(out, 0, &self.session.0.to_le_bytes());
        put(out, 16, &self.request.to_le_bytes());
        put(out, 24, &self.end.to_le_bytes());
        put(out, 32, &self.pairs.to_le_bytes());
        put(out, 40, &self.generation.to_le_bytes());
        put(out, 44, &self.behind.to_le_bytes());
        out[48] = self.kind as u8;
        out[49] = Envelope::VERSION;
    }

    /// Parses an envelope, and returns it with the bytes that follow.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid envelope of this version.
    pub fn parse(bytes: &[u8]) -> Result<(Envelope, &[u8]), EnvelopeError> {
        let Some((head, rest)) = bytes.split_at_checked(Envelope::BYTES) else {
            return Err(EnvelopeError::Short(bytes.len()));
        };
        if head[49] != Envelope::VERSION {
            return Err(EnvelopeError::Version(head[49]));
        }
        let kind = Kind::from_byte(head[48]).ok_or(EnvelopeError::Kind(head[48]))?;
        if head[50..].iter().any(|byte| *byte != 0) {
            return Err(EnvelopeError::Reserved);
        }
        let envelope = Envelope {
            session: SessionId(u128_at(head, 0)),
            request: u64_at(head, 16),
            end: u64_at(head, 24),
            pairs: u64_at(head, 32),
            generation: u32_at(head, 40),
            behind: u32_at(head, 44),
            kind,
        };
        envelope.check()?;
        Ok((envelope, rest))
    }

    fn check(&self) -> Result<(), EnvelopeError> {
        let Envelope { request, behind, .. } = *self;
        if self.generation == 0 {
            return Err(EnvelopeError::Generation);
        }
        if self.names_request() && request == 0 {
            return Err(EnvelopeError::Request);
        }
        if self.names_request() && u64::from(behind) >= request {
            return Err(EnvelopeError::Behind { request, behind });
        }
        if !self.names_request() && behind != 0 { Err(EnvelopeError::Reserved) } else { Ok(()) }
    }
}
