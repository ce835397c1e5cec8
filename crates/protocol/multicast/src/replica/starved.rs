//! A follower notices here that its stream does not bring what its leader has.
//!
//! A follower asks its leader for what it misses: `Ask` for a decision, `WantBodies` for a body. The answer helps only if
//! the entry that it is about is processed. When entries are lost, no answer to these ever does.
//!
//! # States of a follower's stream
//! *flowing* → *starved* (there is evidence that an entry is missing) → flowing, when any entry is processed or a state is
//! installed; or, when that takes four times the [`retry_ticks`](super::ReplicaConfig::retry_ticks), the follower asks for its
//! leader's state, with the application's, and counts anew.
//!
//! Evidence is
//! - a gap: the entry at the head of the stream is not the next one. It may be that the state which has the entries before
//!   it is on its way, as it is after a connection broke; that is why the follower waits first.
//! - a decision that cannot be used: the leader says that a message is decided at a vector that is not processed here.
//!
//! # Invariants
//! - *A request that its answer does not satisfy becomes a request for the state.* The leader answers `Behind` with a state
//!   that contains every entry of its stream so far (`install_at`), and the stream goes on behind that. The state is farther
//!   than what is processed here, because something that the leader has appended is not; so it is installed, and the
//!   counter rises. A follower therefore stands still only as long as its leader does, or the connection is down.
//! - Nothing is delivered for this reason: the state comes from the leader of the installed ballot, like any other that it
//!   sends, and goes through `on_install`.
//! - A follower that waits for a state already is not starved: `go_on_installing` repeats what that lacks.

use super::{Replica, Stage};
use crate::peer_message::PeerMessage;
use crate::plant::planted;
use crate::{Effects, StreamItem};

/// The evidence that a follower's stream has brought nothing although there is more, and its age.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Starved {
    /// Whether there is evidence.
    evident: bool,
    /// The count of processed entries when the evidence came.
    counter: u64,
    /// The ticks since then.
    age: u8,
}

impl Replica {
    /// Returns whether this member follows the leader of the ballot that is installed here, and nothing else is under
    /// way.
    fn is_following(&self) -> bool {
        let settled = self.promised == self.ballot && !self.is_joining() && self.stage == Stage::Idle;
        settled && self.ballot.leader() != self.config.me
    }

    /// Notes whether entries are missing before one of the leader's stream that waits.
    pub(super) fn note_gap(&mut self, item: &StreamItem<'_>) {
        if self.stream_ballot == self.ballot && item.counter > self.counter + 1 {
            self.note_starved();
        }
    }

    /// Notes evidence that the stream does not bring what the leader has.
    pub(super) fn note_starved(&mut self) {
        let known = self.starved.evident && self.starved.counter == self.counter;
        if self.is_following() && !known && !planted!(self.config.plant, StateSetBack) {
            self.starved = Starved { evident: true, counter: self.counter, age: 0 };
        }
    }

    /// Lets a tick pass at a follower.
    pub(super) fn grow_starved<E: Effects>(&mut self, effects: &mut E) {
        if !self.starved.evident {
            return;
        }
        if self.starved.counter != self.counter || !self.is_following() {
            self.starved = Starved::default();
            return;
        }
        self.starved.age = self.starved.age.saturating_add(1);
        if self.starved.age >= self.config.retry_ticks.saturating_mul(4) {
            self.starved = Starved::default();
            self.catch_ups.starved += 1;
            effects.send(self.ballot.leader(), &PeerMessage::Behind { ballot: self.ballot });
        }
    }
}
