//! The machine that members replicate, as a run sees it.

use stentor_multicast::{ClientId, GroupId, Timestamp};
use stentor_session::SessionId;

/// A member's copy of a group's state.
///
/// All copies of a group are given the same calls and ends of sessions in the same order, so what they reply and write must be equal.
pub trait Machine {
    /// Applies a command and writes the whole reply, however long it is.
    fn apply(&mut self, at: &Place<'_>, command: &[u8], reply: &mut Vec<u8>);

    /// Answers a query, which changes nothing.
    fn query(&mut self, at: &Place<'_>, query: &[u8], reply: &mut Vec<u8>);

    /// Takes note that a session has ended or run out.
    fn session_ended(&mut self, at: &Place<'_>, session: SessionId);

    /// Fires the timers that are due at a place. It comes behind the ends of sessions there, and before the call.
    fn fire_timers(&mut self, at: &Place<'_>) {
        let _ = at;
    }

    /// Returns the earliest time of a timer.
    fn next_timer(&mut self) -> Option<u64> {
        None
    }

    /// Hands over the notifications that it has sent since the last time, in order: to whom, and what.
    fn take_notes(&mut self, each: &mut dyn FnMut(SessionId, &[u8])) {
        let _ = each;
    }

    /// Writes the state for a member that lacks it.
    fn write(&self, out: &mut Vec<u8>);

    /// Replaces the state by one that was written. Returns whether the bytes are one.
    fn restore(&mut self, state: &[u8]) -> bool;

    /// Writes what must be equal at all members after the same deliveries.
    fn compared(&self, out: &mut Vec<u8>) {
        self.write(out);
    }
}

/// Where a call is applied, or a session ends.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// What tells the call from all others of the run; 0: a session ends, or a timer fires.
    pub token: u64,
    /// The group that applies it here.
    pub group: GroupId,
    /// All groups of the message.
    pub groups: &'a [GroupId],
    /// The message's final timestamp.
    pub timestamp: Timestamp,
    /// Its number in the order of the group.
    pub number: u64,
    /// The client that multicast it. `None`: it is a time entry.
    pub client: Option<ClientId>,
    /// The session of the call; `None`: a session ends, or a timer fires.
    pub session: Option<SessionId>,
}
