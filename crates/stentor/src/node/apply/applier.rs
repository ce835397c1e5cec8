//! The state machine of a node, with the sessions and timers of its group, on the thread that applies commands.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use stentor_multicast::{ClientId, Incarnation, RestoreError, StateReader, Timestamp};
use stentor_session::{
    self as session, Answer, AnswerBuffer, At, Call, Outcome, ReplyRecord, Service, SessionLimits, Sessions, Timers,
};

use super::batch::Batch;
use super::chain::Chain;
use super::{Head, Looks, Marks, Progress, QueryHead, Record};
use crate::Position;
use crate::node::hooks::Voice;
use crate::node::observers::{Applied, Tap, Writer};
use crate::node::state_writer::StateWriter;
use crate::notes::Notes;
use crate::observer::fields::Fields;
use crate::observer::place::Place;
use crate::observer::record::{CommandRecord, GroupList};
use crate::state_machine::{Context, Frozen, ReadContext, Reply, SessionId, StateMachine};
use crate::timers::SharedTimers;
use crate::{Group, runtime::ClusterRuntime};

/// The owner of a state machine and of its group's session table. It applies deliveries one by one, and collects the
/// replies to clients.
///
/// # Invariants
/// - A command in an envelope is applied if the session table permits it, and the table keeps its reply. A command
///   without an envelope is applied without this check, and has no reply. A time entry is not a command.
/// - At each position, sessions end first, then timers fire, and the command is applied last.
/// - A state consists of the session table, the timers, the place of the last delivery, the version in force, the
///   chain, and the machine's value.
/// - The version in force is 1, plus one for each version entry in the order so far. A machine that does not know this
///   version is not called for commands.
/// - A machine that has panicked is called again only to restore a state. Until then, nothing is applied.
pub(in crate::node) struct Applier<S> {
    machine: S,
    name: String,
    voice: Voice,
    group: Group,
    /// The names of the clients, followed by the names of the groups twice: a group is the sender of its time entries
    /// and of its version entries.
    senders: Vec<String>,
    /// Number of clients.
    clients: usize,
    /// The sender of the group's version entries.
    version_client: ClientId,
    /// The serialized initial value of the machine.
    first: Arc<[u8]>,
    sessions: Sessions,
    limits: SessionLimits,
    reply: Reply,
    notes: Notes,
    /// The reply record of the present query.
    record: Vec<u8>,
    timers: SharedTimers,
    /// The version in force.
    version: u32,
    chain: Chain,
    progress: Arc<Progress>,
    looks: Looks<S>,
    /// The writer of the records for observers.
    observed: Writer,
    /// `true` if the machine is unusable: it has panicked, was outvoted, has failed to restore a state, or does not
    /// know the version in force.
    ill: bool,
}

impl<S: StateMachine> Applier<S> {
    /// Creates the owner of a machine. `voice` receives the report of a panic.
    pub(in crate::node) fn new(
        machine: S,
        (name, voice): (&str, &Voice),
        group: Group,
        plan: &ClusterRuntime,
    ) -> io::Result<Self> {
        let topology = plan.topology();
        let clients = (0..topology.clients() as u16).map(ClientId);
        let groups = || topology.group_ids().map(|group| plan.group_name(group));
        let senders = clients.map(|client| plan.name(topology.client_process(client))).chain(groups()).chain(groups());
        let mut first = Vec::new();
        machine.freeze().write(&mut first)?;
        let limits = plan.config().limits().sessions();
        Ok(Applier {
            machine,
            name: name.to_owned(),
            voice: Arc::clone(voice),
            group,
            senders: senders.map(str::to_owned).collect(),
            clients: topology.clients(),
            version_client: topology.version_client(group.0),
            first: first.into(),
            sessions: Sessions::new(group.0, limits),
            limits,
            reply: Reply::new(limits.reply_bytes as usize),
            notes: Notes::default(),
            record: Vec::new(),
            timers: SharedTimers::default(),
            version: 1,
            chain: Chain::default(),
            progress: Arc::new(Progress::new(group)),
            looks: Looks::default(),
            observed: Writer::new(Tap::new((plan.config().limits().observed_mib as usize) << 20)),
            ill: false,
        })
    }

