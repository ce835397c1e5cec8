//! B3 integrity: a process delivers at most once per (sender, index); if the sender is correct, only what it broadcast.

use std::collections::HashMap;

use super::NO_DELIVERIES;
use crate::broadcasts::{Broadcasts, text};
use crate::event::EventKind;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts) -> Verdict {
    let mut seen = HashMap::new();
    for delivered in &broadcasts.deliveries {
        let (broadcast, kept) = (&delivered.broadcast, &delivered.kept);
        let (process, index) = (kept.event.process, (broadcast.sender, broadcast.index));
        if view.cluster.is_faulty(process) {
            continue;
        }
        let name = view.name(process);
        if let Some(first) = seen.insert((process, kept.event.incarnation, index), *kept) {
            let summary = format!("{name} delivered {} twice", text(view, index));
            let example = view.example(summary).event(&first.event, first.origin);
            return example.event(&kept.event, kept.origin).violated();
        }
        if view.cluster.is_faulty(broadcast.sender) {
            continue;
        }
        let sent = broadcasts.sent.get(&index);
        let reason = match sent.map(|sent| sent.event.kind) {
            Some(EventKind::Broadcast(sent)) if sent == *broadcast => continue,
            Some(_) => "with other bytes than were broadcast",
            None => "which its correct sender never broadcast",
        };
        let mut example = view.example(format!("{name} delivered {}, {reason}", text(view, index)));
        if let Some(sent) = sent {
            example = example.event(&sent.event, sent.origin);
        }
        return example.event(&kept.event, kept.origin).violated();
    }
    if broadcasts.deliveries.is_empty() { Verdict::NotChecked(NO_DELIVERIES) } else { Verdict::Ok }
}
