//! What a program writes down of its session and of its commands.

use stentor_multicast::GroupId;
use stentor_session as session;

use super::error::Problem;
use super::{ClientError, Groups};
use crate::{Group, SessionId};

/// What names a session: a later process [takes it up](super::ClientBuilder::session).
///
/// Groups know the session: which commands of it they have applied, and what they replied. So a command is applied once however often it
/// arrives, and a process that takes the session up learns what became of the commands of the one before it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Session(pub(super) session::SessionKey);

impl Session {
    /// Returns the id of the session, as state machines [see it](crate::Context::session).
    #[must_use]
    pub fn id(&self) -> SessionId {
        SessionId(self.0.session)
    }

    /// Returns the bytes to write down. They hold no secret, but who has them can take the session up.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// Reads what [`to_bytes`](Session::to_bytes) returned.
    ///
    /// # Errors
    /// If the bytes are no session.
    pub fn from_bytes(bytes: &[u8]) -> Result<Session, ClientError> {
        session::SessionKey::from_bytes(bytes).map(Session).map_err(|error| unreadable("session", &error))
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.0.pairs.iter().map(|pair| pair.group)
    }
}

/// What names a command for ever, so that [`resolve`](super::Client::resolve) can say what became of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub(super) session::Ticket);

impl Ticket {
    /// Returns the bytes to write down.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// Reads what [`to_bytes`](Ticket::to_bytes) returned.
    ///
    /// # Errors
    /// If the bytes are no ticket.
    pub fn from_bytes(bytes: &[u8]) -> Result<Ticket, ClientError> {
        session::Ticket::from_bytes(bytes).map(Ticket).map_err(|error| unreadable("ticket", &error))
    }

    /// Returns the groups to which the command went.
    #[must_use]
    pub fn groups(&self) -> Groups {
        let groups: Vec<_> = self.0.groups().map(Group).collect();
        Groups::from(&groups[..])
    }
}

fn unreadable(what: &'static str, why: &session::TicketError) -> ClientError {
    Problem::Bytes { what, why: why.to_string() }.into()
}
