//! A simulator of a small replicated service: groups that agree on timestamps, members that lag behind, and sessions
//! that record their calls. The service keeps the promise unless a fault is injected.

use std::collections::BTreeMap;

use stentor_checker::calls::{Call, Kind, Model, Outcome, Position};
use stentor_checker::{Group, GroupSet};

use crate::random::Random;
use crate::service::{KEYS, Service};

type State = [i64; KEYS];

/// A fault that is injected once in a history. [`Fault::Session`] is injected into all calls of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    /// A read at the leader is answered from a state that lacks applied commands.
    StaleRead,
    /// A command is answered but has no effect.
    LostWrite,
    /// A command takes effect twice.
    Doubled,
    /// Calls are not ordered after those that their session had observed.
    Session,
    /// Two groups apply two commands in opposite orders.
    Cycle,
    /// A command to several groups is answered by all of them but takes effect in only one.
    Torn,
    /// A read after a position is answered from a prefix that lacks commands up to this position.
    Prefix,
}

pub(crate) struct Config {
    pub(crate) calls: usize,
    pub(crate) groups: u16,
    pub(crate) sessions: usize,
    /// Number of keys in use. Faults are more visible with fewer keys.
    pub(crate) keys: u64,
    /// Percentage of commands and ordered reads that are sent to several groups.
    pub(crate) several: u64,
    /// Number of calls of unknown outcome per 1000 calls other than local reads.
    pub(crate) unknown: u64,
    pub(crate) positions: bool,
    pub(crate) fault: Fault,
}

/// A call in progress.
struct Pending {
    /// The number of the call.
    call: usize,
    floor: u64,
    /// The time that each group assigned.
    times: BTreeMap<Group, u64>,
    position: Option<Position>,
    replies: Vec<(Group, Vec<u8>)>,
    lost: bool,
}

struct Member {
    clock: u64,
    state: State,
    /// The applied calls, each with the state after it. The first entry is the initial state.
    applied: Vec<(Position, State)>,
    reads: u64,
}

struct Session {
    known: Position,
    generation: u64,
    own: Vec<Position>,
    waits: usize,
}

pub(crate) struct Simulator {
    config: Config,
    random: Random,
    now: u64,
    members: Vec<Member>,
    sessions: Vec<Session>,
    calls: Vec<Call>,
    pending: Vec<Pending>,
    planted: bool,
}

const START: Position = Position { time: 0, group: Group(0) };

