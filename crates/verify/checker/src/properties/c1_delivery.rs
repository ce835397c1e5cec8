//! C1 delivery: messages arrive at most once, in the order sent, complete, on their connection. In a complete history
//! without errors of the fabric, every message arrives.

use super::NO_CHANNELS;
use crate::channels::{Channels, EndLog, transfer};
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, channels: &Channels) -> Verdict {
    let (nobody, mut lacking) = (EndLog::default(), None);
    for (end, log) in &channels.ends {
        let (name, connection) = (view.name(end.1), view.cluster.label_word(end.0));
        let other = channels.other(*end);
        if other.is_none() && !log.recvs.is_empty() && !view.records.are_all() {
            lacking = Some(connection);
            continue;
        }
        let sends = other.map_or(&nobody, |(_, log)| log).sends.as_slice();
        for (place, recv) in log.recvs.iter().enumerate() {
            let content = |kept| transfer(kept).map(|transfer| (transfer.len, transfer.hash));
            let send = sends.get(place);
            if send.and_then(content) == content(recv) {
                continue;
            }
            let index = transfer(recv).map_or(0, |transfer| transfer.index);
            let what = match sends.iter().position(|send| content(send) == content(recv)) {
                Some(sent) => format!("message {sent} when {place} was next"),
                None if send.is_some() => format!("message {index} with other bytes than were sent"),
                None => format!("message {index}, which nobody sent there"),
            };
            let summary = format!("{name} received on {connection} {what}");
            return view.violated(summary, send.into_iter().chain([recv]));
        }
        let disturbed = channels.is_disturbed(view, end.0);
        if disturbed {
            continue;
        }
        if let Some(failed) = &log.failed {
            let summary = format!("{connection} failed at {name}, and nothing was wrong with the fabric");
            return view.violated(summary, [failed]);
        }
        if view.complete
            && let Some(lost) = sends.get(log.recvs.len())
        {
            let summary = format!("{name} never received message {} of {connection}", log.recvs.len());
            return view.violated(summary, [lost]);
        }
    }
    if let Some(connection) = lacking {
        return Verdict::Incomplete(format!("the history of the other end of {connection} is missing"));
    }
    if channels.recvs == 0 && !view.complete { Verdict::NotChecked(NO_CHANNELS) } else { Verdict::Ok }
}
