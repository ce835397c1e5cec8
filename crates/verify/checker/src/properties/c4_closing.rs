//! C4 closing: a connection is closed once the fabric has returned every operation, and nothing happens on it
//! afterwards.

use crate::channels::Channels;
use crate::event::EventKind;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, channels: &Channels) -> Verdict {
    for ((connection, process), log) in &channels.ends {
        let Some(closed) = &log.closed else { continue };
        let (name, connection) = (view.name(*process), view.cluster.label_word(*connection));
        if let EventKind::Closed { lent, .. } = closed.event.kind
            && lent > 0
        {
            let summary = format!("{connection} was closed at {name} while the fabric had {lent} of its operations");
            return view.violated(summary, [closed]);
        }
        if let Some(after) = &log.after {
            let summary = format!("{connection} has an event at {name} after it was closed");
            return view.violated(summary, [closed, after]);
        }
    }
    let closed = channels.ends.values().any(|log| log.closed.is_some());
    if closed { Verdict::Ok } else { Verdict::NotChecked("no connection was closed") }
}
