//! How a client takes its place: its home group numbers it, and each group that it wants says where its slots begin.
//!
//! # States of a group
//! *unwanted* → *wanted* (its members are greeted: the home's at once, others' when the generation is known) → *opened* (a member
//! said that the group agreed on the first slot). A member counts when it has said so itself: then it has its group's state.

use stentor_fabric::Fabric;

use super::{Client, SubmitError};
use crate::node::credit_report::Standing;
use crate::node::hello::Hello;
use crate::{GroupId, GroupSet, Incarnation, ids};

/// How far a client is with taking its place.
#[derive(Debug)]
pub(super) struct Takeover {
    /// The group that numbers the processes of this place.
    pub(super) home: GroupId,
    /// This process's generation, once its home has told it.
    pub(super) generation: Option<u64>,
    /// The incarnation of its home that did.
    numbered_in: Incarnation,
    /// The smallest generation that it may have, as groups remember.
    above: u64,
    /// Groups that it may multicast to some time.
    wanted: GroupSet,
    /// By group: where its slots begin, once that is known.
    first: Vec<Option<u64>>,
    /// Groups that keep so much of earlier processes that this one has to wait.
    crowded: GroupSet,
}

impl Takeover {
    /// Wants all groups.
    pub(super) fn new(home: GroupId, groups: usize) -> Self {
        let wanted = (0..groups as u16).map(GroupId).collect();
        let first = vec![None; groups];
        let (generation, numbered_in) = (None, Incarnation::NONE);
        Takeover { home, generation, numbered_in, above: 0, wanted, first, crowded: GroupSet::default() }
    }

    /// Whether it is known where the slots at a group begin.
    #[inline]
    pub(super) fn is_opened(&self, group: GroupId) -> bool {
        self.first.get(usize::from(group.0)).is_some_and(Option::is_some)
    }

    /// The first slot at a group; 0 while it is not known.
    pub(super) fn first_at(&self, group: GroupId) -> u64 {
        self.first.get(usize::from(group.0)).copied().flatten().unwrap_or(0)
    }

    /// Whether who may have this generation at the least comes after this process.
    pub(super) fn is_followed_by(&self, smallest: u64) -> bool {
        self.generation.is_some_and(|generation| generation < smallest)
    }

    /// Whether members of a group are greeted now.
    pub(super) fn greets(&self, group: GroupId) -> bool {
        group == self.home || self.generation.is_some() && self.wanted.contains(group)
    }

    /// What is said to members of a group, besides where the ring begins.
    pub(super) fn fill(&self, hello: Hello, group: GroupId) -> Hello {
        let above = if group == self.home { self.above } else { 0 };
        Hello { begun: self.is_opened(group), generation: self.generation, above, ..hello }
    }
}

impl<F: Fabric> Client<F> {
    /// Restricts the groups that this client opens to these and its home group. Others are opened when something is first
    /// submitted to them. Without this it opens all groups.
    ///
    /// A short-lived client saves other groups work: each group orders an entry for a process that opens it.
    pub fn open_only(&mut self, to: &[GroupId]) {
        self.takeover.wanted = to.iter().copied().collect();
    }

    /// Opens groups that were not wanted before.
    pub(super) fn want(&mut self, to: &[GroupId]) {
        for group in to.iter().copied() {
            if self.topology.has_group(group) && !self.takeover.wanted.contains(group) {
                self.takeover.wanted.insert(group);
                self.greet_group(group);
            }
        }
    }

    /// Opens groups, if what their members said by now allows it.
    ///
    /// # Errors
    /// What the first of them waits for.
    #[cold]
    pub(super) fn open_now(&mut self, to: &[GroupId]) -> Result<(), SubmitError> {
        self.want(to);
        if self.look_for_openings() {
            self.gate.disturb();
        }
        if self.superseded {
            return Err(SubmitError::Superseded { client: self.sender.client().0 });
        }
        to.iter().find(|group| !self.takeover.is_opened(**group)).map_or(Ok(()), |group| Err(self.unopened(*group)))
    }

    /// Has the members of a group hear what this process is, or says.
    fn greet_group(&mut self, group: GroupId) {
        for link in 0..self.links.len() {
            if self.places[link].0 == usize::from(group.0)
                && self.links[link].is_ready()
                && !self.unsettled.contains(&link)
            {
                self.start(link);
            }
        }
    }