    pub(in crate::node) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(in crate::node) fn looks(&self) -> &Looks<S> {
        &self.looks
    }

    pub(in crate::node) fn tap(&self) -> &Arc<Tap> {
        self.observed.tap()
    }

    pub(in crate::node) fn marks(&self) -> &Arc<Marks> {
        self.chain.marks()
    }

    pub(in crate::node) fn name(&self) -> &str {
        &self.name
    }

    /// Applies a delivery, and appends its reply and its notifications to `replies`. Returns the length of the command
    /// that the machine has applied; the command is the end of the delivered payload. Returns `None` if the machine has
    /// applied no command, for example for a query, a copy, a control message of a session, a time or version entry,
    /// and after a panic.
    #[inline]
    pub(in crate::node) fn apply(&mut self, record: &Record<'_>, replies: &mut AnswerBuffer) -> Option<usize> {
        if self.ill {
            return None;
        }
        let Record { head: Head { client, enveloped, timestamp, number, origin }, groups, command } = *record;
        let position = Position::at(timestamp, (self.group.0, number), origin);
        let is_entry = usize::from(client.0) >= self.clients;
        if client == self.version_client && !self.raise_version() {
            return None;
        }
        let Applier { machine, group, senders, sessions, reply, notes, timers, chain, .. } = self;
        let version = self.version;
        let sender = senders.get(usize::from(client.0)).map_or("?", String::as_str);
        let at = At { time: timestamp, index: number, incarnation: origin, destinations: groups, client: client.0 };
        let mut method = Method::Apply;
        let applied = catch_unwind(AssertUnwindSafe(|| {
            let is_due = timers.get().begin(timestamp.time);
            let timers = &*timers;
            let (session, notes) = (None, &*notes);
            let context = Context { group: *group, position, groups, session, sender, version, notes, timers };
            let mut service = Served { machine, reply, at: context, method: &mut method, applied: None };
            sessions.expire(timestamp.time, &mut service);
            if is_due {
                service.fire_timers();
            }
            if is_entry {
                return (None, None);
            }
            if enveloped {
                // A malformed payload is malformed at all members: none applies it, and there is no reply.
                if let Ok(delivered) = sessions.deliver(&at, command, &mut service) {
                    replies.push(&Answer::to(client, &delivered));
                }
            } else {
                service.apply_bare(command);
            }
            (service.applied, service.at.session)
        }));
        match applied {
            Ok((applied, session)) => {
                let place = Place { origin, index: number, timestamp };
                let bytes = applied.and_then(|bytes| command.get(command.len().checked_sub(bytes)?..));
                let session = session.map_or(0, |session| session.0.0);
                let (client, groups) = (client.0, GroupList::Ids(groups));
                if let Some(bytes) = bytes {
                    chain.add(bytes);
                    chain.add(reply.as_bytes());
                }
                let command = bytes.map(|bytes| CommandRecord { client, session, groups, bytes });
                self.observed.note(&Applied { place, command });
                if !notes.is_empty() {
                    notes.take(|session, bytes| {
                        chain.add(bytes);
                        if let Some(answer) = sessions.notify(&at, session.0, bytes) {
                            replies.push(&answer);
                        }
                    });
                }
                self.pass(position, origin);
                applied
            }
            Err(panic) => {
                self.poison(position, method.name(), &*panic);
                None
            }
        }
    }

    /// Records that a delivery was applied. At a mark, also records the machine's digest.
    #[inline]
    fn pass(&mut self, position: Position, origin: Incarnation) {
        let Applier { machine, chain, .. } = self;
        let digest = if Chain::has_mark(position.index) {
            catch_unwind(AssertUnwindSafe(|| machine.digest()))
        } else {
            Ok(None)
        };
        match digest {
            Ok(digest) => {
                chain.pass(origin, position.index, digest);
                self.progress.note_applied(position);
            }
            Err(panic) => self.poison(position, "digest", &*panic),
        }
    }

