//! The state machine that members replicate in a session run.

use stentor_multicast::{ClientId, GroupId, Timestamp};
use stentor_session::SessionId;

/// A call of a machine or by a machine, for the judge of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeEvent {
    /// The machine learns that a session has ended.
    Ended(SessionId),
    /// A timer fires.
    Fired(u64),
    /// The machine sets or moves a timer: its time, and its id.
    Set(u64, u64),
    /// The machine clears a timer.
    Cleared(u64),
    /// The machine applies a command or answers a query in the order.
    Applied,
}

/// A member's copy of a group's state.
///
/// All copies of a group receive the same calls and ends of sessions in the same order, so their replies and written
/// states must be equal.
pub trait Machine {
    /// Applies a command and writes the complete reply, whatever its size.
    fn apply(&mut self, at: &Place<'_>, command: &[u8], reply: &mut Vec<u8>);

    /// Answers a query, which must not change the state.
    fn query(&mut self, at: &Place<'_>, query: &[u8], reply: &mut Vec<u8>);

    /// Notes that a session has ended or expired.
    fn session_ended(&mut self, at: &Place<'_>, session: SessionId);

    /// Determines which timers are due at a position. The method is called before the ends of sessions at this
    /// position.
    fn begin(&mut self, at: &Place<'_>) {
        let _ = at;
    }

    /// Fires the timers that are due at a position. The method is called after the sessions that expired by this
    /// position were ended, and before the message takes effect.
    fn fire_timers(&mut self, at: &Place<'_>) {
        let _ = at;
    }

    /// Returns the earliest time of a timer, or `None` if there is no timer.
    fn next_timer(&mut self) -> Option<u64> {
        None
    }

    /// Passes the notifications since the last call to `each`, in order: the session and the bytes.
    fn take_notes(&mut self, each: &mut dyn FnMut(SessionId, &[u8])) {
        let _ = each;
    }

    /// Passes the events since the last call to `each`, in order. A machine that records none is not judged by them.
    fn take_events(&mut self, each: &mut dyn FnMut(TimeEvent)) {
        let _ = each;
    }

    /// Writes the state for a member that lacks it.
    fn write(&self, out: &mut Vec<u8>);

    /// Replaces the state by a written one. Returns whether the bytes are a valid state.
    fn restore(&mut self, state: &[u8]) -> bool;

    /// Writes the part of the state that must be equal at all members after the same deliveries.
    fn compared(&self, out: &mut Vec<u8>) {
        self.write(out);
    }
}

/// The position in a group's order at which a call is applied or a session ends.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// A number that identifies the call in the run. It is 0 for the end of a session, for timers, and for reads
    /// outside the order.
    pub token: u64,
    /// The group of the member.
    pub group: GroupId,
    /// All destination groups of the message.
    pub groups: &'a [GroupId],
    /// The final timestamp of the message.
    pub timestamp: Timestamp,
    /// The number of the message in the order of the group.
    pub number: u64,
    /// The client that multicast the message, or `None` for a time entry.
    pub client: Option<ClientId>,
    /// The session of the call, or `None` for the end of a session, for timers, and for reads outside the order.
    pub session: Option<SessionId>,
}
