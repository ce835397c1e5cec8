//! The failing cluster as a stateright model.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};

use stateright::{Model, Property};

use super::channels::Channels;
use super::cure::{Run, cure};
use super::lazy::lazy;
use super::member::{Context, Member};
use super::possible::possible;
use super::store::{Cause, Store};
use crate::network::Wire;
use crate::scenario::Scenario;
use crate::store::EMPTY;
use crate::verdict::{
    ACCEPTED, ACYCLIC, COMPLETE, FIFO, Flaws, GENUINE, INTEGRITY, PREFIX, READ, REQUESTED, TIMESTAMPS, VERSION,
};

/// Maximum number of members and channels together.
const NUMBERS: usize = 48;

/// The number of times that each kind of failure may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Budget {
    pub(crate) campaigns: u8,
    pub(crate) crashes: u8,
    pub(crate) restarts: u8,
    pub(crate) cuts: u8,
    pub(crate) ticks: u8,
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Budget { campaigns, crashes, restarts, cuts, ticks } = self;
        let kinds =
            [("campaigns", campaigns), ("crashes", crashes), ("restarts", restarts), ("cuts", cuts), ("ticks", ticks)];
        let spent: Vec<String> = kinds.iter().filter(|(_, n)| **n > 0).map(|(kind, n)| format!("{kind} {n}")).collect();
        write!(f, "{}", spent.join(", "))
    }
}

/// A state of the cluster: numbers of the members' states, then of the channels' contents.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cluster {
    numbers: [u32; NUMBERS],
    /// Streams that are not written, because their receiver has not been sent the state with which they resume.
    closed: u64,
    left: Budget,
    flaws: Flaws,
}

impl Cluster {
    pub(super) fn campaigns_left(&self) -> u8 {
        self.left.campaigns
    }
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    /// The receiver takes the head of a channel, after the bodies of these clients: see `lazy`.
    Take(Wire, u8),
    /// The member campaigns, after it took the bodies of these clients.
    Campaign(u16, u8),
    Crash(u16),
    /// The member restarts without memory.
    Restart(u16),
    /// Two members lose their connection, and reconnect.
    Cut(u16, u16),
    Tick(u16),
}

/// The model of one scenario.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) context: Context,
    pub(super) budget: Budget,
    lazy: bool,
    store: Mutex<Store>,
}

impl Machine {
    pub(crate) fn new(scenario: Scenario, budget: Budget) -> Self {
        let context = Context::new(scenario);
        assert!(context.destined.len() + context.channels.wires.len() <= NUMBERS, "too large for a state");
        let mut clients: Vec<u16> = context.scenario.of_clients().map(|message| message.client).collect();
        clients.dedup();
        let one_each = clients.len() == context.bodies.len();
        let lazy = one_each && budget.restarts + budget.cuts + budget.ticks == 0;
        Machine { context, budget, lazy, store: Mutex::new(Store::new()) }
    }

    /// Creates a model in which bodies are taken at any time.
    pub(super) fn eager(scenario: Scenario, budget: Budget) -> Self {
        Machine { lazy: false, ..Machine::new(scenario, budget) }
    }

    fn members(&self) -> usize {
        self.context.destined.len()
    }

    fn channels(&self) -> &Channels {
        &self.context.channels
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("a thread of the search panicked")
    }

    /// Describes a run: what was taken, the final deliveries, and the reason why the `cure` fails.
    pub(crate) fn explain(&self, path: &[(Cluster, Option<Action>)]) -> String {
        let mut lines = Vec::new();
        for (state, action) in path {
            let store = self.lock();
            lines.push(match action {
                Some(Action::Take(wire, _)) => {
                    let queue = state.numbers[self.members() + self.channels().number(*wire)];
                    format!("{wire:?} {}", store.parcel(store.pop(queue).0).describe())
                }
                Some(other) => format!("{other:?}"),
                None => {
                    let members = state.numbers[..self.members()].iter().map(|number| store.member(*number));
                    members
                        .map(|member| format!("{} delivered {:?}", member.process, member.log))
                        .collect::<Vec<_>>()
                        .join("\n")
                }
            });
        }
        if let Some((last, _)) = path.last() {
            let mut run = self.at_rest(&self.lock(), last);
            lines.extend(cure(&self.context, &mut run).err());
        }
        lines.join("\n")
    }

