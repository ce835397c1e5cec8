//! The successions of a client id at a group, as a member knows them.

use crate::ids;
use crate::state::Succession;

/// The successions of a client id, the latest one last.
///
/// # Invariants
/// - Generations rise, and first slots do not fall. Only the latest succession may be unsettled. If no member holds the
///   slots before the first slot of a process any more, the next process begins before that slot. The first slots of
///   the earlier successions are then lowered to that of the new one.
/// - `void_below` is the start of the latest generation: no message of that generation or of a later one is void.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Heirs {
    known: Vec<Succession>,
    void_below: u64,
    /// Generation below which processes have left no message that another group could still ask about.
    pub(super) retired_below: u64,
}

impl Heirs {
    pub(super) fn new() -> Self {
        Heirs { known: Vec::new(), void_below: 0, retired_below: 0 }
    }

    pub(super) fn all(&self) -> &[Succession] {
        &self.known
    }

    /// Returns whether the maximum number of successions is retained, so that no further process can take over the
    /// client id.
    pub(super) fn is_full(&self) -> bool {
        self.known.iter().filter(|known| known.generation >= self.retired_below).count() >= Succession::MOST
    }

    /// Returns the latest succession.
    pub(super) fn last(&self) -> Option<&Succession> {
        self.known.last()
    }

    /// Returns whether a process with this generation has taken over the client id here.
    #[inline]
    pub(super) fn has_opened(&self, generation: u64) -> bool {
        self.known.iter().rev().any(|heir| heir.generation == generation && heir.life != 0)
    }

    /// Records that a process opens here, if the latest succession has its generation and no life: this group has only
    /// closed earlier generations, because another group asked for that. Returns whether this is the case. The
    /// succession is then unsettled again.
    pub(super) fn open_last(&mut self, generation: u64, life: u64) -> bool {
        let closed = |heir: &&mut Succession| heir.generation == generation && heir.life == 0 && life != 0;
        let last = self.known.last_mut().filter(closed);
        last.map(|last| (last.life, last.settled) = (life, false)).is_some()
    }

    /// Returns the first succession of this generation or a later one.
    pub(super) fn first_from(&self, generation: u64) -> Option<&Succession> {
        self.known.iter().find(|heir| heir.generation >= generation)
    }

    /// Returns whether a message is void: a later process took over the client id, and the message comes after the last
    /// message of its own process that is kept.
    #[inline]
    pub(super) fn is_void(&self, sequence: u64) -> bool {
        sequence < self.void_below && self.is_void_by(sequence, |_| true)
    }

    /// Returns whether a message is void by a succession that a majority has processed. With `at_once`, which only a
    /// mutant sets, unsettled successions count, too.
    pub(super) fn is_refused(&self, sequence: u64, at_once: bool) -> bool {
        sequence < self.void_below && self.is_void_by(sequence, |heir| heir.settled || at_once)
    }

    #[cold]
    fn is_void_by(&self, sequence: u64, condition: impl Fn(&Succession) -> bool) -> bool {
        let mut heirs = self.known.iter().filter(|heir| condition(heir));
        heirs.any(|heir| heir.after < sequence && ids::generation(sequence) < heir.generation)
    }

    /// Returns the largest generation that a message in this slot can have, if a later process begins after the slot.
    pub(super) fn left_by(&self, slot: u64) -> Option<u64> {
        let next = self.known.iter().find(|heir| heir.first > slot)?;
        Some(next.generation.saturating_sub(1))
    }

    /// Adds a succession.
    pub(super) fn push(&mut self, heir: Succession) {
        let retired = self.retired_below;
        // Callers still query the latest succession after it is retired. Therefore retired successions are dropped only
        // when another one is added.
        self.known.retain(|known| known.generation >= retired);
        // `after` is unchanged: messages that only the new succession makes void are not settled yet.
        self.known.iter_mut().for_each(|known| known.first = known.first.min(heir.first));
        self.known.push(heir);
        self.look_at_last();
    }

