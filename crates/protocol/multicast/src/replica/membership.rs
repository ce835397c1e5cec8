//! Whether a member has its memory, and who else has none.

use stentor_fabric::ProcessId;

use super::TotalLoss;
use super::ballots::Ballots;
use super::identity::Identity;
use super::lives::{Lives, name_above};
use super::memories::{Hindrance, Memories};
use crate::peer_message::Joiner;
use crate::{GroupId, Incarnation, Origin};

/// A member's part in its group, and the members that want one.
///
/// # States
/// *joining* (without memory: it votes for nothing, and promises nothing but that its group is founded or reset) → *member*
/// (its group took it in, or it founded its group with all others) → *superseded* (another process of this member was
/// started later; nothing that this one says counts any more, and it says nothing) or *ended* (an operator reset the group
/// from another history than this member's: likewise).
///
/// # Invariants
/// - A joining process becomes a member only with a state of a ballot that takes its life in, or when it has promised to
///   found an incarnation and promises a later ballot of that.
/// - Only a joining process takes another life.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    /// The life of a process that is joining.
    joining: Option<u64>,
    superseded: bool,
    /// The members' lives; its own, too.
    pub(super) lives: Lives,
    /// The incarnation that this process, without memory, has promised to begin.
    pub(super) pledge: Option<Pledge>,
    /// The largest incarnation that it promised to begin, whether that came about or not.
    pub(super) pledged: Incarnation,
    /// The smallest incarnation that somebody remembered when it got its memory.
    pub(super) remembered: Incarnation,
    /// The last incarnation that it promised to begin by a reset, with memory or without.
    reset_to: Incarnation,
    /// The beginning of the history to which what is held here and not assigned was multicast.
    held_of: Incarnation,
    /// The processes that remember the group, while this one is without memory.
    pub(super) memories: Memories,
    /// Ticks for which it has waited for them.
    waited: u16,
    /// Ticks that did not come since the last one, because this process was not called.
    skipped: u16,
    /// The incarnation of its group in which this member's history has no part.
    ended_by: Option<Incarnation>,
    /// Processes that want to be taken in; while this one does itself, all that are without memory.
    pub(super) joiners: Vec<Joiner>,
    join: JoinState,
}

impl Membership {
    /// How often a process without memory looks at the least for others that remember its group, while it waits for them.
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

    /// The life of a process that is joining.
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

    /// This process has its group's memory from now on, if it had not. Returns whether it had not.
    pub(super) fn remember(&mut self) -> bool {
        let joined = self.joining.take().is_some();
        if joined {
            self.remembered = self.memories.smallest().unwrap_or_default();
            (self.pledge, self.memories) = (None, Memories::default());
            // Members that are still without memory say so again.
            self.joiners.clear();
        }
        joined
    }

    /// The group took this process in, or it had its memory; the leader has heard of these lives. Returns whether it had none.
    pub(super) fn adopt(&mut self, lives: &[u64]) -> bool {
        self.lives.hear_of_all(lives);
        self.remember()
    }

    /// The group was reset, and goes on without what this member has.
    pub(super) fn end(&mut self, by: Incarnation) {
        (self.superseded, self.ended_by) = (true, Some(by));
    }

    /// The incarnation that ended this member's.
    pub(super) fn ended_by(&self) -> Option<Incarnation> {
        self.ended_by
    }

    /// This process promises to begin an incarnation: to found it, or because an operator resets the group.
    pub(super) fn pledge(&mut self, incarnation: Incarnation, resets: bool) {
        self.pledge = Some(Pledge { incarnation, resets });
        self.pledged = incarnation;
        self.held_of = incarnation;
        // Nobody has memory where a group is founded: no chosen state is left.
        self.reset_to = if resets { incarnation } else { Incarnation::NONE };
    }

    /// This process goes on with a history that began so. Returns whether what is held here was multicast to another one.
    pub(super) fn enters(&mut self, origins: &[Origin]) -> bool {
        let origin = origins.last().map_or(Incarnation::NONE, |last| last.incarnation);
        std::mem::replace(&mut self.held_of, origin) != origin
    }

    /// This process promises a reset.
    pub(super) fn promise_reset(&mut self, incarnation: Incarnation) {
        self.reset_to = incarnation;
    }

    /// Whether an operator chose the state that a promised incarnation begins with, and this process has got neither that nor
    /// a later one.
    fn lacks_chosen_state(&self, ballots: &Ballots) -> bool {
        ballots.installed_in.number < self.reset_to.number
    }

    /// Whether a candidate here may take over a state of this incarnation: one that lacks the chosen state takes that, or one that
    /// goes on from it.
    pub(super) fn may_take(&self, ballots: &Ballots, incarnation: Incarnation) -> bool {
        let chosen = incarnation.number >= self.reset_to.number && !incarnation.contradicts(self.reset_to);
        chosen || !self.lacks_chosen_state(ballots)
    }

