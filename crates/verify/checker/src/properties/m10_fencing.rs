//! M10 fencing: after a new ballot's leader is ready, nothing written by an older leader is decided.
//!
//! A history does not contain the instant at which a message is decided: a process may learn the decision late, and
//! correctly deliver under an old ballot long after a newer leader was ready. The history does contain the
//! consequences. Let a message be decided under ballot b of its group: a majority acknowledged it under b. The leader
//! of a later ballot b' was ready when a majority had promised b' and installed its state, which was merged from the
//! replies of a majority. The majorities have a process in common. This process acknowledged the message under b before
//! it promised b', or it never acknowledged it. Therefore:
//!
//! 1. *State.* The state with which the leader of b' was ready contains every message that was or will be decided under
//!    any b < b'. A ready leader records the content of its state: the numbers that it had delivered, and one `carry`
//!    for every other message. If a message was delivered under an older ballot and is neither numbered nor carried, it
//!    was decided too late. This rule needs no clock, and the time of each delivery is irrelevant.
//! 2. *Time.* No message that was multicast after the leader of b' was ready is delivered under an older ballot. This
//!    follows from rule 1, but needs no `carry` events, only one clock: `multicast` is recorded before the first write,
//!    and `epoch` when the leader is ready or later.
//! 3. *One leader.* A ballot becomes ready once: a process that lost its memory does not lead under its old ballot
//!    again.
//!
//! No rule rejects a correct run. A leader that records its readiness too late has a larger state, at a later time. A
//! process that delivers under a newer ballot than the one of the decision weakens the check, but does not make it
//! wrong. If an old leader decides a *different* message under a number that the new leader had delivered, this is a
//! disagreement (M5) in the same history.

use super::NO_DELIVERIES;
use crate::ids::{Ballot, Group, Process};
use crate::log::Ready;
use crate::report::Verdict;
use crate::view::View;

/// A leader that became ready.
struct Leader<'a> {
    process: Process,
    ready: &'a Ready,
    /// Number of the leader's last delivery before it was ready.
    last: u64,
}

/// A delivery under a ballot that is not the newest one.
#[derive(Clone, Copy)]
struct Old {
    ballot: Ballot,
    number: u64,
    message: u32,
    delivery: u32,
}

pub(super) fn check(view: &View<'_>) -> Verdict {
    let leaders = leaders(view);
    if leaders.iter().all(Vec::is_empty) {
        return Verdict::NotChecked("no leader recorded when it was ready");
    }
    let faults = leaders.iter().find_map(|leaders| twice(view, leaders).or_else(|| miscounted(view, leaders)));
    if let Some(verdict) = faults {
        return verdict;
    }
    if view.log.deliveries.is_empty() {
        return Verdict::NotChecked(NO_DELIVERIES);
    }
    let with_ballot = view.log.deliveries.iter().filter(|delivery| delivery.deliver.ballot.is_some());
    let mut led = with_ballot.map(|delivery| &leaders[delivery.deliver.group.index()]).filter(|led| !led.is_empty());
    if led.next().is_none() {
        return Verdict::NotChecked("no delivery says under which ballot its message was decided");
    }
    let named = leaders.iter().flatten().any(|leader| leader.ready.carried.is_some());
    if !named && !view.cluster.has_global_clock() {
        return Verdict::NotChecked("no leader recorded what it carries, and the times do not come from one clock");
    }
    let groups = view.cluster.groups();
    groups.into_iter().find_map(|group| in_group(view, group, &leaders[group.index()])).unwrap_or(Verdict::Ok)
}

/// Returns the ready leaders of each group, by ballot.
fn leaders<'a>(view: &View<'a>) -> Vec<Vec<Leader<'a>>> {
    let mut leaders: Vec<Vec<Leader<'a>>> = view.cluster.groups().map(|_| Vec::new()).collect();
    for (process, lives) in view.log.lives.iter().enumerate() {
        let process = Process(process as u32);
        for (index, life) in lives.iter().enumerate() {
            for ready in &life.ready {
                let last = view.log.last_number(process, index, ready.place);
                leaders[ready.group.index()].push(Leader { process, ready, last });
            }
        }
    }
    leaders.iter_mut().for_each(|leaders| leaders.sort_by_key(|leader| leader.ready.ballot));
    leaders
}

