//! The processes that remember this member's group, as far as a member without memory knows them.

use std::cmp::Reverse;

use stentor_fabric::ProcessId;

use crate::Incarnation;

/// The reason why members without memory do not found their group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hindrance {
    /// A process remembers an incarnation of the group. The process may be a member of this group or of another one, or
    /// a client.
    Remembered {
        /// The process.
        by: ProcessId,
        /// The incarnation that it remembers.
        incarnation: Incarnation,
    },
    /// A member has not asked to be admitted yet, probably because it has not connected.
    Missing(ProcessId),
    /// The configuration leaves the decision to the operator: [`TotalLoss::Refuse`](crate::TotalLoss::Refuse).
    Operator,
}

/// The processes that have reported that they remember the group.
///
/// # Invariants
/// - A report is valid while the process that sent it is connected, or expelled because it is stalled. The report ends
///   when the process asks to be admitted, or sends a hello without memory.
/// - Hearsay, which a member reports about another process, expires if it is not repeated.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Memories {
    /// The processes that reported their own memory of the group, each with the incarnation that it remembers.
    by: Vec<(ProcessId, Incarnation)>,
    /// The last process about which a member reported that it remembers the group, with the incarnation that it
    /// remembers.
    hearsay: Option<(ProcessId, Incarnation)>,
    /// Number of repetitions of this process's request since the hearsay.
    age: u8,
}

impl Memories {
    /// Records the incarnation that a process itself remembers.
    pub(super) fn hear(&mut self, process: ProcessId, incarnation: Incarnation) {
        self.forget(process);
        if !incarnation.is_none() {
            self.by.push((process, incarnation));
        }
    }

    /// Drops the reports about a process that is disconnected, or has lost its memory.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.by.retain(|(by, _)| *by != process);
        self.hearsay = self.hearsay.filter(|(by, _)| *by != process);
    }

    /// Records the incarnation that another process remembers, as a member reports it.
    pub(super) fn hear_say(&mut self, process: ProcessId, incarnation: Incarnation) {
        (self.hearsay, self.age) = (Some((process, incarnation)), 0);
    }

    /// Ages the hearsay when this process repeats its request. Members that answer repeat the hearsay.
    pub(super) fn pass(&mut self) {
        self.age = self.age.saturating_add(1);
        if self.age > 2 {
            self.hearsay = None;
        }
    }

    /// Returns the process that itself reported the largest incarnation; a member is preferred to a client.
    pub(super) fn first_hand(&self) -> Option<(ProcessId, Incarnation)> {
        self.by.iter().max_by_key(|(process, incarnation)| (*incarnation, Reverse(*process))).copied()
    }

    /// Returns the smallest incarnation that a process itself reported.
    pub(super) fn smallest(&self) -> Option<Incarnation> {
        self.by.iter().map(|(_, incarnation)| *incarnation).min()
    }

    /// Returns a process that remembers the group, by its own report or by hearsay.
    pub(super) fn any(&self) -> Option<(ProcessId, Incarnation)> {
        self.first_hand().or(self.hearsay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembering_process_is_named_until_it_forgets_or_is_not_reported_any_more() {
        let (mut memories, one) = (Memories::default(), Incarnation::FIRST);
        memories.hear(ProcessId(1), Incarnation::NONE);
        assert_eq!(memories.any(), None);
        memories.hear(ProcessId(1), one);
        memories.hear_say(ProcessId(2), one);
        assert_eq!(memories.any(), Some((ProcessId(1), one)));
        memories.forget(ProcessId(1));
        assert_eq!((memories.first_hand(), memories.any()), (None, Some((ProcessId(2), one))));
        memories.pass();
        memories.pass();
        assert!(memories.any().is_some());
        memories.pass();
        assert_eq!(memories.any(), None);
    }
}
