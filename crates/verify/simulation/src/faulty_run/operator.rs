//! Handles groups that lost their memory: an operator resets them, and members are restarted.

use std::collections::HashMap;
use std::rc::Rc;

use stentor_fabric::ProcessId;
use stentor_multicast::{GroupId, Hindrance, Incarnation, Origin, Topology};

use super::member::MemberActor;
use super::{Actor, Shared};
use crate::chance::Chance;
use crate::forgets::ForgetCounts;

/// The stream of random choices of the operator.
const STREAM: u64 = 408;
/// Interval between the operator's checks, in nanoseconds.
const LOOK_NS: u64 = 20_000;
/// Minimum and maximum time until the operator resets a waiting group, and until the next attempt, in nanoseconds.
const COMES_NS: (u64, u64) = (50_000, 700_000);

/// The kind of reset that the operator requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    WithNothing,
    WithAState,
}

/// The operator's last request to a member.
struct Asked {
    member: ProcessId,
    ends: Incarnation,
    kind: Kind,
}

/// The operator's view of a group.
#[derive(Default)]
struct Case {
    /// Time at which the operator will reset the group unless it has recovered, in nanoseconds.
    due_ns: Option<u64>,
    asked: Option<Asked>,
    reset: bool,
}

/// The operator of a run.
pub(super) struct Operator {
    chance: Chance,
    next_ns: u64,
    cases: Vec<Case>,
    /// Incarnations that began by the operator's requests.
    begun: HashMap<(GroupId, Incarnation), Kind>,
    pub(super) counts: ForgetCounts,
    shared: Rc<Shared>,
}

fn members<'a>(actors: &'a mut [Option<Actor>], topology: &Topology, group: GroupId) -> Vec<&'a mut MemberActor> {
    let of_group = |actor: &&mut MemberActor| topology.member_bit(group, actor.me()).is_some();
    let all = actors.iter_mut().flatten().filter_map(|actor| match actor {
        Actor::Member(member) => Some(&mut **member),
        Actor::Client(_) => None,
    });
    all.filter(of_group).collect()
}

impl Operator {
    pub(super) fn new(seed: u64, shared: &Rc<Shared>) -> Self {
        Operator {
            chance: Chance::new(seed, STREAM),
            next_ns: 0,
            cases: shared.topology.group_ids().map(|_| Case::default()).collect(),
            begun: HashMap::new(),
            counts: ForgetCounts::default(),
            shared: Rc::clone(shared),
        }
    }

    /// Checks all groups, if a check is due.
    pub(super) fn look(&mut self, now_ns: u64, actors: &mut [Option<Actor>]) {
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + LOOK_NS;
        let shared = Rc::clone(&self.shared);
        for group in shared.topology.group_ids() {
            let mut members = members(actors, &shared.topology, group);
            self.note_begun(group, &members);
            for member in &members {
                if member.is_over() && shared.nemesis.borrow_mut().lose(now_ns, member.me()) {
                    self.counts.ended += 1;
                }
            }
            if !self.is_due(now_ns, group, &members) {
                continue;
            }
            self.reset(now_ns, group, &mut members);
        }
    }

    /// Records the outcomes of all requests.
    pub(super) fn note_all_begun(&mut self, actors: &mut [Option<Actor>]) {
        for group in self.shared.topology.clone().group_ids() {
            let members = members(actors, &self.shared.topology, group);
            self.note_begun(group, &members);
        }
    }

    /// Records the outcome of a request. A reset has its incarnation once the member has fenced its streams.
    fn note_begun(&mut self, group: GroupId, members: &[&mut MemberActor]) {
        let case = &mut self.cases[usize::from(group.0)];
        let Some(Asked { member, ends, kind }) = case.asked else { return };
        let Some(member) = members.iter().find(|actor| actor.me() == member) else { return };
        let now = member.member.replica().reset_ends();
        if now != ends {
            self.begun.insert((group, now), kind);
            case.asked = None;
        }
    }

