//! A depth-first search by leaps.
//!
//! As in the other searches, seen states are identified by a 64-bit hash.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;
use stentor_testutil::SplitMix64;

use super::cure::{Run, cure};
use super::leaps::{Leap, Leaps, NOBODY};
use super::machine::Budget;
use super::member::{Context, Member};
use super::possible::{Sight, sights};
use super::sites::Sites;
use super::store::Cause;
use crate::verdict::{COMPLETE, names};

/// Maximum number of members.
const MEMBERS: usize = 6;

/// A state of the cluster: the site of every member.
#[derive(Clone, Copy)]
struct State {
    sites: [u32; MEMBERS],
    campaigns: u8,
}

/// A state on the current path, and how far its leaps have been searched.
struct Frame {
    state: State,
    print: u64,
    member: usize,
    /// Number of leaps of the member that were searched.
    leaps: usize,
}

/// A hasher that returns the word it is given.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only words are hashed")
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

type Prints = HashSet<u64, BuildHasherDefault<Itself>>;

fn print(sites: &[u32], campaigns: u8) -> u64 {
    sites.iter().fold(u64::from(campaigns), |print, site| SplitMix64::mix(print ^ SplitMix64::mix(u64::from(*site))))
}

/// Returns a hash of a cluster that does not depend on the numbering of a search.
pub(super) fn identity(run: &Run, campaigns: u8) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&run.members, &run.queues, campaigns).hash(&mut hasher);
    hasher.finish()
}

/// The results of a search.
#[derive(Default)]
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) steps: usize,
    pub(super) ends: usize,
    /// Number of leaps on the longest path that was searched.
    pub(super) depth: usize,
    pub(super) members: usize,
    pub(super) sites: usize,
    pub(super) complete: bool,
    /// Names of required states that were not seen.
    pub(super) unseen: Vec<&'static str>,
    /// Violated properties, each with a run that violates it.
    pub(super) violations: Vec<(&'static str, String)>,
    /// The end states' [`identity`] values, if they were requested.
    pub(super) identities: HashSet<u64>,
}

/// A search in progress.
pub(super) struct Search<'a> {
    context: &'a Context,
    budget: Budget,
    leaps: Leaps<'a>,
    path: Vec<Frame>,
    seen: Prints,
    ended: Prints,
    sights: Vec<Sight>,
    identify: bool,
    until: Option<&'static str>,
    found: Found,
}

impl<'a> Search<'a> {
    pub(super) fn new(context: &'a Context, budget: Budget) -> Self {
        let others = budget.restarts + budget.cuts + budget.ticks;
        assert!(others == 0 && budget.crashes <= 1, "only campaigns and one crash");
        assert!(context.destined.len() <= MEMBERS, "too large for a state");
        let messages = &context.scenario.messages;
        let own = |client| messages.iter().filter(|message| message.client == client).count();
        assert!(
            context.scenario.of_clients().all(|message| own(message.client) == 1),
            "a client with several messages"
        );
        let fits = |client| own(client) <= context.scenario.window as usize;
        assert!(messages.iter().all(|message| fits(message.client)), "more than a window of entries");
        Search {
            context,
            budget,
            leaps: Leaps::new(Sites::new(context)),
            path: Vec::new(),
            seen: Prints::default(),
            ended: Prints::default(),
            sights: sights(&budget, &context.scenario),
            identify: false,
            until: None,
            found: Found::default(),
        }
    }

    /// Makes the search keep the [`identity`] of each end state.
    pub(super) fn identify(self) -> Self {
        Search { identify: true, ..self }
    }

    /// Makes the search continue until this property is violated, even if other properties are violated before.
    #[cfg(feature = "plants")]
    pub(super) fn until(self, property: &'static str) -> Self {
        Search { until: Some(property), ..self }
    }

    fn is_over(&self) -> bool {
        self.found.violations.iter().any(|(property, _)| self.until.is_none_or(|until| until == *property))
    }

    fn members(&self) -> usize {
        self.context.destined.len()
    }

    /// Searches all states, or up to a number of states.
    pub(super) fn run(mut self, limit: Option<usize>) -> Found {
        let mut sites = [0; MEMBERS];
        let first = self.leaps.sites.begin();
        sites[..first.len()].copy_from_slice(&first);
        self.enter(State { sites, campaigns: self.budget.campaigns }, true);
        self.found.complete = true;
        while !self.is_over() && !self.path.is_empty() {
            if limit.is_some_and(|limit| self.seen.len() >= limit) {
                self.found.complete = false;
                break;
            }
            match self.next_leap() {
                Some((leaps, at)) => self.leap(&leaps[at]),
                None => drop(self.path.pop()),
            }
        }
        self.found.states = self.seen.len();
        self.found.ends = self.ended.len();
        self.found.members = self.leaps.sites.store.members();
        self.found.sites = self.leaps.sites.len();
        self.found.unseen = self.sights.iter().map(|sight| sight.name).collect();
        self.found
    }

    /// Returns the next leap from the last state of the path.
    fn next_leap(&mut self) -> Option<(Rc<[Leap]>, usize)> {
        let members = self.members();
        let frame = self.path.last_mut()?;
        while frame.member < members {
            let leaps = self.leaps.of(frame.state.sites[frame.member]);
            while let Some(leap) = leaps.get(frame.leaps) {
                frame.leaps += 1;
                if !leap.campaign || frame.state.campaigns > 0 {
                    return Some((leaps, frame.leaps - 1));
                }
            }
            (frame.member, frame.leaps) = (frame.member + 1, 0);
        }
        None
    }

