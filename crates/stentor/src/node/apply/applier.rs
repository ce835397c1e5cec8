//! A machine on the thread that applies.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use stentor_multicast::{ClientId, GroupId, RestoreError, StateReader};
use stentor_session::{self as session, Answer, At, Call, Service, SessionLimits, Sessions};

use super::batch::Batch;
use super::{Head, Looks, Progress, Record, Replies};
use crate::node::Position;
use crate::node::state_writer::StateWriter;
use crate::state_machine::{Context, Frozen, Reply, SessionId, StateMachine};
use crate::{Group, runtime::ClusterRuntime};

/// The owner of a machine and of its group's sessions: it applies deliveries one by one, and keeps what is to be said to clients.
///
/// # Invariants
/// - A command that came in an envelope is applied if the table of sessions says so, and its reply is kept there. What came without one is
///   applied, and nobody is answered.
/// - A state is the table of sessions, and the machine's value behind it.
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
    sessions: Sessions,
    limits: SessionLimits,
    reply: Reply,
    progress: Arc<Progress>,
    looks: Looks<S>,
    /// Whether the machine has panicked, or has not taken over a state.
    ill: bool,
}

impl<S: StateMachine> Applier<S> {
    pub(in crate::node) fn new(machine: S, name: &str, group: Group, plan: &ClusterRuntime) -> io::Result<Self> {
        let topology = plan.topology();
        let clients = (0..topology.clients() as u16).map(ClientId);
        let senders = clients.map(|client| plan.name(topology.client_process(client)).to_owned()).collect();
        let mut first = Vec::new();
        machine.freeze().write(&mut first)?;
        let limits = plan.config().limits().sessions();
        Ok(Applier {
            machine,
            name: name.to_owned(),
            group,
            senders,
            first: first.into(),
            sessions: Sessions::new(group.0, limits),
            limits,
            reply: Reply::new(limits.reply_bytes as usize),
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

    /// Applies a command. What is to be said to its client is appended to `replies`.
    #[inline]
    pub(in crate::node) fn apply(&mut self, record: &Record<'_>, replies: &mut Replies) {
        if self.ill {
            return;
        }
        let Record { head: Head { client, enveloped, timestamp, number, origin }, groups, command } = *record;
        let position = Position { time: timestamp.time, group: Group(GroupId(timestamp.group)), index: number };
        let Applier { machine, group, senders, sessions, reply, .. } = self;
        let sender = senders.get(usize::from(client.0)).map_or("?", String::as_str);
        let at = Context { group: *group, position, groups, session: None, sender };
        let applied = catch_unwind(AssertUnwindSafe(|| {
            let mut service = Served { machine, reply, at };
            if !enveloped {
                sessions.expire(timestamp.time, &mut service);
                service.apply_bare(command);
                return;
            }
            let at = At { time: timestamp, index: number, incarnation: origin, destinations: groups, client: client.0 };
            // What no member can read, no member applies; nobody is answered.
            let Ok(delivered) = sessions.deliver(&at, command, &mut service) else { return };
            replies.push(&Answer::to(client, &delivered));
        }));
        match applied {
            Ok(()) => self.progress.note_applied(position),
            Err(panic) => self.poison(position, "apply", &*panic),
        }
    }

    /// Says again what this client has not acknowledged.
    pub(in crate::node) fn say_again(&mut self, client: ClientId, replies: &mut Replies) {
        if !self.ill {
            self.sessions.replies_of(client.0, |record| replies.push(&Answer::again(client, record)));
        }
    }

    /// Applies a batch. Between two commands it looks whether somebody asks something, or whether it is to end.
    pub(super) fn apply_all(&mut self, batch: &mut Batch, ends: impl Fn() -> bool) {
        let Batch { commands, again, replies } = batch;
        for record in commands.iter() {
            if ends() {
                break;
            }
            self.apply(&record, replies);
            self.answer();
        }
        for client in again {
            self.say_again(*client, replies);
        }
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
        let Applier { machine, name, sessions, .. } = self;
        let frozen = || {
            let mut table = Vec::new();
            sessions.write(&mut table);
            StateWriter::begin(name, WithSessions { table, value: machine.freeze() })
        };
        match catch_unwind(AssertUnwindSafe(frozen)) {
            Ok(writer) => Some(writer),
            Err(panic) => {
                self.poison(self.last(self.progress.commands()), "freeze", &*panic);
                None
            }
        }
    }

    /// Takes over a state of `number` commands; of 0: the value with which the machine was started.
    pub(in crate::node) fn restore(&mut self, number: u64, mut chunks: VecDeque<Vec<u8>>) {
        let Applier { machine, first, group, limits, sessions, .. } = self;
        let restored = catch_unwind(AssertUnwindSafe(|| match number {
            0 => {
                *sessions = Sessions::new(group.0, *limits);
                let restored = machine.restore(&mut &first[..]);
                restored.map_err(|error| RestoreError(format!("its own first value cannot be read: {error}")))
            }
            _ => {
                let mut from = Bytes(StateReader::new(&mut chunks));
                let table = read_table(&mut from).and_then(|table| {
                    let read = Sessions::read(group.0, *limits, &table);
                    read.map(|(sessions, _)| sessions).map_err(|error| error.to_string())
                });
                *sessions =
                    table.map_err(|why| RestoreError(format!("the sessions of clients cannot be read: {why}")))?;
                let restored = machine.restore(&mut from);
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

/// The machine where the table of sessions calls it, for one delivery.
struct Served<'a, S> {
    machine: &'a mut S,
    reply: &'a mut Reply,
    at: Context<'a>,
}

impl<S: StateMachine> Served<'_, S> {
    /// Applies a command that nobody is answered to.
    #[inline]
    fn apply_bare(&mut self, command: &[u8]) {
        self.reply.clear();
        self.machine.apply(&self.at, command, self.reply);
    }
}

impl<S: StateMachine> Service for Served<'_, S> {
    #[inline]
    fn apply(&mut self, call: Call<'_>, reply: &mut session::Reply<'_>) {
        self.at.session = Some(SessionId(call.session));
        self.apply_bare(call.command);
        if self.reply.has_overflowed() {
            reply.overflow();
        } else {
            reply.extend(self.reply.as_bytes());
        }
    }

    fn ended(&mut self, _: session::SessionId) {}
}

/// A frozen value with the table of sessions before it.
struct WithSessions<T> {
    table: Vec<u8>,
    value: T,
}

impl<T: Frozen> Frozen for WithSessions<T> {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.table)?;
        drop(self.table);
        self.value.write(out)
    }

    fn bytes_hint(&self) -> Option<u64> {
        Some(self.value.bytes_hint()? + self.table.len() as u64)
    }
}

/// Reads the table of sessions from the beginning of a state.
fn read_table(from: &mut impl Read) -> Result<Vec<u8>, String> {
    let mut table = vec![0; Sessions::SNAPSHOT_HEAD];
    from.read_exact(&mut table).map_err(|error| error.to_string())?;
    let head = table[..].try_into().map_err(|_| "its head is short".to_owned())?;
    let length = Sessions::snapshot_length(head).map_err(|error| error.to_string())?;
    // The length is not trusted: memory grows with what is there.
    let rest = length - Sessions::SNAPSHOT_HEAD as u64;
    let read = from.take(rest).read_to_end(&mut table).map_err(|error| error.to_string())?;
    if read as u64 == rest { Ok(table) } else { Err(format!("{read} of {rest} bytes are there")) }
}

struct Bytes<'a>(StateReader<'a>);

impl Read for Bytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(out))
    }
}
