//! The stale-leader probe of a leader that learns of a larger ballot of its group.
//!
//! There are three causes. The leader is deposed and does not know it. A candidate died before it had a majority. Or
//! there is another history of the group (`ballots.rs`): a reset began it and found no majority, or it was founded
//! while a process that remembers this history was not reached. Other groups that remember a larger incarnation accept
//! no times of this one (`Replica::on_timestamp`). Those that remember an incarnation with another tag refuse
//! connections. So the leader campaigns in a ballot above the one that it learned of.

use super::identity::Identity;
use crate::Ballot;

/// The members that support a leader's ballot although a larger one is known.
///
/// # States of a leader
/// *unquestioned* (it knows no ballot of its group larger than its own) → *questioned* (it learned of a larger one:
/// another group answers announcements and times of a smaller ballot with the largest that it knows, and a member that
/// promised a larger ballot reports it) → a majority supports the leader's ballot → *campaigning*, above all ballots
/// that it learned of; if such a ballot belongs to another incarnation, in a larger incarnation with its own state. The
/// leader asks again whenever [`retry_ticks`](super::ReplicaConfig::retry_ticks) have passed.
///
/// # Invariants
/// - The only result of a probe is a campaign. A campaign may begin at any time and in any larger ballot. Its cause
///   does not influence which members promise, which promises count and which state is taken over. So the probe cannot
///   harm anything that is delivered.
/// - *A deposed leader does not campaign because of a probe.* A majority promised its successor's ballot, and no member
///   of that majority supports a smaller ballot any more. So two leaders that do not reach each other do not depose
///   each other in turns.
/// - The probe terminates: others remember finitely many ballots of the group, and after a campaign the leader's ballot
///   is above all that it learned of.
///
/// `docs/guarantees.md`, "After loss of memory", describes what this does not restore.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct StaleLeaderProbe {
    /// The larger ballot that the leader learned of; the default if there is none.
    against: Ballot,
    /// Members that have reported since then that they support the leader's ballot, as a bit mask.
    members: u64,
}

impl StaleLeaderProbe {
    /// Records that a ballot larger than the leader's is known.
    pub(super) fn question(&mut self, larger: Ballot, own: u64) {
        if self.against != larger {
            *self = StaleLeaderProbe { against: larger, members: own };
        }
    }

    /// Records that members support the leader's ballot.
    pub(super) fn support(&mut self, members: u64) {
        self.members |= members;
    }

    /// Returns whether a majority supports the leader's ballot. If so, the probe ends.
    pub(super) fn is_refuted(&mut self, id: &Identity, ballot: Ballot) -> bool {
        let refuted = self.against > ballot && id.is_majority(self.members);
        if refuted {
            *self = StaleLeaderProbe::default();
        }
        refuted
    }
}
