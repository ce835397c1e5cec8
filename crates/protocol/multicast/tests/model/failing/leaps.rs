//! Steps that write nothing are taken late, and a crash comes last: a partial-order reduction.
//!
//! # Silent steps
//! A step in which a member takes something and writes nothing, *silent* whatever it delivers, changes nothing but that
//! member and the head of a queue pair into it. So it commutes with every step of everybody else: these can only append
//! to that queue pair. In any run it can be put off until right before the next step of the same member that writes
//! something, or to the end of the run. What every member writes, and what it delivers in which order, is the same. So
//! it is enough to search *leaps*: silent steps of one member, then one of its steps that writes, which includes a
//! campaign.
//!
//! Of these, not all: if the last silent step can as well be taken after the step that writes (the real state machine,
//! asked both ways round, writes the same and comes to the same site), the run equals one in which it is put off
//! further. Each time this is applied a silent step moves behind a step of its member that writes, so it ends.
//!
//! # The end of a run
//! is where nobody can take anything any more. A state from which everybody comes there by silent steps alone stands for
//! all these ends, and each is judged. Nothing is lost by judging there. A member's log only grows: the application's
//! state is taken over by a member that fell a window behind, and with one message of each client nobody does. So a
//! violation, once there, stays. And every run can be continued to its end, because no state comes after itself:
//! `depth_first` stops if one does.
//!
//! # Crashes
//! A crash is the last step of its member, and what the member wrote and nobody has taken is lost with it. Steps of
//! others that take nothing from it commute with the crash: what they write to it is dropped before or after. What they
//! did take from it they take before. So in any run the crash can be put off to the end, and the run up to there is
//! one without it: a member that crashes is one that does nothing any more and whose writes stay on their way. A state
//! therefore stands for an end with a crash if everybody else, by silent steps, comes to where nothing can be taken but
//! from the one that crashes. (One crash; a process that comes back without memory is not looked at here.)

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::sites::{Move, Sent, Sites};
use super::store::Cause;
use crate::store::Map;

/// Silent steps, then one that writes.
#[derive(Clone, Debug)]
pub(super) struct Leap {
    pub(super) next: u32,
    pub(super) sends: Vec<Sent>,
    pub(super) campaign: bool,
    /// Something was delivered, or a flaw was seen.
    pub(super) judge: bool,
    pub(super) causes: Vec<Cause>,
}

/// Leaps and ends by site.
pub(super) struct Leaps<'a> {
    pub(super) sites: Sites<'a>,
    leaps: Vec<Option<Rc<[Leap]>>>,
    ends: Map<(u32, u16), Rc<[u32]>>,
}

/// Nobody crashes.
pub(super) const NOBODY: u16 = u16::MAX;

impl<'a> Leaps<'a> {
    pub(super) fn new(sites: Sites<'a>) -> Self {
        Leaps { sites, leaps: Vec::new(), ends: HashMap::default() }
    }

    /// Everything that the member at a site may do next.
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

    /// Whether a silent step can as well be taken after a step that is possible after it. `site`: before both.
    fn commute(&mut self, site: u32, silent: Cause, step: &Move) -> bool {
        let moves = self.sites.moves(site);
        let Some(first) = moves.iter().find(|other| other.cause == step.cause && other.sends == step.sends) else {
            return false;
        };
        let then = self.sites.moves(first.next);
        let after = |other: &Move| other.cause == silent && other.is_silent() && other.next == step.next;
        first.next == step.next || then.iter().any(after)
    }

    /// The sites to which a member comes by silent steps and at which it can take nothing any more, if everything from the
    /// crashed process that it has not taken until any time is lost.
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

    /// What is left of a member that crashes: it differs in what was delivered.
    pub(super) fn crashes(&mut self, site: u32) -> BTreeSet<u32> {
        self.sites.silent(site).into_iter().map(|node| self.sites.crashed(node.site)).collect()
    }
}
