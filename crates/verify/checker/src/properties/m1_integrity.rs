//! M1 integrity: a process delivers a message at most once, only if it is in a destination group, and only if the
//! message was multicast, with the same bytes.
//!
//! "At most once" applies to one application: a process that recovered with the state after delivery `from` delivers
//! later messages again, but none up to `from`.

use super::{NO_DELIVERIES, no_messages};
use crate::chain::Chain;
use crate::event::EventKind;
use crate::ids::Process;
use crate::log::{Delivery, Sent};
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>) -> Verdict {
    if let Some(why) = no_messages(view).filter(|_| view.log.deliveries.is_empty()) {
        return Verdict::NotChecked(why);
    }
    if let Some(verdict) = conflict(view) {
        return verdict;
    }
    let fault = (0..view.log.deliveries.len() as u32).find_map(|delivery| wrong(view, delivery));
    if let Some(verdict) = fault.or_else(|| repeated(view)) {
        return verdict;
    }
    if view.log.deliveries.is_empty() {
        return Verdict::NotChecked(NO_DELIVERIES);
    }
    elsewhere(view).map_or(Verdict::Ok, |client| view.lacks_record(client))
}

/// Returns the client of a delivered message whose multicast may be in a missing file.
fn elsewhere(view: &View<'_>) -> Option<Process> {
    let messages = view.log.deliveries.iter().map(|delivery| &view.log.messages[delivery.message as usize]);
    let mut lacking = messages.filter(|message| message.sent.is_none());
    lacking.next().map(|message| message.id.client)
}

/// Returns a violation if one message was multicast with two contents, or twice by one life of its client.
fn conflict(view: &View<'_>) -> Option<Verdict> {
    let kept = view.log.conflicts.first()?;
    let (EventKind::Multicast(multicast) | EventKind::Synced(multicast)) = kept.event.kind else { return None };
    let first = view.log.messages.iter().position(|message| message.id == multicast.m)?;
    let text = view.message_text(multicast.m);
    let sent = view.log.messages[first].sent.map(|sent| sent.multicast);
    let summary = if sent == Some(multicast) {
        format!("{text} was multicast twice in one life of its client")
    } else {
        format!("two different messages were multicast as {text}")
    };
    Some(view.example(summary).multicast(first as u32).kept(kept).violated())
}

fn wrong(view: &View<'_>, index: u32) -> Option<Verdict> {
    let delivery = &view.log.deliveries[index as usize];
    let message = &view.log.messages[delivery.message as usize];
    let reason = match &message.sent {
        None if !view.records.would_have(message.id) => return None,
        None if view.records.may_lack_the_end(message.id, delivery, view.log) => {
            let client = view.name(message.id.client);
            format!("which nobody multicast (or a line of {client}'s history is missing)")
        }
        None => "which nobody multicast".to_owned(),
        Some(sent) => mismatch(view, delivery, sent)?.to_owned(),
    };
    let (process, message) = (view.name(delivery.process), view.text(delivery.message));
    let summary = format!("{process} delivered {message}, {reason}");
    Some(view.example(summary).multicast(delivery.message).delivery(index).violated())
}

/// Returns the mismatch between a delivery and its multicast, if there is one.
fn mismatch(view: &View<'_>, delivery: &Delivery, sent: &Sent) -> Option<&'static str> {
    let group = view.cluster.group_of(delivery.process);
    if group != Some(delivery.deliver.group) {
        Some("as a member of a group that it is not in")
    } else if !sent.multicast.to.contains(delivery.deliver.group) {
        Some("but its group is no destination")
    } else if delivery.deliver.hash != sent.multicast.hash {
        Some("with other bytes than were multicast")
    } else if delivery.deliver.len.is_some_and(|len| len != sent.multicast.len) {
        Some("with another length than was multicast")
    } else if view.cluster.has_global_clock() && !sent.only_returned && delivery.t < sent.t {
        Some("before it was multicast")
    } else {
        None
    }
}

fn repeated(view: &View<'_>) -> Option<Verdict> {
    let mut marks = vec![u32::MAX; view.log.messages.len()];
    for (mark, chain) in view.chains.iter().enumerate() {
        for delivery in &chain.deliveries {
            let message = view.log.deliveries[*delivery as usize].message;
            if std::mem::replace(&mut marks[message as usize], mark as u32) == mark as u32 {
                return Some(show_repeated(view, chain, message, *delivery));
            }
        }
    }
    None
}

fn show_repeated(view: &View<'_>, chain: &Chain, message: u32, again: u32) -> Verdict {
    let of_message = |delivery: &&u32| view.log.deliveries[**delivery as usize].message == message;
    let first = *chain.deliveries.iter().find(of_message).expect("a repeated delivery has a first");
    let summary = format!("{} delivered {} twice", view.name(chain.process), view.text(message));
    view.example(summary).delivery(first).delivery(again).violated()
}
