//! The identities of sessions and commands, which a program can store.

use stentor_multicast::GroupId;
use stentor_session as session;

use super::error::Problem;
use super::{ClientError, Groups};
use crate::{Group, SessionId};

/// The identity of a session, with which a later process can [resume](super::ClientBuilder::session) it.
///
/// The groups of a session remember which of its commands they have applied, and their replies. So each command is
/// applied once, no matter how often it arrives, and a process that resumes the session can learn the outcome of the
/// commands of its predecessor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Session(pub(super) session::SessionKey);

impl Session {
    /// Returns the id of the session, as [state machines see it](crate::Context::session).
    #[must_use]
    pub fn id(&self) -> SessionId {
        SessionId(self.0.session)
    }

    /// Returns the session as bytes, for storage. They contain no secret, but everyone who has them can resume the
    /// session.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// Parses the bytes of [`to_bytes`](Session::to_bytes).
    ///
    /// # Errors
    /// Returns an error if the bytes are not a session.
    pub fn from_bytes(bytes: &[u8]) -> Result<Session, ClientError> {
        session::SessionKey::from_bytes(bytes).map(Session).map_err(|error| unreadable("session", &error))
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.0.pairs.iter().map(|pair| pair.group)
    }
}

/// The permanent identity of a command, for which [`resolve`](super::Client::resolve) returns the command's outcome.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub(super) session::Ticket);

impl Ticket {
    /// Returns the ticket as bytes, for storage.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// Parses the bytes of [`to_bytes`](Ticket::to_bytes).
    ///
    /// # Errors
    /// Returns an error if the bytes are not a ticket.
    pub fn from_bytes(bytes: &[u8]) -> Result<Ticket, ClientError> {
        session::Ticket::from_bytes(bytes).map(Ticket).map_err(|error| unreadable("ticket", &error))
    }

    /// Returns the destination groups of the command.
    #[must_use]
    pub fn groups(&self) -> Groups {
        let groups: Vec<_> = self.0.groups().map(Group).collect();
        Groups::from(&groups[..])
    }
}

fn unreadable(what: &'static str, why: &session::TicketError) -> ClientError {
    Problem::Bytes { what, why: why.to_string() }.into()
}
