//! The memory of a member, and the members that have none.

use stentor_fabric::ProcessId;

use super::TotalLoss;
use super::ballots::Ballots;
use super::identity::Identity;
use super::lives::{Lives, name_above};
use super::memories::{Hindrance, Memories};
use crate::peer_message::Joiner;
use crate::{GroupId, Incarnation, Origin};

/// A member's status in its group, and the processes that ask to be admitted.
///
/// # States
/// *joining* (without memory: it does not vote, and its only promises are those to found or to reset its group) →
/// *member* (its group admitted it, or it founded its group with all others, or it reset its group) → *superseded*
/// (another process of this member was started later) or *ended* (the group was reset or founded anew, and continues
/// from another history than this member's). In the last two states the process sends nothing.
///
/// # Invariants
/// - A joining process becomes a member in one of three ways only: it installs a state of a ballot that admits its
///   life; it promises a later ballot of an incarnation that it has promised to begin; or its own campaign begins an
///   incarnation.
/// - Only a joining process changes its life.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    /// The life of a joining process.
    joining: Option<u64>,
    superseded: bool,
    /// The members' lives, including this one's.
    pub(super) lives: Lives,
    /// The incarnation that this process, without memory, has promised to begin.
    pub(super) pledge: Option<Pledge>,
    /// The largest incarnation that this process promised to begin, whether the incarnation began or not.
    pub(super) pledged: Incarnation,
    /// The smallest incarnation that a process remembered when this one received its memory.
    pub(super) remembered: Incarnation,
    /// The last incarnation that this process promised to begin by a reset, with memory or without.
    reset_to: Incarnation,
    /// The origin of one history. All messages that are held here and not assigned were multicast to that history.
    held_of: Incarnation,
    /// The processes that remember the group, while this one is without memory.
    pub(super) memories: Memories,
    /// Number of ticks for which this process has waited for processes that remember the group.
    waited: u16,
    /// Number of ticks that were skipped since the last tick, because this process was not called.
    skipped: u16,
    /// The incarnation of this member's group that does not contain this member's history.
    ended_by: Option<Incarnation>,
    /// Other processes without memory that have asked this one to be admitted. They are also recorded while this
    /// process has no memory itself.
    pub(super) joiners: Vec<Joiner>,
    join: JoinState,
}

impl Membership {
    /// Skipped ticks before one call count as at most the waiting time divided by this number. So a process without
    /// memory looks several times for processes that remember its group.
    const LOOKS: u16 = 6;

    pub(super) fn joining(id: &Identity, life: u64) -> Self {
        let mut lives = Lives::new(id.topology(), id.group, id.index());
        lives.be(life);
        Membership {
            joining: Some(life),
            superseded: false,
            lives,
            pledge: None,
            pledged: Incarnation::NONE,
            remembered: Incarnation::NONE,
            reset_to: Incarnation::NONE,
            held_of: Incarnation::FIRST,
            memories: Memories::default(),
            waited: 0,
            skipped: 0,
            ended_by: None,
            joiners: Vec::new(),
            join: JoinState::default(),
        }
    }

    #[inline]
    pub(super) fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// Returns the life of a joining process.
    pub(super) fn joining_life(&self) -> Option<u64> {
        self.joining
    }

    #[inline]
    pub(super) fn is_superseded(&self) -> bool {
        self.superseded
    }

    pub(super) fn supersede(&mut self) {
        self.superseded = true;
    }

    /// Records that this process has obtained its group's memory. Returns whether it had none.
    pub(super) fn remember(&mut self) -> bool {
        let joined = self.joining.take().is_some();
        if joined {
            self.remembered = self.memories.smallest().unwrap_or_default();
            (self.pledge, self.memories) = (None, Memories::default());
            // Members that are still without memory ask again.
            self.joiners.clear();
        }
        joined
    }

    /// Records that the group admitted this process, or that the process installed a state. `lives` are those that the
    /// state's leader knew. Returns whether this process had no memory.
    pub(super) fn adopt(&mut self, lives: &[u64]) -> bool {
        self.lives.hear_of_all(lives);
        self.remember()
    }