    /// Looks whether groups that are not open are. Returns whether anything came of it.
    pub(super) fn look_for_openings(&mut self) -> bool {
        let mut any = false;
        for group in self.topology.group_ids() {
            if self.takeover.is_opened(group) || !self.takeover.greets(group) || self.superseded {
                continue;
            }
            self.rings[usize::from(group.0)].read_credits(&self.fabric);
            any |= self.look_for_opening(group);
        }
        any
    }

    pub(super) fn look_for_opening(&mut self, group: GroupId) -> bool {
        let ring = &self.rings[usize::from(group.0)];
        let places = || ring.reports().map(|report| (report.place, report.freed));
        let crowded = places().any(|(place, _)| place.crowded && !place.opened);
        let (opened, smallest) =
            (places().find(|(place, _)| place.opened), places().map(|(place, _)| place.generation).max());
        let Takeover { home, generation, above, .. } = self.takeover;
        let is_home = group == home;
        if crowded {
            self.takeover.crowded.insert(group);
        } else {
            self.takeover.crowded.remove(group);
        }
        match (opened, generation) {
            (Some((place, freed)), _) if is_home && place.generation >= above => {
                self.be_numbered(place);
                self.open(group, freed + place.first);
                true
            }
            (Some(_), _) if is_home => false,
            (Some((place, freed)), Some(generation)) if place.generation == generation => {
                self.open(group, freed + place.first);
                true
            }
            (None, None) if is_home && smallest.is_some_and(|smallest| smallest > above) => {
                // Processes were here before: it says that it knows.
                self.takeover.above = smallest.unwrap_or(above);
                self.greet_group(home);
                true
            }
            (_, Some(generation)) if smallest.is_some_and(|smallest| smallest > generation) => {
                self.be_outnumbered(group, smallest.unwrap_or(0))
            }
            _ => false,
        }
    }

    /// No member of a group counts any more. If nothing was multicast to it, it opens again: it may have forgotten everything.
    pub(super) fn reopen_if_unused(&mut self, group: GroupId) {
        let none = (0..self.rings[usize::from(group.0)].targets.len()).all(|member| !self.sender.counts(group, member));
        if none && self.takeover.first.get(usize::from(group.0)).copied().flatten() == Some(self.sender.next(group)) {
            self.takeover.first[usize::from(group.0)] = None;
        }
    }

    /// The home group numbered this process.
    pub(super) fn be_numbered(&mut self, place: Standing) {
        if self.takeover.generation == Some(place.generation) {
            return;
        }
        self.takeover.generation = Some(place.generation);
        self.takeover.numbered_in = self.histories[usize::from(self.takeover.home.0)];
        self.sender.resume_sequence(ids::first_of_generation(place.generation));
        for other in self.topology.group_ids() {
            if other != self.takeover.home && self.takeover.wanted.contains(other) {
                self.greet_group(other);
            }
        }
    }

    /// A group remembers a process of this place with a larger generation: one that came after this one; or one from before the
    /// home group forgot everything, if that still knows this one as the latest. Who has multicast cannot be numbered anew; if its home
    /// began anew it goes on without that. Returns whether anything came of it.
    fn be_outnumbered(&mut self, group: GroupId, smallest: u64) -> bool {
        let home = self.takeover.home;
        let begun = self.submitted > 0
            || self.topology.group_ids().any(|other| other != home && self.takeover.is_opened(other));
        if group == home && begun && self.histories[usize::from(home.0)] != self.takeover.numbered_in {
            self.reset[usize::from(home.0)] = true;
            return false;
        }
        if group == home || begun {
            self.superseded = true;
            return true;
        }
        if smallest > self.takeover.above {
            self.takeover.above = smallest;
            self.takeover.first[usize::from(home.0)] = None;
            for member in 0..self.rings[usize::from(home.0)].targets.len() {
                self.sender.expel(home, member);
            }
            self.greet_group(home);
        }
        true
    }

    pub(super) fn open(&mut self, group: GroupId, first: u64) {
        self.takeover.first[usize::from(group.0)] = Some(first);
        self.sender.resume_slots(group, first);
        self.count_members(group);
    }

    /// Why a group is not open yet.
    pub(super) fn unopened(&self, group: GroupId) -> SubmitError {
        let home = self.takeover.home;
        let first = if self.takeover.generation.is_none() { home } else { group };
        if self.takeover.crowded.contains(first) {
            return SubmitError::Crowded { client: self.sender.client().0, group: first.0 };
        }
        SubmitError::NotConnected { group: first.0 }
    }
}