    /// Applies a version entry. Returns whether the machine knows the new version.
    #[cold]
    fn raise_version(&mut self) -> bool {
        self.version += 1;
        self.progress.note_version(self.version);
        let known = check_version::<S>(self.version);
        if let Err(error) = &known {
            self.ill = true;
            self.progress.note_restored(Err(error.clone()));
        }
        known.is_ok()
    }

    /// Answers a query after all applied commands. If the machine is unusable, there is no answer, and the client asks
    /// again.
    pub(in crate::node) fn read(&mut self, head: QueryHead, query: &[u8], replies: &mut AnswerBuffer) {
        if self.ill {
            return;
        }
        let QueryHead { client, name, time, origin } = head;
        // A read at the leader follows `time`, which may be later than this position. `time` is not a place: commands
        // with earlier times may still be delivered.
        let position = self.observed.place().position(self.group.0);
        let Applier { machine, group, senders, reply, version, .. } = self;
        let (group, version) = (*group, *version);
        let sender = senders.get(usize::from(client.0)).map_or("?", String::as_str);
        let answered = catch_unwind(AssertUnwindSafe(|| {
            reply.clear();
            machine.read(&ReadContext { group, position, version, sender }, query, reply);
        }));
        if let Err(panic) = answered {
            return self.poison(position, Method::Read.name(), &*panic);
        }
        let overflows = reply.has_overflowed();
        let outcome = if overflows { Outcome::Overflow } else { Outcome::Applied };
        let bytes = if overflows { &[] } else { reply.as_bytes() };
        ReplyRecord::read(name, outcome, (position.place(origin), time), bytes).write(&mut self.record);
        replies.push(&Answer::again(client, &self.record));
    }

    /// Repeats the replies that this client has not acknowledged.
    pub(in crate::node) fn say_again(&mut self, client: ClientId, replies: &mut AnswerBuffer) {
        if !self.ill {
            self.sessions.replies_of(client.0, |record| replies.push(&Answer::again(client, record)));
        }
    }

    /// Applies a batch. Before each command and each query, checks whether the thread must end. After each command,
    /// answers pending looks.
    pub(super) fn apply_all(&mut self, batch: &mut Batch, ends: impl Fn() -> bool) {
        self.give_up_if_outvoted();
        let Batch { commands, queries, again, replies, .. } = batch;
        for record in commands.iter() {
            if ends() {
                break;
            }
            self.apply(&record, replies);
            self.answer();
        }
        for (head, query) in queries.iter() {
            if ends() {
                break;
            }
            self.read(head, query, replies);
        }
        self.note_due();
        for client in again {
            self.say_again(*client, replies);
        }
    }

    /// Stops applying if the protocol's thread has found that a majority differs from this machine.
    #[inline]
    pub(in crate::node) fn give_up_if_outvoted(&mut self) {
        if !self.ill && self.progress.is_ill() {
            self.ill = true;
            self.observed.begin_anew(None);
            self.notes = Notes::default();
        }
    }

    /// Publishes the chain and, if the machine is usable, the earliest time at which a session ends or a timer fires.
    #[inline]
    pub(in crate::node) fn note_due(&mut self) {
        self.chain.publish();
        if self.ill {
            return;
        }
        let end = self.sessions.next_end().map(|end| end.saturating_add(1));
        let due = end.into_iter().chain(self.timers.get().earliest()).min();
        self.progress.note_due(due);
    }

    /// Answers pending looks.
    #[inline]
    pub(in crate::node) fn answer(&self) {
        for look in self.looks.take() {
            let poisoned = if self.ill { self.progress.poisoned() } else { None };
            look(poisoned.map_or(Ok(&self.machine), Err));
        }
    }

