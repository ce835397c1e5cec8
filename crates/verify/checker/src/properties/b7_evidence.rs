//! B7 evidence: an equivocation is reported with both values. It is reported as proven only if its sender is faulty.

use crate::broadcasts::{Broadcasts, text};
use crate::event::EventKind;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    let mut any = false;
    for kept in broadcasts.all_steps() {
        let EventKind::Equivocation { sender, index, hash, other, proven } = kept.event.kind else { continue };
        if view.cluster.is_faulty(kept.event.process) {
            continue;
        }
        any = true;
        let (name, what) = (view.name(kept.event.process), text(view, (sender, index)));
        let summary = if hash == other {
            format!("{name} reports one value twice as an equivocation at {what}")
        } else if proven && !view.cluster.is_faulty(sender) {
            format!("{name} calls it proven that a correct sender equivocated at {what}")
        } else {
            continue;
        };
        return view.violated(summary, [kept]);
    }
    if any { Verdict::Ok } else { Verdict::NotChecked("no equivocation was reported") }
}