    /// The incarnation that a campaign of this process goes on from: that of its state; or of the chosen state that it lacks. If it
    /// founded its group it may have none.
    pub(super) fn goes_on_from(&self, ballots: &Ballots) -> Incarnation {
        if self.lacks_chosen_state(ballots) {
            self.reset_to
        } else if ballots.installed_in.is_none() {
            ballots.promised_in
        } else {
            ballots.installed_in
        }
    }

    /// The incarnation that a reset here has to name: that of this member's state, or the largest that this process, without
    /// memory, heard of or promised to begin by a reset.
    pub(super) fn ended_by_reset(&self, ballots: &Ballots, own: GroupId) -> Incarnation {
        if !self.is_joining() {
            return ballots.promised_in;
        }
        let remembered = self.memories.any().map(|(_, incarnation)| incarnation);
        let pledged = self.pledge.filter(|pledge| pledge.resets).map(|pledge| pledge.incarnation);
        [Some(ballots.incarnation(own)), remembered, pledged].into_iter().flatten().max().unwrap_or_default()
    }

    /// Whether this process has promised the first ballot of this incarnation, and it has forgotten nothing since.
    pub(super) fn has_pledged(&self, incarnation: Incarnation) -> bool {
        self.pledge.is_some_and(|pledge| pledge.incarnation == incarnation)
    }

    /// Time passes. Returns whether those who are there and remember the group should have said so since just now.
    pub(super) fn wait(&mut self, id: &Identity) -> bool {
        // A process that stood still has heard nobody meanwhile: it has to look for others a few times.
        let most = id.config.founding_ticks / Membership::LOOKS;
        let (before, skipped) = (self.has_waited(id), std::mem::take(&mut self.skipped).min(most));
        if self.is_joining() {
            self.waited = self.waited.saturating_add(skipped).saturating_add(1);
        }
        !before && self.has_waited(id)
    }

    /// Ticks that did not come.
    pub(super) fn skip(&mut self, ticks: u16) {
        self.skipped = ticks;
    }

    /// Whether those who are there and remember the group should have said so by now.
    pub(super) fn has_waited(&self, id: &Identity) -> bool {
        self.waited >= id.config.founding_ticks
    }

    /// Why the group is not founded, while this process is without memory; `None` also when that is under way.
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

    /// The group remembers a process of this member with a larger life than this one's: the clock that lives are taken from
    /// was set back. A process that is joining may take a larger one. Returns whether it did.
    pub(super) fn outlive(&mut self, elder: u64) -> bool {
        let own = self.joining.filter(|life| *life < elder);
        let Some(life) = own.and_then(|own| name_above(elder, own)) else { return false };
        self.joining = Some(life);
        self.lives.be(life);
        true
    }

    /// A process without memory wants to be taken in.
    pub(super) fn welcome(&mut self, joiner: Joiner) {
        replace(&mut self.joiners, joiner);
    }

    /// Another member asks to be taken in, too.
    pub(super) fn note_asking(&mut self, members: u64) {
        self.join.now |= members;
    }

    /// This process asks again to be taken in.
    pub(super) fn ask_again(&mut self) {
        self.join.pass();
        self.memories.pass();
    }

    /// Other members that asked lately to be taken in, as bits.
    pub(super) fn asking(&self) -> u64 {
        if self.is_joining() { self.join.now | self.join.before } else { 0 }
    }

    /// Everything but what follows from the rest, or only delays things.
    pub(super) fn essence(&self) -> impl std::hash::Hash + PartialEq + '_ {
        let pledges = (self.pledge, self.pledged, self.reset_to, self.held_of);
        (self.joining, self.superseded, &self.lives, pledges, &self.joiners, &self.memories)
    }
}

/// The promise of a process without memory to begin an incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pledge {
    pub(super) incarnation: Incarnation,
    /// By an operator's reset, which needs only a majority.
    pub(super) resets: bool,
}

/// Puts a process behind the others, in place of an earlier life of it.
fn replace(processes: &mut Vec<Joiner>, joiner: Joiner) {
    if processes.contains(&joiner) {
        return;
    }
    processes.retain(|known| known.process != joiner.process);
    processes.push(joiner);
}

/// The members that asked lately to be taken in. All repeat that as often as this process does.
#[derive(Clone, Copy, Debug, Default)]
struct JoinState {
    /// Members, since the last change of turns.
    now: u64,
    /// In the turn before that.
    before: u64,
    asked: u8,
}

impl JoinState {
    /// How often this process asks in a turn: a member that is not heard in two turns may have been taken in.
    const TURN: u8 = 50;

    /// This process asks again.
    fn pass(&mut self) {
        self.asked += 1;
        if self.asked >= JoinState::TURN {
            *self = JoinState { now: 0, before: self.now, asked: 0 };
        }
    }
}
