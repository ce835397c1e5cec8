//! Distinguishes the histories of several runs from those of one run.
//!
//! State is in memory only: when all members of a group have lost its state, the group begins from nothing. Ballots,
//! delivery numbers and message ids begin anew. The histories before and after that are of two runs and imply nothing
//! about each other. Judged together, they would violate nearly every property.
//!
//! # States of a group
//!
//! - *held*: the life of some member holds the group's state.
//! - *forgotten*: every life that held the state has ended.
//! - *begun*: after the state was forgotten, all members were up, and the group began from nothing.
//!
//! A killed process records no end, so its last line is only a lower bound of its life. A life has certainly ended when
//! the next life of its process begins. A life shows that it holds the state by `recover`, `deliver`, or an `epoch`
//! with itself as leader. A process that is admitted to its group records `recover` when it receives a state, or at its
//! first delivery. If a majority of a group has forgotten the state, the group admits no member. It begins from nothing
//! when all its members are up and without memory.
//!
//! # The rule
//!
//! Consider one life of each member of each group, the *new* life; the lives before it are *earlier* lives. A run ends
//! before the new lives if all of these conditions hold:
//!
//! 1. *Anew.* Each group has an earlier life. A group that forgets everything while another group continues therefore
//!    ends no run: the other group still remembers the run, so the two groups are judged together.
//! 2. *Forgotten.* This condition needs one clock for the times of all members. No new life of a group shows that it
//!    holds a state before the last new life of the group began: in a rolling restart, the first member that rejoins is
//!    admitted while other members remember the state. No new life of any group delivers before the last new life of
//!    all groups began: until then another group may remember.
//! 3. *Nothing inherited.* Neither a new life nor one after it resumes after a number that the new lives of its group
//!    have not delivered. No new life begins with the first message of an earlier life, unless two lives of its client
//!    multicast it.
//! 4. *From nothing.* In some group, the earlier lives had a state to forget, and the new ones begin: deliveries have
//!    number 1 again, or a leader is ready in a ballot that is not above the earlier ones.
//! 5. *Between files.* No file has events of members from both sides, because the producer of a file asserts that its
//!    events are of one run.
//!
//! If members have several clocks, no history shows which events were concurrent, and condition 2 is omitted. The
//! remaining conditions cannot distinguish two runs from a group that has wrongly lost its state while each of its
//! members was restarted. There is no verdict then, and the histories of each start must be checked separately.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::{Clock, Cluster};
use crate::ids::Group;
use crate::log::{Delivery, Log};

mod member;
mod start;
mod stay;

use member::Member;
pub(crate) use start::Start;
use stay::Stay;

/// Returns the message which reports that the histories belong to several runs. The message lists the files of each
/// run. Returns `None` if the histories may all belong to one run.
pub(crate) fn apart(log: &Log, cluster: &Cluster, starts: &[Start], sources: &[String]) -> Option<String> {
    let runs = Runs::new(log, cluster, starts)?;
    let mut cuts: Vec<Cut> = Vec::new();
    let mut from = vec![0; runs.members.len()];
    while let Some(cut) = runs.next(&from) {
        from.clone_from(&cut.new);
        cuts.push(cut);
    }
    let first = cuts.first()?;
    let groups: Vec<String> = cluster.groups().map(|group| format!("`{}`", cluster.group_id(group))).collect();
    let (groups, whose) = (groups.join(", "), if groups.len() == 1 { "its" } else { "their" });
    let last = first.by.map_or(String::new(), |(member, stay)| {
        let start = runs.members[member].stays[stay].start;
        format!(", the last one `{}` with {}", cluster.process_name(start.process), sources[start.file])
    });
    let (files, unknown) = runs.files(starts, &cuts);
    let of_run = |run: usize| {
        let names = files.iter().filter(|(_, runs)| runs.contains(&run)).map(|(file, _)| sources[*file].as_str());
        names.collect::<Vec<_>>().join(" ")
    };
    let lists = (0..=cuts.len()).map(of_run).collect::<Vec<_>>().join(", and ");
    let count = if cuts.len() == 1 { "two".to_owned() } else { (cuts.len() + 1).to_string() };
    let clients = if unknown { ", each with the histories of its clients" } else { "" };
    Some(format!(
        "these are {count} runs: {groups} began from nothing after all {whose} members had been started anew{last}; check the \
         histories of each start apart: {lists}{clients}"
    ))
}

