//! The mutant of this simulation: renewals that do not prolong the lease.

use std::io::{self, Read};

use stentor::{Context, ReadContext, Reply, SessionId, StateMachine};
use stentor_lock::{Command, Locks};

/// A mutant of the locks that acknowledges renewals but does not prolong the lease: the timer fires at the next
/// position.
#[derive(Clone, Default)]
pub(crate) struct RenewsInVain(Locks);

impl StateMachine for RenewsInVain {
    type Frozen = Locks;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        self.0.apply(at, command, reply);
        if let Ok(Command::Renew { token, .. }) = serde_json::from_slice(command) {
            at.set_timer(at.time(), token);
        }
    }

    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        self.0.read(at, query, reply);
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        self.0.session_ended(at, session);
    }

    fn timer(&mut self, at: &Context<'_>, token: u64) {
        self.0.timer(at, token);
    }

    fn freeze(&self) -> Locks {
        self.0.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.0.restore(from)
    }
}