    fn leap(&mut self, leap: &Leap) {
        self.found.steps += 1;
        let Some(frame) = self.path.last() else { return };
        let mut state = frame.state;
        state.sites[frame.member] = leap.next;
        state.campaigns -= u8::from(leap.campaign);
        for sent in &leap.sends {
            let site = &mut state.sites[usize::from(sent.0)];
            *site = self.leaps.sites.push(*site, *sent);
        }
        self.enter(state, leap.judge);
    }

    /// Enters a state, which may have been seen before.
    fn enter(&mut self, state: State, judge: bool) {
        let print = print(&state.sites[..self.members()], state.campaigns);
        if !self.seen.insert(print) {
            assert!(self.path.iter().all(|frame| frame.print != print), "a state comes after itself");
            return;
        }
        self.path.push(Frame { state, print, member: 0, leaps: 0 });
        self.found.depth = self.found.depth.max(self.path.len() - 1);
        let sites = &state.sites[..self.members()];
        self.look(sites, judge);
        self.look_at_ends(&state);
    }

    /// Judges the deliveries, and records which required states were seen.
    fn look(&mut self, sites: &[u32], judge: bool) {
        if !judge && self.sights.is_empty() {
            return;
        }
        let members: Vec<&Member> = sites.iter().map(|site| self.leaps.sites.member(*site)).collect();
        let (context, budget) = (self.context, self.budget);
        self.sights.retain(|sight| !(sight.seen)(context, &budget, &members));
        let flaws = if judge { context.judge(&members) } else { 0 };
        names(flaws).into_iter().for_each(|property| self.violated(property, ""));
    }

    /// Visits the end states that a state represents: those without a crash, and those with each possible crash.
    fn look_at_ends(&mut self, state: &State) {
        let mut crashed = vec![NOBODY];
        if self.budget.crashes > 0 {
            let members = 0..self.members() as u16;
            crashed.extend(members.filter(|process| self.context.channels.group_of(*process).len() > 2));
        }
        for crashed in crashed {
            let mut choices: Vec<Rc<[u32]>> = Vec::new();
            for (process, site) in (0..).zip(&state.sites[..self.members()]) {
                if process != crashed {
                    choices.push(self.leaps.ends(*site, crashed));
                }
                if choices.last().is_some_and(|choice| choice.is_empty()) {
                    break;
                }
            }
            if choices.last().is_some_and(|choice| choice.is_empty()) {
                continue;
            }
            if crashed != NOBODY {
                let at = usize::from(crashed);
                choices.insert(at, self.leaps.crashes(state.sites[at]).into_iter().collect());
            }
            self.choose(&choices, &mut Vec::new(), state.campaigns);
        }
    }

    fn choose(&mut self, choices: &[Rc<[u32]>], chosen: &mut Vec<u32>, campaigns: u8) {
        if self.is_over() {
            return;
        }
        let Some(choice) = choices.get(chosen.len()) else {
            if self.ended.insert(print(chosen, campaigns)) {
                self.end(chosen, campaigns);
            }
            return;
        };
        for site in choice.iter() {
            chosen.push(*site);
            self.choose(choices, chosen, campaigns);
            chosen.pop();
        }
    }

    /// Handles a state in which no member can take anything more.
    fn end(&mut self, sites: &[u32], campaigns: u8) {
        self.look(sites, true);
        let mut run = self.at_rest(sites);
        if self.identify {
            self.found.identities.insert(identity(&run, campaigns));
        }
        if let Err(why) = cure(self.context, &mut run) {
            self.violated(COMPLETE.1, &why);
        }
        let flaws = self.context.judge(&run.members.iter().collect::<Vec<_>>());
        names(flaws).into_iter().for_each(|property| self.violated(property, "at the end"));
    }

    /// Returns the state for a run outside the search.
    fn at_rest(&self, sites: &[u32]) -> Run {
        let mut queues = vec![std::collections::VecDeque::new(); self.context.channels.wires.len()];
        for site in sites {
            let site = self.leaps.sites.get(*site);
            let process = self.leaps.sites.store.member(site.member).process;
            for (wire, queue) in self.context.channels.into[usize::from(process)].iter().zip(&site.queues) {
                queues[*wire].extend(self.leaps.sites.parcels(*queue).cloned());
            }
        }
        let members = sites.iter().map(|site| self.leaps.sites.member(*site).clone()).collect();
        Run { members, queues, closed: 0 }
    }

    fn violated(&mut self, property: &'static str, why: &str) {
        if self.found.violations.iter().all(|(known, _)| *known != property) {
            let run = format!("{}\n{why}", self.explain());
            self.found.violations.push((property, run));
        }
    }

    /// Describes the run to the last state of the path.
    fn explain(&mut self) -> String {
        let mut lines = Vec::new();
        for (at, frame) in self.path.iter().enumerate() {
            let Some(leap) = frame.leaps.checked_sub(1).filter(|_| at + 1 < self.path.len()) else { continue };
            for cause in &self.leaps.of(frame.state.sites[frame.member])[leap].causes {
                let store = &self.leaps.sites.store;
                lines.push(match cause {
                    Cause::Take(wire, parcel) => {
                        let wire = self.context.channels.wires[usize::from(*wire)];
                        format!("{wire:?} {}", store.parcel(*parcel).describe())
                    }
                    other => format!("{} {other:?}", frame.member),
                });
            }
        }
        if let Some(last) = self.path.last() {
            for site in &last.state.sites[..self.members()] {
                let member = self.leaps.sites.member(*site);
                lines.push(format!("{} delivered {:?}", member.process, member.log));
            }
        }
        lines.join("\n")
    }
}
