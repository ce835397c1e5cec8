//! The processes that remember this member's group while it is without memory itself.

use std::cmp::Reverse;

use stentor_fabric::ProcessId;

use crate::Incarnation;

/// Why a group whose members are without memory does not begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hindrance {
    /// A process remembers an incarnation of the group: a member of it or of another group, or a client.
    Remembered {
        /// The process.
        by: ProcessId,
        /// The incarnation that it remembers.
        incarnation: Incarnation,
    },
    /// A member was not heard yet.
    Missing(ProcessId),
    /// The configuration leaves it to the operator: [`TotalLoss::Refuse`](crate::TotalLoss::Refuse).
    Operator,
}

/// The processes that said they remember the group.
///
/// # Invariants
/// - A process is believed while it is connected, and while it is expelled because it stands still. It has forgotten when it
///   asks to be taken in, or greets without memory.
/// - Hearsay, which a member says of another process, is forgotten when it is not said again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Memories {
    /// The processes that said so themselves.
    by: Vec<(ProcessId, Incarnation)>,
    /// The process of which a member said so last.
    hearsay: Option<(ProcessId, Incarnation)>,
    /// Repeats since the hearsay.
    age: u8,
}

impl Memories {
    /// A process says what it remembers.
    pub(super) fn hear(&mut self, process: ProcessId, incarnation: Incarnation) {
        self.forget(process);
        if !incarnation.is_none() {
            self.by.push((process, incarnation));
        }
    }

    /// A process is gone, or has forgotten.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.by.retain(|(by, _)| *by != process);
        self.hearsay = self.hearsay.filter(|(by, _)| *by != process);
    }

    /// A member says what it heard from another process.
    pub(super) fn hear_say(&mut self, process: ProcessId, incarnation: Incarnation) {
        (self.hearsay, self.age) = (Some((process, incarnation)), 0);
    }

    /// This process asks again; members that answer say again what they heard.
    pub(super) fn pass(&mut self) {
        self.age = self.age.saturating_add(1);
        if self.age > 2 {
            self.hearsay = None;
        }
    }

    /// Returns the process that told this one itself of the largest incarnation: a member rather than a client.
    pub(super) fn first_hand(&self) -> Option<(ProcessId, Incarnation)> {
        self.by.iter().max_by_key(|(process, incarnation)| (*incarnation, Reverse(*process))).copied()
    }

    /// The smallest incarnation that somebody told this process itself.
    pub(super) fn smallest(&self) -> Option<Incarnation> {
        self.by.iter().map(|(_, incarnation)| *incarnation).min()
    }

    /// Returns a process that remembers the group, by its own word or by hearsay.
    pub(super) fn any(&self) -> Option<(ProcessId, Incarnation)> {
        self.first_hand().or(self.hearsay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_remembers_is_named_until_it_forgets_or_nobody_says_so_any_more() {
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
