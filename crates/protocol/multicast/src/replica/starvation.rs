//! A follower notices here that its stream does not bring what its leader has.
//!
//! A follower asks its leader for what it misses: `Ask` for a decision, `WantBodies` for a body. The answer helps only if
//! the entry that it is about is processed. When entries are lost, no answer to these ever does.

/// The evidence that a follower's stream has brought nothing although there is more, and its age.
///
/// # States of a follower's stream
/// *flowing* → *starved* (there is evidence that an entry is missing) → flowing, when any entry is processed or a state is
/// installed; or, when that takes four times the [`retry_ticks`](super::ReplicaConfig::retry_ticks), the follower asks for its
/// leader's state, and counts anew.
///
/// Evidence is
/// - a gap: the entry at the head of the stream is not the next one. It may be that the state which has the entries before
///   it is on its way, as it is after a connection broke; that is why the follower waits first.
/// - a decision that cannot be used: the leader says that a message is decided at a vector that is not processed here.
///
/// # Invariants
/// - *A request that its answer does not satisfy becomes a request for the state.* The leader answers `Behind` with a state
///   that contains every entry of its stream so far (`install_at`), and the stream goes on behind that. The state is farther
///   than what is processed here, because something that the leader has appended is not; so it is installed, and the
///   counter rises. A follower therefore stands still only as long as its leader does, or the connection is down.
/// - Nothing is delivered for this reason: the state comes from the leader of the installed ballot, like any other that it
///   sends, and goes through `on_install`.
/// - A follower that waits for a state already is not starved: `go_on_installing` repeats what that lacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Starvation {
    /// Whether there is evidence.
    evident: bool,
    /// The count of processed entries when the evidence came.
    counter: u64,
    /// The ticks since then.
    age: u8,
}

impl Starvation {
    /// Notes evidence, at a follower that has processed so many entries.
    pub(super) fn note(&mut self, counter: u64) {
        if !self.evident || self.counter != counter {
            *self = Starvation { evident: true, counter, age: 0 };
        }
    }

    /// Lets a tick pass at a member that has processed so many entries. Returns whether it has been starved for so many
    /// ticks; then it counts anew.
    pub(super) fn tick(&mut self, counter: u64, follows: bool, ticks: u8) -> bool {
        if !self.evident {
            return false;
        }
        if self.counter != counter || !follows {
            *self = Starvation::default();
            return false;
        }
        self.age = self.age.saturating_add(1);
        let due = self.age >= ticks;
        if due {
            *self = Starvation::default();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_processed_ends_it_and_old_evidence_counts_on() {
        let mut starvation = Starvation::default();
        assert!(!starvation.tick(3, true, 1), "nothing is missing");
        starvation.note(3);
        assert!(!starvation.tick(3, true, 2));
        starvation.note(3);
        assert!(starvation.tick(3, true, 2), "the same evidence is not younger");
        starvation.note(3);
        assert!(!starvation.tick(4, true, 1) && !starvation.tick(3, true, 1), "an entry came");
        starvation.note(3);
        assert!(!starvation.tick(3, false, 1), "it does not follow");
    }
}
