//! The protocol for a message in flight to a group that is reset, as a separate model that is searched exhaustively.
//! The code is in `replica/words.rs` and `replica/settling.rs`.
//!
//! A message is addressed to a group that lost its memory and was reset, and to two others, the *survivors*. The lost
//! group has acknowledged it at the vector V. Either all members of the survivors can read these acknowledgements, so a
//! member may deliver the message because of them, or the acknowledgements are lost. The new incarnation of the lost
//! group knows nothing of the message, and learns that it is refused. The second survivor may lose its memory in turn.
//!
//! # The rules
//! 1. *No-op.* A leader whose stream has no vector of the message may fill its slot with a no-op, which is settled when
//!    a majority has processed it in its ballot. No vector follows it. Then the group notifies the others that the
//!    message is refused.
//! 2. *Word.* A leader that learns that a group was reset appends an entry with this information, the *word*. The word
//!    is in force when a majority has processed it in its ballot.
//! 3. A leader that learns that the message is refused fills its slot even if it has the vector, unless it has appended
//!    the word of the refusing group before.
//! 4. *Quorum.* A member delivers when a majority has acknowledged V in every destination group whose word is not in
//!    force at that member.
//!
//! # Why that is enough
//! If a survivor's no-op is settled in ballot b, no majority of that survivor acknowledges V in any ballot c: for c < b
//! the state of b would have the vector; for c = b there is one stream; for c > b the state of c has the no-op. So one
//! survivor never has both a quorum for V and a settled no-op. A delivery needs that quorum. A no-op of another
//! survivor that follows this survivor's refusal needs that settled no-op. The two therefore exclude each other, too.
//! If a survivor that refused is reset, another survivor may have filled its slot because of the refusal, or may be
//! delivering without the reset survivor. The word decides which, because no-op and word are in one order, and both
//! count only when a majority has them.
//!
//! This needs less than freezing each message and collecting answers, and uses existing mechanisms: no-ops, refusals,
//! and votes.
//!
//! # Bounds
//! The survivors have three members and one. The first changes its leader at most once, at any time, with the promises
//! of any majority. Members may be arbitrarily slow, so one that never moves again represents one that is silent. The
//! second survivor may lose all its memory, too, at any time; then the first one continues alone.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// Numbers of members of the two survivors.
const SIZES: [usize; 2] = [3, 1];
const SAME: &str = "no member delivers a message that another one passes as a no-op";
const DELIVERED: &str = "it is delivered";
const PASSED: &str = "it is passed as a no-op";

