//! C3 credits: no more messages are in flight than were granted, so that no arriving message has to wait for a receive.

use crate::channels::Channels;
use crate::event::EventKind;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, channels: &Channels) -> Verdict {
    for ((connection, process), log) in &channels.ends {
        let Some(kept) = &log.beyond else { continue };
        let EventKind::InFlight { count, limit, .. } = kept.event.kind else { continue };
        let (name, connection) = (view.name(*process), view.cluster.label_word(*connection));
        let summary = format!("{name} had sent {count} on {connection} where {limit} were granted");
        return view.violated(summary, [kept]);
    }
    let counted = channels.ends.values().any(|log| log.counted);
    if counted { Verdict::Ok } else { Verdict::NotChecked("no process counted the messages in flight") }
}