    /// Returns whether the group is waiting for a reset, and the operator's delay has passed.
    fn is_due(&mut self, now_ns: u64, group: GroupId, members: &[&mut MemberActor]) -> bool {
        let majority = self.shared.topology.majority(group) as usize;
        let remembers = |actor: &&&mut MemberActor| actor.has_state();
        let hindered = |actor: &&mut MemberActor| {
            let replica = actor.member.replica();
            // The member promised a reset whose state is lost everywhere.
            let lacks = !replica.is_joining() && replica.incarnation().is_none();
            lacks || matches!(replica.hindrance(), Some(Hindrance::Remembered { .. }))
        };
        let waits = members.iter().filter(remembers).count() < majority && members.iter().any(hindered);
        let case = &mut self.cases[usize::from(group.0)];
        if !waits {
            case.due_ns = None;
            return false;
        }
        let due = case.due_ns.get_or_insert_with(|| {
            self.counts.waiting += 1;
            now_ns + self.chance.between(COMES_NS.0, COMES_NS.1)
        });
        now_ns >= *due
    }

    fn reset(&mut self, now_ns: u64, group: GroupId, members: &mut [&mut MemberActor]) {
        let chance = &mut self.chance;
        let with_state: Vec<usize> = (0..members.len()).filter(|at| members[*at].has_state()).collect();
        let without: Vec<usize> = (0..members.len()).filter(|at| !members[*at].has_state()).collect();
        let empty = with_state.is_empty() || chance.between(0, 3) == 0;
        let from = if empty { &without } else { &with_state };
        let case = &mut self.cases[usize::from(group.0)];
        case.due_ns = Some(now_ns + chance.between(COMES_NS.0, COMES_NS.1));
        if from.is_empty() {
            return;
        }
        let chosen = &mut members[chance.pick(from)];
        let ends = chosen.member.replica().reset_ends();
        let (me, kind) = (chosen.me(), if empty { Kind::WithNothing } else { Kind::WithAState });
        let answer = chosen.member.reset(ends, chosen.member.replica().is_joining());
        let with = if empty { "nothing" } else { "its state" };
        let said = match &answer {
            Ok(()) => format!("the operator resets group {} at {me} with {with}, which ends {ends}", group.0),
            Err(why) => format!("{me} refuses to reset group {} with {with}: {why}", group.0),
        };
        self.shared.nemesis.borrow_mut().say(now_ns, &said);
        match answer {
            Ok(()) => case.asked = Some(Asked { member: me, ends, kind }),
            Err(_) => self.counts.refused += 1,
        }
        self.shared.world.wake_at(me, now_ns);
    }

    /// Records that a member was seen in a new history of its group.
    pub(super) fn began(&mut self, now_ns: u64, group: GroupId, origins: &[Origin]) {
        let Some(origin) = origins.last().filter(|origin| origin.incarnation != Incarnation::FIRST) else { return };
        let kind = self.begun.get(&(group, origin.incarnation)).copied();
        let how = match kind {
            Some(Kind::WithNothing) => "reset with nothing",
            Some(Kind::WithAState) => "reset with a state",
            None => "founded anew",
        };
        let said = format!("group {} is {how}, in {} after {}", group.0, origin.incarnation, origin.kept);
        self.shared.nemesis.borrow_mut().say(now_ns, &said);
        match kind {
            Some(Kind::WithNothing) => self.counts.reset_with_nothing += 1,
            Some(Kind::WithAState) => self.counts.reset_with_a_state += 1,
            None => self.counts.founded += 1,
        }
        let case = &mut self.cases[usize::from(group.0)];
        case.due_ns = None;
        case.reset |= kind.is_some();
    }

    /// Returns the counts at the end of the run.
    pub(super) fn counts(&self) -> ForgetCounts {
        let reset = self.cases.iter().filter(|case| case.reset).count();
        ForgetCounts { two_reset: u64::from(reset > 1), ..self.counts }
    }
}
