//! Confirms, without any search, that an order proves that the promise is kept.

use std::collections::{BTreeMap, HashMap};

use super::call::Call;
use super::history::History;
use super::kind::Kind;
use super::model::Model;
use super::outcome::Outcome;
use super::position::Position;
use super::positions::{contradiction, raise};
use crate::ids::Group;

/// Confirms that `order` is an order that [`decide`](super::decide) looks for. The check takes time linear in the
/// history, except for sorting.
///
/// # Errors
/// Returns one sentence that describes what is wrong with the order.
pub fn verify<M: Model>(history: &History, model: &M, order: &[usize]) -> Result<(), String> {
    let calls = history.calls();
    if let Some(contradiction) = contradiction(calls) {
        return Err(format!("calls {:?}: {}", contradiction.calls, contradiction.summary));
    }
    is_complete(calls, order)?;
    let mut states: BTreeMap<Group, M::State> = BTreeMap::new();
    let mut passed = Passed::new(calls);
    for index in order {
        let call = &calls[*index];
        for group in call.groups.iter() {
            let state = states.entry(group).or_insert_with(|| model.initial(group));
            if !call.replay(model, group, state) {
                return Err(format!("call {index}: the reply of g{} is not the one of the model", group.0));
            }
        }
        passed.check(call).map_err(|why| format!("call {index} {why}"))?;
        passed.add(call);
    }
    Ok(())
}

/// Checks that the order contains every answered call exactly once, and no call without effect.
fn is_complete(calls: &[Call], order: &[usize]) -> Result<(), String> {
    let mut seen = vec![false; calls.len()];
    for index in order {
        match seen.get_mut(*index) {
            Some(seen) if !*seen && calls[*index].takes_part() => *seen = true,
            _ => return Err(format!("call {index} does not exist, occurs twice, or took no effect")),
        }
    }
    let missing = calls.iter().zip(&seen).position(|(call, seen)| !seen && call.answered().is_some());
    missing.map_or(Ok(()), |missing| Err(format!("call {missing} was answered and is missing")))
}

/// The latest submissions and the largest positions of the calls so far.
struct Passed {
    strict: HashMap<Group, u64>,
    commands: HashMap<Group, u64>,
    processes: HashMap<(u64, u64), u64>,
    sessions: HashMap<u64, u64>,
    multicast: HashMap<Group, Position>,
    command: HashMap<Group, Position>,
    /// Largest position up to which reads have observed commands.
    read: HashMap<Group, Position>,
    /// Largest position up to which reads had to observe commands.
    asked: HashMap<Group, Position>,
    /// Observers of each position, with the time of their first observation.
    observers: HashMap<Position, HashMap<(u64, u64), u64>>,
}

impl Passed {
    fn new(calls: &[Call]) -> Self {
        let mut observers: HashMap<Position, HashMap<(u64, u64), u64>> = HashMap::new();
        for call in calls.iter().filter(|call| call.takes_part()) {
            for position in &call.observed {
                let first = observers.entry(*position).or_default().entry((call.session, call.generation));
                first.and_modify(|first| *first = call.submitted.min(*first)).or_insert(call.submitted);
            }
        }
        Passed {
            strict: HashMap::new(),
            commands: HashMap::new(),
            processes: HashMap::new(),
            sessions: HashMap::new(),
            multicast: HashMap::new(),
            command: HashMap::new(),
            read: HashMap::new(),
            asked: HashMap::new(),
            observers,
        }
    }

    /// Checks that the call may come next.
    fn check(&self, call: &Call) -> Result<(), &'static str> {
        if let Outcome::Answered { at, position, .. } = &call.outcome {
            let late = |latest: Option<&u64>| latest.is_some_and(|latest| at < latest);
            let later = if call.kind.is_stale() { &self.commands } else { &self.strict };
            if call.groups.iter().any(|group| late(later.get(&group))) {
                return Err("was answered before the submission of a call to the same group that the order puts first");
            }
            let of_session = call.kind == Kind::Command && late(self.sessions.get(&call.session));
            if of_session || late(self.processes.get(&(call.session, call.generation))) {
                return Err("was answered before its session submitted a call that the order puts first");
            }
            position.map_or(Ok(()), |position| self.check_position(call, position))?;
        }
        Ok(())
    }

    fn check_position(&self, call: &Call, position: Position) -> Result<(), &'static str> {
        let above = |map: &HashMap<Group, Position>| {
            call.groups.iter().any(|group| map.get(&group).is_some_and(|largest| *largest >= position))
        };
        if call.kind.is_multicast() {
            if above(&self.multicast) {
                return Err("has a smaller position than a call before it");
            }
            if call.kind == Kind::Command && (above(&self.read) || above(&self.asked)) {
                return Err("has a position that a read before it should have observed");
            }
            for (process, first) in self.observers.get(&position).into_iter().flatten() {
                if self.processes.get(process).is_some_and(|submitted| submitted >= first) {
                    return Err("comes after a call whose session had observed it");
                }
            }
        } else if call.groups.iter().any(|group| self.command.get(&group).is_some_and(|largest| *largest > position)) {
            return Err("observed a command with a larger position than its own");
        }
        Ok(())
    }

    fn add(&mut self, call: &Call) {
        let position = call.position();
        let command = call.kind == Kind::Command;
        for group in call.groups.iter() {
            if !call.kind.is_stale() {
                raise(&mut self.strict, group, call.submitted);
            }
            if command {
                raise(&mut self.commands, group, call.submitted);
            }
            if let Kind::After(asked) = call.kind {
                raise(&mut self.asked, group, asked);
            }
            let Some(position) = position else { continue };
            if call.kind.is_multicast() {
                raise(&mut self.multicast, group, position);
            } else {
                raise(&mut self.read, group, position);
            }
            if command {
                raise(&mut self.command, group, position);
            }
        }
        if !call.kind.is_stale() {
            raise(&mut self.processes, (call.session, call.generation), call.submitted);
            raise(&mut self.sessions, call.session, call.submitted);
        }
    }
}