/// The end of a run and the beginning of the next one.
struct Cut {
    /// The new life of each member.
    new: Vec<usize>,
    /// The member and the life that began last. `None` if members have several clocks.
    by: Option<(usize, usize)>,
    /// Time at which that life began, in nanoseconds.
    at: Option<u64>,
}

struct Runs<'a> {
    log: &'a Log,
    cluster: &'a Cluster,
    members: Vec<Member<'a>>,
    /// The clock of all members, if they have only one.
    clock: Option<&'a Clock>,
    /// Files with events of members: the file, the member and the life.
    places: Vec<(usize, usize, usize)>,
}

impl<'a> Runs<'a> {
    /// Returns `None` if the first member has no record. No end of a run can be found then.
    fn new(log: &'a Log, cluster: &'a Cluster, starts: &'a [Start]) -> Option<Self> {
        let mut members = Vec::new();
        for group in cluster.groups() {
            for process in cluster.members(group) {
                members.push(Member::new(log, group, *process, starts));
            }
        }
        let clock = members.first()?.stays.first()?.start.clock.as_ref();
        let mut all = members.iter().flat_map(|member| &member.stays);
        let clock = clock.filter(|clock| **clock != Clock::Hosts && all.all(|s| s.start.clock.as_ref() == Some(clock)));
        let place = |start: &Start| {
            let at = members.iter().position(|member| member.process == start.process)?;
            let same = |stay: &Stay<'_>| stay.start.number == start.number;
            Some((start.file, at, members[at].stays.iter().position(same)?))
        };
        let places = starts.iter().filter_map(place).collect();
        Some(Runs { log, cluster, members, clock, places })
    }

    /// Returns the first end of a run among the lives at or after the indices `from`.
    fn next(&self, from: &[usize]) -> Option<Cut> {
        if self.clock.is_none() {
            let new: Option<Vec<usize>> =
                self.members.iter().zip(from).map(|(member, from)| member.anew(*from, self.log)).collect();
            return Some(Cut { new: new?, by: None, at: None }).filter(|cut| self.ends_a_run(from, cut));
        }
        let later = self.members.iter().zip(from).enumerate().flat_map(|(at, (member, from))| {
            let stays = member.stays.iter().enumerate().skip(from + 1);
            stays.map(move |(stay, s)| (s.start.at, (at, stay)))
        });
        let mut later: Vec<(u64, (usize, usize))> = later.collect();
        later.sort_unstable();
        later.into_iter().find_map(|(t, by)| {
            // The life of each member at that time.
            let on = |(member, from): (&Member<'_>, &usize)| {
                let on = member.stays.partition_point(|stay| stay.start.at <= t).checked_sub(1)?;
                (on >= *from).then_some(on)
            };
            let new: Option<Vec<usize>> = self.members.iter().zip(from).map(on).collect();
            Some(Cut { new: new?, by: Some(by), at: Some(t) }).filter(|cut| self.ends_a_run(from, cut))
        })
    }

    fn ends_a_run(&self, from: &[usize], cut: &Cut) -> bool {
        let mut groups = self.cluster.groups();
        let sides: Vec<Sides<'_>> = groups.by_ref().map(|group| self.sides(group, from, cut)).collect();
        sides.iter().all(|sides| !sides.earlier.is_empty())
            && cut.at.is_none_or(|at| sides.iter().all(|sides| self.is_forgotten(sides, at)))
            && sides.iter().all(|sides| !self.takes_over(sides))
            && self.is_between_files(from, cut)
            && sides.iter().any(|sides| self.begins(sides))
    }

