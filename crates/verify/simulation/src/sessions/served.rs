//! The state machine during one delivery.

use stentor_session::{Call, Reply, Service, SessionId};

use super::machine::{Machine, Place};

/// Size of the token in front of each command, in bytes.
pub(super) const TOKEN_BYTES: usize = 8;

/// The effects of one delivery, for the judge.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Token and complete reply of an applied command or of a query.
    pub(super) applied: Option<(u64, Vec<u8>)>,
    /// Sessions that expired before the message.
    pub(super) ran_out: Vec<SessionId>,
    /// Sessions that the message ended.
    pub(super) ended: Vec<SessionId>,
    /// `true` if the message is the end of a session that took effect.
    pub(super) ends: bool,
    /// The session whose end the message sets, and the end.
    pub(super) end: Option<(SessionId, u64)>,
}

/// The state machine during one delivery.
pub(super) struct Served<'a> {
    pub(super) machine: &'a mut dyn Machine,
    /// The position of the delivery, without token and session.
    pub(super) at: Place<'a>,
    pub(super) done: &'a mut Done,
}

impl Served<'_> {
    /// Fires the timers that are due at this position. Sessions that were reported as ended before this call have
    /// expired. The message itself ends those that are reported later.
    pub(super) fn fire_timers(&mut self) {
        self.done.ran_out.append(&mut self.done.ended);
        self.machine.fire_timers(&self.at);
    }
}

impl Service for Served<'_> {
    fn apply(&mut self, call: Call<'_>, reply: &mut Reply<'_>) {
        let (token, command) = call.command.split_first_chunk::<TOKEN_BYTES>().unwrap_or((&[0; 8], &[]));
        let token = u64::from_le_bytes(*token);
        let at = Place { token, session: Some(call.session), ..self.at };
        let mut bytes = Vec::new();
        if call.is_query {
            self.machine.query(&at, command, &mut bytes);
        } else {
            self.machine.apply(&at, command, &mut bytes);
        }
        reply.extend(&bytes);
        self.done.applied = Some((token, bytes));
    }

    fn ended(&mut self, session: SessionId) {
        self.machine.session_ended(&self.at, session);
        self.done.ended.push(session);
    }
}