    /// Hands the applied commands over to observers, and the frozen value if they requested it. Called after each work
    /// item of the apply thread, or after each round of the protocol's thread.
    #[inline]
    pub(in crate::node) fn serve_observers(&mut self) {
        let Applier { machine, name, voice, observed, ill, .. } = self;
        let mut panicked = None;
        observed.serve(!*ill, || {
            let frozen = || StateWriter::begin((name, voice), machine.freeze());
            catch_unwind(AssertUnwindSafe(frozen)).map_err(|panic| panicked = Some(panic)).ok()
        });
        if let Some(panic) = panicked {
            self.poison(self.last(self.progress.commands()), "freeze", &*panic);
        }
    }

    /// Freezes the value after all applied commands. Returns `None` if the machine is unusable.
    pub(in crate::node) fn freeze(&mut self) -> Option<StateWriter> {
        if self.ill {
            return None;
        }
        let Applier { machine, name, voice, sessions, timers, version, chain, observed, .. } = self;
        let frozen = || {
            let mut table = Vec::new();
            sessions.write(&mut table);
            timers.write(&mut table);
            observed.place().write(&mut table);
            table.extend(version.to_le_bytes());
            table.extend(chain.value().to_le_bytes());
            StateWriter::begin((name, voice), WithSessions { table, value: machine.freeze() })
        };
        match catch_unwind(AssertUnwindSafe(frozen)) {
            Ok(writer) => Some(writer),
            Err(panic) => {
                self.poison(self.last(self.progress.commands()), "freeze", &*panic);
                None
            }
        }
    }

    /// Restores a state of `number` commands, or the initial value if `number` is 0.
    pub(in crate::node) fn restore(&mut self, number: u64, mut chunks: VecDeque<Vec<u8>>) {
        let Applier { machine, first, group, limits, sessions, timers, version, .. } = self;
        let mut value = 0;
        let restored = catch_unwind(AssertUnwindSafe(|| match number {
            0 => {
                *sessions = Sessions::new(group.0, *limits);
                *timers = SharedTimers::default();
                *version = 1;
                let restored = machine.restore(&mut &first[..]).map(|()| Place::default());
                restored.map_err(|error| RestoreError(format!("its own initial value cannot be read: {error}")))
            }
            _ => {
                let mut state = StateReader::new(&mut chunks);
                let table = Sessions::read_from(group.0, *limits, &mut state);
                *sessions =
                    table.map_err(|why| RestoreError(format!("the sessions of clients cannot be read: {why}")))?;
                let set = Timers::read_from(&mut state);
                let set = set.map_err(|why| RestoreError(format!("the timers cannot be read: {why}")))?;
                *timers = SharedTimers::new(set);
                let mut place = [0; Place::BYTES];
                let read = state.read(&mut place);
                let place = Place::read(&mut Fields(&place[..read])).filter(|place| place.index == number);
                let place = place.ok_or_else(|| RestoreError("the state does not name its last command".to_owned()))?;
                (*version, value) = read_version(&mut state)?;
                check_version::<S>(*version)?;
                let restored = machine.restore(&mut Bytes(state)).map(|()| place);
                restored.map_err(|error| RestoreError(error.to_string()))
            }
        }));
        match restored {
            Ok(restored) => {
                self.ill = restored.is_err();
                self.progress.note_version(self.version);
                let place = restored.as_ref().ok().copied();
                self.observed.begin_anew(place);
                let place = place.unwrap_or_default();
                self.chain.begin_anew((place.origin, place.index), value);
                self.progress.note_restored(restored.map(|_| number));
                self.note_due();
            }
            Err(panic) => self.poison(self.last(number), "restore", &*panic),
        }
        self.progress.note_restore_over();
    }

    /// Returns the position with index `commands`. If this process has not applied that position last, its time is
    /// unknown, and is 0 in the result.
    fn last(&self, commands: u64) -> Position {
        let last = self.progress.applied().filter(|last| last.index == commands);
        last.unwrap_or_else(|| Position::at(self.first_timestamp(), (self.group.0, commands), Incarnation::NONE))
    }

    /// Returns the timestamp that stands for an unknown one.
    fn first_timestamp(&self) -> Timestamp {
        Timestamp { time: 0, group: self.group.0.0 }
    }

