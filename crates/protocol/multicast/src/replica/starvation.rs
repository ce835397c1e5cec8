//! Detection of a follower whose stream lacks entries that its leader has appended.
//!
//! A follower sends its leader requests for the information that it misses: `Ask` for a decision, `WantBodies` for a
//! body. An answer helps only if the entry that the answer is about is processed. If entries are lost, no answer to
//! these requests ever helps.

/// The evidence that a follower's stream lacks entries that the leader has appended, and the age of that evidence.
///
/// # States of a follower's stream
/// *flowing* → *starved* (there is evidence that an entry is missing) → flowing, when any entry is processed or a state
/// is installed. If that takes four times the [`retry_ticks`](super::ReplicaConfig::retry_ticks), the follower asks for
/// its leader's state, and counts again from 0.
///
/// The evidence is one of these:
/// - A gap: the entry at the head of the stream is not the next one. The state that contains the entries before it may
///   be in flight, as it is after a connection broke. Therefore the follower waits first.
/// - An unusable decision: the leader reports that a message is decided at a vector that is not processed here.
///
/// # Invariants
/// - *A request that its answer does not satisfy becomes a request for the state.* The leader answers `Behind` with a
///   state that contains every entry of its stream so far (`install_at`), and the stream continues after that. The
///   state is ahead of what is processed here, because some appended entry is not processed. So the follower installs
///   the state, and its counter rises. A follower therefore stalls only as long as its leader does, or the connection
///   is down.
/// - Starvation causes no delivery: the state comes from the leader of the installed ballot, like any other that it
///   sends, and is processed by `on_install`.
/// - A follower that already waits for a state is not starved: `go_on_installing` repeats the requests for the bodies
///   that the state needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Starvation {
    /// `true` if there is evidence.
    evident: bool,
    /// Number of processed entries when the evidence was found.
    counter: u64,
    /// Number of ticks since the evidence was found.
    age: u8,
}

impl Starvation {
    /// Notes evidence at a follower that has processed `counter` entries.
    pub(super) fn note(&mut self, counter: u64) {
        if !self.evident || self.counter != counter {
            *self = Starvation { evident: true, counter, age: 0 };
        }
    }

    /// Advances time by one tick at a member that has processed `counter` entries.
    ///
    /// Returns whether the member has been starved for `ticks` ticks. The count then starts again from 0.
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
    fn a_processed_entry_ends_starvation_and_old_evidence_keeps_its_age() {
        let mut starvation = Starvation::default();
        assert!(!starvation.tick(3, true, 1), "nothing is missing");
        starvation.note(3);
        assert!(!starvation.tick(3, true, 2));
        starvation.note(3);
        assert!(starvation.tick(3, true, 2), "the same evidence is not younger");
        starvation.note(3);
        assert!(!starvation.tick(4, true, 1) && !starvation.tick(3, true, 1), "an entry was processed");
        starvation.note(3);
        assert!(!starvation.tick(3, false, 1), "a member that does not follow is not starved");
    }
}