    fn judge(&self, store: &Store, state: &mut Cluster) {
        let members: Vec<&Member> =
            state.numbers[..self.members()].iter().map(|number| store.member(*number)).collect();
        state.flaws |= self.context.judge(&members);
    }

    /// Runs a step of one member: updates the member's state and appends its writes to the channels. Returns `false` if
    /// the step must wait.
    fn run(&self, store: &mut Store, state: &mut Cluster, process: u16, cause: Cause) -> bool {
        let member = usize::from(process);
        let Some(outcome) = store.outcome(&self.context, state.numbers[member], cause) else { return false };
        state.numbers[member] = outcome.next;
        let (sends, to_judge) = (outcome.sends.clone(), outcome.judge);
        for (wire, parcel) in sends {
            self.push(store, state, wire, parcel);
        }
        for wire in &self.channels().into[member] {
            self.reduce(store, state, *wire);
        }
        if to_judge {
            self.judge(store, state);
        }
        true
    }

    fn push(&self, store: &mut Store, state: &mut Cluster, wire: usize, parcel: u32) {
        if store.member(state.numbers[self.channels().wires[wire].receiver()]).replica.is_none() {
            return;
        }
        if let Wire::Control { from, to } = self.channels().wires[wire]
            && store.parcel(parcel).opens_stream()
        {
            let stream = self.channels().number(Wire::Stream { from, to });
            if state.closed >> stream & 1 == 1 {
                state.closed &= !(1 << stream);
                state.numbers[self.members() + stream] = EMPTY;
            }
        }
        if state.closed >> wire & 1 == 0 {
            let queue = &mut state.numbers[self.members() + wire];
            *queue = store.push(*queue, parcel);
            self.reduce(store, state, wire);
        }
    }

    fn reduce(&self, store: &mut Store, state: &mut Cluster, wire: usize) {
        let receiver = state.numbers[self.channels().wires[wire].receiver()];
        let queue = &mut state.numbers[self.members() + wire];
        *queue = store.effective(&self.context, receiver, wire, *queue);
    }

    fn take(&self, store: &mut Store, state: &mut Cluster, wire: usize) -> bool {
        let queue = state.numbers[self.members() + wire];
        if queue == EMPTY {
            return false;
        }
        let (parcel, rest) = store.pop(queue);
        let process = self.channels().wires[wire].receiver() as u16;
        let cause = Cause::Take(wire as u16, parcel);
        if store.outcome(&self.context, state.numbers[usize::from(process)], cause).is_none() {
            return false;
        }
        state.numbers[self.members() + wire] = rest;
        self.run(store, state, process, cause)
    }

    fn take_bodies(&self, store: &mut Store, state: &mut Cluster, to: u16, clients: u8) {
        for client in (0..8).filter(|client| clients >> client & 1 == 1) {
            self.take(store, state, self.channels().number(Wire::Body { client, to }));
        }
    }

    /// Replaces a member and empties all channels to and from it.
    fn replace(&self, store: &mut Store, state: &mut Cluster, process: u16, change: impl FnOnce(&mut Member)) {
        let mut member = store.member(state.numbers[usize::from(process)]).clone();
        change(&mut member);
        state.numbers[usize::from(process)] = store.add_member(member);
        for (wire, name) in self.channels().wires.iter().enumerate() {
            if name.receiver() == usize::from(process) || self.channels().writer(wire) == Some(process) {
                state.numbers[self.members() + wire] = EMPTY;
            }
        }
    }

    fn connect(&self, store: &mut Store, state: &mut Cluster, a: u16, b: u16) {
        for (wire, name) in self.channels().wires.iter().enumerate() {
            if self.channels().joins(wire, a, b) {
                state.numbers[self.members() + wire] = EMPTY;
                state.closed |= u64::from(matches!(name, Wire::Stream { .. })) << wire;
            }
        }
        self.run(store, state, a, Cause::Connected(b));
        self.run(store, state, b, Cause::Connected(a));
    }

