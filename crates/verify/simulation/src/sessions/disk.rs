//! What the processes of one client's place have written down.

use stentor_session::{SessionId, SessionKey, Ticket};

/// A command whose fate is not known.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) ticket: Ticket,
    /// What tells it from all others of the run.
    pub(super) token: u64,
}

/// What lives as long as the place, and longer than each of its processes.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// The session, if one was opened.
    pub(super) key: Option<SessionKey>,
    /// Written before the command is sent, and removed when its fate is known.
    pub(super) tickets: Vec<Written>,
    /// Reads outside the order that the workload has asked for, and that have not ended: their tokens.
    pub(super) reads: Vec<u64>,
    /// Commands that are still to be begun.
    pub(super) left: u64,
    /// When so many commands are left the session is ended, and another one is opened; `None`: not any more.
    pub(super) ends_at: Option<u64>,
    /// Everything is done.
    pub(super) done: bool,
}

impl Disk {
    /// Whether the session is ended before another command begins.
    pub(super) fn is_to_end(&self) -> bool {
        self.ends_at == Some(self.left)
    }

    /// Returns where a request is written down.
    pub(super) fn position(&self, session: SessionId, (generation, word, request): (u32, u64, u64)) -> Option<usize> {
        self.tickets.iter().position(|Written { ticket, .. }| {
            ticket.session == session && (ticket.generation, ticket.word, ticket.request) == (generation, word, request)
        })
    }
}
