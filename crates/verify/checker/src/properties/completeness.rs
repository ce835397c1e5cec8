//! The check that agreement, validity and liveness share: every correct destination must have delivered every required
//! message. Each of the three properties defines which messages it requires.
//!
//! All three properties assume that a majority of every destination group is correct. A message is excluded if one of
//! its destination groups has no correct majority. Groups whose history has ended are no reason to exclude a message,
//! but they need not deliver it.

use super::INCOMPLETE;
use crate::chain::Chain;
use crate::ids::{Group, Process};
use crate::log::Message;
use crate::report::Verdict;
use crate::view::{Example, View, destinations};

/// The result of the check.
enum Outcome {
    /// Every correct destination delivered every required message.
    AllThere,
    /// No message was required.
    NothingRequired,
    /// A correct destination lacks a required message.
    Missing { process: Process, message: u32 },
    /// A destination of a required message has no record, and no other record shows that a message is missing.
    NoRecord { process: Process },
}

/// Judges whether all correct destinations delivered every message that is `required`. `nothing` is the reason why
/// there may be no such message. `missing` builds the counter-example from a process and a message that it lacks.
pub(super) fn judge<'a>(
    view: &'a View<'_>,
    required: impl Fn(u32, &Message) -> bool,
    nothing: &'static str,
    missing: impl FnOnce(&str, u32) -> Example<'a>,
) -> Verdict {
    if !view.complete {
        return Verdict::NotChecked(INCOMPLETE);
    }
    match look(view, required) {
        Outcome::AllThere => Verdict::Ok,
        Outcome::NoRecord { process } => view.lacks_record(process),
        Outcome::NothingRequired => Verdict::NotChecked(nothing),
        Outcome::Missing { process, message } => missing(view.name(process), message).violated(),
    }
}

/// Searches for a correct destination process that lacks a message that is `required`.
fn look(view: &View<'_>, required: impl Fn(u32, &Message) -> bool) -> Outcome {
    // Deliveries in an ended history are not required.
    let works = |group| view.ended.contains(group) || has_majority(view, group);
    let majority: Vec<bool> = view.cluster.groups().map(works).collect();
    let mut wanted: Vec<Vec<u32>> = vec![Vec::new(); majority.len()];
    for (index, message) in view.log.messages.iter().enumerate() {
        let to = destinations(message);
        if required(index as u32, message) && to.iter().all(|group| majority[group.index()]) {
            let goes_on = to.iter().filter(|group| !view.ended.contains(*group));
            goes_on.for_each(|group| wanted[group.index()].push(index as u32));
        }
    }
    if wanted.iter().all(Vec::is_empty) {
        return Outcome::NothingRequired;
    }
    let last_chains = last_chains(view);
    let mut marks = vec![u32::MAX; view.log.messages.len()];
    let mut without = None;
    for group in view.cluster.groups() {
        if view.ended.contains(group) {
            continue;
        }
        let silent = view.lacks_member(group);
        for process in view.cluster.members(group).iter().filter(|process| view.log.is_up(**process)) {
            let mark = process.0;
            if !view.records.would_have_deliveries(*process) {
                without = without.or((!wanted[group.index()].is_empty()).then_some(*process));
                continue;
            }
            // The content of a snapshot is known only from the members that delivered it.
            let by_snapshot = last_chains[process.index()].is_some_and(|chain| chain.covered_by_snapshot() > 0);
            if let Some(chain) = last_chains[process.index()] {
                mark_delivered(view, chain, mark, &mut marks);
            }
            if let Some(message) = wanted[group.index()].iter().find(|message| marks[**message as usize] != mark) {
                if by_snapshot && silent.is_some() {
                    without = without.or(silent);
                    continue;
                }
                return Outcome::Missing { process: *process, message: *message };
            }
        }
    }
    without.map_or(Outcome::AllThere, |process| Outcome::NoRecord { process })
}

fn has_majority(view: &View<'_>, group: Group) -> bool {
    let members = view.cluster.members(group);
    2 * members.iter().filter(|process| view.log.is_up(**process)).count() > members.len()
}

fn last_chains<'a>(view: &View<'a>) -> Vec<Option<&'a Chain>> {
    let mut last = vec![None; view.cluster.process_count()];
    for chain in view.chains.iter().filter(|chain| chain.is_last) {
        last[chain.process.index()] = Some(chain);
    }
    last
}

/// Marks the messages that the process delivered, and those in its snapshots. The messages in a snapshot are those that
/// any member of the group delivered up to the snapshot's last number.
fn mark_delivered(view: &View<'_>, chain: &Chain, mark: u32, marks: &mut [u32]) {
    for delivery in &chain.deliveries {
        marks[view.log.deliveries[*delivery as usize].message as usize] = mark;
    }
    let covered = chain.covered_by_snapshot();
    if covered == 0 {
        return;
    }
    for peer in view.chains.iter().filter(|peer| peer.group == chain.group) {
        for delivery in peer.deliveries.iter().map(|delivery| &view.log.deliveries[*delivery as usize]) {
            if delivery.deliver.number <= covered {
                marks[delivery.message as usize] = mark;
            }
        }
    }
}
