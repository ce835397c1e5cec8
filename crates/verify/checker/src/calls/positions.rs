//! Finds positions that contradict each other or the times of the calls, independent of the replies.

use std::collections::HashMap;
use std::hash::Hash;

use super::call::Call;
use super::kind::Kind;
use super::position::Position;
use crate::ids::Group;

/// Calls with contradicting positions, and a description of the contradiction.
#[derive(Clone, Debug)]
pub(super) struct Contradiction {
    pub(super) summary: &'static str,
    pub(super) calls: Vec<usize>,
}

/// A step of a call. Steps of the same time are handled in this order. Answers come after submissions, so only strictly
/// earlier answers count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Observes,
    Submits,
    Answers,
}

/// Finds two multicast calls with the same position, or a call whose position is too early for one that was known at
/// its submission. The check takes time linear in the history, except for sorting.
pub(super) fn contradiction(calls: &[Call]) -> Option<Contradiction> {
    let mut steps: Vec<(u64, Step, usize)> = Vec::with_capacity(2 * calls.len());
    let mut known = Knowledge::default();
    for (index, call) in calls.iter().enumerate().filter(|(_, call)| call.takes_part()) {
        steps.push((call.submitted, Step::Observes, index));
        steps.push((call.submitted, Step::Submits, index));
        if let Some(answered) = call.answered() {
            steps.push((answered, Step::Answers, index));
        }
        if let Some(position) = call.position().filter(|_| call.kind.is_multicast())
            && let Some(other) = known.taken.insert(position, index)
        {
            let summary = "two calls were answered with the same position";
            return Some(Contradiction { summary, calls: vec![other, index] });
        }
    }
    steps.sort_unstable();
    steps.into_iter().find_map(|(_, step, index)| {
        let call = &calls[index];
        match step {
            Step::Observes => known.observes(call, index),
            Step::Submits => return known.submits(call, index),
            Step::Answers => known.answers(call, index),
        }
        None
    })
}

/// The largest known positions, each with the number of the call that answered or observed it.
#[derive(Default)]
struct Knowledge {
    taken: HashMap<Position, usize>,
    by_group: HashMap<Group, (Position, usize)>,
    by_session: HashMap<u64, (Position, usize)>,
    by_generation: HashMap<(u64, u64), (Position, usize)>,
}

/// Raises the value of a key to at least `value`.
pub(super) fn raise<K: Eq + Hash, V: Ord + Copy>(map: &mut HashMap<K, V>, key: K, value: V) {
    let known = map.entry(key).or_insert(value);
    *known = value.max(*known);
}

impl Knowledge {
    fn observes(&mut self, call: &Call, index: usize) {
        for position in &call.observed {
            raise(&mut self.by_generation, (call.session, call.generation), (*position, index));
        }
    }

    fn answers(&mut self, call: &Call, index: usize) {
        let Some(position) = call.position() else { return };
        raise(&mut self.by_generation, (call.session, call.generation), (position, index));
        if call.kind == Kind::Command {
            raise(&mut self.by_session, call.session, (position, index));
        }
        if !call.kind.is_stale() {
            call.groups.iter().for_each(|group| raise(&mut self.by_group, group, (position, index)));
        }
    }

    fn submits(&self, call: &Call, index: usize) -> Option<Contradiction> {
        let position = call.position()?;
        let contradicts = |(known, by): (Position, usize), bound: Bound, summary| {
            let calls = if by == index { vec![index] } else { vec![by, index] };
            (!bound.admits(known, position)).then_some(Contradiction { summary, calls })
        };
        if let Kind::After(asked) = call.kind {
            let summary = "a read was answered below the position that it asked for";
            return contradicts((asked, index), Bound::NotEarlier, summary);
        }
        if call.kind.is_stale() {
            return None;
        }
        // A read at a leader changes no state, so it may be answered at a position that was already known.
        let multicast = call.kind.is_multicast();
        let (session_bound, group_bound) =
            if multicast { (Bound::Later, Bound::Above) } else { (Bound::NotEarlier, Bound::NotEarlier) };
        let process = (call.session, call.generation);
        let of_session = [self.by_generation.get(&process), self.by_session.get(&call.session)];
        let summary = "a call was answered at a position that is not above what its session had seen before";
        let against_session =
            of_session.into_iter().flatten().find_map(|known| contradicts(*known, session_bound, summary));
        against_session.or_else(|| {
            let summary = "a call was answered at a position that is not above that of a call to the same group that was \
                           answered before it was submitted";
            let mut known = call.groups.iter().filter_map(|group| self.by_group.get(&group));
            known.find_map(|known| contradicts(*known, group_bound, summary))
        })
    }
}

/// The required relation of a position to a known one.
#[derive(Clone, Copy)]
enum Bound {
    /// Above the known position, in the order of one group.
    Above,
    /// At a later time than the known position. A leader raises its clock above the *time* that a session knows, so
    /// equal times in different groups imply no order.
    Later,
    /// At the same time as the known position, or later.
    NotEarlier,
}

impl Bound {
    fn admits(self, known: Position, position: Position) -> bool {
        match self {
            Bound::Above => position > known,
            Bound::Later => position.time > known.time,
            Bound::NotEarlier => position.time >= known.time,
        }
    }
}
