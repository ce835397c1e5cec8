//! A machine on the thread that applies.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use stentor_multicast::{GroupId, RestoreError, StateReader, Timestamp};

use super::batch::{Batch, Records, ReplyRecord};
use super::{Looks, Progress, Record};
use crate::node::Position;
use crate::node::state_writer::StateWriter;
use crate::state_machine::{Context, Frozen, Reply, StateMachine};
use crate::{Group, runtime::ClusterRuntime};

/// Bytes of a reply, at most.
const REPLY_BYTES: usize = 64 << 10;

/// The owner of a machine: it applies deliveries one by one, and keeps what the machine replies.
///
/// # Invariants
/// - A machine that has panicked is not called again before it has taken over a state.
/// - What follows a panic is not applied: the next command is the one at which it panicked, or none.
pub(in crate::node) struct Applier<S> {
    machine: S,
    name: String,
    group: Group,
    /// The names of the clients.
    senders: Vec<String>,
    /// The value with which the machine was started, written.
    first: Arc<[u8]>,
    reply: Reply,
    progress: Arc<Progress>,
    looks: Looks<S>,
    /// Whether the machine has panicked, or has not taken over a state.
    ill: bool,
}

impl<S: StateMachine> Applier<S> {
    pub(in crate::node) fn new(machine: S, name: &str, group: Group, plan: &ClusterRuntime) -> io::Result<Self> {
        let topology = plan.topology();
        let clients = (0..topology.clients() as u16).map(stentor_multicast::ClientId);
        let senders = clients.map(|client| plan.name(topology.client_process(client)).to_owned()).collect();
        let mut first = Vec::new();
        machine.freeze().write(&mut first)?;
        Ok(Applier {
            machine,
            name: name.to_owned(),
            group,
            senders,
            first: first.into(),
            reply: Reply::new(REPLY_BYTES),
            progress: Arc::default(),
            looks: Looks::default(),
            ill: false,
        })
    }

    pub(in crate::node) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(in crate::node) fn looks(&self) -> &Looks<S> {
        &self.looks
    }

    pub(in crate::node) fn name(&self) -> &str {
        &self.name
    }

    /// Applies a command. What the machine replies is appended to `replies`.
    #[inline]
    pub(in crate::node) fn apply(&mut self, record: &Record<'_>, replies: &mut Vec<u8>) {
        if self.ill {
            return;
        }
        let Timestamp { time, group } = record.timestamp;
        let position = Position { time, group: Group(GroupId(group)), index: record.number };
        let Applier { machine, group, senders, reply, .. } = self;
        let sender = senders.get(usize::from(record.id.client.0)).map_or("?", String::as_str);
        let at = Context { group: *group, position, sender };
        reply.clear();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| machine.apply(&at, record.command, reply))) {
            self.poison(position, "apply", &*panic);
            return;
        }
        self.progress.note_applied(position);
        if !self.reply.is_empty() {
            let (overflowed, bytes) = (self.reply.has_overflowed(), self.reply.as_bytes());
            ReplyRecord { id: record.id, number: record.number, overflowed, bytes }.write(replies);
        }
    }

    /// Applies a batch. Between two commands it looks whether somebody asks something, or whether it is to end.
    pub(super) fn apply_all(&mut self, batch: &mut Batch, ends: impl Fn() -> bool) {
        let records = batch.take();
        for record in Records(&records) {
            if ends() {
                break;
            }
            self.apply(&record, &mut batch.replies);
            self.answer();
        }
        batch.put_back(records);
    }

    /// Answers who asks.
    #[inline]
    pub(in crate::node) fn answer(&self) {
        for look in self.looks.take() {
            let poisoned = if self.ill { self.progress.poisoned() } else { None };
            look(poisoned.map_or(Ok(&self.machine), Err));
        }
    }

    /// Freezes the value after everything that was applied. `None`: it is poisoned.
    pub(in crate::node) fn freeze(&mut self) -> Option<StateWriter> {
        if self.ill {
            return None;
        }
        let (machine, name) = (&self.machine, &self.name);
        match catch_unwind(AssertUnwindSafe(|| StateWriter::begin(name, machine.freeze()))) {
            Ok(writer) => Some(writer),
            Err(panic) => {
                self.poison(self.last(self.progress.commands()), "freeze", &*panic);
                None
            }
        }
    }

    /// Takes over a state of `number` commands; of 0: the value with which the machine was started.
    pub(in crate::node) fn restore(&mut self, number: u64, mut chunks: VecDeque<Vec<u8>>) {
        let Applier { machine, first, .. } = self;
        let restored = catch_unwind(AssertUnwindSafe(|| match number {
            0 => {
                let restored = machine.restore(&mut &first[..]);
                restored.map_err(|error| RestoreError(format!("its own first value cannot be read: {error}")))
            }
            _ => {
                let restored = machine.restore(&mut Bytes(StateReader::new(&mut chunks)));
                restored.map_err(|error| RestoreError(error.to_string()))
            }
        }));
        match restored {
            Ok(restored) => {
                self.ill = restored.is_err();
                self.progress.note_restored(restored.map(|()| number));
            }
            Err(panic) => self.poison(self.last(number), "restore", &*panic),
        }
        self.progress.note_restore_over();
    }

    /// The place of the last of `commands` commands, as far as it is known.
    fn last(&self, commands: u64) -> Position {
        let last = self.progress.applied().filter(|last| last.index == commands);
        last.unwrap_or(Position { time: 0, group: self.group, index: commands })
    }

    #[cold]
    fn poison(&mut self, at: Position, method: &str, panic: &(dyn Any + Send)) {
        self.ill = true;
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
        let (name, index, time) = (&self.name, at.index, at.time);
        log::error!(
            "{name}: its state machine has panicked in `{method}` at command {index} (time {time}) and is poisoned: {said}; the node \
             votes, and takes the state of the others if a majority of them has applied that command; otherwise mend the state \
             machine, and start the node again"
        );
        self.progress.note_poisoned(at);
    }

    /// Returns the machine, unless it is poisoned or has half of a state.
    pub(in crate::node) fn into_machine(self) -> Option<S> {
        (!self.ill).then_some(self.machine)
    }
}

struct Bytes<'a>(StateReader<'a>);

impl Read for Bytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(out))
    }
}
