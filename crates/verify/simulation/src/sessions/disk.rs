//! The persistent data of the processes that hold one client id in sequence.

use stentor_session::{SessionId, SessionKey, Ticket};

/// A command of unknown fate.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) ticket: Ticket,
    /// A number that identifies the command in the run.
    pub(super) token: u64,
}

/// The persistent data of a client id, which outlives each of its processes.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// The session, if one was opened.
    pub(super) key: Option<SessionKey>,
    /// Tickets of commands. A ticket is written before its command is sent, and removed when the command's fate is
    /// known or can never be known.
    pub(super) tickets: Vec<Written>,
    /// Tokens of the workload's reads outside the order that have not ended.
    pub(super) reads: Vec<u64>,
    /// Number of calls and of the workload's reads that are still to be begun.
    pub(super) left: u64,
    /// Value of `left` at which the session is ended and another one is opened. `None`: the client keeps its session
    /// until `left` is 0.
    pub(super) ends_at: Option<u64>,
    /// `true` if all commands are done.
    pub(super) done: bool,
}

impl Disk {
    /// Returns whether the session must end before another command begins.
    pub(super) fn is_to_end(&self) -> bool {
        self.ends_at == Some(self.left)
    }

    /// Returns the index of a request's ticket.
    pub(super) fn position(&self, session: SessionId, (generation, word, request): (u32, u64, u64)) -> Option<usize> {
        self.tickets.iter().position(|Written { ticket, .. }| {
            ticket.session == session && (ticket.generation, ticket.word, ticket.request) == (generation, word, request)
        })
    }
}
