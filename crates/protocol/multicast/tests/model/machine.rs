//! The cluster as a stateright model.

use std::hash::Hash;
use std::sync::{RwLock, RwLockReadGuard};

use stateright::{Model, Property};

use super::network::{Network, Wire};
use super::scenario::{Scenario, encode_body, not_before};
use super::store::{EMPTY, Outcome, Store};
use super::verdict::{
    ACCEPTED, ACYCLIC, COMPLETE, Entry, FIFO, Flaws, GENUINE, INTEGRITY, PREFIX, REAL_TIME, REAL_TIME_PATH, SESSION,
    TIMESTAMPS, judge,
};

/// Maximum number of members and channels together.
const NUMBERS: usize = 40;
const MESSAGES: usize = 4;

/// Conditions that the search must reach: this one, [`FIRST`] and [`SECOND`]. Otherwise it does not search what it
/// claims.
const WAITS: &str = "a stream entry waits for its body";
const FIRST: &str = "the first message is delivered before the second";
const SECOND: &str = "the second message is delivered before the first";

/// A state of the cluster: numbers of the members' states, then of the channels' contents.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cluster {
    numbers: [u32; NUMBERS],
    /// Messages that are multicast, as bits.
    submitted: u8,
    /// Indexed by message: the messages that were delivered anywhere when it was multicast.
    earlier: [u8; MESSAGES],
    flaws: Flaws,
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    /// A client multicasts a message.
    Submit(u8),
    /// The receiver takes the head of a channel.
    Take(Wire),
}

/// The model of one scenario.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) scenario: Scenario,
    network: Network,
    destined: Vec<u32>,
    /// Body of each message, and the channels into which the body is written, indexed by message.
    bodies: Vec<(u32, Vec<usize>)>,
    store: RwLock<Store>,
    start: Vec<u32>,
}

