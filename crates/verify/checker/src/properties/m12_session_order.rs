//! M12 session order: a message is delivered after everything that its client had observed when it multicast the
//! message, in any groups.
//!
//! A client records in `heard` the final time that it has observed, and sends this time to the leaders with its next
//! multicast. Every delivery of the multicast therefore has a larger final time. By M5, final times rise in each order
//! and are the same everywhere. It follows that the union of all orders, with an edge from each message that a session
//! had observed to those that it multicast later, has no cycle.
//!
//! The property applies only to histories in which a client multicast a message after a `heard` event.

use crate::event::{Event, EventKind};
use crate::log::{Delivery, Heard};
use crate::report::Verdict;
use crate::view::View;

/// Judges the property. Returns `None` if no client recorded what it had observed before a multicast.
pub(super) fn check(view: &View<'_>) -> Option<Verdict> {
    let names_a_time = |message: u32| heard(view, message).is_some();
    if !view.log.sent_order.iter().any(|message| names_a_time(*message)) {
        return None;
    }
    let mut judged = view.log.deliveries.iter().enumerate().filter_map(|(index, delivery)| {
        let heard = heard(view, delivery.message)?;
        Some((index as u32, delivery, heard))
    });
    let too_early = |delivery: &Delivery, heard: Heard| delivery.deliver.ts.time <= heard.time;
    let mut any = false;
    let found = judged.find(|(_, delivery, heard)| {
        any = true;
        too_early(delivery, *heard)
    });
    Some(match found {
        Some((index, _, heard)) => show(view, index, heard),
        None if any => Verdict::Ok,
        None => Verdict::NotChecked("no message was delivered that a client multicast after a `heard` event"),
    })
}

fn heard(view: &View<'_>, message: u32) -> Option<Heard> {
    view.log.messages[message as usize].sent.and_then(|sent| sent.heard)
}

/// Shows the observation of the client, its origin if that is known, the client's message, and the delivery with a time
/// that is too small.
fn show(view: &View<'_>, index: u32, heard: Heard) -> Verdict {
    let delivery = &view.log.deliveries[index as usize];
    let message = delivery.message;
    let summary = format!(
        "{} is delivered at time {}, but its client had observed time {} when it multicast the message",
        view.text(message),
        delivery.deliver.ts.time,
        heard.time
    );
    let of_time = |earlier: &&Delivery| earlier.deliver.ts.time == heard.time && earlier.message != message;
    let known = view.log.deliveries.iter().position(|earlier| of_time(&earlier));
    let mut example = view.example(summary);
    if let Some(known) = known {
        example = example.delivery(known as u32);
    }
    if let Some(sent) = &view.log.messages[message as usize].sent {
        let (process, incarnation, kind) = (sent.process, sent.incarnation, EventKind::Heard { time: heard.time });
        example = example.event(&Event { t: heard.t, process, incarnation, kind }, heard.origin);
    }
    example.multicast(message).delivery(index).violated()
}
