//! B1 agreement: no two correct processes deliver different payloads for the same (sender, index). If a sender was
//! removed, its stream ends at the same index for all remaining processes.

use std::collections::BTreeMap;

use super::NO_DELIVERIES;
use crate::broadcasts::{Broadcasts, delivered, is_correct, text};
use crate::ids::Process;
use crate::log::Kept;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    let verdict = agreement(view, broadcasts, |process| is_correct(view, broadcasts, process));
    if matches!(verdict, Verdict::Violated(_)) { verdict } else { ends(view, broadcasts).unwrap_or(verdict) }
}

/// Returns a violation if two remaining processes end the stream of a removed process at different indices.
fn ends(view: &View<'_>, broadcasts: &Broadcasts) -> Option<Verdict> {
    let mut first: BTreeMap<Process, (u64, &Kept)> = BTreeMap::new();
    for (sender, upto, kept) in broadcasts.removed(view) {
        if broadcasts.is_removed(view, kept.event.process) {
            continue;
        }
        let (before, other) = first.entry(sender).or_insert((upto, kept));
        if *before != upto {
            let (a, b) = (view.name(other.event.process), view.name(kept.event.process));
            let summary = format!("for {a} the stream of {} ends at {before}, for {b} at {upto}", view.name(sender));
            return Some(view.violated(summary, [other, kept]));
        }
    }
    None
}

/// Judges agreement among the processes for which `counts` returns `true`.
pub(super) fn agreement(view: &View<'_>, broadcasts: &Broadcasts, counts: impl Fn(Process) -> bool) -> Verdict {
    let mut indices: Vec<_> = broadcasts.by_index.iter().filter(|(_, deliveries)| deliveries.len() > 1).collect();
    indices.sort_unstable_by_key(|(index, _)| **index);
    for (index, deliveries) in indices {
        let mut counted = broadcasts.steps(deliveries).filter(|kept| counts(kept.event.process));
        let Some(first) = counted.next() else { continue };
        let payload = |kept: &Kept| delivered(kept).map(|broadcast| (broadcast.hash, broadcast.len));
        if let Some(other) = counted.find(|other| payload(other) != payload(first)) {
            let (a, b) = (view.name(first.event.process), view.name(other.event.process));
            let summary = format!("{a} and {b} delivered different payloads for {}", text(view, *index));
            return view.violated(summary, [first, other]);
        }
    }
    if broadcasts.has_deliveries() { Verdict::Ok } else { Verdict::NotChecked(NO_DELIVERIES) }
}
