//! B4 FIFO: each sender's stream is delivered in index order from 0, without gaps. A process reports a range that it
//! skipped because it was too late. An index at which the sender equivocated ends the sender's stream, and so does the
//! removal of the sender.

use super::NO_DELIVERIES;
use crate::broadcasts::{Broadcasts, delivered, text};
use crate::event::EventKind;
use crate::log::Kept;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    for ((process, _, sender), steps) in &broadcasts.streams {
        if view.cluster.is_faulty(*process) {
            continue;
        }
        let (mut next, mut last): (u64, Option<&Kept>) = (0, None);
        let mut convicted: Option<(u64, &Kept)> = None;
        // The remaining processes may have agreed to deliver some broadcasts of a removed process. They deliver these
        // in spite of evidence against it.
        let agreed = broadcasts.steps(steps).find_map(|kept| match kept.event.kind {
            EventKind::Removed { upto, .. } => Some(upto),
            _ => None,
        });
        let mut over = None;
        for kept in broadcasts.steps(steps) {
            let (from, to) = match kept.event.kind {
                EventKind::Bdeliver(broadcast) => (broadcast.index, broadcast.index),
                EventKind::Skip { from, to, .. } => (from, to),
                EventKind::Equivocation { index, .. } => {
                    convicted = Some(convicted.filter(|(first, _)| *first <= index).unwrap_or((index, kept)));
                    continue;
                }
                EventKind::Removed { upto, .. } => {
                    over = Some(kept);
                    if upto == next {
                        continue;
                    }
                    (upto, upto)
                }
                _ => continue,
            };
            let (name, what) = (view.name(*process), text(view, (*sender, from)));
            // A repeated delivery violates B3, not B4.
            if from != next && !(delivered(kept).is_some() && from + 1 == next) {
                let summary = format!("{name} came to {what} when {next} was next");
                return view.violated(summary, last.into_iter().chain([kept]));
            }
            let convict = convicted.filter(|(index, _)| to >= *index && agreed.is_none_or(|agreed| to >= agreed));
            let ended = convict.map(|(_, evidence)| evidence).or(over);
            if let Some(evidence) = ended.filter(|_| delivered(kept).is_some()) {
                let summary = format!("{name} delivered {what} after its sender's stream had ended");
                return view.violated(summary, [evidence, kept]);
            }
            (next, last) = (to + 1, Some(kept));
        }
    }
    if broadcasts.has_deliveries() { Verdict::Ok } else { Verdict::NotChecked(NO_DELIVERIES) }
}
