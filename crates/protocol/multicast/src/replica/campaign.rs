//! Phase 1 at a candidate: the promises of its group. The candidate asks for them (1A); each member that promises sends what
//! it has processed (1B); from a majority of the configured group the candidate takes the state that goes farthest.
//!
//! # Invariants
//! Members lose their memory and are taken in again, as other *lives* of the same processes (`lives.rs`), while messages of
//! old campaigns are on their way. A ballot is *complete* when its candidate takes over.
//! 1. *A ballot takes in only lives that had asked before its campaign began*, and its 1A names them. So all who promised it
//!    had heard of them by then.
//! 2. *A promise carries the lives that its sender has heard of, and its own; and a state those of its leader. A promise
//!    counts only if nobody whose promise counts has heard of a later life of its sender.*
//! 3. *A process that hears of a later life of its own member has no part in what it is told with that, and stops*
//!    (`Recovery::is_last_of`). It may live still, where nothing keeps two processes out of one id. So if the process that
//!    takes over a ballot has heard of a life, none that came before it under its id processes anything in that ballot, leads
//!    it, or says there what it holds.
//!
//! **Lemma.** Let e < c be complete ballots, and let all who promised e, in the lives in which they did, have heard of a
//! life L by then. Then c's candidate has, when it takes over.
//! *Proof*, by induction over c, then over e. The two majorities have a process z in common, which promised e in its life Z
//! and c in Z'. If Z = Z' it promised e first, because what it promises rises, and its promise of c said so. Else:
//! - Z' is the later one. It was taken in by a complete ballot d, and d < c, because it promised c afterwards. If d = e or
//!   d > e then the state by which it was taken in names L: e's candidate promised e, too, and d's had heard of L by the
//!   lemma for e and d. So its promise of c names L. If d < e: all who promised d had heard of Z'. By the lemma for d and e,
//!   e's candidate had, too, and did not count what Z promised: a contradiction.
//! - Z is the later one. It was taken in by a complete ballot d, and d < e, because it promised e afterwards. All who
//!   promised d had heard of Z; by the lemma for d and c, c's candidate had: it did not count what Z' promised.
//!
//! All lives that found an incarnation promise its first ballot, so that is complete like any other (`founding.rs`).
//!
//! **Theorem.** What a majority processed in a ballot d, each in one life, is in the state of every complete c > d.
//! *Proof*, by induction over c. Some z processed it in its life Y and promised c in X. If X = Y, it did so in this order,
//! and what it promised with is of d, at least as far, or of a ballot between, which has it by induction. Else:
//! - X is the later one, taken in by e < c. If e > d, e's state has it. e = d is impossible: by 1, whoever took over d had
//!   heard of X, and by 3 Y processed nothing in it. If e < d, that is so by the lemma for e and d.
//! - Y is the later one, taken in by e, and e = d or e < d, so e < c. By the lemma for e and c, c's candidate had heard of Y,
//!   and did not count what X promised.
//!
//! The same with *holds, and says so in its installed ballot d* in place of *processed in d* shows that what is synced is
//! held by whoever takes over a larger ballot: see `Recovery::count_promises`.
//!
//! Without 2 one crash in a group of five breaks the order (`tests/failure/amnesia.rs`). That of virtual synchrony's and
//! viewstamped replication's recoveries without disks is the same idea: Michael, Ports, Sharma and Szekeres call it
//! crash-consistent quorums (*Recovering Shared Objects Without Stable Storage*, DISC 2017).
//!
//! Adopting "the highest ballot that each message was accepted in" instead breaks total order in five steps:
//! A(b1) assigns m1@1 to itself alone; B(b2, with C) assigns m2@1 and m2 is delivered; A(b3, with B) revives m1@1 before it.

use stentor_fabric::ProcessId;

use super::Effects;
use super::identity::Identity;
use super::lives::Lives;
use super::messages::Messages;
use crate::mutant::mutant;
use crate::origin::common;
use crate::peer_message::{Joiner, PeerMessage};
use crate::state::State;
use crate::{Ballot, Incarnation};

/// What a candidate asks for: 1A.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand<'a> {
    pub(super) ballot: Ballot,
    /// The incarnation of that ballot.
    pub(super) incarnation: Incarnation,
    /// The incarnation that goes on as that one, or ends with it.
    pub(super) ends: Incarnation,
    /// An operator ends it.
    pub(super) resets: bool,
    /// The lives that the candidate has heard of.
    pub(super) lives: &'a [u64],
}

impl Demand<'_> {
    /// Whether a group without memory is to begin.
    pub(super) fn founds(&self) -> bool {
        self.ends.is_none() && !self.resets
    }
}

/// A member's promise, and what it has processed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Promise {
    pub(super) process: ProcessId,
    pub(super) state: State,
}