    /// Ends this process, because its group continues without this member's history.
    pub(super) fn end(&mut self, by: Incarnation) {
        (self.superseded, self.ended_by) = (true, Some(by));
    }

    /// Returns the incarnation that ended this member's.
    pub(super) fn ended_by(&self) -> Option<Incarnation> {
        self.ended_by
    }

    /// Records the promise to begin an incarnation: to found it, or because an operator resets the group.
    pub(super) fn pledge(&mut self, incarnation: Incarnation, resets: bool) {
        self.pledge = Some(Pledge { incarnation, resets });
        self.pledged = incarnation;
        self.held_of = incarnation;
        // No process has memory where a group is founded, so no chosen state is left.
        self.reset_to = if resets { incarnation } else { Incarnation::NONE };
    }

    /// Records that this process continues with a history of these origins. Returns whether the messages held here were
    /// multicast to another history.
    pub(super) fn enters(&mut self, origins: &[Origin]) -> bool {
        let origin = origins.last().map_or(Incarnation::NONE, |last| last.incarnation);
        std::mem::replace(&mut self.held_of, origin) != origin
    }

    /// Records the promise of a reset, at a process with memory.
    pub(super) fn promise_reset(&mut self, incarnation: Incarnation) {
        self.reset_to = incarnation;
    }

    /// Returns whether an operator chose the state with which a promised incarnation begins, and this process has
    /// neither that state nor a later one.
    fn lacks_chosen_state(&self, ballots: &Ballots) -> bool {
        ballots.installed_in.number < self.reset_to.number
    }

    /// Returns whether a candidate here may take over a state of this incarnation. A candidate that lacks the state
    /// that an operator chose may take over only that state, or one that continues it.
    pub(super) fn may_take(&self, ballots: &Ballots, incarnation: Incarnation) -> bool {
        let chosen = incarnation.number >= self.reset_to.number && !incarnation.contradicts(self.reset_to);
        chosen || !self.lacks_chosen_state(ballots)
    }

    /// Returns the incarnation from which a campaign of this process continues: that of its state, or of the chosen
    /// state that it lacks. A founder may have no state yet; then it is the promised incarnation.
    pub(super) fn goes_on_from(&self, ballots: &Ballots) -> Incarnation {
        if self.lacks_chosen_state(ballots) {
            self.reset_to
        } else if ballots.installed_in.is_none() {
            ballots.promised_in
        } else {
            ballots.installed_in
        }
    }

    /// Returns the incarnation that a reset at this process must name as the one to end. With memory, it is that of the
    /// largest ballot that this member has promised. Without memory, it is the largest one that this process knows or
    /// has promised to begin by a reset.
    pub(super) fn ended_by_reset(&self, ballots: &Ballots, own: GroupId) -> Incarnation {
        if !self.is_joining() {
            return ballots.promised_in;
        }
        let remembered = self.memories.any().map(|(_, incarnation)| incarnation);
        let pledged = self.pledge.filter(|pledge| pledge.resets).map(|pledge| pledge.incarnation);
        [Some(ballots.incarnation(own)), remembered, pledged].into_iter().flatten().max().unwrap_or_default()
    }

    /// Returns whether this process has promised the first ballot of this incarnation, and has forgotten nothing since.
    pub(super) fn has_pledged(&self, incarnation: Incarnation) -> bool {
        self.pledge.is_some_and(|pledge| pledge.incarnation == incarnation)
    }

    /// Advances time by one tick. Returns whether the waiting time ended just now: all running processes that remember
    /// the group should have reported it.
    pub(super) fn wait(&mut self, id: &Identity) -> bool {
        // A process that was stalled during skipped ticks received no reports meanwhile. So skipped ticks count only up
        // to a fraction of the waiting time, and the process checks for reports several times.
        let most = id.config.founding_ticks / Membership::LOOKS;
        let (before, skipped) = (self.has_waited(id), std::mem::take(&mut self.skipped).min(most));
        if self.is_joining() {
            self.waited = self.waited.saturating_add(skipped).saturating_add(1);
        }
        !before && self.has_waited(id)
    }

