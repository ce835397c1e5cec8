//! Groups under an abstract total order, and processes that use sessions in them.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use stentor_multicast::{GroupId, Incarnation, Timestamp};
use stentor_session::{
    At, Caller, CallerConfig, Envelope, Event, Fate, Finished, Kind, Mutant, Outcome, Pair, ReplyRecord, SessionId,
    SessionKey, SessionLimits, Sessions, Ticket, Verdict, Why,
};

use crate::audit::{Audit, Machine, Name, command, is_query, label};

pub(crate) const TTL: u64 = 100;

/// A group: its table, its state machine, its clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) sessions: Sessions,
    pub(crate) machine: Machine,
    pub(crate) clock: u64,
    pub(crate) index: u64,
    pub(crate) incarnation: Incarnation,
}

/// A message that may be ordered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Flight {
    pub(crate) to: Vec<GroupId>,
    pub(crate) payload: Vec<u8>,
    /// Process that sent the message. Its number is also the client id.
    pub(crate) from: usize,
    /// Request that the message carries.
    pub(crate) request: Option<u64>,
}

/// A record that may arrive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Answer {
    pub(crate) to: usize,
    pub(crate) group: GroupId,
    pub(crate) record: Vec<u8>,
}

/// A process with one caller.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Process {
    pub(crate) caller: Caller,
    pub(crate) alive: bool,
    /// Last request that the process began.
    begun: u64,
}

/// The whole system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct World {
    pub(crate) groups: Vec<Group>,
    pub(crate) flights: Vec<Flight>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) processes: Vec<Process>,
    /// Keys and tickets that were stored before their messages were sent.
    pub(crate) keys: BTreeMap<SessionId, SessionKey>,
    pub(crate) tickets: Vec<Ticket>,
    pub(crate) audit: Audit,
    pub(crate) mutant: Mutant,
    /// `true` if commands occasionally notify all sessions.
    pub(crate) notifies: bool,
    /// Number of times that each kind of event happened. Not part of the hash.
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut bytes = Vec::new();
        self.sessions.write(&mut bytes);
        (bytes, &self.machine, self.clock, self.index, self.incarnation).hash(state);
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.groups, &self.flights, &self.answers, &self.processes).hash(state);
        (&self.keys, &self.tickets, &self.audit).hash(state);
    }
}

