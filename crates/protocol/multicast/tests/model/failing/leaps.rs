//! A partial-order reduction: steps that write nothing are taken late, and a crash comes last.
//!
//! # Silent steps
//! A step is *silent* if a member takes something and writes nothing, whether it delivers or not. It changes only that
//! member and the head of a queue pair into it. So it commutes with every step of all other members: these can only
//! append to that queue pair. In any run it can be postponed until right before the next step of the same member that
//! writes something, or to the end of the run. The writes of every member, and its deliveries and their order, are the
//! same. So it is enough to search *leaps*: silent steps of one member, then one of its steps that writes, which may be
//! a campaign.
//!
//! Not all leaps are needed. If the last silent step can just as well be taken after the step that writes (the real
//! state machine, run in both orders, writes the same and reaches the same site), the run equals one in which it is
//! postponed further. Each application of this rule moves a silent step after a writing step of its member, so it
//! terminates.
//!
//! # The end of a run
//! A run ends where no member can take anything more. A state from which all members reach such an end by silent steps
//! alone represents all these ends, and each is judged. Judging there loses nothing. A member's log only grows: only a
//! member that fell a window behind takes over the application's state. With one message of each client, and at most a
//! window of entries of a group, no member does. So a violation, once there, stays. And every run can be continued to its end, because no state follows itself:
//! `depth_first` stops if one does.
//!
//! # Crashes
//! A crash is the last step of its member, and everything that the member wrote and no other member has taken is lost
//! with it. Steps of others that take nothing from the crashing member commute with the crash: what they write to it is
//! dropped in either order. Steps that take its writes happen before the crash. So in any run the crash can be
//! postponed to the end, and the run up to there has no crash: a member that crashes is one that does nothing more and
//! whose writes stay in flight. A state therefore represents an end with a crash if all other members reach, by silent
//! steps, a state in which nothing can be taken but from the crashing member. (This covers one crash. It does not cover
//! a process that restarts without memory.)

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::sites::{Move, Sent, Sites};
use super::store::Cause;
use crate::store::Map;

/// Silent steps of one member, then one that writes.
#[derive(Clone, Debug)]
pub(super) struct Leap {
    pub(super) next: u32,
    pub(super) sends: Vec<Sent>,
    pub(super) campaign: bool,
    /// `true` if a message was delivered, a flaw was found, or the member began or ceased to lead.
    pub(super) judge: bool,
    pub(super) causes: Vec<Cause>,
}

/// The leaps and ends of each site.
pub(super) struct Leaps<'a> {
    pub(super) sites: Sites<'a>,
    leaps: Vec<Option<Rc<[Leap]>>>,
    ends: Map<(u32, u16), Rc<[u32]>>,
}

/// Number that represents no crash.
pub(super) const NOBODY: u16 = u16::MAX;

impl<'a> Leaps<'a> {
    pub(super) fn new(sites: Sites<'a>) -> Self {
        Leaps { sites, leaps: Vec::new(), ends: HashMap::default() }
    }

    /// Returns the leaps that a search needs from a site.
    pub(super) fn of(&mut self, site: u32) -> Rc<[Leap]> {
        if let Some(Some(known)) = self.leaps.get(site as usize) {
            return known.clone();
        }
        let nodes = self.sites.silent(site);
        let mut leaps: Vec<Leap> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            for step in self.sites.moves(node.site).iter().filter(|step| !step.is_silent()) {
                let later = node.from.iter().any(|(from, silent)| self.commute(nodes[*from].site, *silent, step));
                if later || leaps.iter().any(|leap| leap.next == step.next && leap.sends == step.sends) {
                    continue;
                }
                let mut causes = vec![step.cause];
                let mut back = at;
                while let Some((from, cause)) = nodes[back].from.first() {
                    causes.push(*cause);
                    back = *from;
                }
                causes.reverse();
                let (before, after) = (self.sites.member(site), self.sites.member(step.next));
                let judge = before.log.len() != after.log.len()
                    || before.flaws != after.flaws
                    || before.leads() != after.leads();
                let campaign = !step.is_take();
                leaps.push(Leap { next: step.next, sends: step.sends.clone(), campaign, judge, causes });
            }
        }
        let leaps: Rc<[Leap]> = leaps.into();
        self.leaps.resize(self.sites.len(), None);
        self.leaps[site as usize] = Some(leaps.clone());
        leaps
    }

    /// Returns whether a silent step can just as well be taken after a step that is possible after it. `site` is the
    /// site before both steps.
    fn commute(&mut self, site: u32, silent: Cause, step: &Move) -> bool {
        let moves = self.sites.moves(site);
        let Some(first) = moves.iter().find(|other| other.cause == step.cause && other.sends == step.sends) else {
            return false;
        };
        let then = self.sites.moves(first.next);
        let after = |other: &Move| other.cause == silent && other.is_silent() && other.next == step.next;
        first.next == step.next || then.iter().any(after)
    }

    /// Returns the sites that a member reaches by silent steps and at which it can take nothing more. Everything from
    /// the crashed process that the member has not taken may be lost at any time.
    pub(super) fn ends(&mut self, site: u32, crashed: u16) -> Rc<[u32]> {
        if let Some(known) = self.ends.get(&(site, crashed)) {
            return known.clone();
        }
        let mut ends = BTreeSet::new();
        for node in self.sites.silent(site) {
            if crashed == NOBODY {
                ends.extend(self.is_end(node.site).then_some(node.site));
                continue;
            }
            let left = self.sites.without(node.site, crashed);
            for node in self.sites.silent(left) {
                ends.extend(self.is_end(node.site).then_some(node.site));
            }
        }
        let ends: Rc<[u32]> = ends.into_iter().collect();
        self.ends.insert((site, crashed), ends.clone());
        ends
    }

    fn is_end(&mut self, site: u32) -> bool {
        !self.sites.moves(site).iter().any(Move::is_take)
    }

    /// Returns the sites that a crash of the member can leave. They differ in the member's deliveries.
    pub(super) fn crashes(&mut self, site: u32) -> BTreeSet<u32> {
        self.sites.silent(site).into_iter().map(|node| self.sites.crashed(node.site)).collect()
    }
}