    /// Replaces the known successions.
    pub(super) fn replace(&mut self, heirs: &[Succession]) {
        self.known.clear();
        self.known.extend_from_slice(heirs);
        self.retired_below = 0;
        self.look_at_last();
    }

    fn look_at_last(&mut self) {
        self.void_below = self.known.last().map_or(0, |heir| ids::first_of_generation(heir.generation));
    }

    /// Records that a majority has processed the latest succession, if it has this generation. Returns whether it was
    /// unsettled.
    pub(super) fn settle(&mut self, generation: u64) -> bool {
        let last = self.known.last_mut().filter(|last| last.generation == generation && !last.settled);
        last.map(|last| last.settled = true).is_some()
    }

    /// Lowers `after` to `good` in the successions that begin at slot `first`. A slot before `first` has become a
    /// no-op, and the slots between them contain no message that is kept.
    pub(super) fn lower(&mut self, first: u64, good: u64) {
        self.known.iter_mut().filter(|heir| heir.first == first).for_each(|heir| heir.after = heir.after.min(good));
    }

    /// Returns the smallest first slot after a slot.
    pub(super) fn next_first(&self, slot: u64) -> Option<u64> {
        self.known.iter().map(|heir| heir.first).find(|first| *first > slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heir(generation: u64, first: u64, after: u64) -> Succession {
        Succession { generation, life: generation, first, after, settled: true }
    }

    fn sequence(generation: u64, count: u64) -> u64 {
        ids::first_of_generation(generation) + count
    }

    #[test]
    fn messages_after_the_last_kept_one_of_a_succeeded_process_are_void() {
        let mut heirs = Heirs::new();
        assert!(!heirs.is_void(sequence(0, 1)));
        heirs.push(heir(2, 4, sequence(1, 4)));
        heirs.push(Succession { settled: false, ..heir(3, 6, sequence(2, 2)) });
        let void = [(1, 4), (1, 5), (2, 2), (2, 3), (3, 1)].map(|(g, n)| heirs.is_void(sequence(g, n)));
        assert_eq!(void, [false, true, false, true, false]);
        let refused = [(1, 5), (2, 3)].map(|(g, n)| heirs.is_refused(sequence(g, n), false));
        assert_eq!(refused, [true, false], "not before a majority has processed it");
        assert!(heirs.settle(3) && !heirs.settle(3) && heirs.is_refused(sequence(2, 3), false));
        assert_eq!([3, 4, 5, 6].map(|slot| heirs.left_by(slot)), [Some(1), Some(2), Some(2), None]);
    }

    #[test]
    fn a_process_that_begins_before_an_earlier_one_owns_all_later_slots() {
        let mut heirs = Heirs::new();
        heirs.push(heir(1, 4, sequence(0, 4)));
        heirs.push(Succession { settled: false, ..heir(2, 3, sequence(0, 3)) });
        assert_eq!(heirs.all().iter().map(|heir| heir.first).collect::<Vec<_>>(), [3, 3]);
        assert_eq!([2, 3].map(|slot| heirs.left_by(slot)), [Some(0), None], "no later process begins after slot 3");
        assert!(heirs.is_void(sequence(0, 4)) && !heirs.is_refused(sequence(0, 4), false), "an unsettled one");
    }

    #[test]
    fn retired_successions_are_dropped_with_the_next_process() {
        let mut heirs = Heirs::new();
        (1..4).for_each(|generation| heirs.push(heir(generation, generation, sequence(generation - 1, 1))));
        heirs.retired_below = 3;
        assert_eq!(heirs.all().len(), 3);
        heirs.push(heir(4, 9, sequence(3, 1)));
        let kept: Vec<u64> = heirs.all().iter().map(|heir| heir.generation).collect();
        assert_eq!(kept, [3, 4]);
        assert!(!heirs.is_void(sequence(1, 2)), "no group asks for a message of a retired generation");
    }
}
