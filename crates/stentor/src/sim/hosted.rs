//! A user's state machine at one simulated member.

use std::rc::Rc;

use stentor_multicast::GroupId;
use stentor_session::{self as session, Timers};
use stentor_simulation::sessions::{Machine, Place};

use super::applies::{Lent, append, in_context, in_read_context};
use super::failure::SimProperty;
use super::wrongs::Wrongs;
use crate::timers::SharedTimers;
use crate::{Frozen, Reply, SessionId, StateMachine};

/// Returns the bytes of a value that must be equal at all members.
pub(super) type Compare<S> = Rc<dyn Fn(&S) -> Vec<u8>>;

/// A user's state machine at one simulated member. After a panic or a failed `restore` it does nothing: the run has
/// failed.
pub(super) struct Hosted<S> {
    pub(super) machine: Option<S>,
    pub(super) lent: Lent,
    /// `true` if timers are due at the present position.
    pub(super) is_due: bool,
    pub(super) group: GroupId,
    /// Function that returns the compared bytes; `None`: the frozen value is compared.
    pub(super) compare: Option<Compare<S>>,
    pub(super) most_reply: usize,
    pub(super) wrongs: Wrongs,
}

impl<S: StateMachine> Hosted<S> {
    /// Runs a method of the machine, unless it has panicked. Returns `None` if it has.
    fn run<T>(&mut self, method: &str, with: impl FnOnce(&mut S, &Lent) -> T) -> Option<T> {
        let (machine, lent, group) = (self.machine.as_mut()?, &self.lent, self.group.0);
        let done = self.wrongs.run(|| format!("`{method}` in group {group}"), || with(machine, lent));
        if done.is_none() {
            self.machine = None;
        }
        done
    }

    fn frozen(&self) -> Vec<u8> {
        let Some(machine) = &self.machine else { return Vec::new() };
        let mut bytes = Vec::new();
        let group = self.group.0;
        let written = self.wrongs.run(|| format!("`freeze` in group {group}"), || machine.freeze().write(&mut bytes));
        if let Some(Err(error)) = written {
            self.wrongs.note(SimProperty::Restore, format!("a value of group {group} cannot be written: {error}"));
        }
        bytes
    }
}

impl<S: StateMachine> Machine for Hosted<S> {
    fn apply(&mut self, at: &Place<'_>, command: &[u8], reply: &mut Vec<u8>) {
        let most = self.most_reply;
        let mut written = Reply::new(most);
        self.run("apply", |machine, lent| in_context(at, lent, |at| machine.apply(at, command, &mut written)));
        append(&written, most, reply);
    }

    fn query(&mut self, at: &Place<'_>, query: &[u8], reply: &mut Vec<u8>) {
        let mut before = Vec::new();
        self.compared(&mut before);
        let most = self.most_reply;
        let mut written = Reply::new(most);
        self.run("read", |machine, lent| in_read_context(at, lent, |at| machine.read(at, query, &mut written)));
        append(&written, most, reply);
        let mut after = Vec::new();
        self.compared(&mut after);
        if before != after {
            let (group, number) = (self.group.0, at.number);
            self.wrongs
                .note(SimProperty::ReadChanges, format!("`read` changes the value of group {group} at {number}"));
        }
    }

    fn session_ended(&mut self, at: &Place<'_>, session: session::SessionId) {
        let ended = SessionId(session);
        self.run("session_ended", |machine, lent| in_context(at, lent, |at| machine.session_ended(at, ended)));
    }

    fn begin(&mut self, at: &Place<'_>) {
        // As in a node, timers that are set while sessions end at this position fire here only if another timer was due
        // here before.
        self.is_due = self.lent.timers.get().begin(at.timestamp.time);
    }

    fn fire_timers(&mut self, at: &Place<'_>) {
        if !std::mem::take(&mut self.is_due) {
            return;
        }
        while let Some(timer) = self.lent.timers.get().fire() {
            self.run("timer", |machine, lent| in_context(at, lent, |at| machine.timer(at, timer)));
        }
    }

    fn next_timer(&mut self) -> Option<u64> {
        self.lent.timers.get().earliest()
    }

    fn take_notes(&mut self, each: &mut dyn FnMut(session::SessionId, &[u8])) {
        self.lent.notes.take(|session, bytes| each(session.0, bytes));
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.lent.timers.write(out);
        out.extend(self.frozen());
    }

    fn restore(&mut self, state: &[u8]) -> bool {
        let Ok((timers, state)) = Timers::read(state) else { return false };
        self.lent = Lent { timers: SharedTimers::new(timers), ..Lent::new(S::VERSION) };
        let restored = self.run("restore", |machine, _| machine.restore(&mut &state[..]));
        if let Some(Err(error)) = restored {
            let group = self.group.0;
            self.wrongs.note(SimProperty::Restore, format!("a member of group {group} cannot read a value: {error}"));
            self.machine = None;
        }
        true
    }

    fn compared(&self, out: &mut Vec<u8>) {
        self.lent.timers.write(out);
        match (&self.compare, &self.machine) {
            (Some(compare), Some(machine)) => {
                let bytes = self.wrongs.run(|| "`compare_by`".to_owned(), || compare(machine));
                out.extend(bytes.unwrap_or_default());
            }
            _ => out.extend(self.frozen()),
        }
    }
}