/// A campaign under way.
///
/// # States
/// *asking* (less than a majority's promises count) → *lacking* (the candidate waits for bodies, or for the application's
/// state) → taken over. Nothing is forgotten on the way but promises of lives that are over.
///
/// # Invariants
/// - A promise counts when all that its process holds is held here. So of what a majority held in one ballot, nothing is
///   forgotten: one of them has promised, or lost its memory since and was given it with the state of a leader that had it,
///   by the same reason (and the theorem above).
/// - Each member has at most one promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Campaign {
    pub(super) promises: Vec<Promise>,
    /// Processes that had asked to be taken in when it began: all members that promise have heard of these lives from the
    /// candidate.
    pub(super) admits: Vec<Joiner>,
    /// The incarnation that goes on as that of the ballot, or ends with it.
    pub(super) ends: Incarnation,
    /// An operator ends it: what counts is the candidate's state, whatever others have.
    pub(super) resets: bool,
}

impl Campaign {
    /// Whether it founds a group of which nobody has memory: all members promise.
    pub(super) fn founds(&self) -> bool {
        self.ends.is_none() && !self.resets
    }

    /// The promise of a process.
    pub(super) fn promise_of(&mut self, process: ProcessId) -> Option<&mut Promise> {
        self.promises.iter_mut().find(|promise| promise.process == process)
    }

    /// Drops the promises of lives that are over: they do not count.
    pub(super) fn forget_promises(&mut self, lives: &Lives) {
        self.promises.retain(|promise| lives.is_last(promise.process, &promise.state.lives));
    }

    /// Returns a process that promised and has forgotten what is not delivered here. Its state is the best one, or its
    /// process delivered what that of the best one, a leader, does not know to be decided. If it delivered what is no part of
    /// that one's history, it ends, and is not asked.
    pub(super) fn ahead(&self, id: &Identity, messages: &Messages) -> Option<ProcessId> {
        if self.resets || (self.promises.len() as u32) < id.topology().majority(id.group) {
            return None;
        }
        let farthest =
            self.promises.iter().map(|promise| &promise.state).max_by_key(|state| (state.synced, state.counter))?;
        let is_part = |state: &State| {
            state.origins == farthest.origins || state.delivered <= common(&state.origins, &farthest.origins)
        };
        let ahead = |promise: &&Promise| messages.is_behind(&promise.state) && is_part(&promise.state);
        self.promises.iter().find(ahead).map(|promise| promise.process)
    }

    /// Asks processes that promised for what they hold and is missing here.
    pub(super) fn want_held<E: Effects>(&mut self, messages: &Messages, effects: &mut E) {
        for Promise { process, state } in &mut self.promises {
            let mut lacks = messages.lacks_held(state).peekable();
            if lacks.peek().is_some() {
                lacks.for_each(|message| effects.send(*process, &PeerMessage::WantBody(message)));
            } else {
                drop(lacks);
                state.forget_held();
            }
        }
    }

    /// Returns the promise with the longest processed prefix among those with the highest synced ballot, once a majority has
    /// promised.
    ///
    /// Adopting "the highest ballot that each message was accepted in" instead breaks total order in five steps:
    /// A(b1) assigns m1@1 to itself alone; B(b2, with C) assigns m2@1 and m2 is delivered; A(b3, with B) revives m1@1 before
    /// it.
    pub(super) fn best(&self, id: &Identity, messages: &Messages) -> Option<&Promise> {
        let mut enough = id.topology().majority(id.group);
        if self.founds() && !mutant!(id.mutant(), FoundedByMajority) {
            enough = id.topology().size(id.group) as u32;
        }
        if mutant!(id.mutant(), QuorumOfConnected) {
            enough = 1;
        }
        if mutant!(id.mutant(), WaitsForAll) {
            enough = id.topology().size(id.group) as u32;
        }
        let mut complete = self.promises.iter().filter(|promise| messages.lacks_held(&promise.state).next().is_none());
        if (complete.clone().count() as u32) < enough {
            return None;
        }
        let mut best = complete.next()?;
        if self.resets {
            // The candidate's own is the first.
            return Some(best);
        }
        for promise in complete {
            let (this, other) = (&promise.state, &best.state);
            let farther = if mutant!(id.mutant(), CounterBeforeBallot) {
                (this.counter, this.synced) > (other.counter, other.synced)
            } else {
                (this.synced, this.counter) > (other.synced, other.counter)
            };
            if farther && !mutant!(id.mutant(), FirstPromiseOnly) {
                best = promise;
            }
        }
        Some(best)
    }

    /// For the mutant that adopts what anybody accepted: the state, and behind it what only other states have.
    pub(super) fn revive(&self, state: &State) -> State {
        let mut revived = state.clone();
        for promise in &self.promises {
            for (client, other) in revived.clients.iter_mut().zip(&promise.state.clients) {
                let known = client.assigned().saturating_sub(other.from) as usize;
                client.entries.extend(other.entries.iter().skip(known).cloned());
            }
        }
        revived
    }
}
