//! Takes over a client id. The home group of the id assigns a generation to the process. Each wanted group assigns a
//! first slot to it.
//!
//! # States of a group
//! *unwanted* → *wanted* (its members get hellos when the generation is known) → *opened* (a member reported that the
//! group agreed on the first slot). The members of the home group get hellos from the beginning, even if the group is
//! unwanted. A member is used for flow control only when it has itself reported the agreement, because it then has its
//! group's state.

use stentor_fabric::Fabric;

use super::{Client, SubmitError};
use crate::node::credit_report::Standing;
use crate::node::hello::Hello;
use crate::{GroupId, GroupSet, Incarnation, ids};

/// A client's progress in taking over its client id.
#[derive(Debug)]
pub(super) struct Takeover {
    /// The group that assigns generations to the processes of this client id.
    pub(super) home: GroupId,
    /// This process's generation, once its home group has assigned it.
    pub(super) generation: Option<u64>,
    /// The home group's incarnation that assigned the generation.
    numbered_in: Incarnation,
    /// The smallest generation that this process may have, according to the groups.
    above: u64,
    /// Groups that this process opens or has opened, because it may multicast to them.
    wanted: GroupSet,
    /// First slot of this process at each group, indexed by group, once it is known.
    first: Vec<Option<u64>>,
    /// Groups that keep so many records of earlier processes that this one must wait.
    crowded: GroupSet,
}

impl Takeover {
    /// Starts a takeover that wants all groups.
    pub(super) fn new(home: GroupId, groups: usize) -> Self {
        let wanted = (0..groups as u16).map(GroupId).collect();
        let first = vec![None; groups];
        let (generation, numbered_in) = (None, Incarnation::NONE);
        Takeover { home, generation, numbered_in, above: 0, wanted, first, crowded: GroupSet::default() }
    }

    /// Returns whether the first slot at a group is known.
    #[inline]
    pub(super) fn is_opened(&self, group: GroupId) -> bool {
        self.first.get(usize::from(group.0)).is_some_and(Option::is_some)
    }

    /// Returns the first slot at a group; 0 while it is unknown.
    pub(super) fn first_at(&self, group: GroupId) -> u64 {
        self.first.get(usize::from(group.0)).copied().flatten().unwrap_or(0)
    }

    /// Returns whether a process whose generation is at least `smallest` comes after this one.
    pub(super) fn is_followed_by(&self, smallest: u64) -> bool {
        self.generation.is_some_and(|generation| generation < smallest)
    }

    /// Returns whether members of a group get hellos now.
    pub(super) fn greets(&self, group: GroupId) -> bool {
        group == self.home || self.generation.is_some() && self.wanted.contains(group)
    }

    /// Adds the state of the takeover to a hello to members of a group.
    pub(super) fn fill(&self, hello: Hello, group: GroupId) -> Hello {
        let above = if group == self.home { self.above } else { 0 };
        Hello { begun: self.is_opened(group), generation: self.generation, above, ..hello }
    }
}

impl<F: Fabric> Client<F> {
    /// Restricts the groups that this client opens to `to` and its home group. Other groups are opened when a message
    /// is first submitted to them. By default a client opens all groups.
    ///
    /// Opening fewer groups saves work if clients are short-lived: each group orders an entry for a process that opens
    /// it.
    pub fn open_only(&mut self, to: &[GroupId]) {
        self.takeover.wanted = to.iter().copied().collect();
    }

    /// Begins to open groups that were not wanted before.
    pub(super) fn want(&mut self, to: &[GroupId]) {
        for group in to.iter().copied() {
            if self.topology.has_group(group) && !self.takeover.wanted.contains(group) {
                self.takeover.wanted.insert(group);
                self.greet_group(group);
            }
        }
    }

    /// Opens groups, if their members' reports so far allow it.
    ///
    /// # Errors
    /// Returns the reason why a group is not open, for the first such group, or [`SubmitError::Superseded`].
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

    /// Sends hellos to the members of a group.
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

    /// Checks whether groups that are not open can be opened. Returns whether there was any news, except that the home
    /// group was reset.
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
                // Earlier processes exist. The next hello asks for a generation above theirs.
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

    /// Marks a group as not open if none of its members counts and nothing was multicast to it. The group must then be
    /// opened again, because it may have lost all memory. Call this when a member no longer counts.
    pub(super) fn reopen_if_unused(&mut self, group: GroupId) {
        let none = (0..self.rings[usize::from(group.0)].targets.len()).all(|member| !self.sender.counts(group, member));
        if none && self.takeover.first.get(usize::from(group.0)).copied().flatten() == Some(self.sender.next(group)) {
            self.takeover.first[usize::from(group.0)] = None;
        }
    }

    /// Adopts the generation that the home group assigned.
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

    /// Handles the report of a group that knows another process of this client id with a larger generation. Usually
    /// that process took over from this one. But if the home group considers this process the latest, the other process
    /// ran before the home group lost all memory; then this process requests a larger generation. A process that has
    /// multicast, or has opened another group than its home group, cannot get a new generation: it is superseded. The
    /// exception is a report of a home group that was reset. The process marks that group as reset and continues at the
    /// other groups. Returns `false` only in this case.
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

    /// Returns the reason why a group is not open yet.
    pub(super) fn unopened(&self, group: GroupId) -> SubmitError {
        let home = self.takeover.home;
        let first = if self.takeover.generation.is_none() { home } else { group };
        if self.takeover.crowded.contains(first) {
            return SubmitError::Crowded { client: self.sender.client().0, group: first.0 };
        }
        SubmitError::NotConnected { group: first.0 }
    }
}
