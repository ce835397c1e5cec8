//! Exact states of members and channels, each stored once and identified by a number.
//!
//! A state of the whole cluster is then a few numbers. The real state machine computes once what a member does with an
//! item in a state, and the result is stored. Numbers represent values compared with `Eq`, so nothing is abstracted.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use stentor_multicast::Replica;
use stentor_testutil::SplitMix64;

use super::network::{Network, Step, about, is_genuine, take};
use super::scenario::Scenario;
use super::verdict::{ACCEPTED, Entry, Flaws, GENUINE, INTEGRITY};

/// One member: its state machine, and its deliveries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Local {
    pub(crate) replica: Replica,
    pub(crate) log: Vec<Entry>,
    pub(crate) flaws: Flaws,
}

/// The result of taking an item.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The member's next state.
    pub(crate) next: u32,
    /// Channels and items.
    pub(crate) sends: Vec<(usize, u32)>,
    /// `true` if the member delivered a message, or made a mistake.
    pub(crate) judge: bool,
}

/// A fast hasher; the default one takes a third of a search's time. Values with equal hashes are compared in full.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_ne_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(SplitMix64::GOLDEN);
        self.0 = mixed ^ mixed >> 32;
    }
}

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// Numbered values.
#[derive(Debug)]
pub(crate) struct Table<T> {
    values: Vec<Arc<T>>,
    numbers: Map<Arc<T>, u32>,
}

impl<T: Eq + Hash> Table<T> {
    pub(crate) fn new() -> Self {
        Table { values: Vec::new(), numbers: Map::default() }
    }

    pub(crate) fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let (value, number) = (Arc::new(value), self.values.len() as u32);
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

/// The empty channel.
pub(crate) const EMPTY: u32 = 0;

/// All values seen so far.
#[derive(Debug)]
pub(crate) struct Store {
    locals: Table<Local>,
    items: Table<Vec<u64>>,
    queues: Table<Vec<u32>>,
    pushed: HashMap<(u32, u32), u32>,
    /// Head and rest of each queue, indexed by queue.
    popped: Vec<(u32, u32)>,
    outcomes: HashMap<(u32, u32, u32), Option<Outcome>>,
}

impl Store {
    pub(crate) fn new() -> Self {
        let mut queues = Table::new();
        assert_eq!(queues.number(Vec::new()), EMPTY);
        Store {
            locals: Table::new(),
            items: Table::new(),
            queues,
            pushed: HashMap::new(),
            popped: vec![(0, EMPTY)],
            outcomes: HashMap::new(),
        }
    }

    pub(crate) fn local(&self, number: u32) -> &Local {
        &self.locals.values[number as usize]
    }

    pub(crate) fn item_words(&self, number: u32) -> &[u64] {
        &self.items.values[number as usize]
    }

    pub(crate) fn add_local(&mut self, replica: Replica) -> u32 {
        self.locals.number(Local { replica, log: Vec::new(), flaws: 0 })
    }

    pub(crate) fn add_item(&mut self, words: Vec<u64>) -> u32 {
        self.items.number(words)
    }

    pub(crate) fn locals(&self) -> usize {
        self.locals.values.len()
    }

    /// Returns the head of a channel that is not empty, and the rest.
    pub(crate) fn pop(&self, queue: u32) -> (u32, u32) {
        self.popped[queue as usize]
    }

    pub(crate) fn known_push(&self, queue: u32, item: u32) -> Option<u32> {
        self.pushed.get(&(queue, item)).copied()
    }

    pub(crate) fn push(&mut self, queue: u32, item: u32) -> u32 {
        if let Some(known) = self.known_push(queue, item) {
            return known;
        }
        let mut items = (*self.queues.values[queue as usize]).clone();
        items.push(item);
        let number = self.queue_number(items);
        self.pushed.insert((queue, item), number);
        number
    }

    fn queue_number(&mut self, items: Vec<u32>) -> u32 {
        if let Some(known) = self.queues.numbers.get(&items) {
            return *known;
        }
        let (head, rest) = (items[0], self.queue_number(items[1..].to_vec()));
        let number = self.queues.number(items);
        self.popped.push((head, rest));
        number
    }

    /// Returns the known outcome, if there is one. `Some(None)` means that the item must wait.
    pub(crate) fn known_outcome(&self, local: u32, wire: usize, item: u32) -> Option<Option<&Outcome>> {
        self.outcomes.get(&(local, wire as u32, item)).map(Option::as_ref)
    }

    /// Runs the real state machine.
    pub(crate) fn compute(&mut self, scenario: &Scenario, network: &Network, local: u32, wire: usize, item: u32) {
        if self.known_outcome(local, wire, item).is_some() {
            return;
        }
        let mut next = self.local(local).clone();
        let step = take(network, &mut next.replica, network.wires[wire], self.item_words(item));
        let outcome = step.map(|step| self.outcome(scenario, network, next, step));
        self.outcomes.insert((local, wire as u32, item), outcome);
    }

    fn outcome(&mut self, scenario: &Scenario, network: &Network, mut next: Local, step: Step) -> Outcome {
        let flaws = note(scenario, network, &mut next.log, &step);
        next.flaws |= flaws;
        let judge = flaws != 0 || !step.deliveries.is_empty();
        let sends = step.sends.into_iter().map(|(wire, words)| (wire, self.add_item(words))).collect();
        Outcome { next: self.locals.number(next), sends, judge }
    }
}

/// Appends the deliveries to the member's log, and judges the step by itself.
pub(crate) fn note(scenario: &Scenario, network: &Network, log: &mut Vec<Entry>, step: &Step) -> Flaws {
    let mut flaws = if step.rejected.is_some() { ACCEPTED.0 } else { 0 };
    for delivery in &step.deliveries {
        match scenario.index_of(delivery.id.client.0, delivery.id.sequence) {
            Some(message) => log.push((message as u8, delivery.timestamp)),
            None => flaws |= INTEGRITY.0,
        }
        if delivery.number != log.len() as u64 {
            flaws |= INTEGRITY.0;
        }
    }
    for (wire, words) in &step.sends {
        let (client, sequence) = about(words);
        let message = scenario.index_of(client, sequence).map(|index| &scenario.messages[index]);
        if !message.is_some_and(|message| is_genuine(network, *wire, &message.to)) {
            flaws |= GENUINE.0;
        }
    }
    flaws
}
