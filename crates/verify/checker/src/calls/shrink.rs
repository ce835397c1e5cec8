//! Reduces a contradiction to a small counter-example, and describes it.
//!
//! Calls are not removed, because a removed call may be the one that explains another. They are weakened, which only
//! permits more orders. First, every command that was answered after some time becomes one of unknown outcome, and
//! every read that was answered after it is ignored. Then replies are dropped, then the knowledge that a command
//! without a reply took effect, and last the time and the process of its submission. The calls that cannot be weakened
//! contradict the promise, whatever the other calls did.

use super::call::Call;
use super::graph::Why;
use super::kind::Kind;
use super::model::Model;
use super::outcome::Outcome;
use super::rule::Rule;
use super::solve::{Cause, Solved, only, solve};
use super::terms::Terms;
use super::verdict::Counterexample;

/// Maximum number of steps of an attempt to weaken calls. [`STEPS_PER_CALL`] is added for each call.
const STEPS: u64 = 2_000;
/// Number of steps that each call adds to the maximum of an attempt.
const STEPS_PER_CALL: u64 = 20;
/// Maximum number of steps of all attempts until the contradiction is reduced. The search for its rule and the last
/// weakening may each take as many again.
const ALL_STEPS: u64 = 200_000;
/// Number of commands that are kept although they were submitted after the end of the contradiction. They show that an
/// effect was observed too early.
const LATER: usize = 16;
/// Maximum number of calls that are listed although only their effects matter.
const SHOWN: usize = 12;

/// Turns a cause into a counter-example.
pub(super) fn counterexample<M: Model>(model: &M, calls: &[Call], cause: Cause) -> Counterexample {
    match cause {
        Cause::Positions(contradiction) => {
            let lines = contradiction.calls.iter().map(|call| line(calls, *call)).collect();
            let summary = contradiction.summary.to_owned();
            Counterexample { rule: Rule::Position, summary, calls: sorted(contradiction.calls), lines }
        }
        Cause::Cycle(cycle) => of_cycle(calls, &cycle),
        Cause::Replies { calls: of_part, numbers } => {
            let mut weakening = Weakening { model, calls: of_part, left: ALL_STEPS };
            weakening.end_early();
            weakening.forget_replies();
            weakening.forget_effects();
            let rule = weakening.rule();
            let bound = weakening.bound();
            of_replies(calls, &weakening.calls, &bound, &numbers, rule)
        }
    }
}

fn sorted(mut calls: Vec<usize>) -> Vec<usize> {
    calls.sort_unstable();
    calls.dedup();
    calls
}

fn line(calls: &[Call], call: usize) -> String {
    format!("call {call}: {}", calls[call])
}

fn of_cycle(calls: &[Call], cycle: &[(u32, Why)]) -> Counterexample {
    let has = |why: Why| cycle.iter().any(|(_, of)| *of == why);
    let rule = match () {
        () if has(Why::Observed) => Rule::Observed,
        () if has(Why::Future) || has(Why::Contains) => Rule::Prefix,
        () if has(Why::Position) => Rule::Position,
        () if has(Why::Session) => Rule::Session,
        () => Rule::RealTime,
    };
    let next = || cycle.iter().cycle().skip(1);
    let observations = cycle.iter().zip(next()).filter(|((_, why), _)| *why == Why::Observed);
    let observers = observations.filter_map(|((earlier, _), (later, _))| observer(calls, *earlier, *later));
    let numbers = sorted(cycle.iter().map(|(call, _)| *call as usize).chain(observers).collect());
    let mut lines: Vec<String> = numbers.iter().map(|call| line(calls, *call)).collect();
    lines.extend(cycle.iter().zip(next()).map(|((call, why), (next, _))| {
        let because = match why {
            Why::RealTime => "it was answered before the other, to the same group, was submitted",
            Why::Session => "the session had its answer before it submitted the other",
            Why::Observed => "the session had observed its position",
            Why::Position | Why::Hint => "its position is smaller",
            Why::Future => "it was answered before the other was submitted",
            Why::Contains => "the read asked for its position",
        };
        format!("call {call} comes before call {next}: {because}")
    }));
    let texts: Vec<String> = cycle.iter().chain(&cycle[..1]).map(|(call, _)| call.to_string()).collect();
    let summary = format!("{rule}: the order that these calls require has a cycle, {}", texts.join(" → "));
    Counterexample { rule, summary, calls: numbers, lines }
}