impl Simulator {
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        let member = |_| Member { clock: 0, state: [0; KEYS], applied: vec![(START, [0; KEYS])], reads: 0 };
        let session = |_| Session { known: START, generation: 1, own: Vec::new(), waits: 0 };
        Simulator {
            members: (0..config.groups).map(member).collect(),
            sessions: (0..config.sessions).map(session).collect(),
            random: Random(seed),
            now: 0,
            calls: Vec::new(),
            pending: Vec::new(),
            planted: false,
            config,
        }
    }

    /// Runs the simulation. Returns the calls and whether a fault was injected.
    pub(crate) fn run(mut self) -> (Vec<Call>, bool) {
        while self.calls.len() < self.config.calls || self.calls.iter().zip(0..).any(|(_, call)| self.waits(call)) {
            self.now += 1;
            match self.random.below(3) {
                0 if self.calls.len() < self.config.calls => self.submit(),
                _ => self.advance(),
            }
        }
        if !self.config.positions {
            for call in &mut self.calls {
                let asks = matches!(call.kind, Kind::After(_));
                if let Outcome::Answered { position, .. } = &mut call.outcome
                    && (call.kind.is_read() || !asks && self.random.percent(70))
                {
                    *position = None;
                }
            }
        }
        (self.calls, self.planted)
    }

    fn waits(&self, call: usize) -> bool {
        self.pending.iter().any(|pending| pending.call == call && !pending.lost)
    }

    /// Returns whether to inject the fault here: only if it is the configured one and was not injected yet, and with
    /// some probability.
    fn plant(&mut self, fault: Fault) -> bool {
        let plant = self.config.fault == fault && !self.planted && self.random.percent(30);
        self.planted |= plant;
        plant
    }

    fn submit(&mut self) {
        let index = self.random.below(self.sessions.len() as u64) as usize;
        if self.sessions[index].waits >= 2 {
            return;
        }
        let kind = match self.random.below(10) {
            0..=5 => Kind::Command,
            6 => Kind::Ordered,
            7 => Kind::Leader,
            8 => Kind::Local,
            _ => Kind::After(*self.random.pick(&[&self.sessions[index].own[..], &[START]].concat())),
        };
        let several = kind.is_multicast() && self.random.percent(self.config.several);
        let first = self.random.below(u64::from(self.config.groups)) as u16;
        let mut groups: GroupSet = [Group(first)].into_iter().collect();
        if several {
            groups.insert(Group(
                (first + 1 + self.random.below(u64::from(self.config.groups) - 1) as u16) % self.config.groups,
            ));
        }
        let (key, value) = (self.random.below(self.config.keys), 1 + self.random.below(9));
        let operation = match (kind, self.random.below(10)) {
            (Kind::Command, 0..=4) => format!("add {key} {value}"),
            (Kind::Command, 5..=8) => format!("put {key} {value}"),
            (Kind::Command, _) => format!("push {key} {}", value % 2),
            (_, 0) => "sum".to_owned(),
            _ => format!("get {key}"),
        };
        let mut observed = Vec::new();
        let others: Vec<Position> = self.calls.iter().rev().take(20).filter_map(Call::position).collect();
        if !others.is_empty() && self.random.percent(5) {
            observed.push(*self.random.pick(&others));
            let session = &mut self.sessions[index];
            session.known = session.known.max(observed[0]);
        }
        let session = &mut self.sessions[index];
        if session.waits == 0 && self.random.percent(3) {
            session.generation += 1;
        }
        let ignores = self.config.fault == Fault::Session;
        self.planted |= ignores;
        let floor = if ignores { 0 } else { session.known.time };
        session.waits += 1;
        let generation = session.generation;
        let call = self.calls.len();
        let (operation, outcome) = (operation.into_bytes(), Outcome::NotApplied);
        let (session, submitted) = (index as u64, self.now);
        self.calls.push(Call { session, generation, submitted, groups, operation, kind, outcome, observed });
        if self.random.percent(1) {
            self.sessions[index].waits -= 1;
            return;
        }
        let pending = Pending { call, floor, times: BTreeMap::new(), position: None, replies: Vec::new(), lost: false };
        self.pending.push(pending);
        if kind != Kind::Local && self.random.below(1000) < self.config.unknown {
            self.give_up(call);
        }
    }

    fn give_up(&mut self, call: usize) {
        self.calls[call].outcome = Outcome::Unknown;
        self.sessions[self.calls[call].session as usize].waits -= 1;
        let lost = self.random.percent(30);
        let pending = self.pending.last_mut().unwrap();
        pending.lost = true;
        if lost || self.calls[call].kind.is_read() {
            self.pending.pop();
        }
    }

    /// Advances a random call by one step.
    fn advance(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let at = self.random.below(self.pending.len() as u64) as usize;
        let call = self.pending[at].call;
        let groups: Vec<Group> = self.calls[call].groups.iter().collect();
        if !self.calls[call].kind.is_multicast() {
            self.read(at, groups[0]);
        } else if self.pending[at].position.is_none() {
            let group = *self.random.pick(&groups);
            self.assign(at, group, groups.len());
        } else {
            let group = *self.random.pick(&groups);
            self.deliver(group);
        }
    }

    fn assign(&mut self, at: usize, group: Group, groups: usize) {
        let skew = self.random.below(4);
        let pending = &mut self.pending[at];
        if pending.times.contains_key(&group) {
            return;
        }
        let member = &mut self.members[group.index()];
        member.clock = member.clock.max(pending.floor) + 1 + skew;
        pending.times.insert(group, member.clock);
        if pending.times.len() == groups {
            let (time, group) = pending.times.iter().map(|(group, time)| (*time, *group)).max().unwrap();
            pending.position = Some(Position { time, group });
            for group in pending.times.keys() {
                let member = &mut self.members[group.index()];
                member.clock = member.clock.max(time);
            }
        }
    }

    /// Delivers the first call in a group if its position is decided.
    fn deliver(&mut self, group: Group) {
        let waiting = self.pending.iter().enumerate().filter(|(_, pending)| {
            pending.times.contains_key(&group) && !pending.replies.iter().any(|(of, _)| *of == group)
        });
        let key = |pending: &Pending| match pending.position {
            Some(position) => (position, true),
            None => (Position { time: pending.times[&group], group: Group(0) }, false),
        };
        let mut waiting: Vec<((Position, bool), usize)> = waiting.map(|(at, pending)| (key(pending), at)).collect();
        waiting.sort_unstable();
        let Some(((_, true), first)) = waiting.first().copied() else { return };
        let second = waiting.get(1).filter(|((_, decided), _)| *decided).map(|(_, at)| *at);
        let meet = |one: usize, other: usize| {
            let groups = |at: usize| self.calls[self.pending[at].call].groups;
            groups(one).iter().filter(|group| groups(other).contains(*group)).count() > 1
        };
        if let Some(second) = second.filter(|second| meet(first, *second))
            && self.plant(Fault::Cycle)
        {
            self.apply(second, group);
        }
        self.apply(first, group);
        let done = |pending: &Pending, calls: &[Call]| pending.replies.len() == calls[pending.call].groups.len();
        while let Some(at) = self.pending.iter().position(|pending| done(pending, &self.calls)) {
            let Pending { call, position, replies, lost, .. } = self.pending.remove(at);
            if !lost {
                self.answer(call, replies, position.unwrap());
            }
        }
    }

    fn apply(&mut self, at: usize, group: Group) {
        let call = self.calls[self.pending[at].call].clone();
        let position = self.pending[at].position.unwrap();
        let before = self.members[group.index()].state;
        let mut state = before;
        let reply = if call.kind.is_read() {
            Service.read(&state, group, &call.operation)
        } else {
            Service.apply(&mut state, group, &call.operation)
        };
        if !call.kind.is_read() {
            let torn = call.groups.len() > 1 && !self.pending[at].replies.is_empty();
            if self.plant(Fault::LostWrite) || torn && self.plant(Fault::Torn) {
                state = before;
            } else if self.plant(Fault::Doubled) {
                Service.apply(&mut state, group, &call.operation);
            }
        }
        let member = &mut self.members[group.index()];
        member.state = state;
        member.applied.push((position, state));
        self.pending[at].replies.push((group, reply));
    }

    fn answer(&mut self, call: usize, replies: Vec<(Group, Vec<u8>)>, position: Position) {
        let session = &mut self.sessions[self.calls[call].session as usize];
        session.waits -= 1;
        session.known = session.known.max(position);
        session.own.push(position);
        self.calls[call].outcome = Outcome::Answered { at: self.now, replies, position: Some(position) };
    }

    fn read(&mut self, at: usize, group: Group) {
        let Pending { call, floor, .. } = self.pending[at];
        let kind = self.calls[call].kind;
        let asked = match kind {
            Kind::Leader => Position { time: floor, group: Group(u16::MAX) },
            Kind::After(asked) => asked,
            _ => START,
        };
        let member = &mut self.members[group.index()];
        member.clock = member.clock.max(asked.time);
        let open = |pending: &Pending| {
            pending.times.get(&group).is_some_and(|time| *time <= asked.time)
                && !pending.replies.iter().any(|(of, _)| *of == group)
        };
        if self.pending.iter().any(open) {
            self.deliver(group);
            return;
        }
        let member = &self.members[group.index()];
        let last = member.applied.len() - 1;
        let holds = member.applied.iter().rposition(|(position, _)| *position <= asked).unwrap_or(0);
        let mut prefix = match kind {
            Kind::Leader => last,
            _ => holds + self.random.below((last - holds + 1) as u64) as usize,
        };
        let mut position = member.applied[prefix].0;
        position = match kind {
            Kind::Leader => {
                let time = position.time.max(floor).max(member.reads);
                if time > position.time { Position { time, group: Group(u16::MAX) } } else { position }
            }
            _ => position.max(asked),
        };
        let older = match kind {
            Kind::Leader => last.saturating_sub(1 + self.random.below(3) as usize),
            _ => holds.saturating_sub(1 + self.random.below(2) as usize),
        };
        let reply_at = |simulator: &Self, prefix: usize| {
            let state = simulator.members[group.index()].applied[prefix].1;
            Service.read(&state, group, &simulator.calls[call].operation)
        };
        // An older state with the same answer would not be a fault.
        let shows = reply_at(self, older) != reply_at(self, if kind == Kind::Leader { last } else { holds });
        if kind == Kind::Leader {
            let member = &mut self.members[group.index()];
            member.reads = member.reads.max(position.time);
            if shows && self.plant(Fault::StaleRead) {
                prefix = older;
            }
        } else if kind != Kind::Local && shows && self.plant(Fault::Prefix) {
            prefix = older;
        }
        let reply = reply_at(self, prefix);
        self.pending.remove(at);
        self.answer(call, vec![(group, reply)], position);
    }
}