/// A rule that is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dropped {
    Nothing,
    /// A leader refuses the message as soon as it has appended the no-op.
    MajorityOfRefusal,
    /// A member passes a no-op as soon as it has processed it.
    MajorityOfPassing,
    /// A leader appends the vector after a no-op, and a member that processes the vector delivers.
    VectorBehindNoOp,
    /// A leader replaces a message that has its vector by a no-op, although no group refused it.
    NoOpOverVector,
    /// The acknowledgements of one survivor are enough.
    OtherSurvivors,
    /// A group that was reset stops counting at once, before its word is in force.
    MajorityOfWord,
    /// A refusal counts after the word of the refusing group.
    RefusalBehindWord,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Entry {
    Vector,
    NoOp,
    /// The lost group was reset, or the second survivor if `second`.
    Word {
        second: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum End {
    Delivered,
    Passed,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Member {
    promised: u8,
    installed: u8,
    /// The entries that the member has processed in the installed ballot.
    stream: Vec<Entry>,
    end: Option<End>,
}

impl Member {
    fn has(&self, entry: Entry) -> bool {
        self.stream.contains(&entry)
    }

    /// Returns whether the member has the vector, and no no-op.
    fn delivers(&self, dropped: Dropped) -> bool {
        let anew = dropped == Dropped::VectorBehindNoOp && self.stream.last() == Some(&Entry::Vector);
        self.has(Entry::Vector) && (!self.has(Entry::NoOp) || anew)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Group {
    members: Vec<Member>,
    /// Leader of each ballot; member 0 leads ballot 0.
    leaders: [usize; 2],
    /// For each ballot, the members that acknowledged the vector, as bits. Acknowledgements go to all processes.
    acknowledged: [u8; 2],
    /// `true` if the group notified the other one that the message can never be decided.
    refused: bool,
    changed: bool,
    lost: bool,
}

impl Group {
    /// Returns whether a majority has processed an entry in a ballot.
    fn is_in_force(&self, ballot: u8, entry: Entry) -> bool {
        let has = |member: &&Member| member.installed == ballot && member.has(entry);
        self.members.iter().filter(has).count() > self.members.len() / 2
    }

    fn is_acknowledged(&self) -> bool {
        self.acknowledged.iter().any(|members| members.count_ones() as usize > self.members.len() / 2)
    }

    fn leads(&self, member: usize) -> bool {
        let Member { promised, installed, .. } = self.members[member];
        promised == installed && self.leaders[usize::from(installed)] == member
    }

    fn acknowledge(&mut self, member: usize, dropped: Dropped) {
        let this = &self.members[member];
        if this.delivers(dropped) {
            self.acknowledged[usize::from(this.installed)] |= 1 << member;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Append { group: usize, member: usize, entry: Entry },
    Process { group: usize, member: usize },
    Change { group: usize, candidate: usize, other: usize },
    Install { group: usize, member: usize },
    Deliver { group: usize, member: usize },
    Refuse { group: usize },
    Pass { group: usize, member: usize },
    Lose,
}

/// The two survivors.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Survivors {
    groups: [Group; 2],
    /// `true` if the lost group's acknowledgements can be read.
    read: bool,
}

struct Settling(Dropped);

impl Settling {
    fn leaders_steps(&self, groups: &[Group; 2], group: usize, member: usize, steps: &mut Vec<Step>) {
        let (this, other) = (&groups[group], &groups[1 - group]);
        let own = &this.members[member];
        let (vector, no_op) = (own.has(Entry::Vector), own.has(Entry::NoOp));
        if !vector && (!no_op || self.0 == Dropped::VectorBehindNoOp) {
            steps.push(Step::Append { group, member, entry: Entry::Vector });
        }
        let word = Entry::Word { second: true };
        let refused = other.refused && (!own.has(word) || self.0 == Dropped::RefusalBehindWord);
        let may_fill = !vector || refused || self.0 == Dropped::NoOpOverVector;
        if !no_op && may_fill {
            steps.push(Step::Append { group, member, entry: Entry::NoOp });
        }
        for second in [false, true] {
            let entry = Entry::Word { second };
            if !own.has(entry) && (!second || other.lost) {
                steps.push(Step::Append { group, member, entry });
            }
        }
        let settled = this.is_in_force(own.installed, Entry::NoOp) || self.0 == Dropped::MajorityOfRefusal;
        if no_op && settled && !this.refused {
            steps.push(Step::Refuse { group });
        }
    }

    fn steps_of(&self, state: &Survivors, group: usize, member: usize, steps: &mut Vec<Step>) {
        let groups = &state.groups;
        let this = &groups[group];
        let own = &this.members[member];
        let Member { promised, installed, stream, end } = own;
        if this.leads(member) {
            self.leaders_steps(groups, group, member, steps);
        }
        let leader = &this.members[this.leaders[usize::from(*installed)]];
        if promised == installed && leader.installed == *installed && leader.stream.len() > stream.len() {
            steps.push(Step::Process { group, member });
        }
        if *installed < 1 && this.changed {
            steps.push(Step::Install { group, member });
        }
        if !this.changed {
            let others = (0..this.members.len()).filter(|other| *other != member);
            steps.extend(others.map(|other| Step::Change { group, candidate: member, other }));
        }
        if end.is_some() {
            return;
        }
        let exempt = |second| {
            let word = Entry::Word { second };
            own.has(word) && this.is_in_force(*installed, word) || groups[1].lost && self.0 == Dropped::MajorityOfWord
        };
        let first = state.read || exempt(false);
        let other = &groups[1 - group];
        let second = other.is_acknowledged() || other.lost && exempt(true) || self.0 == Dropped::OtherSurvivors;
        if promised == installed && own.delivers(self.0) && this.is_acknowledged() && first && second {
            steps.push(Step::Deliver { group, member });
        }
        let settled = this.is_in_force(*installed, Entry::NoOp) || self.0 == Dropped::MajorityOfPassing;
        if own.has(Entry::NoOp) && settled {
            steps.push(Step::Pass { group, member });
        }
    }
}

impl Model for Settling {
    type State = Survivors;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        let group = |size| Group { members: vec![Member::default(); size], ..Group::default() };
        [false, true].map(|read| Survivors { groups: SIZES.map(group), read }).into()
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Step>) {
        let groups = &state.groups;
        for group in (0..groups.len()).filter(|group| !groups[*group].lost) {
            (0..groups[group].members.len()).for_each(|member| self.steps_of(state, group, member, steps));
        }
        if !groups[1].lost {
            steps.push(Step::Lose);
        }
    }

    fn next_state(&self, state: &Self::State, step: Step) -> Option<Self::State> {
        let Survivors { mut groups, read } = state.clone();
        match step {
            Step::Append { group, member, entry } => {
                groups[group].members[member].stream.push(entry);
                groups[group].acknowledge(member, self.0);
            }
            Step::Process { group, member } => {
                let this = &mut groups[group];
                let leader = this.leaders[usize::from(this.members[member].installed)];
                let entry = this.members[leader].stream[this.members[member].stream.len()];
                this.members[member].stream.push(entry);
                this.acknowledge(member, self.0);
            }
            Step::Change { group, candidate, other } => {
                let this = &mut groups[group];
                // Both are in ballot 0; the longer stream contains the other one.
                let best = [candidate, other].into_iter().max_by_key(|member| this.members[*member].stream.len())?;
                let stream = this.members[best].stream.clone();
                let leads = &mut this.members[candidate];
                (leads.promised, leads.installed, leads.stream) = (1, 1, stream);
                this.members[other].promised = 1;
                (this.leaders[1], this.changed) = (candidate, true);
                this.acknowledge(candidate, self.0);
            }
            Step::Install { group, member } => {
                let this = &mut groups[group];
                let stream = this.members[this.leaders[1]].stream.clone();
                let follower = &mut this.members[member];
                (follower.promised, follower.installed, follower.stream) = (1, 1, stream);
                this.acknowledge(member, self.0);
            }
            Step::Deliver { group, member } => groups[group].members[member].end = Some(End::Delivered),
            Step::Refuse { group } => groups[group].refused = true,
            Step::Pass { group, member } => groups[group].members[member].end = Some(End::Passed),
            Step::Lose => {
                // The member's deliveries were observed and stay; whether it passed the message is forgotten.
                let ends = groups[1].members.iter().map(|member| member.end.filter(|end| *end == End::Delivered));
                let members = ends.map(|end| Member { end, ..Member::default() }).collect();
                let refused = groups[1].refused;
                groups[1] = Group { members, refused, lost: true, ..Group::default() };
            }
        }
        Some(Survivors { groups, read })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn ended(state: &Survivors, end: End) -> bool {
            state.groups.iter().flat_map(|group| &group.members).any(|member| member.end == Some(end))
        }
        vec![
            Property::always(SAME, |_, state: &Survivors| !(ended(state, End::Delivered) && ended(state, End::Passed))),
            Property::sometimes(DELIVERED, |_, state: &Survivors| ended(state, End::Delivered)),
            Property::sometimes(PASSED, |_, state: &Survivors| ended(state, End::Passed)),
        ]
    }
}

#[test]
fn message_in_flight_to_a_lost_group_ends_alike_everywhere() {
    let checker = Settling(Dropped::Nothing).checker().threads(2).spawn_bfs().join();
    eprintln!("settling: {} states", checker.unique_state_count());
    assert_eq!(checker.discovery(SAME).map(stateright::Path::into_actions), None);
    assert!(checker.discovery(DELIVERED).is_some() && checker.discovery(PASSED).is_some(), "both are reached");
}

#[test]
fn every_dropped_rule_is_found() {
    for dropped in [
        Dropped::MajorityOfRefusal,
        Dropped::MajorityOfPassing,
        Dropped::VectorBehindNoOp,
        Dropped::NoOpOverVector,
        Dropped::OtherSurvivors,
        Dropped::MajorityOfWord,
        Dropped::RefusalBehindWord,
    ] {
        let until = HasDiscoveries::AnyOf(BTreeSet::from([SAME]));
        let checker = Settling(dropped).checker().threads(2).finish_when(until).spawn_bfs().join();
        let states = checker.unique_state_count();
        let Some(path) = checker.discovery(SAME) else { panic!("{dropped:?}: nothing is found in {states} states") };
        eprintln!("{dropped:?}: after {states} states: {:?}", path.into_actions());
    }
}
