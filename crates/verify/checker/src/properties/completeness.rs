//! What agreement, validity and liveness have in common: these messages must be at every correct destination.
//!
//! All three presuppose that a majority of every destination group is correct; messages for which that is not so are
//! left out.

use super::INCOMPLETE;
use crate::chain::Chain;
use crate::ids::{Group, Process};
use crate::log::Message;
use crate::report::Verdict;
use crate::view::{Example, View, destinations};

/// What came of looking.
enum Outcome {
    /// Every required message is everywhere.
    AllThere,
    /// No message was required.
    NothingRequired,
    /// A correct destination lacks a required message.
    Missing { process: Process, message: u32 },
    /// A destination of a required message has no record, and nobody else's shows that one is missing.
    NoRecord { process: Process },
}

/// Judges that every message that is `required` is at all its correct destinations. `nothing` says why there may be no such
/// message, and `missing` shows one that a process lacks.
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

/// Looks for a correct destination process that lacks a message that is `required`.
fn look(view: &View<'_>, required: impl Fn(u32, &Message) -> bool) -> Outcome {
    // Nobody waits for a history that is over.
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
            // What a snapshot holds is known from those who delivered it.
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

/// Marks what the process delivered, and what its snapshots held: what any member of its group delivered up to there.
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