impl Machine {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let topology = scenario.topology();
        let network = Network::new(&topology);
        let members = topology.all_members();
        assert!(members + network.wires.len() <= NUMBERS, "{}: too large for a state", scenario.name);
        assert!(scenario.messages.len() <= MESSAGES, "{}: too many messages for a state", scenario.name);
        let mut store = Store::new();
        let start = scenario.replicas(&topology).into_iter().map(|replica| store.add_local(replica)).collect();
        let mut senders = scenario.senders(&topology);
        let bodies = scenario
            .messages
            .iter()
            .map(|message| {
                let words = encode_body(&mut senders[usize::from(message.client)], message);
                (store.add_item(words), network.body_wires(message.client, &message.to))
            })
            .collect();
        let destined = scenario.destined(&topology);
        Machine { scenario, network, destined, bodies, store: RwLock::new(store), start }
    }

    /// Returns whether a violation of a property is permitted, but not required.
    pub(crate) fn is_optional(&self, property: &str) -> bool {
        self.scenario.sizes.len() > 2 && property == REAL_TIME_PATH.1
    }

    fn members(&self) -> usize {
        self.destined.len()
    }

    fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().expect("a thread of the search panicked")
    }

    /// Returns the number of distinct states of single members.
    pub(crate) fn local_states(&self) -> usize {
        self.read().locals()
    }

    /// Returns the deliveries of every member.
    pub(crate) fn logs(&self, state: &Cluster) -> Vec<Vec<Entry>> {
        let store = self.read();
        state.numbers[..self.members()].iter().map(|local| store.local(*local).log.clone()).collect()
    }

    /// Calls `f` with the outcome of taking the head of a channel: `None` if the channel is empty or its head must
    /// wait.
    fn with_outcome<R>(&self, state: &Cluster, wire: usize, f: impl FnOnce(&Store, Option<(&Outcome, u32)>) -> R) -> R {
        let queue = state.numbers[self.members() + wire];
        let store = self.read();
        if queue == EMPTY {
            return f(&store, None);
        }
        let (item, rest) = store.pop(queue);
        let local = state.numbers[self.network.wires[wire].receiver()];
        if let Some(known) = store.known_outcome(local, wire, item) {
            return f(&store, known.map(|outcome| (outcome, rest)));
        }
        drop(store);
        let mut store = self.store.write().expect("a thread of the search panicked");
        store.compute(&self.scenario, &self.network, local, wire, item);
        drop(store);
        self.with_outcome(state, wire, f)
    }

    fn enabled(&self, state: &Cluster, wire: usize) -> bool {
        state.numbers[self.members() + wire] != EMPTY && self.with_outcome(state, wire, |_, taken| taken.is_some())
    }

    fn stream_waits(&self, state: &Cluster) -> bool {
        let mut streams = self.network.wires.iter().enumerate().filter(|(_, wire)| matches!(wire, Wire::Stream { .. }));
        streams.any(|(wire, _)| state.numbers[self.members() + wire] != EMPTY && !self.enabled(state, wire))
    }

    /// Returns whether some member has delivered both of the first two messages, `message` first.
    fn delivered_first(&self, state: &Cluster, message: u8) -> bool {
        self.logs(state).iter().any(|log| {
            let mut both = log.iter().map(|(delivered, _)| *delivered).filter(|delivered| *delivered < 2);
            both.next() == Some(message) && both.next().is_some()
        })
    }

    fn may_submit(&self, state: &Cluster, message: usize) -> bool {
        let client = self.scenario.messages[message].client;
        let older = self.scenario.messages[..message].iter().enumerate().filter(|(_, m)| m.client == client);
        let is_next = older.clone().all(|(index, _)| state.submitted >> index & 1 == 1);
        let after = self.scenario.messages[message].after;
        state.submitted >> message & 1 == 0 && is_next && after.is_none_or(|after| self.time_of(state, after).is_some())
    }

    /// Returns the final time of a message, if it was delivered anywhere.
    fn time_of(&self, state: &Cluster, message: usize) -> Option<u64> {
        let logs = self.logs(state);
        let found = logs.iter().flatten().find(|(delivered, _)| usize::from(*delivered) == message);
        found.map(|(_, timestamp)| timestamp.time)
    }

    fn submit(&self, state: &mut Cluster, message: usize) {
        let store = self.read();
        let logs = state.numbers[..self.members()].iter().flat_map(|local| &store.local(*local).log);
        state.earlier[message] = logs.fold(0, |earlier, (delivered, _)| earlier | 1 << delivered);
        state.submitted |= 1 << message;
        drop(store);
        let (mut item, wires) = self.bodies[message].clone();
        if let Some(time) = self.scenario.messages[message].after.and_then(|after| self.time_of(state, after)) {
            let words = not_before(self.read().item_words(item).to_vec(), time);
            item = self.store.write().expect("a thread panicked").add_item(words);
        }
        wires.iter().for_each(|wire| self.push(state, *wire, item));
    }

    fn push(&self, state: &mut Cluster, wire: usize, item: u32) {
        let queue = &mut state.numbers[self.members() + wire];
        let known = self.read().known_push(*queue, item);
        *queue = known.unwrap_or_else(|| self.store.write().expect("a thread panicked").push(*queue, item));
    }

    fn take(&self, last: &Cluster, wire: usize) -> Option<Cluster> {
        let mut next = last.clone();
        let mut missing = Vec::new();
        let to_judge = self.with_outcome(last, wire, |store, taken| {
            let (outcome, rest) = taken?;
            next.numbers[self.members() + wire] = rest;
            next.numbers[self.network.wires[wire].receiver()] = outcome.next;
            for &(to, item) in &outcome.sends {
                let queue = &mut next.numbers[self.members() + to];
                match store.known_push(*queue, item) {
                    Some(pushed) if missing.is_empty() => *queue = pushed,
                    _ => missing.push((to, item)),
                }
            }
            Some(outcome.judge)
        })?;
        missing.into_iter().for_each(|(to, item)| self.push(&mut next, to, item));
        if to_judge {
            self.judge(&mut next);
        }
        Some(next)
    }

    fn judge(&self, state: &mut Cluster) {
        let store = self.read();
        let locals = state.numbers[..self.members()].iter().map(|local| store.local(*local));
        let logs: Vec<&[Entry]> = locals.clone().map(|local| local.log.as_slice()).collect();
        let earlier = state.earlier.map(u32::from);
        state.flaws |= locals.fold(0, |flaws, local| flaws | local.flaws);
        state.flaws |= judge(&self.scenario, &self.destined, &logs, u32::from(state.submitted), &earlier);
    }

    /// Returns whether nothing more can happen.
    pub(crate) fn is_terminal(&self, state: &Cluster) -> bool {
        let all = (1_u16 << self.scenario.messages.len()) - 1;
        u16::from(state.submitted) == all && !(0..self.network.wires.len()).any(|wire| self.enabled(state, wire))
    }

    fn is_complete(&self, state: &Cluster) -> bool {
        let store = self.read();
        let locals = state.numbers[..self.members()].iter().zip(&self.destined);
        let quiet = state.numbers[self.members()..].iter().all(|queue| *queue == EMPTY);
        quiet && locals.clone().all(|(local, destined)| store.local(*local).log.len() == destined.count_ones() as usize)
    }
}

