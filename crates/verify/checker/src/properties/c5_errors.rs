//! C5 errors: every error is reported, with the operation, the peer and the cause.

use crate::channels::Channels;
use crate::event::EventKind;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, channels: &Channels) -> Verdict {
    let mut any = false;
    for ((connection, process), log) in &channels.ends {
        let (name, connection_name) = (view.name(*process), view.cluster.label_word(*connection));
        if let Some(failed) = &log.failed
            && let EventKind::Failed { operation, peer, cause, .. } = failed.event.kind
        {
            any = true;
            let unnamed = [operation, cause].into_iter().any(|label| view.cluster.label_word(label).is_empty());
            let stranger = channels.other((*connection, *process)).is_some_and(|(other, _)| other != peer);
            if unnamed || stranger {
                let what = if stranger { "another peer" } else { "no operation or no cause" };
                let summary = format!("the error of {connection_name} at {name} names {what}");
                return view.violated(summary, [failed]);
            }
        }
        if let Some(fault) = log.faults.first() {
            any = true;
            // A crashed process reports nothing, and errors after the close need no report.
            let told = log.failed.is_some() || log.closed.as_ref().is_some_and(|kept| kept.origin < fault.origin);
            if view.complete && view.log.is_up(*process) && !told {
                let summary = format!("{name} did not get a report that {connection_name} failed");
                return view.violated(summary, [fault]);
            }
            if let Some(sent) = log.sent.iter().find(|sent| sent.origin > fault.origin && !told) {
                let summary = format!("{name} got a completed write on {connection_name} after an error");
                return view.violated(summary, [fault, sent]);
            }
        }
    }
    if any { Verdict::Ok } else { Verdict::NotChecked("no error was recorded") }
}