/// Returns the call which records that the session of `later` had observed `earlier`: `later` itself, or the last such
/// call before it.
fn observer(calls: &[Call], earlier: u32, later: u32) -> Option<usize> {
    let (position, later) = (calls[earlier as usize].position()?, &calls[later as usize]);
    let says_so = |call: &Call| {
        let of_process = (call.session, call.generation) == (later.session, later.generation);
        of_process && call.takes_part() && call.submitted <= later.submitted && call.observed.contains(&position)
    };
    let all = calls.iter().enumerate().filter(|(_, call)| says_so(call));
    all.max_by_key(|(_, call)| (*call == later, call.submitted)).map(|(index, _)| index)
}

fn of_replies(all: &[Call], weakened: &[Call], bound: &[usize], numbers: &[u32], rule: Rule) -> Counterexample {
    let number = |index: &usize| numbers[*index] as usize;
    let answered = |index: &usize| weakened[*index].answered().is_some();
    let (replies, mut effects): (Vec<usize>, Vec<usize>) =
        (0..weakened.len()).filter(answered).partition(|index| has_replies(&weakened[*index]));
    effects.extend(bound);
    let more = effects.len().saturating_sub(SHOWN);
    let mut lines: Vec<(usize, String)> =
        replies.iter().map(|index| (number(index), line(all, number(index)))).collect();
    lines.extend(effects.iter().skip(more).map(|index| {
        let part =
            if answered(index) { "its reply plays no part" } else { "it may have taken effect after its submission" };
        (number(index), format!("{} ({part})", line(all, number(index))))
    }));
    lines.sort_unstable();
    let mut lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    if more > 0 {
        lines.push(format!("and {more} more commands, whose replies play no part"));
    }
    let calls = sorted(replies.iter().chain(&effects).map(number).collect());
    let summary = format!("{rule}, whichever other calls took effect");
    Counterexample { rule, summary, calls, lines }
}

fn has_replies(call: &Call) -> bool {
    matches!(&call.outcome, Outcome::Answered { replies, .. } if !replies.is_empty())
}

fn forget_reply(call: &mut Call) {
    if call.kind.is_read() {
        call.outcome = Outcome::NotApplied;
    } else if let Outcome::Answered { replies, .. } = &mut call.outcome {
        replies.clear();
    }
}

/// Forgets when and by which process the command was submitted, and the positions that the process had observed.
fn forget_all(call: &mut Call) {
    (call.submitted, call.generation) = (0, u64::MAX);
    call.observed.clear();
}

fn forget_effect(call: &mut Call) {
    call.outcome = if call.kind.is_read() { Outcome::NotApplied } else { Outcome::Unknown };
}

/// A contradiction while its calls are being weakened.
struct Weakening<'a, M> {
    model: &'a M,
    calls: Vec<Call>,
    /// Remaining number of steps for all attempts.
    left: u64,
}