    fn apply(&self, state: &mut Cluster, action: Action) -> bool {
        let store = &mut *self.lock();
        match action {
            Action::Take(wire, bodies) => {
                self.take_bodies(store, state, wire.receiver() as u16, bodies);
                self.take(store, state, self.channels().number(wire))
            }
            Action::Campaign(process, bodies) => {
                self.take_bodies(store, state, process, bodies);
                state.left.campaigns -= 1;
                self.run(store, state, process, Cause::Campaign)
            }
            Action::Tick(process) => {
                state.left.ticks -= 1;
                for (from, wire) in self.channels().streams_into(process) {
                    let queue = state.numbers[self.members() + wire];
                    if queue != EMPTY {
                        let head = store.pop(queue).0;
                        self.run(store, state, process, Cause::Stalled(from, head));
                    }
                }
                self.run(store, state, process, Cause::Tick)
            }
            Action::Crash(process) => {
                state.left.crashes -= 1;
                self.replace(store, state, process, Member::crash);
                true
            }
            Action::Restart(process) => {
                state.left.restarts -= 1;
                self.replace(store, state, process, |member| member.restart(&self.context));
                for other in (0..self.members() as u16).filter(|other| *other != process) {
                    if store.member(state.numbers[usize::from(other)]).replica.is_some() {
                        self.connect(store, state, process, other);
                    }
                }
                true
            }
            Action::Cut(a, b) => {
                state.left.cuts -= 1;
                self.connect(store, state, a, b);
                true
            }
        }
    }

    /// Returns whether a member may crash: a group tolerates the loss of a minority, and a process without memory
    /// counts as lost.
    fn may_crash(&self, store: &Store, state: &Cluster, process: u16) -> bool {
        let group = self.channels().group_of(process);
        let failed = |process: &&u16| store.member(state.numbers[usize::from(**process)]).is_failed();
        let (failed, here) = (group.iter().filter(failed).count(), failed(&&process));
        failed + usize::from(!here) <= (group.len() - 1) / 2
    }

    /// Collects the steps that process a message, and the possible campaigns. Bodies are taken late if each client has
    /// one message and the budget has no failure that `lazy` does not cover.
    fn takes(&self, store: &mut Store, state: &Cluster, actions: &mut Vec<Action>) {
        for process in 0..self.members() {
            let mut bodies = Vec::new();
            let mut heads = Vec::new();
            for wire in &self.channels().into[process] {
                let queue = state.numbers[self.members() + wire];
                if queue == EMPTY {
                    continue;
                }
                let cause = Cause::Take(*wire as u16, store.pop(queue).0);
                match self.channels().wires[*wire] {
                    Wire::Body { client, .. } if self.lazy => bodies.push((client, cause)),
                    _ => heads.push(cause),
                }
            }
            let member = store.member(state.numbers[process]);
            let ready = member.replica.as_ref().is_some_and(|replica| !replica.is_joining());
            heads.extend((ready && state.left.campaigns > 0).then_some(Cause::Campaign));
            let steps = lazy(&self.context, store, state.numbers[process], &bodies, &heads);
            actions.extend(steps.into_iter().map(|(cause, bodies)| match cause {
                Cause::Take(wire, _) => Action::Take(self.channels().wires[usize::from(wire)], bodies),
                _ => Action::Campaign(process as u16, bodies),
            }));
        }
    }

    fn failures(&self, store: &Store, state: &Cluster, actions: &mut Vec<Action>) {
        let left = state.left;
        for process in 0..self.members() as u16 {
            let member = store.member(state.numbers[usize::from(process)]);
            if member.replica.is_none() {
                actions.extend((left.restarts > 0).then_some(Action::Restart(process)));
                continue;
            }
            actions.extend((left.ticks > 0).then_some(Action::Tick(process)));
            let crash = left.crashes > 0 && self.may_crash(store, state, process);
            actions.extend(crash.then_some(Action::Crash(process)));
            let others = (0..process).filter(|_| left.cuts > 0);
            let up = others.filter(|other| store.member(state.numbers[usize::from(*other)]).replica.is_some());
            actions.extend(up.map(|other| Action::Cut(other, process)));
        }
    }