    /// Records skipped ticks.
    pub(super) fn skip(&mut self, ticks: u16) {
        self.skipped = ticks;
    }

    /// Returns whether all running processes that remember the group should have reported it by now.
    pub(super) fn has_waited(&self, id: &Identity) -> bool {
        self.waited >= id.config.founding_ticks
    }

    /// Returns why the group is not founded, while this process is without memory. Returns `None` if it has memory, or
    /// knows of no obstacle.
    pub(super) fn hindrance(&self, id: &Identity) -> Option<Hindrance> {
        if !self.is_joining() {
            return None;
        }
        if let Some((by, incarnation)) = self.memories.any() {
            return Some(Hindrance::Remembered { by, incarnation });
        }
        let there = |process: &ProcessId| self.joiners.iter().any(|joiner| joiner.process == *process);
        if let Some(missing) = id.others().find(|process| !there(process)) {
            return Some(Hindrance::Missing(missing));
        }
        (id.config.total_loss == TotalLoss::Refuse).then_some(Hindrance::Operator)
    }

    /// Raises the life of a joining process above the larger life that its group remembers. Returns whether it did.
    ///
    /// The group remembers a larger one if the clock from which lives are taken was set back.
    pub(super) fn outlive(&mut self, elder: u64) -> bool {
        let own = self.joining.filter(|life| *life < elder);
        let Some(life) = own.and_then(|own| name_above(elder, own)) else { return false };
        self.joining = Some(life);
        self.lives.be(life);
        true
    }

    /// Records that a process without memory asks to be admitted.
    pub(super) fn welcome(&mut self, joiner: Joiner) {
        replace(&mut self.joiners, joiner);
    }

    /// Records other members that ask to be admitted, as a bit mask.
    pub(super) fn note_asking(&mut self, members: u64) {
        self.join.now |= members;
    }

    /// Records that this process asks again to be admitted.
    pub(super) fn ask_again(&mut self) {
        self.join.pass();
        self.memories.pass();
    }

    /// Returns the other members that recently asked to be admitted, as a bit mask; 0 if this process has memory.
    pub(super) fn asking(&self) -> u64 {
        if self.is_joining() { self.join.now | self.join.before } else { 0 }
    }

    /// Returns all fields, except those that follow from other fields, only cause delays or are only reported.
    pub(super) fn essence(&self) -> impl std::hash::Hash + PartialEq + '_ {
        let pledges = (self.pledge, self.pledged, self.reset_to, self.held_of);
        (self.joining, self.superseded, &self.lives, pledges, &self.joiners, &self.memories)
    }
}

/// The promise of a process without memory to begin an incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pledge {
    pub(super) incarnation: Incarnation,
    /// `true` for an operator's reset, which needs only a majority.
    pub(super) resets: bool,
}

/// Appends a process to the list, in place of an earlier life of it.
fn replace(processes: &mut Vec<Joiner>, joiner: Joiner) {
    if processes.contains(&joiner) {
        return;
    }
    processes.retain(|known| known.process != joiner.process);
    processes.push(joiner);
}

/// The members that recently asked to be admitted. Each repeats its request as often as this process does.
#[derive(Clone, Copy, Debug, Default)]
struct JoinState {
    /// Members that asked in the current turn, as a bit mask.
    now: u64,
    /// Members that asked in the previous turn, as a bit mask.
    before: u64,
    asked: u8,
}

impl JoinState {
    /// Number of requests of this process in a turn. A member that did not ask during two turns may have been admitted.
    const TURN: u8 = 50;

    /// Counts a request of this process.
    fn pass(&mut self) {
        self.asked += 1;
        if self.asked >= JoinState::TURN {
            *self = JoinState { now: 0, before: self.now, asked: 0 };
        }
    }
}
