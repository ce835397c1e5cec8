//! The part of a state machine that applies commands, as an object-safe trait, and the contexts in which it is called.

use stentor_multicast::Incarnation;
use stentor_simulation::sessions::Place;

use crate::notes::Notes;
use crate::timers::SharedTimers;
use crate::{Context, Group, Position, ReadContext, Reply, SessionId, StateMachine};

/// A state machine of any type, reduced to the methods that apply commands. It cannot be frozen or restored.
pub(super) trait Applies {
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply);
    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply);
    fn session_ended(&mut self, at: &Context<'_>, session: SessionId);
    fn timer(&mut self, at: &Context<'_>, timer: u64);
}

impl<S: StateMachine> Applies for S {
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        StateMachine::apply(self, at, command, reply);
    }

    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        StateMachine::read(self, at, query, reply);
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        StateMachine::session_ended(self, at, session);
    }

    fn timer(&mut self, at: &Context<'_>, timer: u64) {
        StateMachine::timer(self, at, timer);
    }
}

/// Returns the bytes that represent a reply beyond the longest length.
pub(super) fn too_long(most: usize) -> Vec<u8> {
    vec![b'.'; most + 1]
}

/// Appends a reply, or the bytes that represent one that is too long.
pub(super) fn append(reply: &Reply, most: usize, out: &mut Vec<u8>) {
    if reply.has_overflowed() { out.extend(too_long(most)) } else { out.extend(reply.as_bytes()) }
}

/// The data that a context borrows while the machine is called.
#[derive(Debug)]
pub(super) struct Lent {
    /// Version in force: the machine's own, because all members run one program.
    pub(super) version: u32,
    pub(super) timers: SharedTimers,
    pub(super) notes: Notes,
}

impl Lent {
    pub(super) fn new(version: u32) -> Self {
        Lent { version, timers: SharedTimers::default(), notes: Notes::default() }
    }
}

/// Returns the name of the sender at a position: a client, or the group of a time entry.
fn sender(at: &Place<'_>) -> String {
    at.client.map_or_else(|| format!("g{}", at.group.0 + 1), |client| format!("c{}", client.0))
}

/// Runs `with` in the context of a position.
pub(super) fn in_context<T>(at: &Place<'_>, lent: &Lent, with: impl FnOnce(&Context<'_>) -> T) -> T {
    let sender = sender(at);
    with(&Context {
        group: Group(at.group),
        position: Position::at(at.timestamp, (at.group, at.number), Incarnation::NONE),
        groups: at.groups,
        session: at.session.map(SessionId),
        sender: &sender,
        version: lent.version,
        notes: &lent.notes,
        timers: &lent.timers,
    })
}

/// Runs `with` in the context of a query.
pub(super) fn in_read_context<T>(at: &Place<'_>, lent: &Lent, with: impl FnOnce(&ReadContext<'_>) -> T) -> T {
    let sender = sender(at);
    with(&ReadContext {
        group: Group(at.group),
        position: Position::at(at.timestamp, (at.group, at.number), Incarnation::NONE),
        version: lent.version,
        sender: &sender,
    })
}