    /// Returns the state for a run outside the search.
    pub(super) fn at_rest(&self, store: &Store, state: &Cluster) -> Run {
        let parcels = |queue: &u32| store.queue(*queue).iter().map(|parcel| store.parcel(*parcel).clone()).collect();
        let queues = state.numbers[self.members()..][..self.channels().wires.len()].iter().map(parcels).collect();
        let members = state.numbers[..self.members()].iter().map(|number| store.member(*number).clone()).collect();
        Run { members, queues, closed: state.closed }
    }

    /// Returns whether no member can process any further message now.
    pub(super) fn is_end(&self, store: &mut Store, state: &Cluster) -> bool {
        let mut actions = Vec::new();
        self.takes(store, state, &mut actions);
        !actions.iter().any(|action| matches!(action, Action::Take(..)))
    }

    /// Returns whether this is an end that stays incomplete, or violates another property, as time passes.
    fn ends_incomplete(&self, state: &Cluster) -> bool {
        let store = &mut *self.lock();
        if !self.is_end(store, state) {
            return false;
        }
        let mut run = self.at_rest(store, state);
        if cure(&self.context, &mut run).is_err() {
            return true;
        }
        let mut end = state.clone();
        for (process, member) in run.members.into_iter().enumerate() {
            end.numbers[process] = store.add_member(member);
        }
        self.judge(store, &mut end);
        end.flaws != state.flaws
    }

    /// Calls `look` with all members of a state.
    pub(super) fn view<R>(&self, state: &Cluster, look: impl FnOnce(&[&Member]) -> R) -> R {
        let store = self.lock();
        let members: Vec<&Member> = state.numbers[..self.members()].iter().map(|n| store.member(*n)).collect();
        look(&members)
    }
}

impl Model for Machine {
    type State = Cluster;
    type Action = Action;

    fn init_states(&self) -> Vec<Cluster> {
        let store = &mut *self.lock();
        let mut state = Cluster { numbers: [EMPTY; NUMBERS], closed: 0, left: self.budget, flaws: 0 };
        for process in 0..self.members() as u16 {
            state.numbers[usize::from(process)] = store.add_member(Member::new(&self.context, process));
        }
        for (wire, parcel) in self.context.first_parcels() {
            let parcel = store.add_parcel(parcel);
            self.push(store, &mut state, wire, parcel);
        }
        vec![state]
    }

    fn actions(&self, state: &Cluster, actions: &mut Vec<Action>) {
        let store = &mut *self.lock();
        self.takes(store, state, actions);
        self.failures(store, state, actions);
    }

    fn next_state(&self, last: &Cluster, action: Action) -> Option<Cluster> {
        let mut next = last.clone();
        self.apply(&mut next, action).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = possible(&self.budget, &self.context.scenario);
        properties.extend([
            Property::<Machine>::always(INTEGRITY.1, |_, state| state.flaws & INTEGRITY.0 == 0),
            Property::<Machine>::always(ACYCLIC.1, |_, state| state.flaws & ACYCLIC.0 == 0),
            Property::<Machine>::always(PREFIX.1, |_, state| state.flaws & PREFIX.0 == 0),
            Property::<Machine>::always(FIFO.1, |_, state| state.flaws & FIFO.0 == 0),
            Property::<Machine>::always(TIMESTAMPS.1, |_, state| state.flaws & TIMESTAMPS.0 == 0),
            Property::<Machine>::always(ACCEPTED.1, |_, state| state.flaws & ACCEPTED.0 == 0),
            Property::<Machine>::always(GENUINE.1, |_, state| state.flaws & GENUINE.0 == 0),
            Property::<Machine>::always(READ.1, |_, state| state.flaws & READ.0 == 0),
            Property::<Machine>::always(REQUESTED.1, |_, state| state.flaws & REQUESTED.0 == 0),
            Property::<Machine>::always(VERSION.1, |_, state| state.flaws & VERSION.0 == 0),
            Property::<Machine>::always(COMPLETE.1, |machine, state| !machine.ends_incomplete(state)),
        ]);
        properties
    }
}
