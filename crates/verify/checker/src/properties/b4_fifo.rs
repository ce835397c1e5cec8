//! B4 FIFO: per sender, in index order from 0, without gaps. A range that was skipped for being too late is reported as one;
//! an index at which the sender equivocated ends its stream, and so does its removal.

use super::NO_DELIVERIES;
use crate::broadcasts::{Broadcasts, Step, text};
use crate::event::EventKind;
use crate::log::Kept;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    for ((process, _, sender), steps) in &broadcasts.streams {
        if view.cluster.is_faulty(*process) {
            continue;
        }
        let (mut next, mut last): (u64, Option<Kept>) = (0, None);
        let mut convicted: Option<(u64, Kept)> = None;
        // What all that remain agreed to deliver of a removed process is delivered in spite of evidence.
        let agreed = steps.iter().find_map(|step| match step {
            Step::Removed(place) => Some(upto(&broadcasts.removals[*place as usize])),
            _ => None,
        });
        let mut over = None;
        for step in steps {
            let (from, to, kept) = match step {
                Step::Delivered(place) => {
                    let delivered = &broadcasts.deliveries[*place as usize];
                    (delivered.broadcast.index, delivered.broadcast.index, delivered.kept)
                }
                Step::Skipped(place) => {
                    let (from, to) = broadcasts.range(*place);
                    (from, to, broadcasts.skips[*place as usize])
                }
                Step::Convicted(place) => {
                    let kept = broadcasts.evidence[*place as usize];
                    if let EventKind::Equivocation { index, .. } = kept.event.kind {
                        convicted = Some(convicted.filter(|(first, _)| *first <= index).unwrap_or((index, kept)));
                    }
                    continue;
                }
                Step::Removed(place) => {
                    let kept = broadcasts.removals[*place as usize];
                    over = Some(kept);
                    let upto = upto(&kept);
                    if upto == next {
                        continue;
                    }
                    (upto, upto, kept)
                }
            };
            let (name, what) = (view.name(*process), text(view, (*sender, from)));
            // What comes again is B3's to see.
            if from != next && !(matches!(step, Step::Delivered(_)) && from + 1 == next) {
                let summary = format!("{name} came to {what} when {next} was next");
                return view.violated(summary, last.iter().chain([&kept]));
            }
            let convict = convicted.filter(|(index, _)| to >= *index && agreed.is_none_or(|agreed| to >= agreed));
            let ended = convict.map(|(_, evidence)| evidence).or(over);
            if let Some(evidence) = ended.filter(|_| matches!(step, Step::Delivered(_))) {
                let summary = format!("{name} delivered {what} after its sender's stream had ended");
                return view.violated(summary, [&evidence, &kept]);
            }
            (next, last) = (to + 1, Some(kept));
        }
    }
    if broadcasts.deliveries.is_empty() { Verdict::NotChecked(NO_DELIVERIES) } else { Verdict::Ok }
}

/// Where the stream of a removed process ended.
fn upto(removal: &Kept) -> u64 {
    if let EventKind::Removed { upto, .. } = removal.event.kind { upto } else { 0 }
}
