//! C2 callback order: completed writes are reported, and received messages are handed over, in the order of the
//! operations, whatever the order of completions is. In a complete history, every write is reported, except on a
//! connection that failed or was disturbed.

use super::NO_CHANNELS;
use crate::channels::Channels;
use crate::event::EventKind;
use crate::log::Kept;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, channels: &Channels) -> Verdict {
    for ((connection, process), log) in &channels.ends {
        let (name, connection_name) = (view.name(*process), view.cluster.label_word(*connection));
        for (calls, what) in [(&log.sent, "got the completed write of"), (&log.recvs, "was handed")] {
            let mut last: Option<&Kept> = None;
            for (next, kept) in calls.iter().enumerate() {
                let index = match kept.event.kind {
                    EventKind::Sent { index, .. } | EventKind::Recv { index, .. } => index,
                    _ => continue,
                };
                if index != next as u64 {
                    let summary = format!("{name} {what} message {index} of {connection_name} when {next} was next");
                    return view.violated(summary, last.into_iter().chain([kept]));
                }
                last = Some(kept);
            }
        }
        let disturbed = channels.is_disturbed(view, *connection) || log.failed.is_some();
        if view.complete
            && !disturbed
            && let Some(lost) = log.sends.get(log.sent.len())
        {
            let summary =
                format!("{name} never got a report of the write of message {} of {connection_name}", log.sent.len());
            return view.violated(summary, [lost]);
        }
    }
    if channels.sends == 0 { Verdict::NotChecked(NO_CHANNELS) } else { Verdict::Ok }
}
