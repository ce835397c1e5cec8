//! Serializable identifiers: a ticket for one request, and a key for a whole session.

use stentor_multicast::GroupId;
use thiserror::Error;

use crate::body::{parse_pairs, write_pairs};
use crate::bytes::{u32_at, u64_at, u128_at};
use crate::ids::pairs_tag;
use crate::{Body, BodyError, Envelope, Kind, Pair, SessionId};

/// A permanent identifier of a request, with which any later process of the request's session can ask for its fate.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ticket {
    /// Session of the request.
    pub session: SessionId,
    /// Generation of the session that sent the request.
    pub generation: u32,
    /// Random word that began the generation.
    pub word: u64,
    /// Number of the request in that generation.
    pub request: u64,
    /// Distance to the first request that was not settled when this one began.
    pub behind: u32,
    /// End that the request names.
    pub end: u64,
    /// Destination groups with their incarnations, by ascending group.
    pub pairs: Vec<Pair>,
}

/// Information that a process stores to take its session up later.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SessionKey {
    /// Session that the key identifies.
    pub session: SessionId,
    /// Last generation that is known.
    pub generation: u32,
    /// Number of the last widening.
    pub widening: u32,
    /// All pairs of the session, by ascending group.
    pub pairs: Vec<Pair>,
}

/// Reason why bytes are not a valid ticket or key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TicketError {
    /// There are too few bytes.
    #[error("{0} bytes are too few for a ticket or key")]
    Short(usize),
    /// The bytes are not a ticket or key of the expected kind, or have another version.
    #[error("not a ticket or key of the expected kind, or of a version that this process does not read")]
    Magic,
    /// The pairs are malformed.
    #[error(transparent)]
    Pairs(#[from] BodyError),
    /// The request or the generation is 0, `behind` is not below the request, or there are no pairs.
    #[error("the numbers of the ticket or key contradict each other")]
    Numbers,
}

/// First byte and version of each format.
const TICKET: [u8; 2] = [b't', 1];
const KEY: [u8; 2] = [b'k', 1];
const TICKET_HEAD: usize = 54;
const KEY_HEAD: usize = 30;

impl Ticket {
    /// Returns the groups to which a question about the request is addressed.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.pairs.iter().map(|pair| pair.group)
    }

    /// Returns the serialized ticket.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::from(TICKET);
        out.extend(self.session.0.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.behind.to_le_bytes());
        out.extend(self.request.to_le_bytes());
        out.extend(self.end.to_le_bytes());
        out.extend(self.word.to_le_bytes());
        out.extend((self.pairs.len() as u32).to_le_bytes());
        write_pairs(&self.pairs, &mut out);
        out
    }

    /// Parses a ticket.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid ticket.
    pub fn from_bytes(bytes: &[u8]) -> Result<Ticket, TicketError> {
        let (head, rest) = head(bytes, TICKET, TICKET_HEAD)?;
        let ticket = Ticket {
            session: SessionId(u128_at(head, 2)),
            generation: u32_at(head, 18),
            behind: u32_at(head, 22),
            request: u64_at(head, 26),
            end: u64_at(head, 34),
            word: u64_at(head, 42),
            pairs: parse_pairs(u32_at(head, 50), rest)?,
        };
        let possible = ticket.generation > 0 && ticket.request > u64::from(ticket.behind) && !ticket.pairs.is_empty();
        if possible { Ok(ticket) } else { Err(TicketError::Numbers) }
    }

    /// Writes the question for the request's fate. `by` is the generation that asks.
    pub(crate) fn question(&self, by: u32, out: &mut Vec<u8>) {
        let envelope = Envelope {
            session: self.session,
            request: self.request,
            end: self.end,
            pairs: pairs_tag(self.word, self.pairs.iter().copied()),
            generation: by,
            behind: self.behind,
            kind: Kind::Resolve,
        };
        message(&envelope, &Body { number: self.generation, ..Body::default() }, out);
    }
}

impl SessionKey {
    /// Returns the serialized key.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::from(KEY);
        out.extend(self.session.0.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.widening.to_le_bytes());
        out.extend((self.pairs.len() as u32).to_le_bytes());
        write_pairs(&self.pairs, &mut out);
        out
    }

    /// Parses a key.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid key.
    pub fn from_bytes(bytes: &[u8]) -> Result<SessionKey, TicketError> {
        let (head, rest) = head(bytes, KEY, KEY_HEAD)?;
        let key = SessionKey {
            session: SessionId(u128_at(head, 2)),
            generation: u32_at(head, 18),
            widening: u32_at(head, 22),
            pairs: parse_pairs(u32_at(head, 26), rest)?,
        };
        if key.generation > 0 && !key.pairs.is_empty() { Ok(key) } else { Err(TicketError::Numbers) }
    }
}

fn head(bytes: &[u8], magic: [u8; 2], length: usize) -> Result<(&[u8], &[u8]), TicketError> {
    let (head, rest) = bytes.split_at_checked(length).ok_or(TicketError::Short(bytes.len()))?;
    if head[..2] == magic { Ok((head, rest)) } else { Err(TicketError::Magic) }
}

/// Writes a session's command, and overwrites `out`.
pub(crate) fn message(envelope: &Envelope, body: &Body, out: &mut Vec<u8>) {
    let mut head = [0; Envelope::BYTES];
    envelope.write(&mut head);
    out.clear();
    out.extend_from_slice(&head);
    body.write(out);
}