    #[cold]
    fn poison(&mut self, at: Position, method: &str, panic: &(dyn Any + Send)) {
        self.ill = true;
        self.observed.begin_anew(None);
        self.notes = Notes::default();
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the panic has no message");
        let (index, time) = (at.index, at.time);
        let text = format!(
            "its state machine has panicked in `{method}` at command {index} (time {time}) and is poisoned: {said}; the node votes, and takes \
             the state of the others if a majority of them has applied that command; otherwise mend the state machine, and start the \
             node again"
        );
        (self.voice)(log::Level::Error, &text);
        self.progress.note_poisoned(at);
    }

    /// Returns the machine, unless it is unusable.
    pub(in crate::node) fn into_machine(self) -> Option<S> {
        (!self.ill).then_some(self.machine)
    }
}

/// Reads the version in force and the chain from a state.
fn read_version(state: &mut StateReader<'_>) -> Result<(u32, u64), RestoreError> {
    let mut bytes = [0; 12];
    let read = state.read(&mut bytes);
    let ([v0, v1, v2, v3, chain @ ..], 12) = (bytes, read) else {
        return Err(RestoreError("the state does not name its version".to_owned()));
    };
    Ok((u32::from_le_bytes([v0, v1, v2, v3]), u64::from_le_bytes(chain)))
}

/// Returns an error for a version that the machine does not know.
fn check_version<S: StateMachine>(version: u32) -> Result<(), RestoreError> {
    let newest = S::VERSION;
    if version <= newest {
        return Ok(());
    }
    Err(RestoreError(format!(
        "its group applies version {version} of the state machine, and this program has version {newest}"
    )))
}

/// A method of a state machine that a delivery can call.
#[derive(Clone, Copy)]
enum Method {
    Apply,
    Read,
    SessionEnded,
    Timer,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Apply => "apply",
            Method::Read => "read",
            Method::SessionEnded => "session_ended",
            Method::Timer => "timer",
        }
    }
}

/// The state machine, as the session table calls it during one delivery.
struct Served<'a, S> {
    machine: &'a mut S,
    reply: &'a mut Reply,
    at: Context<'a>,
    /// The method that was called last.
    method: &'a mut Method,
    /// Length of the applied command, in bytes.
    applied: Option<usize>,
}

impl<S: StateMachine> Served<'_, S> {
    /// Applies a command. The machine writes its reply into `self.reply`.
    #[inline]
    fn apply_bare(&mut self, command: &[u8]) {
        *self.method = Method::Apply;
        self.reply.clear();
        self.machine.apply(&self.at, command, self.reply);
        self.applied = Some(command.len());
    }

    /// Fires the timers that are due at this position, including the timers that are set while others fire.
    #[cold]
    fn fire_timers(&mut self) {
        *self.method = Method::Timer;
        while let Some(timer) = self.at.timers.fire() {
            self.machine.timer(&self.at, timer);
        }
    }

    /// Answers a query.
    fn read(&mut self, query: &[u8]) {
        *self.method = Method::Read;
        self.reply.clear();
        let Context { group, position, version, sender, .. } = self.at;
        self.machine.read(&ReadContext { group, position, version, sender }, query, self.reply);
    }
}

impl<S: StateMachine> Service for Served<'_, S> {
    #[inline]
    fn apply(&mut self, call: Call<'_>, reply: &mut session::Reply<'_>) {
        if call.is_query {
            self.read(call.command);
        } else {
            self.at.session = Some(SessionId(call.session));
            self.apply_bare(call.command);
        }
        if self.reply.has_overflowed() {
            reply.overflow();
        } else {
            reply.extend(self.reply.as_bytes());
        }
    }

    fn ended(&mut self, session: session::SessionId) {
        *self.method = Method::SessionEnded;
        self.machine.session_ended(&self.at, SessionId(session));
    }
}

/// A frozen value, preceded by the other parts of the state: see [`Applier`].
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

struct Bytes<'a>(StateReader<'a>);

impl Read for Bytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(out))
    }
}
