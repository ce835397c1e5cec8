//! B3 integrity: each life of a process delivers at most once per (sender, index). From a correct sender, it delivers
//! only what the sender broadcast, and the sender broadcast it once.

use std::collections::HashMap;

use super::NO_DELIVERIES;
use crate::broadcasts::{Broadcasts, text};
use crate::event::EventKind;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    let again = broadcasts.again.iter().find(|kept| !view.cluster.is_faulty(kept.event.process));
    if let Some(kept) = again
        && let EventKind::Broadcast(broadcast) = kept.event.kind
        && let Some(first) = broadcasts.sent.get(&(broadcast.sender, broadcast.index))
    {
        let summary = format!(
            "{} broadcast {} twice",
            view.name(broadcast.sender),
            text(view, (broadcast.sender, broadcast.index))
        );
        return view.violated(summary, [first, kept]);
    }
    let (mut seen, mut lacking) = (HashMap::new(), None);
    for (broadcast, kept) in broadcasts.deliveries() {
        let (process, index) = (kept.event.process, (broadcast.sender, broadcast.index));
        if view.cluster.is_faulty(process) {
            continue;
        }
        let name = view.name(process);
        if let Some(first) = seen.insert((process, kept.event.incarnation, index), *kept) {
            let summary = format!("{name} delivered {} twice", text(view, index));
            return view.violated(summary, [&first, kept]);
        }
        if view.cluster.is_faulty(broadcast.sender) {
            continue;
        }
        let sent = broadcasts.sent.get(&index);
        let reason = match sent.map(|sent| sent.event.kind) {
            Some(EventKind::Broadcast(sent)) if sent == broadcast => continue,
            Some(_) => "with other bytes than were broadcast",
            None if !view.records.would_have_broadcasts(broadcast.sender) => {
                lacking = Some(broadcast.sender);
                continue;
            }
            None => "which its correct sender never broadcast",
        };
        let summary = format!("{name} delivered {}, {reason}", text(view, index));
        return view.violated(summary, sent.into_iter().chain([kept]));
    }
    match lacking {
        Some(sender) => view.lacks_record(sender),
        None if !broadcasts.has_deliveries() => Verdict::NotChecked(NO_DELIVERIES),
        None => Verdict::Ok,
    }
}
