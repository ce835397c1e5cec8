//! M5 uniform prefix order: let the processes p and q both be destinations of the messages m and m'. If p delivers m
//! and q delivers m', then q delivers m before m', or p delivers m' before m.
//!
//! The check has four steps. First, delivery numbers are dense. Second, the members of a group have the same message
//! under the same number, so their sequences are prefixes of one sequence. Third, for every two groups, the messages to
//! both are in the same order at both. Neither group lacks such a message if the other group delivered it before a
//! message that both delivered. At most one of the two groups lacks such messages that the other group has. Fourth,
//! timestamps, which the other steps do not use, rise at each process and are the same for a message everywhere.

use std::collections::HashMap;

use super::NO_DELIVERIES;
use super::sequence::Sequence;
use crate::chain::Chain;
use crate::ids::Group;
use crate::report::Verdict;
use crate::view::{View, destinations};

pub(super) fn check(view: &View<'_>) -> Verdict {
    if view.log.deliveries.is_empty() {
        return Verdict::NotChecked(NO_DELIVERIES);
    }
    if let Some(verdict) = view.chains.iter().find_map(|chain| numbering(view, chain)) {
        return verdict;
    }
    let sequences = match sequences(view) {
        Ok(sequences) => sequences,
        Err(verdict) => return verdict,
    };
    let order = Across::new(view, &sequences).check();
    let order = order.or_else(|| view.chains.iter().find_map(|chain| rising(view, chain)));
    order.or_else(|| same_timestamps(view)).unwrap_or(Verdict::Ok)
}

/// Checks that delivery numbers increase by one.
fn numbering(view: &View<'_>, chain: &Chain) -> Option<Verdict> {
    let number = |at: usize| view.log.deliveries[chain.deliveries[at] as usize].deliver.number;
    let at = (0..chain.deliveries.len())
        .find(|at| chain.number_before(*at, view.log).checked_add(1) != Some(number(*at)))?;
    let before = chain.number_before(at, view.log);
    let process = view.name(chain.process);
    let summary = format!("a hole at {process}: delivery {} follows delivery {before}", number(at));
    let example = view.example(summary);
    let example = if at > 0 { example.delivery(chain.deliveries[at - 1]) } else { example };
    Some(example.delivery(chain.deliveries[at]).violated())
}

/// Checks that timestamps rise at each process.
fn rising(view: &View<'_>, chain: &Chain) -> Option<Verdict> {
    let ts = |delivery: u32| view.log.deliveries[delivery as usize].deliver.ts;
    let pair = chain.deliveries.windows(2).find(|pair| ts(pair[0]) >= ts(pair[1]))?;
    let summary = format!("the timestamps at {} do not rise", view.name(chain.process));
    Some(view.example(summary).delivery(pair[0]).delivery(pair[1]).violated())
}

/// Checks that each message has only one final timestamp.
fn same_timestamps(view: &View<'_>) -> Option<Verdict> {
    let mut first = vec![None; view.log.messages.len()];
    let (one, other) = view.log.deliveries.iter().enumerate().find_map(|(index, delivery)| {
        let one = *first[delivery.message as usize].get_or_insert(index as u32);
        (view.log.deliveries[one as usize].deliver.ts != delivery.deliver.ts).then_some((one, index as u32))
    })?;
    let text = view.text(view.log.deliveries[one as usize].message);
    let summary = format!("{text} was delivered with two different timestamps");
    Some(view.example(summary).delivery(one).delivery(other).violated())
}

/// Returns the sequence that each group delivered, or a violation if its members disagree.
fn sequences(view: &View<'_>) -> Result<Vec<Sequence>, Verdict> {
    let mut deliveries = vec![0; view.cluster.groups().len()];
    let grouped = || view.chains.iter().filter_map(|chain| chain.group.map(|group| (group, chain)));
    grouped().for_each(|(group, chain)| deliveries[group.index()] += chain.deliveries.len());
    let mut sequences: Vec<Sequence> = deliveries.into_iter().map(Sequence::new).collect();
    for (group, chain) in grouped() {
        for delivery in &chain.deliveries {
            let here = &view.log.deliveries[*delivery as usize];
            let known = sequences[group.index()].get_or_set(here.deliver.number, *delivery);
            if view.log.deliveries[known as usize].message != here.message {
                return Err(disagreement(view, known, *delivery));
            }
        }
    }
    Ok(sequences)
}