/// Rule 3. Returns a violation if two lives were ready in one ballot.
fn twice(view: &View<'_>, leaders: &[Leader<'_>]) -> Option<Verdict> {
    let life = |leader: &Leader<'_>| (leader.process, leader.ready.kept.event.incarnation);
    let same = |pair: &&[Leader<'_>]| pair[0].ready.ballot == pair[1].ready.ballot && life(&pair[0]) != life(&pair[1]);
    let pair = leaders.windows(2).find(same)?;
    let summary = format!("two leaders were ready in one ballot of {}", view.cluster.group_id(pair[0].ready.group));
    let example = view.example(summary);
    Some(pair.iter().fold(example, |example, leader| show(example, leader)).violated())
}

/// Returns a violation if a leader named another number of carried messages than it counted. Its list proves nothing in
/// that case.
fn miscounted(view: &View<'_>, leaders: &[Leader<'_>]) -> Option<Verdict> {
    let leader = leaders.iter().find(|leader| leader.ready.not_named != 0)?;
    let named = leader.ready.carried.as_ref().map_or(0, Vec::len);
    let summary = format!("{} named {named} carried messages and counted another number", view.name(leader.process));
    Some(show(view.example(summary), leader).violated())
}

fn show<'a>(example: crate::view::Example<'a>, leader: &Leader<'_>) -> crate::view::Example<'a> {
    example.kept(&leader.ready.kept)
}

fn in_group(view: &View<'_>, group: Group, leaders: &[Leader<'_>]) -> Option<Verdict> {
    let newest = leaders.last()?.ready.ballot;
    let deliveries = view.log.deliveries.iter().enumerate();
    let of_group = deliveries.filter(|(_, delivery)| delivery.deliver.group == group);
    let old = of_group.filter_map(|(index, delivery)| {
        let ballot = delivery.deliver.ballot.filter(|ballot| *ballot < newest)?;
        Some(Old { ballot, number: delivery.deliver.number, message: delivery.message, delivery: index as u32 })
    });
    let mut old: Vec<Old> = old.collect();
    if let Some((late, leader)) = multicast_later(view, leaders, &old) {
        let (process, text) = (view.name(leader.process), view.text(late.message));
        let summary = format!("{text} was multicast after {process} was ready, and decided under an older ballot");
        return Some(show(view.example(summary), leader).multicast(late.message).delivery(late.delivery).violated());
    }
    let (lacked, leader) = not_held(leaders, &mut old)?;
    let (process, text) = (view.name(leader.process), view.text(lacked.message));
    let summary =
        format!("{text} was decided under an older ballot than the one in which {process} was ready without it");
    Some(show(view.example(summary), leader).delivery(lacked.delivery).violated())
}

/// Rule 2. Returns a violating delivery and the newer leader.
fn multicast_later<'l, 'a>(view: &View<'_>, leaders: &'l [Leader<'a>], old: &[Old]) -> Option<(Old, &'l Leader<'a>)> {
    if !view.cluster.has_global_clock() {
        return None;
    }
    // For each index, the leader at that or a later index that was ready first.
    let mut first: Vec<&Leader<'_>> = Vec::with_capacity(leaders.len());
    for leader in leaders.iter().rev() {
        let earliest = first.last().filter(|first| first.ready.kept.event.t <= leader.ready.kept.event.t);
        first.push(earliest.copied().unwrap_or(leader));
    }
    first.reverse();
    old.iter().find_map(|old| {
        let sent = view.log.messages[old.message as usize].sent.as_ref().filter(|sent| !sent.only_returned)?;
        let newer = first.get(leaders.partition_point(|leader| leader.ready.ballot <= old.ballot))?;
        (newer.ready.kept.event.t < sent.t).then_some((*old, *newer))
    })
}

/// Rule 1. Returns a violating delivery and the newer leader. The time is linear, except for sorting: a leader with a
/// complete state has named all the messages that are examined here.
fn not_held<'l, 'a>(leaders: &'l [Leader<'a>], old: &mut Vec<Old>) -> Option<(Old, &'l Leader<'a>)> {
    let mut highest: Vec<(Ballot, u64)> = old.iter().map(|old| (old.ballot, old.number)).collect();
    highest.sort_unstable();
    let mut highest_number = 0;
    for (_, number) in &mut highest {
        highest_number = highest_number.max(*number);
        *number = highest_number;
    }
    old.sort_unstable_by_key(|old| (old.number, old.message, old.ballot, old.delivery));
    old.dedup_by_key(|old| (old.number, old.message));
    leaders.iter().find_map(|leader| {
        let carried = leader.ready.carried.as_ref()?;
        let ballot = leader.ready.ballot;
        let below = highest.partition_point(|(of, _)| *of < ballot).checked_sub(1)?;
        let from = old.partition_point(|old| old.number <= leader.last);
        let to = old.partition_point(|old| old.number <= highest[below].1);
        let behind = old.get(from..to)?.iter().filter(|old| old.ballot < ballot);
        let mut lacked = behind.filter(|old| carried.binary_search(&old.message).is_err());
        lacked.next().map(|old| (*old, leader))
    })
}
