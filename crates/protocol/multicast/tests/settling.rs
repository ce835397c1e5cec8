//! What becomes of a message that was under way to a group that is reset, as a protocol of its own: searched whole, before there is
//! code for it.
//!
//! A message goes to a group that lost its memory and was reset, and to two others, the *survivors*. The lost group has
//! acknowledged it at the vector V, and these acknowledgements lie unread wherever they will; a member of a survivor may have
//! delivered the message by them. The new incarnation of the lost group knows nothing of it.
//!
//! # The rules
//! 1. *Freeze.* The leader of each survivor appends an entry for the message to its stream; from then on no leader there appends
//!    its vector.
//! 2. *Answers.* When a majority has processed the freeze in its ballot, a leader answers for its group (a deposed one, in whose
//!    ballot no majority has, must not): V, if the vector is before the freeze in its stream, else nothing. The answer is the
//!    same ever after.
//! 3. *Outcome.* A leader that has the answers of all surviving destination groups appends: decided at V, if all of them
//!    answered V, because somebody may have delivered it; else a no-op. An outcome that is in the stream stands.
//! 4. It counts when a majority has processed it.
//!
//! # Why that is enough
//! If somebody delivered the message at V, a majority of each survivor had processed V in one ballot b of its group. The group
//! answers in a ballot c, in which a majority processed the freeze. If b < c, the state of c has V, before the freeze; if b = c,
//! it is one stream, and V is before the freeze, because nothing of it comes behind; if b > c, the state of b has the
//! freeze, so V came before that. So all answer V. If all answer V, delivering it contradicts nobody. If one does not, nobody has
//! delivered the message, and nobody will.
//!
//! Acknowledging and delivering need not end with the freeze: whoever delivers behind one does so at V, which all answer then.
//!
//! # Bounds
//! Survivors of three members and of one; the first changes its leader at most once, at any time, with the promises of any
//! majority. Members are as
//! slow as they like, so one that never moves again stands for one that is silent. The second survivor may lose all its
//! memory, too, at any time; then the first one answers alone.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// Members of the two survivors.
const SIZES: [usize; 2] = [3, 1];
const SAME: &str = "nobody delivers what another one passes as a no-op";
const STABLE: &str = "answers do not change";
const DECIDED: &str = "it is decided by settling";
const REFUSED: &str = "it becomes a no-op";

/// Rules that are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dropped {
    Nothing,
    /// A leader answers as soon as it has appended the freeze.
    MajorityOfFreeze,
    /// A leader answers when a majority has processed a freeze, in whatever ballot.
    BallotOfAnswer,
    /// A leader appends the vector behind the freeze.
    VectorBehindFreeze,
    /// A leader decides by the answer of its own group.
    OtherAnswers,
    /// An outcome counts when its leader has appended it.
    MajorityOfOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Entry {
    Vector,
    Freeze,
    Outcome { decided: bool },
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
    /// What it has processed in the installed ballot.
    stream: Vec<Entry>,
    end: Option<End>,
}

impl Member {
    fn has(&self, entry: Entry) -> bool {
        self.stream.contains(&entry)
    }