/// Returns the violation that two members of a group have different messages under one number.
fn disagreement(view: &View<'_>, one: u32, other: u32) -> Verdict {
    let (a, b) = (&view.log.deliveries[one as usize], &view.log.deliveries[other as usize]);
    let (first, second) = (view.name(a.process), view.name(b.process));
    let (m, n) = (view.text(a.message), view.text(b.message));
    let number = a.deliver.number;
    let summary = format!("{first} and {second} differ in delivery {number}: {m} at the one, {n} at the other");
    let find = |process, message| {
        view.log.deliveries.iter().position(|d| d.process == process && d.message == message).map(|d| d as u32)
    };
    let example = view.example(summary).delivery(one);
    let example = find(a.process, b.message).into_iter().fold(example, |example, d| example.delivery(d));
    let example = example.delivery(other);
    find(b.process, a.message).into_iter().fold(example, |example, d| example.delivery(d)).violated()
}

/// The comparison of groups with each other.
struct Across<'a> {
    view: &'a View<'a>,
    sequences: &'a [Sequence],
    /// For each message and destination group: the delivery in the group's sequence, and its index there.
    delivered: Vec<Option<(u32, u32)>>,
    /// By (group, other group): the first delivery of the group that the other group lacks.
    lacking: HashMap<(Group, Group), u32>,
}

impl<'a> Across<'a> {
    fn new(view: &'a View<'a>, sequences: &'a [Sequence]) -> Self {
        let mut delivered = vec![None; view.slots.len()];
        for group in view.cluster.groups() {
            for (place, delivery) in sequences[group.index()].iter().enumerate() {
                let message = view.log.deliveries[delivery as usize].message;
                if let Some(slot) = view.slots.slot(view.log, message, group) {
                    delivered[slot].get_or_insert((delivery, place as u32));
                }
            }
        }
        Across { view, sequences, delivered, lacking: HashMap::new() }
    }

    fn check(mut self) -> Option<Verdict> {
        let groups = self.view.cluster.groups();
        if let Some(verdict) = groups.clone().find_map(|group| self.walk(group)) {
            return Some(verdict);
        }
        for (one, other) in groups.clone().flat_map(|one| groups.clone().map(move |other| (one, other))) {
            let both = (self.lacking.get(&(one, other)), self.lacking.get(&(other, one)));
            if let (Some(here), Some(there)) = both {
                return Some(self.show("each lack a message that the other has delivered", &[*here, *there]));
            }
        }
        None
    }

    fn delivered(&self, message: u32, group: Group) -> Option<(u32, u32)> {
        self.view.slots.slot(self.view.log, message, group).and_then(|slot| self.delivered[slot])
    }

    /// Compares one group's sequence with those of all other groups.
    fn walk(&mut self, group: Group) -> Option<Verdict> {
        let mut last: Vec<Option<(u32, u32, u32)>> = vec![None; self.sequences.len()];
        let mut lacks: Vec<Option<u32>> = vec![None; self.sequences.len()];
        for here in self.sequences[group.index()].iter() {
            let message = self.view.log.deliveries[here as usize].message;
            let to = destinations(&self.view.log.messages[message as usize]);
            for other in to.iter().filter(|other| *other != group) {
                let Some((there, place)) = self.delivered(message, other) else {
                    if !self.sequences[other.index()].has_gaps() {
                        lacks[other.index()].get_or_insert(here);
                    }
                    continue;
                };
                if let Some((_, before_here, before_there)) = last[other.index()].filter(|(p, _, _)| *p > place) {
                    return Some(self.show("deliver in opposite orders", &[before_here, here, there, before_there]));
                }
                if let Some(lacked) = lacks[other.index()] {
                    return Some(self.show("differ by a hole", &[lacked, here, there]));
                }
                last[other.index()] = Some((place, here, there));
            }
        }
        let lacking = lacks.into_iter().enumerate();
        let lacking = lacking.filter_map(|(other, lacked)| Some(((group, Group(other as u16)), lacked?)));
        self.lacking.extend(lacking);
        None
    }

    fn show(&self, what: &str, deliveries: &[u32]) -> Verdict {
        let process = |delivery: u32| self.view.name(self.view.log.deliveries[delivery as usize].process);
        let (first, last) = (process(deliveries[0]), process(deliveries[deliveries.len() - 1]));
        let example = self.view.example(format!("{first} and {last} {what}"));
        deliveries.iter().fold(example, |example, delivery| example.delivery(*delivery)).violated()
    }
}
