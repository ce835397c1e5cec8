//! The processes that took a client's place over at a group, as a member knows them.

use crate::ids;
use crate::state::Succession;

/// The processes that took a client's place over, the latest one last.
///
/// # Invariants
/// - Generations rise, and first slots do not fall. Only the latest one may be unsettled. Nobody may hold any more what came before
///   the first slot of a process; then the next one begins before that slot, and that slot is no earlier one's any more.
/// - `void_below` is the beginning of the latest one's generation: nothing of it or later ones is void.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Heirs {
    known: Vec<Succession>,
    void_below: u64,
    /// Generations below this have left nothing that another group could ask for.
    pub(super) retired_below: u64,
}

impl Heirs {
    pub(super) fn new() -> Self {
        Heirs { known: Vec::new(), void_below: 0, retired_below: 0 }
    }

    pub(super) fn all(&self) -> &[Succession] {
        &self.known
    }

    /// Whether so many are kept that no other process can follow.
    pub(super) fn is_full(&self) -> bool {
        self.known.iter().filter(|known| known.generation >= self.retired_below).count() >= Succession::MOST
    }

    /// The latest one.
    pub(super) fn last(&self) -> Option<&Succession> {
        self.known.last()
    }

    /// Whether a process with this generation took the place over here.
    #[inline]
    pub(super) fn has_opened(&self, generation: u64) -> bool {
        self.known.iter().rev().any(|heir| heir.generation == generation && heir.life != 0)
    }

    /// The process itself opens here, whose generation was closed because another group asked. Returns whether it is that.
    pub(super) fn open_last(&mut self, generation: u64, life: u64) -> bool {
        let closed = |heir: &&mut Succession| heir.generation == generation && heir.life == 0 && life != 0;
        let last = self.known.last_mut().filter(closed);
        last.map(|last| (last.life, last.settled) = (life, false)).is_some()
    }

    /// The first that is of this generation or a later one.
    pub(super) fn first_from(&self, generation: u64) -> Option<&Succession> {
        self.known.iter().find(|heir| heir.generation >= generation)
    }

    /// Whether a message comes from a process that was succeeded, after the last message that is kept of it.
    #[inline]
    pub(super) fn is_void(&self, sequence: u64) -> bool {
        sequence < self.void_below && self.is_void_by(sequence, |_| true)
    }

    /// Whether a message is void, and a majority has processed that it is.
    pub(super) fn is_refused(&self, sequence: u64, at_once: bool) -> bool {
        sequence < self.void_below && self.is_void_by(sequence, |heir| heir.settled || at_once)
    }

    #[cold]
    fn is_void_by(&self, sequence: u64, condition: impl Fn(&Succession) -> bool) -> bool {
        let mut heirs = self.known.iter().filter(|heir| condition(heir));
        heirs.any(|heir| heir.after < sequence && ids::generation(sequence) < heir.generation)
    }

    /// The generation that what is in this slot is of at most, if a process that came later begins behind it.
    pub(super) fn left_by(&self, slot: u64) -> Option<u64> {
        let next = self.known.iter().find(|heir| heir.first > slot)?;
        Some(next.generation.saturating_sub(1))
    }

    /// Another process took the place over.
    pub(super) fn push(&mut self, heir: Succession) {
        let retired = self.retired_below;
        // What is known of the latest one is asked for as long as it is the latest.
        self.known.retain(|known| known.generation >= retired);
        // `after` stays: what is void by the new one alone is not settled yet.
        self.known.iter_mut().for_each(|known| known.first = known.first.min(heir.first));
        self.known.push(heir);
        self.look_at_last();
    }

    /// In place of what is known.
    pub(super) fn replace(&mut self, heirs: &[Succession]) {
        self.known.clear();
        self.known.extend_from_slice(heirs);
        self.retired_below = 0;
        self.look_at_last();
    }

    fn look_at_last(&mut self) {
        self.void_below = self.known.last().map_or(0, |heir| ids::first_of_generation(heir.generation));
    }

    /// A majority has processed that the latest one of this generation took the place over. Returns whether that is news.
    pub(super) fn settle(&mut self, generation: u64) -> bool {
        let last = self.known.last_mut().filter(|last| last.generation == generation && !last.settled);
        last.map(|last| last.settled = true).is_some()
    }

    /// A slot is void that comes before the first slot of a process, and nothing that is not void is between them: what is
    /// void begins after `good`.
    pub(super) fn lower(&mut self, first: u64, good: u64) {
        self.known.iter_mut().filter(|heir| heir.first == first).for_each(|heir| heir.after = heir.after.min(good));
    }

    /// The smallest first slot behind a slot.
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
    fn void_is_what_comes_after_the_last_kept_message_of_each_process_that_is_followed() {
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
    fn who_begins_before_an_earlier_process_has_the_slots_from_there_on() {
        let mut heirs = Heirs::new();
        heirs.push(heir(1, 4, sequence(0, 4)));
        heirs.push(Succession { settled: false, ..heir(2, 3, sequence(0, 3)) });
        assert_eq!(heirs.all().iter().map(|heir| heir.first).collect::<Vec<_>>(), [3, 3]);
        assert_eq!([2, 3].map(|slot| heirs.left_by(slot)), [Some(0), None], "nobody who is over left a gap there");
        assert!(heirs.is_void(sequence(0, 4)) && !heirs.is_refused(sequence(0, 4), false), "it is not settled");
    }

    #[test]
    fn what_every_group_is_done_with_is_forgotten_with_the_next_process() {
        let mut heirs = Heirs::new();
        (1..4).for_each(|generation| heirs.push(heir(generation, generation, sequence(generation - 1, 1))));
        heirs.retired_below = 3;
        assert_eq!(heirs.all().len(), 3);
        heirs.push(heir(4, 9, sequence(3, 1)));
        let kept: Vec<u64> = heirs.all().iter().map(|heir| heir.generation).collect();
        assert_eq!(kept, [3, 4]);
        assert!(!heirs.is_void(sequence(1, 2)), "nobody asks");
    }
}