impl World {
    pub(crate) fn new(groups: u16, limits: SessionLimits, mutant: Mutant) -> World {
        let group = |group| Group {
            sessions: Sessions::new(GroupId(group), limits).with_mutant(mutant),
            machine: Machine { group, ..Machine::default() },
            clock: 1,
            index: 0,
            incarnation: Incarnation::FIRST,
        };
        World {
            groups: (0..groups).map(group).collect(),
            flights: Vec::new(),
            answers: Vec::new(),
            processes: Vec::new(),
            keys: BTreeMap::new(),
            tickets: Vec::new(),
            audit: Audit::default(),
            mutant,
            notifies: false,
            seen: BTreeMap::new(),
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(crate) fn pairs(&self, groups: &[u16]) -> Vec<Pair> {
        let pair = |group: &u16| Pair { group: GroupId(*group), incarnation: self.groups[*group as usize].incarnation };
        groups.iter().map(pair).collect()
    }

    /// Returns the largest clock, as a client's estimate of the time.
    pub(crate) fn now(&self) -> u64 {
        self.groups.iter().map(|group| group.clock).max().unwrap_or(0)
    }

    /// Starts a process that opens a session.
    pub(crate) fn start(&mut self, session: SessionId, config: CallerConfig, groups: &[u16]) -> usize {
        let mut caller = Caller::new(session, config).with_mutant(self.mutant);
        let (pairs, until) = (self.pairs(groups), self.now() + TTL);
        caller.open(session.0 as u64, &pairs, until).expect("a new caller");
        self.enter(caller)
    }

    /// Starts a process that takes up a session.
    pub(crate) fn succeed(&mut self, session: SessionId, config: CallerConfig, word: u64) -> usize {
        let mut caller = Caller::resume(&self.keys[&session], config).with_mutant(self.mutant);
        let until = self.now() + TTL;
        caller.take_up(word, until).expect("a valid key");
        self.enter(caller)
    }

    fn enter(&mut self, caller: Caller) -> usize {
        self.processes.push(Process { caller, alive: true, begun: 0 });
        let process = self.processes.len() - 1;
        self.note_key(process);
        self.send_control(process);
        process
    }

    /// Stores the key, if it is newer.
    pub(crate) fn note_key(&mut self, process: usize) {
        let key = self.processes[process].caller.key();
        let rank = |key: &SessionKey| (key.widening, key.pairs.clone(), key.generation);
        match self.keys.get(&key.session) {
            Some(old) if rank(old) >= rank(&key) => {}
            _ => drop(self.keys.insert(key.session, key)),
        }
    }

    /// Sends the session's pending command. A repeated call sends it again.
    pub(crate) fn send_control(&mut self, process: usize) {
        if let Some(message) = self.processes[process].caller.message() {
            let (to, payload) = (message.to.to_vec(), message.payload.to_vec());
            self.flights.push(Flight { to, payload, from: process, request: None });
        }
    }

    /// Begins a request, and sends one message with it.
    pub(crate) fn begin(&mut self, process: usize, to: &[u16]) -> Option<u64> {
        let to: Vec<GroupId> = to.iter().copied().map(GroupId).collect();
        let is_query = is_query(self.processes[process].begun + 1);
        let caller = &mut self.processes[process].caller;
        let request = if is_query { caller.begin_query(&to) } else { caller.begin(&to) }.ok()?;
        self.tickets.extend(caller.ticket(request).cloned());
        self.processes[process].begun = request;
        self.send(process, request);
        Some(request)
    }

    /// Sends another message with a request.
    pub(crate) fn send_again(&mut self, process: usize, request: u64) {
        if self.processes[process].caller.again(request) {
            self.send(process, request);
        }
    }

    fn send(&mut self, process: usize, request: u64) {
        let caller = &self.processes[process].caller;
        let mut head = [0; Envelope::BYTES];
        if !caller.envelope(request, &mut head) {
            return;
        }
        let to = caller.ticket(request).map(|ticket| ticket.groups().collect()).unwrap_or_default();
        let mut payload = head.to_vec();
        payload.extend(command(caller.word(), (caller.id(), caller.generation(), request)));
        self.flights.push(Flight { to, payload, from: process, request: Some(request) });
    }

    /// Sends a question for the fate of a ticket's request. Returns whether the caller accepts the ticket.
    pub(crate) fn resolve(&mut self, process: usize, ticket: usize) -> bool {
        let ticket = &self.tickets[ticket];
        let mut payload = Vec::new();
        if self.processes[process].caller.resolve(ticket, &mut payload).is_err() {
            return false;
        }
        let to = ticket.groups().collect();
        self.flights.push(Flight { to, payload, from: process, request: None });
        true
    }

    pub(crate) fn renew(&mut self, process: usize, now: u64) {
        let mut renewals = Vec::new();
        let order = self.now();
        let send = |group, payload: &[u8]| renewals.push((group, payload.to_vec()));
        self.processes[process].caller.due(now, order, send);
        for (group, payload) in renewals {
            self.flights.push(Flight { to: vec![group], payload, from: process, request: None });
        }
    }

    /// Orders a message and delivers it in all its groups, `later` after their clocks.
    pub(crate) fn deliver(&mut self, flight: usize, later: u64, skips: bool) {
        let flight = self.flights.swap_remove(flight);
        let clock = |group: &GroupId| self.groups[group.0 as usize].clock;
        let time = flight.to.iter().map(clock).max().unwrap_or(0) + 1 + later;
        let mut applied = Vec::new();
        let mut envelope = None;
        for to in &flight.to {
            let group = &mut self.groups[to.0 as usize];
            group.clock = time;
            group.index += 1;
            let at = At {
                time: Timestamp { time, group: flight.to[0].0 },
                index: group.index,
                incarnation: group.incarnation,
                destinations: &flight.to,
                client: flight.from as u16,
            };
            let known =
                group.sessions.end_of(Envelope::parse(&flight.payload).map(|it| it.0.session).unwrap_or_default());
            let delivered = match skips {
                true => group.sessions.skip(&at, &flight.payload, &mut group.machine),
                false => group.sessions.deliver(&at, &flight.payload, &mut group.machine),
            };
            let delivered = delivered.expect("callers write valid messages");
            let verdict = delivered.verdict;
            envelope = Some(delivered.envelope);
            applied.push(matches!(verdict, Verdict::Applied | Verdict::Skipped));
            self.answers.push(Answer { to: flight.from, group: *to, record: delivered.record.to_vec() });
            let what = match verdict {
                Verdict::Refused(Outcome::SessionNotOpen) if known.is_some_and(|end| end >= time) => "predates",
                Verdict::Refused(outcome) => label(outcome),
                Verdict::Duplicate => "duplicate",
                Verdict::CarriedOut(Kind::Resolve) => "closes",
                Verdict::CarriedOut(Kind::TakeUp) => "taken up",
                Verdict::CarriedOut(Kind::Widen) => "widened",
                Verdict::Skipped => "skips",
                _ => "accepted",
            };
            let judged = delivered.envelope;
            if self.notifies && verdict == Verdict::Applied && group.index.is_multiple_of(4) {
                for session in self.keys.keys().copied() {
                    let Some(generation) = group.sessions.generation_of(session) else { continue };
                    let since = self.audit.since.get(&(session, to.0)).copied().unwrap_or_default();
                    let name = (session, generation, to.0, group.incarnation, since);
                    let number = self.audit.sent.get(&name).map_or(1, |sent| sent + 1);
                    if let Some(answer) = group.sessions.notify(&at, session, &number.to_le_bytes()) {
                        let (to, record) = (usize::from(answer.client.0), answer.record.to_vec());
                        self.answers.push(Answer { to, group: group.sessions.group(), record });
                        self.audit.sent.insert(name, number);
                    }
                }
            }
            if known.is_none_or(|end| end < time) && group.sessions.end_of(judged.session).is_some() {
                self.audit.since.insert((judged.session, to.0), time);
            }
            if let Some(generation) = group.sessions.generation_of(judged.session) {
                group.machine.generations.insert(judged.session, generation);
            }
            *self.seen.entry(what).or_default() += 1;
            if std::env::var_os("STENTOR_SESSION_TRACE").is_some() {
                println!("{time} at {} of {:?}: {judged:?} {verdict:?}", to.0, flight.to);
            }
        }
        if let Some(envelope) = envelope {
            self.judge(&envelope, &applied, skips);
        }
    }

    fn judge(&mut self, envelope: &Envelope, applied: &[bool], skips: bool) {
        let name = (envelope.session, envelope.generation, envelope.request);
        if matches!(envelope.kind, Kind::Command | Kind::Query) {
            self.audit.alike(name, applied);
            if skips {
                self.audit.skips.insert(name);
            }
        }
        if envelope.kind == Kind::TakeUp {
            let last = self.audit.generations.entry(envelope.session).or_default();
            *last = (*last).max(envelope.generation);
        }
        self.check();
    }

    pub(crate) fn check(&mut self) {
        let machines: Vec<&Machine> = self.groups.iter().map(|group| &group.machine).collect();
        self.audit.check(&machines);
    }

    /// Turns a message into a no-op for good. A live sender learns of it.
    pub(crate) fn void(&mut self, flight: usize) {
        let flight = self.flights.swap_remove(flight);
        let process = &mut self.processes[flight.from];
        let (true, Some(request)) = (process.alive, flight.request) else { return };
        let hearer = (process.caller.id(), process.caller.generation());
        if let Some(finished) = process.caller.void(request) {
            let machines: Vec<&Machine> = self.groups.iter().map(|group| &group.machine).collect();
            self.audit.hear(hearer, &finished, &machines);
        }
        self.check();
    }

    /// Lets the process give a request up.
    pub(crate) fn lose(&mut self, process: usize, request: u64) {
        let _ = self.processes[process].caller.lost(request, Why::TimedOut);
    }

    /// Delivers a record.
    pub(crate) fn answer(&mut self, answer: usize) {
        let Answer { to, group, record } = self.answers.swap_remove(answer);
        let process = &mut self.processes[to];
        if !process.alive {
            return;
        }
        let record = ReplyRecord::parse(&record).expect("tables write valid records");
        let session = process.caller.id();
        let generation = process.caller.generation();
        let event = process.caller.on_reply(group, &record);
        let mut what = None;
        match event {
            Some(Event::Finished(finished)) => {
                let machines: Vec<&Machine> = self.groups.iter().map(|group| &group.machine).collect();
                self.audit.hear((session, generation), &finished, &machines);
                what = Some(told(&finished, record.answers));
            }
            Some(Event::Answered { kind, refused }) => {
                what = match (kind, refused) {
                    (Kind::TakeUp, None) => Some("took up"),
                    (Kind::TakeUp, Some(_)) => Some("took up not everywhere"),
                    (Kind::Widen, None) => Some("uses more"),
                    (Kind::Open, Some(_)) => Some("opening refused"),
                    _ => None,
                };
                self.note_key(to);
            }
            Some(Event::Dropped { .. }) => what = Some("dropped"),
            Some(Event::Notified(news)) => {
                self.audit.hear_notified(to, (session, generation), news, &record);
                what = Some(if news.missed > 0 { "missed a notification" } else { "notified" });
            }
            _ => {}
        }
        if let Some(what) = what {
            self.count(what);
        }
        self.check();
    }

    /// Lets the group begin a new history with an empty table. Messages in flight to it become no-ops. A process whose
    /// session or messages involve the group is no longer used.
    pub(crate) fn reset(&mut self, group: u16, limits: SessionLimits) {
        let mutant = self.mutant;
        self.audit.resets.insert(group);
        let reset = GroupId(group);
        for (at, process) in self.processes.iter_mut().enumerate() {
            let caller = &process.caller;
            let uses = caller.key().pairs.iter().any(|pair| pair.group == reset)
                || caller.message().is_some_and(|message| message.to.contains(&reset))
                || self.flights.iter().any(|flight| flight.from == at && flight.to.contains(&reset))
                || self.answers.iter().any(|answer| answer.to == at && answer.group == reset);
            process.alive &= !uses;
        }
        self.flights.retain(|flight| !flight.to.contains(&GroupId(group)));
        let group = &mut self.groups[group as usize];
        group.incarnation = Incarnation { number: group.incarnation.number + 1, tag: 7 };
        group.sessions = Sessions::new(group.sessions.group(), limits).with_mutant(mutant);
        group.machine = Machine { group: group.machine.group, ..Machine::default() };
    }

    /// Returns the requests of a process that are not settled.
    pub(crate) fn unsettled(&self, process: usize) -> Vec<u64> {
        let caller = &self.processes[process].caller;
        let from = caller.responded();
        (from..from + 64).filter(|request| caller.ticket(*request).is_some()).collect()
    }
}

fn told(finished: &Finished<'_>, answers: Kind) -> &'static str {
    match (finished.fate, answers) {
        (Fate::Applied(_), Kind::Resolve) => "resolved as applied",
        (Fate::Applied(_), _) => "told applied",
        (Fate::NotApplied(_), Kind::Resolve) => "resolved as closed",
        (Fate::NotApplied(_), _) => "told not applied",
        (Fate::Unknown(Why::Forgotten(_)), _) => "told forgotten",
        (Fate::Unknown(Why::Superseded), _) => "told superseded",
        (Fate::Unknown(Why::SessionEnded(_)), _) => "told session ended",
        (Fate::Unknown(Why::GroupReset(_)), _) => "told reset",
        (Fate::Unknown(_), _) => "told unknown",
    }
}

/// Returns the identifier of a ticket's request.
pub(crate) fn name_of(ticket: &Ticket) -> Name {
    (ticket.session, ticket.generation, ticket.request)
}
