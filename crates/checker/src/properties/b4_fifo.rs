//! B4 FIFO: per sender, in index order from 0, without gaps. A range that was skipped for being too late is reported as one;
//! an index at which the sender equivocated ends its stream.

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
            };
            let (name, what) = (view.name(*process), text(view, (*sender, from)));
            // What comes again is B3's to see.
            if from != next && !(matches!(step, Step::Delivered(_)) && from + 1 == next) {
                let summary = format!("{name} came to {what} when {next} was next");
                let mut example = view.example(summary);
                if let Some(last) = last {
                    example = example.event(&last.event, last.origin);
                }
                return example.event(&kept.event, kept.origin).violated();
            }
            let convict = convicted.filter(|(index, _)| to >= *index && matches!(step, Step::Delivered(_)));
            if let Some((_, evidence)) = convict {
                let summary = format!("{name} delivered {what} after its sender's stream had ended");
                let example = view.example(summary).event(&evidence.event, evidence.origin);
                return example.event(&kept.event, kept.origin).violated();
            }
            (next, last) = (to + 1, Some(kept));
        }
    }
    if broadcasts.deliveries.is_empty() { Verdict::NotChecked(NO_DELIVERIES) } else { Verdict::Ok }
}
