//! B2 validity: if a correct process broadcasts, every correct process delivers the broadcast. A process that lags by
//! more than the window skips the broadcast and reports the skip.
//!
//! A skip is valid only if the sender was a window ahead, provided that the cluster line has the window. On one clock,
//! the sender must have been ahead at the time of the skip. If one process recorded the removal of a sender, every
//! correct process must record it.

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
                            Some(_) => format!("{name} skipped {what}, but its sender was not a window ahead"),
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
            let summary = format!("{name} never reached the end of the stream of {who}, which was removed");
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
    // Without a record of that broadcast, the time at which the sender was ahead is unknown.
    let ahead = broadcasts.sent.get(&(sender, index + window));
    !view.cluster.has_global_clock() || ahead.is_none_or(|ahead| ahead.event.t <= t)
}

/// The outcome of an index at a process.
enum Outcome {
    Delivered,
    Skipped {
        /// Time of the `skip` event, in nanoseconds.
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
                // A process cannot skip more than was sent. This bounds the work for a range with a wrong end.
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