    fn sides(&self, group: Group, from: &[usize], cut: &Cut) -> Sides<'_> {
        let mut sides = Sides::default();
        for (at, member) in self.members.iter().enumerate().filter(|(_, member)| member.group == group) {
            sides.earlier.extend(&member.stays[from[at]..cut.new[at]]);
            sides.later.extend(&member.stays[cut.new[at]..]);
            sides.began = sides.began.max(member.stays[cut.new[at]].start.at);
        }
        sides
    }

    /// Returns whether condition 2 holds for a group. `at` is the time at which the last new life of all groups began.
    fn is_forgotten(&self, sides: &Sides<'_>, at: u64) -> bool {
        sides.later.iter().all(|stay| {
            let delivered = stay.deliveries(self.log).next();
            stay.held(self.log).is_none_or(|t| t >= sides.began) && delivered.is_none_or(|delivery| delivery.t >= at)
        })
    }

    fn takes_over(&self, sides: &Sides<'_>) -> bool {
        let lasts = sides.later.iter().filter_map(|stay| stay.deliveries(self.log).next_back());
        let reached = lasts.map(|delivery| delivery.deliver.number).max().unwrap_or(0);
        let reached = if self.first(&sides.later).next().is_some() { reached } else { 0 };
        if sides.later.iter().any(|stay| stay.resumed(self.log).is_some_and(|from| from > reached)) {
            return true;
        }
        let earlier: Vec<&Delivery> = self.first(&sides.earlier).collect();
        self.first(&sides.later).any(|new| {
            let same = |old: &&Delivery| {
                let (old, new) = (&old.deliver, &new.deliver);
                (old.m, old.hash, old.ts) == (new.m, new.hash, new.ts)
            };
            earlier.iter().any(same) && self.log.was_multicast_by_one_life(new.message)
        })
    }

    /// Returns the deliveries with number 1.
    fn first<'s>(&'s self, stays: &'s [&'s Stay<'_>]) -> impl Iterator<Item = &'s Delivery> {
        let firsts = stays.iter().filter_map(|stay| stay.deliveries(self.log).next());
        firsts.filter(|delivery| delivery.deliver.number == 1)
    }

    fn begins(&self, sides: &Sides<'_>) -> bool {
        let delivered = sides.earlier.iter().any(|stay| stay.deliveries(self.log).next().is_some());
        if delivered && self.first(&sides.later).next().is_some() {
            return true;
        }
        let Some(lowest) = sides.later.iter().flat_map(|stay| stay.ready()).min() else { return false };
        sides.earlier.iter().any(|stay| {
            let decided = stay.deliveries(self.log).filter_map(|delivery| delivery.deliver.ballot);
            stay.ready().chain(decided).any(|ballot| ballot >= lowest)
        })
    }

    fn is_between_files(&self, from: &[usize], cut: &Cut) -> bool {
        let mut sides: BTreeMap<usize, bool> = BTreeMap::new();
        let here = self.places.iter().filter(|(_, member, stay)| *stay >= from[*member]);
        here.map(|(file, member, stay)| (*file, *stay >= cut.new[*member]))
            .all(|(file, later)| *sides.entry(file).or_insert(later) == later)
    }

    /// Returns the runs of each file, and whether some file may be of any run.
    fn files(&self, starts: &[Start], cuts: &[Cut]) -> (BTreeMap<usize, BTreeSet<usize>>, bool) {
        let mut files: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (file, member, stay) in &self.places {
            let run = cuts.iter().filter(|cut| cut.new[*member] <= *stay).count();
            files.entry(*file).or_default().insert(run);
        }
        let mut unknown = false;
        for start in starts.iter().filter(|start| self.cluster.group_of(start.process).is_none()) {
            if self.clock.is_none() || start.clock.as_ref() != self.clock {
                unknown = true;
                continue;
            }
            let run = |t: u64| cuts.iter().filter(|cut| cut.at.is_some_and(|at| at <= t)).count();
            files.entry(start.file).or_default().extend(run(start.events.0)..=run(start.events.1));
        }
        (files, unknown)
    }
}

/// The lives of one group before and after an end of a run.
#[derive(Default)]
struct Sides<'a> {
    earlier: Vec<&'a Stay<'a>>,
    /// The new lives, and the lives after them.
    later: Vec<&'a Stay<'a>>,
    /// Time at which the last new life began, in nanoseconds.
    began: u64,
}
