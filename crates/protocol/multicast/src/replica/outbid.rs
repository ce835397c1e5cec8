//! A leader hears that somebody knows a larger ballot of its group than its own.
//!
//! That is so when it is deposed and has not heard of it; when a candidate died before it had a majority; and when the whole
//! group lost its memory. Then the group begins with small ballots again, and other groups, which remember larger ones,
//! take none of its times (`on_timestamp`): it would be mute until so many leaders have followed each other in it.
//!
//! # States of a leader
//! *unquestioned* (it knows no larger ballot of its group than its own) → *questioned* (it was told of one: by another group,
//! which answers what is announced or given in a smaller one with the largest that it knows; or by a member that promised it)
//! → a majority says that it stands by the leader's ballot → *campaigning*, above all that it was told of.
//! It asks again whenever [`retry_ticks`](super::ReplicaConfig::retry_ticks) is over.
//!
//! # Invariants
//! - Nothing but a campaign comes of it. A campaign may begin at any time and in any larger ballot, and who promises, what
//!   counts and what is taken over does not depend on why it began: so this can harm nothing that is delivered.
//! - *Who is deposed does not campaign for that reason.* A majority promised its successor's ballot, and none of those says any
//!   more that it stands by a smaller one. So two leaders that do not hear each other do not depose each other in turns.
//! - It comes to an end: others remember finitely many ballots of the group, and after a campaign its ballot is above all
//!   that it was told of.
//!
//! What this does not bring back is in ARCHITECTURE.md, "What is lost with memory".

use stentor_fabric::ProcessId;

use super::{Replica, Stage};
use crate::peer_message::PeerMessage;
use crate::{Ballot, Effects};

/// Who stands by a leader's ballot although a larger one was heard of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Standing {
    /// The larger one.
    against: Ballot,
    /// Members that said so since.
    members: u64,
}

impl Replica {
    /// Time passes at a leader.
    pub(super) fn ask_who_stands<E: Effects>(&mut self, effects: &mut E) {
        let highest = self.known(self.group);
        if self.stage != Stage::Leading || highest <= self.ballot {
            return;
        }
        if self.standing.against != highest {
            self.standing = Standing { against: highest, members: self.bit };
        }
        for member in self.others() {
            effects.send(member, &PeerMessage::Probe { ballot: self.ballot });
        }
        self.count_standing(effects);
    }

    /// The question, at a member that follows; or its answer.
    pub(super) fn on_stand<E: Effects>(&mut self, from: ProcessId, ballot: Ballot, effects: &mut E) {
        if self.is_joining() || ballot != self.ballot || ballot != self.promised {
            return;
        }
        if ballot.leader() == from {
            effects.send(from, &PeerMessage::Probe { ballot });
        } else if self.stage == Stage::Leading {
            self.standing.members |= self.config.topology.member_bit(self.group, from).unwrap_or(0);
            self.count_standing(effects);
        }
    }

    fn count_standing<E: Effects>(&mut self, effects: &mut E) {
        let Standing { against, members } = self.standing;
        if against > self.ballot && members.count_ones() >= self.config.topology.majority(self.group) {
            self.standing = Standing::default();
            // Refused only if there is no larger ballot.
            let _ = self.campaign(effects);
        }
    }
}
