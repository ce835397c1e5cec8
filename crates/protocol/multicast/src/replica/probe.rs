//! A leader hears that a larger ballot of its group than its own is known.
//!
//! That is so when it is deposed and has not heard of it; when a candidate died before it had a majority; and when there is
//! another history of its group (`ballots.rs`): one that a reset began and that found no majority, or one that was founded while
//! somebody who remembers this one was not reached. Other groups that remember a larger incarnation take none of this one's
//! times (`Replica::on_timestamp`), and with one of another tag they do not even talk. So the leader campaigns above it.

use super::identity::Identity;
use crate::Ballot;

/// The members that stand by a leader's ballot although a larger one was heard of.
///
/// # States of a leader
/// *unquestioned* (it knows no larger ballot of its group than its own) → *questioned* (it was told of one: by another group,
/// which answers what is announced or given in a smaller one with the largest that it knows; or by a member that promised it)
/// → a majority says that it stands by the leader's ballot → *campaigning*, above all that it was told of; in a larger
/// incarnation, with its own state, if that was of another one.
/// It asks again whenever [`retry_ticks`](super::ReplicaConfig::retry_ticks) are over.
///
/// # Invariants
/// - Nothing but a campaign comes of it. A campaign may begin at any time and in any larger ballot, and who promises, what
///   counts and what is taken over does not depend on why it began: so this can harm nothing that is delivered.
/// - *A deposed leader does not campaign for that reason.* A majority promised its successor's ballot, and none of those says
///   any more that it stands by a smaller one. So two leaders that do not hear each other do not depose each other in turns.
/// - It comes to an end: others remember finitely many ballots of the group, and after a campaign its ballot is above all
///   that it was told of.
///
/// ARCHITECTURE.md, "What is lost with memory", says what this does not bring back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct StaleLeaderProbe {
    /// The larger ballot.
    against: Ballot,
    /// Members that said since that they stand by the leader's.
    members: u64,
}

impl StaleLeaderProbe {
    /// A larger ballot than the leader's is known.
    pub(super) fn question(&mut self, larger: Ballot, own: u64) {
        if self.against != larger {
            *self = StaleLeaderProbe { against: larger, members: own };
        }
    }

    /// Members stand by the leader's ballot.
    pub(super) fn support(&mut self, members: u64) {
        self.members |= members;
    }

    /// Whether a majority stands by the leader's ballot; the probe is over then.
    pub(super) fn is_refuted(&mut self, id: &Identity, ballot: Ballot) -> bool {
        let refuted = self.against > ballot && id.is_majority(self.members);
        if refuted {
            *self = StaleLeaderProbe::default();
        }
        refuted
    }
}
