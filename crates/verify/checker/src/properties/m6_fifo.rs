//! M6 FIFO per client: messages of one client with a common destination group are delivered in the order in which the
//! client multicast them.
//!
//! A process that delivers a message has delivered before it all earlier messages of the same life of the client.
//! Between lives, messages may be missing, because a crashed client may leave holes. The order still holds.

use std::collections::HashMap;

use super::{NO_DELIVERIES, no_messages};
use crate::chain::Chain;
use crate::ids::{Group, Process};
use crate::log::Sent;
use crate::report::Verdict;
use crate::view::{View, destinations};

/// The position of a message among the messages of its client to one group.
#[derive(Clone, Copy, Default)]
struct Standing {
    /// The position, from 1.
    rank: u32,
    /// The previous message of the client to the group.
    previous: Option<u32>,
}

/// The last delivery of a client's message at a process.
#[derive(Clone, Copy)]
struct Last {
    rank: u32,
    delivery: u32,
    /// Number of snapshots that had been installed before the delivery.
    snapshots: usize,
}

pub(super) fn check(view: &View<'_>) -> Verdict {
    if let Some(why) = no_messages(view) {
        return Verdict::NotChecked(why);
    }
    if view.log.deliveries.is_empty() {
        return Verdict::NotChecked(NO_DELIVERIES);
    }
    let standings = standings(view);
    let mut marks = vec![u32::MAX; view.log.messages.len()];
    let faults = view.chains.iter().enumerate().filter_map(|(mark, chain)| {
        chain.group.and_then(|group| walk(view, &standings, chain, group, &mut marks, mark as u32))
    });
    faults.into_iter().next().unwrap_or(Verdict::Ok)
}

/// Returns the standing of every message at each of its destinations.
fn standings(view: &View<'_>) -> Vec<Standing> {
    let mut order = view.log.sent_order.clone();
    let sent = |message: u32| view.log.messages[message as usize].sent.as_ref();
    // The events of one life are in one file, in their order.
    let place = |sent: &Sent| (view.log.rank(sent.process, sent.incarnation), sent.origin);
    order.sort_by_key(|message| (view.log.messages[*message as usize].id.client, sent(*message).map(place)));
    let mut standings = vec![Standing::default(); view.slots.len()];
    let mut last: HashMap<(Process, Group), (u32, u32)> = HashMap::new();
    for message in order {
        let client = view.log.messages[message as usize].id.client;
        for group in destinations(&view.log.messages[message as usize]).iter() {
            let before = last.get(&(client, group)).copied();
            let rank = before.map_or(1, |(rank, _)| rank + 1);
            last.insert((client, group), (rank, message));
            if let Some(slot) = view.slots.slot(view.log, message, group) {
                standings[slot] = Standing { rank, previous: before.map(|(_, message)| message) };
            }
        }
    }
    standings
}

fn walk(
    view: &View<'_>,
    standings: &[Standing],
    chain: &Chain,
    group: Group,
    marks: &mut [u32],
    mark: u32,
) -> Option<Verdict> {
    let mut last: HashMap<Process, Last> = HashMap::new();
    for (at, delivery) in chain.deliveries.iter().enumerate() {
        let message = view.log.deliveries[*delivery as usize].message;
        let again = std::mem::replace(&mut marks[message as usize], mark) == mark;
        let Some(slot) = view.slots.slot(view.log, message, group).filter(|_| !again) else { continue };
        let standing = standings[slot];
        let snapshots = chain.snapshots.partition_point(|(place, _)| *place <= at);
        let client = view.log.messages[message as usize].id.client;
        let here = Last { rank: standing.rank, delivery: *delivery, snapshots };
        let before = last.insert(client, here);
        if let Some(before) = before.filter(|before| before.rank > standing.rank) {
            let (process, client) = (view.name(chain.process), view.name(client));
            let summary = format!("{process} delivered two messages of {client} against the order of their multicast");
            let earlier = view.log.deliveries[before.delivery as usize].message;
            let example = view.example(summary).multicast(message).multicast(earlier);
            return Some(example.delivery(before.delivery).delivery(*delivery).violated());
        }
        let expected = before.map_or(1, |before| before.rank + 1);
        let by_snapshot = snapshots > before.map_or(0, |before| before.snapshots);
        // A message to an ended history may be lost everywhere, so it is skipped here.
        let mut previous = standing.previous;
        while let Some(lost) = previous.filter(|lost| view.may_be_lost(&view.log.messages[*lost as usize], Some(group)))
        {
            let slot = view.slots.slot(view.log, lost, group);
            previous =
                slot.map(|slot| standings[slot]).filter(|lost| lost.rank > expected).and_then(|lost| lost.previous);
        }
        if standing.rank != expected && !by_snapshot && same_incarnation(view, previous, message) {
            let missing = previous?;
            let (process, text) = (view.name(chain.process), view.text(message));
            let summary = format!("{process} delivered {text} and not, before it, {}", view.text(missing));
            return Some(view.example(summary).multicast(missing).multicast(message).delivery(*delivery).violated());
        }
    }
    None
}

/// Returns whether the life that multicast the later message had also multicast the earlier one, even if it was not the
/// first to do so.
fn same_incarnation(view: &View<'_>, earlier: Option<u32>, later: u32) -> bool {
    let sent = |message: u32| view.log.messages[message as usize].sent.as_ref();
    let both = earlier.and_then(|earlier| Some((sent(earlier)?, sent(later)?)));
    both.is_some_and(|(earlier, later)| [earlier.incarnation, earlier.last_incarnation].contains(&later.incarnation))
}
