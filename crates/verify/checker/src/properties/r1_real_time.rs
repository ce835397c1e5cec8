//! R1 real-time order: if a message was delivered anywhere before a second message was multicast, no process delivers
//! the second before the first.
//!
//! The property covers messages with a common destination. With three groups or more, the union of the orders may lead
//! from the later message to the earlier one: in a genuine multicast only the destinations take part, so they cannot
//! know of a delivery in a group that they do not share.
//!
//! The property is judged only if all times are from one clock. `multicast` is recorded before the multicast begins and
//! `deliver` after the delivery, so the recorded times never imply an order that did not exist.

use super::{NO_DELIVERIES, no_messages};
use crate::order::Paths;
use crate::report::Verdict;
use crate::view::View;

/// The latest multicast among a message and all messages before it in the order.
#[derive(Clone, Copy)]
struct Latest {
    t: u64,
    message: u32,
}

pub(super) fn check(view: &View<'_>) -> Verdict {
    if !view.cluster.has_global_clock() {
        return Verdict::NotChecked("the times do not come from one clock (the cluster line does not say \"global\")");
    }
    if let Some(why) = no_messages(view) {
        return Verdict::NotChecked(why);
    }
    if view.log.deliveries.is_empty() {
        return Verdict::NotChecked(NO_DELIVERIES);
    }
    let first = first_deliveries(view);
    match within_one_process(view, &first) {
        Some((late, early)) => show(view, &first, late, early),
        None => Verdict::Ok,
    }
}

/// Returns the first delivery of each message at any process.
fn first_deliveries(view: &View<'_>) -> Vec<Option<u32>> {
    let mut first: Vec<Option<u32>> = vec![None; view.log.messages.len()];
    for (index, delivery) in view.log.deliveries.iter().enumerate() {
        let known = &mut first[delivery.message as usize];
        if known.is_none_or(|known| delivery.t < view.log.deliveries[known as usize].t) {
            *known = Some(index as u32);
        }
    }
    first
}

fn sent_at(view: &View<'_>, message: u32) -> Option<Latest> {
    let sent = view.log.messages[message as usize].sent.as_ref().filter(|sent| !sent.only_returned);
    sent.map(|sent| Latest { t: sent.t, message })
}

fn later(one: Option<Latest>, other: Option<Latest>) -> Option<Latest> {
    match (one, other) {
        (Some(a), Some(b)) => Some(if b.t > a.t { b } else { a }),
        (one, other) => one.or(other),
    }
}

/// Returns a violation if `message` had been delivered somewhere before `before` was multicast. `before` is the latest
/// multicast of the messages that precede `message` in the order. The violation is the later and the earlier message.
fn too_late(view: &View<'_>, first: &[Option<u32>], before: Option<Latest>, message: u32) -> Option<(u32, u32)> {
    let latest = before?;
    let delivered = view.log.deliveries[first[message as usize]? as usize].t;
    (delivered < latest.t && latest.message != message).then_some((latest.message, message))
}

/// Returns the later and the earlier message of a violation: a process delivered the message that was multicast later
/// before the other one.
fn within_one_process(view: &View<'_>, first: &[Option<u32>]) -> Option<(u32, u32)> {
    view.chains.iter().find_map(|chain| {
        let mut latest = None;
        chain.deliveries.iter().find_map(|delivery| {
            let message = view.log.deliveries[*delivery as usize].message;
            let fault = too_late(view, first, latest, message);
            latest = later(latest, sent_at(view, message));
            fault
        })
    })
}

fn show(view: &View<'_>, first: &[Option<u32>], late: u32, early: u32) -> Verdict {
    let (later, earlier) = (view.text(late), view.text(early));
    let summary = format!("{earlier} was delivered before {later} was multicast, and {later} is ordered before it");
    let delivered = first[early as usize].into_iter();
    let example = delivered.fold(view.example(summary), |example, d| example.delivery(d)).multicast(late);
    let path = Paths::new(view.chains, view.log).shortest(late, early, usize::MAX).unwrap_or_default();
    path.iter().fold(example, |example, step| example.delivery(step.earlier).delivery(step.later)).violated()
}