impl Model for Machine {
    type State = Cluster;
    type Action = Action;

    fn init_states(&self) -> Vec<Cluster> {
        let mut state = Cluster { numbers: [0; NUMBERS], submitted: 0, earlier: [0; MESSAGES], flaws: 0 };
        state.numbers[..self.members()].copy_from_slice(&self.start);
        let early = self.scenario.messages.iter().enumerate().filter(|(_, message)| !message.late);
        early.for_each(|(index, _)| self.submit(&mut state, index));
        vec![state]
    }

    /// Collects all steps that are possible now, without exception.
    fn actions(&self, state: &Cluster, actions: &mut Vec<Action>) {
        let wires = self.network.wires.iter().enumerate();
        actions.extend(wires.filter(|(wire, _)| self.enabled(state, *wire)).map(|(_, name)| Action::Take(*name)));
        let late = (0..self.scenario.messages.len()).filter(|message| self.may_submit(state, *message));
        actions.extend(late.map(|message| Action::Submit(message as u8)));
    }

    fn next_state(&self, last: &Cluster, action: Action) -> Option<Cluster> {
        match action {
            Action::Submit(message) => {
                let mut next = last.clone();
                self.submit(&mut next, usize::from(message));
                Some(next)
            }
            Action::Take(wire) => self.take(last, self.network.number(wire)),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let holds = |flaw: (Flaws, &'static str), condition| Property::always(flaw.1, condition);
        let mut properties = vec![
            holds(INTEGRITY, |_: &Machine, state: &Cluster| state.flaws & INTEGRITY.0 == 0),
            holds(ACYCLIC, |_, state| state.flaws & ACYCLIC.0 == 0),
            holds(PREFIX, |_, state| state.flaws & PREFIX.0 == 0),
            holds(FIFO, |_, state| state.flaws & FIFO.0 == 0),
            holds(REAL_TIME, |_, state| state.flaws & REAL_TIME.0 == 0),
            holds(TIMESTAMPS, |_, state| state.flaws & TIMESTAMPS.0 == 0),
            holds(ACCEPTED, |_, state| state.flaws & ACCEPTED.0 == 0),
            holds(GENUINE, |_, state| state.flaws & GENUINE.0 == 0),
            holds(SESSION, |_, state| state.flaws & SESSION.0 == 0),
            holds(COMPLETE, |model, state| !model.is_terminal(state) || model.is_complete(state)),
        ];
        if self.scenario.sizes.len() <= 2 {
            properties.push(holds(REAL_TIME_PATH, |_, state| state.flaws & REAL_TIME_PATH.0 == 0));
        } else {
            // A violation is possible, but not required.
            let condition = |_: &Machine, state: &Cluster| state.flaws & REAL_TIME_PATH.0 != 0;
            properties.push(Property::sometimes(REAL_TIME_PATH.1, condition));
        }
        if self.scenario.sizes.iter().any(|size| *size > 1) {
            properties.push(Property::sometimes(WAITS, |model: &Machine, state| model.stream_waits(state)));
        }
        if self.scenario.is_open() {
            properties.push(Property::sometimes(FIRST, |model: &Machine, state| model.delivered_first(state, 0)));
            properties.push(Property::sometimes(SECOND, |model: &Machine, state| model.delivered_first(state, 1)));
        }
        properties
    }
}
