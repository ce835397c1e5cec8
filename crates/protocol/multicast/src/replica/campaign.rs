//! Phase 1 at a candidate. The candidate asks its group for promises (1A). Each member that promises sends the state
//! that it has processed (1B). From the promises of a majority of the configured group, the candidate adopts the most
//! advanced state.
//!
//! # Invariants
//! Members lose their memory and are admitted again, as other *lives* of the same processes (`lives.rs`), while
//! messages of old campaigns are in flight. A ballot is *complete* when its candidate takes over.
//! 1. *A ballot admits only lives that had asked before its campaign began*, and its 1A names them. So every process
//!    knew these lives when it promised the ballot.
//! 2. *A promise carries the lives that its sender knows, including its own; a state carries those of its leader. A
//!    promise counts only if no process whose promise counts knows a later life of its sender.*
//! 3. *A process that learns of a later life of its own member ignores the message that names that life, and stops*
//!    (`Recovery::is_last_of`). Such a process may still run, if the deployment does not prevent two processes from
//!    using one id. So if the process that takes over a ballot knows a life, no earlier life of that member processes
//!    anything in the ballot, leads it, or reports held messages in it.
//!
//! # Safety: lost memory does not invalidate a quorum
//! **Lemma.** Let e < c be complete ballots, and let every process that promised e have known a life L at that time, in
//! the life in which it promised. Then c's candidate knows L when it takes over.
//!
//! *Proof*, by induction over c, then over e. The two majorities have a process z in common, which promised e in its
//! life Z and c in its life Z'. If Z = Z', it promised e first, because its promises rise, and its promise of c named
//! L. Otherwise:
//! - Z' is the later one. It was admitted by a complete ballot d, and d < c, because it promised c afterwards. If d = e
//!   or d > e, the state by which it was admitted names L: e's candidate promised e itself, and d's candidate knew L by
//!   the lemma for e and d. So z's promise of c names L. If d < e: every process that promised d knew Z'. By the lemma
//!   for d and e, e's candidate knew Z', too, and did not count the promise of Z: a contradiction.
//! - Z is the later one. It was admitted by a complete ballot d, and d < e, because it promised e afterwards. Every
//!   process that promised d knew Z. By the lemma for d and c, c's candidate knew Z and did not count the promise of
//!   Z': a contradiction.
//!
//! All lives that found an incarnation promise its first ballot, so that ballot is complete like any other
//! (`founding.rs`).
//!
//! **Theorem.** An entry that a majority processed in a ballot d, each member in one life, is in the state of every
//! complete c > d.
//!
//! *Proof*, by induction over c. Some z processed the entry in its life Y and promised c in its life X. If X = Y, it
//! did so in this order. The state in its promise is then of d and at least as advanced, or of a ballot in between,
//! which contains the entry by induction. Otherwise:
//! - X is the later one, admitted by a complete ballot e < c. If e > d, e's state contains the entry. e = d is
//!   impossible: by 1, the process that took over d knew X, and by 3 Y processed nothing in d. If e < d, the same
//!   follows from the lemma for e and d.
//! - Y is the later one, admitted by e with e = d or e < d, so e < c. By the lemma for e and c, c's candidate knew Y
//!   and did not count the promise of X.
//!
//! The theorem also holds with *holds a message, and reports that in its installed ballot d* in place of *processed in
//! d*. So a process that takes over a larger ballot holds every synced message: see `Recovery::count_promises`.
//!
//! Without 2, one crash in a group of five breaks the order (`tests/failure/amnesia.rs`). The recoveries without disks
//! of virtual synchrony and viewstamped replication use the same idea, which Michael, Ports, Sharma and Szekeres call
//! crash-consistent quorums (*Recovering Shared Objects Without Stable Storage*, DISC 2017).
//!
//! Adopting "the highest ballot that each message was accepted in" instead breaks total order in five steps. A leads
//! ballot b1 and assigns time 1 to m1, but its entry reaches no other member. B leads b2 with C's promise and assigns
//! time 1 to m2, and m2 is delivered. A then leads b3 with B's promise, and revives m1 at time 1, before m2.

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

/// The content of a candidate's request for promises (1A).
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand<'a> {
    pub(super) ballot: Ballot,
    /// The incarnation of that ballot.
    pub(super) incarnation: Incarnation,
    /// The incarnation that `incarnation` continues or ends. Both are equal in an ordinary election.
    pub(super) ends: Incarnation,
    /// `true` if an operator ends the incarnation `ends`.
    pub(super) resets: bool,
    /// The lives that the candidate knows.
    pub(super) lives: &'a [u64],
}

impl Demand<'_> {
    /// Returns whether the campaign founds a group without memory.
    pub(super) fn founds(&self) -> bool {
        self.ends.is_none() && !self.resets
    }
}

/// A member's promise, with the state that it has processed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Promise {
    pub(super) process: ProcessId,
    pub(super) state: State,
}

/// A campaign in progress.
///
/// # States
/// *asking* (less than a majority's promises count) → *lacking* (the candidate waits for bodies, or for the
/// application's state) → taken over. Until then, only promises of ended lives are dropped.
///
/// # Invariants
/// - A promise counts when the candidate holds everything that the promising process holds. So no message that a
///   majority held in one ballot is lost. Some member of that majority has promised, or has lost its memory since. In
///   the latter case it received the message with the state of a leader that held it for the same reason (and by the
///   theorem in the module's header).
/// - Each member has at most one promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Campaign {
    pub(super) promises: Vec<Promise>,
    /// Processes that had asked to be admitted when the campaign began. The candidate has named these lives to all
    /// members that promise.
    pub(super) admits: Vec<Joiner>,
    /// The incarnation that the ballot's incarnation continues or ends. Both are equal in an ordinary election.
    pub(super) ends: Incarnation,
    /// `true` if an operator ends the incarnation `ends`. Then the candidate's state counts, whatever states other
    /// members have.
    pub(super) resets: bool,
}

impl Campaign {
    /// Returns whether the campaign founds a group that no process remembers. Then all members must promise.
    pub(super) fn founds(&self) -> bool {
        self.ends.is_none() && !self.resets
    }

    /// Returns the promise of a process.
    pub(super) fn promise_of(&mut self, process: ProcessId) -> Option<&mut Promise> {
        self.promises.iter_mut().find(|promise| promise.process == process)
    }

    /// Drops the promises of ended lives, which do not count.
    pub(super) fn forget_promises(&mut self, lives: &Lives) {
        self.promises.retain(|promise| lives.is_last(promise.process, &promise.state.lives));
    }

    /// Returns a process that has promised and that no longer retains a message that is undelivered here.
    ///
    /// Either its state is the best one, or it has delivered messages that the leader with the best state does not know
    /// to be decided. A process that has delivered messages outside the best state's history is not returned, because
    /// it ends.
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

    /// Requests the messages that promising processes hold and that are missing here.
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

    /// Returns the promise with the longest processed prefix among those with the highest synced ballot, once a
    /// majority has promised, or all members at a founding. In a reset, returns the candidate's own promise.
    ///
    /// The module's header shows why the ballots of single messages must not be compared.
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
            // The candidate's own promise is the first.
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

    /// Returns the state extended by the entries that only other states have, for the mutant that adopts every accepted
    /// message.
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