impl<M: Model> Weakening<'_, M> {
    /// Decides whether weaker calls keep the promise. Returns `None` if the decision takes too many steps.
    fn is_kept(&mut self, calls: &[Call], terms: Terms) -> Option<bool> {
        let all = (STEPS + STEPS_PER_CALL * calls.len() as u64).min(self.left);
        let mut budget = all;
        let solved = solve(self.model, calls, terms, &mut budget);
        // `solve` does not count the steps of its small attempts, so at least one step per call is subtracted.
        self.left = self.left.saturating_sub((all - budget).max(calls.len() as u64));
        match solved {
            Solved::Kept(_) => Some(true),
            Solved::Violated(_) => Some(false),
            Solved::TooHard => None,
        }
    }

    fn contradict(&mut self, calls: &[Call]) -> bool {
        self.left > 0 && self.is_kept(calls, Terms::ALL) == Some(false)
    }

    /// Weakens the calls that were answered after the earliest time at which the answers contradict the promise.
    fn end_early(&mut self) {
        let mut times: Vec<u64> = self.calls.iter().filter_map(Call::answered).collect();
        times.sort_unstable();
        times.dedup();
        let (mut low, mut high) = (0, times.len().saturating_sub(1));
        while low < high {
            let middle = usize::midpoint(low, high);
            let ended = ended(&self.calls, times[middle]);
            if self.contradict(&ended) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if let Some(end) = times.get(high) {
            let ended = ended(&self.calls, *end);
            if self.contradict(&ended) {
                self.calls = ended;
            }
        }
    }

    fn forget_replies(&mut self) {
        let answered = |call: &Call| call.answered().is_some();
        self.weaken_all(answered, forget_reply);
    }

    fn forget_effects(&mut self) {
        self.weaken_all(|call| call.answered().is_some() && !has_replies(call), forget_effect);
    }

    /// Weakens calls as long as the result still contradicts the promise. It first tries many calls at once. Returns
    /// the calls that are needed: if any of them is weakened, the promise is kept.
    fn weaken_all(&mut self, which: impl Fn(&Call) -> bool, weaken: fn(&mut Call)) -> Vec<usize> {
        let all: Vec<usize> = (0..self.calls.len()).filter(|index| which(&self.calls[*index])).collect();
        let (mut parts, mut needed) = (vec![&all[..]], Vec::new());
        while let Some(part) = parts.pop().filter(|_| self.left > 0) {
            let mut weaker = self.calls.clone();
            part.iter().for_each(|index| weaken(&mut weaker[*index]));
            match self.is_kept(&weaker, Terms::ALL) {
                Some(false) => self.calls = weaker,
                _ if part.len() > 1 => {
                    let (early, late) = part.split_at(part.len() / 2);
                    parts.extend([late, early]);
                }
                Some(true) => needed.extend(part),
                None => {}
            }
        }
        needed
    }

    /// Returns the indices of the commands of unknown outcome whose time or process of submission matters.
    fn bound(&mut self) -> Vec<usize> {
        self.left = ALL_STEPS;
        self.weaken_all(|call| call.outcome == Outcome::Unknown && call.kind == Kind::Command, forget_all)
    }

    /// Returns the rule that the calls contradict: the one without which they would keep the promise, or else one that
    /// they contradict by itself.
    fn rule(&mut self) -> Rule {
        self.left = ALL_STEPS;
        let calls = self.calls.clone();
        if self.is_kept(&calls, Terms { prefix: false, ..Terms::ALL }) == Some(true) {
            return Rule::Prefix;
        }
        let mut terms = Terms { positions: false, ..Terms::ALL };
        match self.is_kept(&calls, terms) {
            Some(true) => return Rule::Position,
            Some(false) => {}
            None => terms = Terms::ALL,
        }
        let relaxed = [
            (Rule::Prefix, Terms { prefix: false, ..terms }),
            (Rule::Session, Terms { session: false, ..terms }),
            (Rule::Observed, Terms { observed: false, ..terms }),
            (Rule::RealTime, Terms { real_time: false, ..terms }),
        ];
        if let Some((rule, _)) = relaxed.into_iter().find(|(_, terms)| self.is_kept(&calls, *terms) == Some(true)) {
            return rule;
        }
        if let Some(rule) = self.rule_that_suffices(&calls, terms) {
            return rule;
        }
        let several = calls.iter().any(|call| call.groups.len() > 1);
        let split: Vec<Call> =
            calls.iter().flat_map(|call| call.groups.iter().map(|group| only(call, group))).collect();
        let apart = several && self.is_kept(&split, Terms { positions: false, ..terms }) == Some(true);
        if apart { Rule::OneOrder } else { Rule::Reply }
    }

    /// Returns a rule that the calls contradict by itself, if they keep the promise without any rule about their order.
    /// If there are several such rules, the calls contradict the promise even if any one of them is left out.
    fn rule_that_suffices(&mut self, calls: &[Call], terms: Terms) -> Option<Rule> {
        let none = Terms { real_time: false, session: false, observed: false, prefix: false, ..terms };
        if self.is_kept(calls, none) != Some(true) {
            return None;
        }
        let alone = [
            (Rule::RealTime, Terms { real_time: true, ..none }),
            (Rule::Session, Terms { session: true, ..none }),
            (Rule::Observed, Terms { observed: true, ..none }),
            (Rule::Prefix, Terms { prefix: true, ..none }),
        ];
        alone.into_iter().find(|(_, terms)| self.is_kept(calls, *terms) == Some(false)).map(|(rule, _)| rule)
    }
}

/// Returns the history up to the time `at`, with a few of the commands that were submitted next. No answer depends on a
/// command that was submitted after it to the same group, so the result is weaker than the whole history.
fn ended(calls: &[Call], at: u64) -> Vec<Call> {
    let later = |call: &&Call| call.kind == Kind::Command && call.submitted > at;
    let mut times: Vec<u64> = calls.iter().filter(later).map(|call| call.submitted).collect();
    times.sort_unstable();
    let until = times.get(LATER - 1).copied().unwrap_or(u64::MAX);
    let mut calls = calls.to_vec();
    for call in &mut calls {
        if call.submitted > until || call.submitted > at && call.kind.is_read() {
            call.outcome = Outcome::NotApplied;
        } else if call.answered().is_some_and(|answered| answered > at) {
            forget_effect(call);
        }
    }
    calls
}
