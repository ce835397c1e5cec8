//! Operators who remove processes. An operator may crash during a removal; another operator then continues it.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::World;
use stentor_neb::removal::{Answer, Ask, Removal};
use stentor_neb::{Config, ProcessSet};

use super::actor::Actor;
use super::scenario::Removals;
use crate::chance::Chance;

/// A request in transit.
struct Flying {
    at_ns: u64,
    /// The index of the operator.
    operator: usize,
    to: ProcessId,
    ask: Ask,
}

/// One execution of the removal command.
struct Run {
    removal: Removal,
    /// Number of answers after which the operator crashes.
    dies_after: u64,
    answers: u64,
    is_over: bool,
    /// The processes that have a request and have not answered it.
    asked: ProcessSet,
}

/// All operators of a run.
pub(crate) struct Operators {
    config: Config,
    plan: Removals,
    chance: Chance,
    runs: Vec<Run>,
    flying: Vec<Flying>,
    next_ns: u64,
    /// `true` once all remaining processes continue without the removed ones.
    pub(crate) done: bool,
    /// Number of operators that crashed.
    pub(crate) died: u64,
    /// Number of executions that were refused.
    pub(crate) refused: u64,
}

/// Maximum time of a request in transit, in nanoseconds.
const SLOW_NS: u64 = 30_000;

impl Operators {
    pub(crate) fn new(config: &Config, plan: &Removals, chance: Chance) -> Self {
        let next_ns = plan.at_ns;
        let plan = plan.clone();
        let (runs, flying) = (Vec::new(), Vec::new());
        Operators { config: *config, plan, chance, runs, flying, next_ns, done: false, died: 0, refused: 0 }
    }

    /// Performs the actions that are due, and schedules the next ones.
    pub(crate) fn round(&mut self, world: &World, actors: &mut [Option<Actor>]) {
        let now = world.now_ns();
        while let Some(place) = self.flying.iter().position(|flying| flying.at_ns <= now) {
            let Flying { operator, to, ask, .. } = self.flying.swap_remove(place);
            self.arrive(operator, to, &ask, world, actors);
        }
        if now >= self.next_ns && !self.done {
            self.next_ns = now + self.chance.between(500, 4_000);
            self.act(now);
        }
        if !self.done || !self.flying.is_empty() {
            let at = self.flying.iter().map(|flying| flying.at_ns).chain([self.next_ns]).min().unwrap_or(now);
            let up = self.config.everybody().iter().find(|process| world.is_up(*process));
            up.into_iter().for_each(|process| world.wake_at(process, at.max(now + 1)));
        }
    }

    /// Starts an execution of the command, or sends requests.
    fn act(&mut self, now: u64) {
        let number = self.runs.len();
        let idle = self.runs.iter().all(|run| run.is_over);
        let another = number > 0 && number < self.plan.dies_after.len() && self.plan.overlap;
        if idle || (another && self.chance.between(0, 15) == 0) {
            let targets = if number == 0 { self.plan.first } else { self.plan.targets };
            let removal = Removal::new(&self.config, targets, number as u64).expect("drawn removals are possible");
            let dies_after = self.plan.dies_after.get(number).copied().unwrap_or(u64::MAX);
            self.runs.push(Run { removal, dies_after, answers: 0, is_over: false, asked: ProcessSet::EMPTY });
            return;
        }
        for (operator, run) in self.runs.iter_mut().enumerate().filter(|(_, run)| !run.is_over) {
            let to = ProcessId(self.chance.between(0, self.config.processes as u64 - 1) as u16);
            let Some(ask) = run.removal.question(to).filter(|_| !run.asked.contains(to)) else { continue };
            run.asked.insert(to);
            let at_ns = now + self.chance.between(100, SLOW_NS);
            self.flying.push(Flying { at_ns, operator, to, ask });
        }
    }

    /// Delivers a request to a process. The operator that sent it may have crashed.
    fn arrive(&mut self, operator: usize, to: ProcessId, ask: &Ask, world: &World, actors: &mut [Option<Actor>]) {
        let reached = *ask != Ask::Leave || self.plan.reached;
        let answer = match &mut actors[to.index()] {
            Some(actor) if world.is_up(to) && reached => Some(actor.ask(ask)),
            _ => None,
        };
        world.wake_at(to, world.now_ns() + 1);
        let run = &mut self.runs[operator];
        if run.is_over {
            return;
        }
        run.asked.remove(to);
        run.answers += u64::from(answer != Some(Answer::Fencing));
        let taken = match answer {
            Some(answer) => run.removal.answered(to, answer),
            None => run.removal.absent(to),
        };
        if taken.is_err() {
            run.is_over = true;
            self.refused += 1;
        } else if run.removal.is_done() {
            run.is_over = true;
            // An earlier operator may have removed fewer processes.
            self.done = operator > 0 || self.plan.first == self.plan.targets;
        } else if run.answers >= run.dies_after {
            run.is_over = true;
            self.died += 1;
        }
    }
}