    fn outcome(&self) -> Option<bool> {
        self.stream.iter().find_map(|entry| if let Entry::Outcome { decided } = entry { Some(*decided) } else { None })
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Group {
    members: Vec<Member>,
    /// By ballot, who leads: ballot 0 is led by member 0.
    leaders: [usize; 2],
    /// Members, by ballot, that acknowledged the vector: to everybody.
    acknowledged: [u8; 2],
    /// What it answered last.
    answer: Option<bool>,
    changed: bool,
    unstable: bool,
    lost: bool,
}

impl Group {
    /// Whether a majority has this in a ballot.
    fn is_processed(&self, ballot: u8, has: impl Fn(&Member) -> bool) -> bool {
        let count = self.members.iter().filter(|member| member.installed == ballot && has(member)).count();
        count > self.members.len() / 2
    }

    fn is_acknowledged(&self) -> bool {
        self.acknowledged.iter().any(|members| members.count_ones() as usize > self.members.len() / 2)
    }

    fn leads(&self, member: usize) -> bool {
        let Member { promised, installed, .. } = self.members[member];
        promised == installed && self.leaders[usize::from(installed)] == member
    }

    fn acknowledge(&mut self, member: usize) {
        let this = &self.members[member];
        if this.has(Entry::Vector) {
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
    Answer { group: usize, member: usize },
    Conclude { group: usize, member: usize },
    Lose,
}

struct Settling(Dropped);

impl Settling {
    /// The outcome, as a leader of a group sees it; `None`: it waits for answers.
    fn answers(&self, groups: &[Group; 2], of: usize) -> Option<bool> {
        if self.0 == Dropped::OtherAnswers {
            return groups[of].answer;
        }
        let surviving = groups.iter().filter(|group| !group.lost).map(|group| group.answer);
        let all: Option<Vec<bool>> = surviving.collect();
        all.map(|all| all.into_iter().all(|answer| answer))
    }

    fn steps_of(&self, groups: &[Group; 2], group: usize, member: usize, steps: &mut Vec<Step>) {
        let this = &groups[group];
        let Member { promised, installed, stream, end, .. } = &this.members[member];
        let own = &this.members[member];
        if this.leads(member) {
            let frozen = own.has(Entry::Freeze);
            if !frozen {
                steps.push(Step::Append { group, member, entry: Entry::Freeze });
            }
            let may_append = !frozen || self.0 == Dropped::VectorBehindFreeze;
            if may_append && own.outcome().is_none() && !own.has(Entry::Vector) {
                steps.push(Step::Append { group, member, entry: Entry::Vector });
            }
            let froze = |ballot| this.is_processed(ballot, |member| member.has(Entry::Freeze));
            let any_ballot = self.0 == Dropped::BallotOfAnswer && (froze(0) || froze(1));
            let in_force = froze(*installed) || any_ballot || self.0 == Dropped::MajorityOfFreeze;
            if frozen && in_force && this.answer != Some(own.has(Entry::Vector)) {
                steps.push(Step::Answer { group, member });
            }
            if frozen && own.outcome().is_none() && self.answers(groups, group).is_some() {
                let decided = self.answers(groups, group) == Some(true);
                steps.push(Step::Append { group, member, entry: Entry::Outcome { decided } });
            }
        }
        let leader = &this.members[this.leaders[usize::from(*installed)]];
        if promised == installed && leader.installed == *installed && leader.stream.len() > stream.len() {
            steps.push(Step::Process { group, member });
        }
        if *promised < 1 && this.changed || promised > installed {
            steps.push(Step::Install { group, member });
        }
        if !this.changed {
            let others = (0..this.members.len()).filter(|other| *other != member);
            steps.extend(others.map(|other| Step::Change { group, candidate: member, other }));
        }
        if end.is_some() {
            return;
        }
        let acknowledged = groups.iter().all(Group::is_acknowledged);
        if promised == installed && own.has(Entry::Vector) && acknowledged {
            steps.push(Step::Deliver { group, member });
        }
        let counts = |decided| this.is_processed(*installed, |member| member.outcome() == Some(decided));
        if own.outcome().is_some_and(|decided| counts(decided) || self.0 == Dropped::MajorityOfOutcome) {
            steps.push(Step::Conclude { group, member });
        }
    }
}

impl Model for Settling {
    type State = [Group; 2];
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        vec![SIZES.map(|size| Group { members: vec![Member::default(); size], ..Group::default() })]
    }

    fn actions(&self, groups: &Self::State, steps: &mut Vec<Step>) {
        for group in (0..groups.len()).filter(|group| !groups[*group].lost) {
            (0..groups[group].members.len()).for_each(|member| self.steps_of(groups, group, member, steps));
        }
        if !groups[1].lost {
            steps.push(Step::Lose);
        }
    }

    fn next_state(&self, groups: &Self::State, step: Step) -> Option<Self::State> {
        let mut groups = groups.clone();
        match step {
            Step::Append { group, member, entry } => {
                groups[group].members[member].stream.push(entry);
                groups[group].acknowledge(member);
            }
            Step::Process { group, member } => {
                let this = &mut groups[group];
                let leader = this.leaders[usize::from(this.members[member].installed)];
                let entry = this.members[leader].stream[this.members[member].stream.len()];
                this.members[member].stream.push(entry);
                this.acknowledge(member);
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
                this.acknowledge(candidate);
            }
            Step::Install { group, member } => {
                let this = &mut groups[group];
                let stream = this.members[this.leaders[1]].stream.clone();
                let follower = &mut this.members[member];
                (follower.promised, follower.installed, follower.stream) = (1, 1, stream);
                this.acknowledge(member);
            }
            Step::Deliver { group, member } => groups[group].members[member].end = Some(End::Delivered),
            Step::Answer { group, member } => {
                let this = &mut groups[group];
                let answer = this.members[member].has(Entry::Vector);
                this.unstable |= this.answer.is_some_and(|before| before != answer);
                this.answer = Some(answer);
            }
            Step::Conclude { group, member } => {
                let this = &mut groups[group].members[member];
                this.end = Some(if this.outcome()? { End::Delivered } else { End::Passed });
            }
            Step::Lose => {
                // What it delivered was seen; what it passed is forgotten with it.
                let ends = groups[1].members.iter().map(|member| member.end.filter(|end| *end == End::Delivered));
                let members = ends.map(|end| Member { end, ..Member::default() }).collect();
                groups[1] = Group { members, lost: true, ..Group::default() };
            }
        }
        Some(groups)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn ended(groups: &[Group; 2], end: End) -> bool {
            groups.iter().flat_map(|group| &group.members).any(|member| member.end == Some(end))
        }
        fn settled(groups: &[Group; 2], decided: bool) -> bool {
            let has = |member: &Member| member.outcome() == Some(decided);
            groups.iter().any(|group| group.is_processed(0, has) || group.is_processed(1, has))
        }
        vec![
            Property::always(SAME, |_, groups: &[Group; 2]| {
                !(ended(groups, End::Delivered) && ended(groups, End::Passed))
            }),
            Property::always(STABLE, |_, groups: &[Group; 2]| groups.iter().all(|group| !group.unstable)),
            Property::sometimes(DECIDED, |_, groups: &[Group; 2]| settled(groups, true)),
            Property::sometimes(REFUSED, |_, groups: &[Group; 2]| settled(groups, false)),
        ]
    }
}

#[test]
fn what_is_under_way_to_a_lost_group_ends_everywhere_alike() {
    let checker = Settling(Dropped::Nothing).checker().threads(2).spawn_bfs().join();
    eprintln!("settling: {} states", checker.unique_state_count());
    for property in [SAME, STABLE] {
        let path = checker.discovery(property).map(stateright::Path::into_actions);
        assert_eq!(path, None, "{property}");
    }
    assert!(checker.discovery(DECIDED).is_some() && checker.discovery(REFUSED).is_some(), "both are reached");
}

#[test]
fn every_dropped_rule_is_found() {
    for dropped in [
        Dropped::MajorityOfFreeze,
        Dropped::BallotOfAnswer,
        Dropped::VectorBehindFreeze,
        Dropped::OtherAnswers,
        Dropped::MajorityOfOutcome,
    ] {
        let until = HasDiscoveries::AnyOf(BTreeSet::from([SAME, STABLE]));
        let checker = Settling(dropped).checker().threads(2).finish_when(until).spawn_bfs().join();
        let found = [SAME, STABLE].iter().find_map(|property| Some((property, checker.discovery(property)?)));
        let Some((property, path)) = found else {
            panic!("{dropped:?}: nothing is found in {} states", checker.unique_state_count())
        };
        eprintln!("{dropped:?}: after {} states, {property}: {:?}", checker.unique_state_count(), path.into_actions());
    }
}
