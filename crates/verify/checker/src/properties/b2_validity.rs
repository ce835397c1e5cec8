//! B2 validity: if a correct process broadcasts, every correct process delivers it; a process that fell more than the window
//! behind skips it and says so.
//!
//! A skip is believed only if the sender really was a window ahead, where the cluster says how long the window is; on one
//! clock, only if it was so by then.

use std::collections::HashMap;

use super::{INCOMPLETE, NO_BROADCASTS};
use crate::broadcasts::{Broadcasts, is_correct, text};
use crate::event::EventKind;
use crate::ids::Process;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    if !view.complete {
        return Verdict::NotChecked(INCOMPLETE);
    }
    let members = view.cluster.groups().flat_map(|group| view.cluster.members(group).to_vec());
    let correct: Vec<Process> = members.filter(|process| is_correct(view, broadcasts, *process)).collect();
    let (mut required, mut lacking) = (false, None);
    for process in &correct {
        if !view.records.would_have_deliveries(*process) {
            lacking = Some(*process);
            continue;
        }
        for sender in &correct {
            let sent = broadcasts.sent.range((*sender, 0)..=(*sender, u64::MAX));
            let outcomes = outcomes(broadcasts, *process, *sender);
            for (index, kept) in sent {
                required = true;
                match outcomes.get(&index.1) {
                    Some(Outcome::Delivered) => {}
                    Some(Outcome::Skipped { t }) if may_skip(view, broadcasts, *sender, index.1, *t) => {}
                    found => {
                        let (name, what) = (view.name(*process), text(view, *index));
                        let summary = match found {
                            None => format!("{name} never delivered {what} of a correct sender"),
                            Some(_) => format!("{name} skipped {what}, and its sender was no window ahead"),
                        };
                        return view.violated(summary, [kept]);
                    }
                }
            }
        }
    }
    for (sender, _, kept) in broadcasts.removed(view) {
        let told = |process: &Process| {
            !view.records.would_have_deliveries(*process)
                || broadcasts.removed(view).any(|(of, _, kept)| of == sender && kept.event.process == *process)
        };
        if let Some(other) = correct.iter().find(|process| !told(process)) {
            let (name, who) = (view.name(*other), view.name(sender));
            let summary = format!("{name} never came to the end of the stream of {who}, which was removed");
            return view.violated(summary, [kept]);
        }
    }
    match lacking {
        Some(process) => view.lacks_record(process),
        None if required => Verdict::Ok,
        None => Verdict::NotChecked(NO_BROADCASTS),
    }
}

fn may_skip(view: &View<'_>, broadcasts: &Broadcasts, sender: Process, index: u64, t: u64) -> bool {
    let Some(window) = view.cluster.window() else { return true };
    if broadcasts.last_of(sender).is_none_or(|last| last < index + window) {
        return false;
    }
    // What it had broadcast by then is known of those that were recorded.
    let ahead = broadcasts.sent.get(&(sender, index + window));
    !view.cluster.has_global_clock() || ahead.is_none_or(|ahead| ahead.event.t <= t)
}

/// What became of an index at a process.
enum Outcome {
    Delivered,
    Skipped {
        /// When it said so.
        t: u64,
    },
}

fn outcomes(broadcasts: &Broadcasts, process: Process, sender: Process) -> HashMap<u64, Outcome> {
    let mut outcomes = HashMap::new();
    let lives = broadcasts.streams.range((process, 0, sender)..=(process, u64::MAX, sender));
    for kept in lives.filter(|((_, _, of), _)| *of == sender).flat_map(|(_, steps)| broadcasts.steps(steps)) {
        match kept.event.kind {
            EventKind::Bdeliver(broadcast) => {
                outcomes.insert(broadcast.index, Outcome::Delivered);
            }
            EventKind::Skip { from, to, .. } => {
                // Nobody skips more than was sent; a range that says so is bounded by it.
                let last = broadcasts.last_of(sender).unwrap_or(0);
                (from..=to.min(last)).for_each(|index| {
                    outcomes.entry(index).or_insert(Outcome::Skipped { t: kept.event.t });
                });
            }
            _ => {}
        }
    }
    outcomes
}
