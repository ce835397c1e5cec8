//! Takes the histories of a group's state apart, where one run has several.
//!
//! A group that lost its memory is founded anew, or an operator resets it: then another *history* of its state begins, with the
//! first deliveries of the one before, or with none. What the histories have in common is promised as ever; what comes later is
//! promised in each of them, and not across.
//!
//! # How
//! Each history becomes a group of its own before anything is judged. The latest keeps the group's place, with its processes; an
//! earlier one is *ended*, and gets processes of the same names behind all others. A process that held several histories one
//! after the other is one in each of them.
//!
//! - **Which history.** A life says which one it holds (`begun`). A life that goes on in the next history with its own state has
//!   delivered no more than that history keeps; otherwise it ends. So its deliveries up to that number are of both histories,
//!   and later ones of the second alone. A life that says nothing is of the history that the life before it held last, or of the
//!   group's first.
//! - **What is kept.** The deliveries of a history are part of the next one, too, up to the number that it keeps.
//! - **Ready leaders.** The upper half of a ballot's number is that of the incarnation, so it tells which history it is of.
//! - **Destinations.** A message has as its destination the histories of a group that delivered it. If none did, it is the
//!   latest, if the life of its client began after that did; otherwise it was under way to the one before.
//!
//! # What is promised across
//! - A message that anybody delivered, also in an ended history, is delivered by all correct members of its other
//!   destinations (M2): who goes on settles it. It has one timestamp, and one place in the order.
//! - A message to an ended history need not be delivered (M3, M9), and one that nobody delivered leaves a hole that is none
//!   (M6).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::cluster::Cluster;
use crate::event::Begun;
use crate::ids::{Group, GroupSet, Incarnation, MAX_GROUPS, Process};
use crate::log::{Life, Log};

/// Bits of a ballot's number below those of the incarnation.
const BALLOT_BITS: u32 = 32;

/// A run in which each group has one history.
pub(crate) struct Apart {
    pub(crate) cluster: Cluster,
    pub(crate) log: Log,
    /// Groups that stand for histories that are over.
    pub(crate) ended: GroupSet,
    /// Processes of those, each with the process that it stands for.
    pub(crate) stands_for: Vec<(Process, Process)>,
}

/// A history of a group.
#[derive(Debug)]
struct History {
    begun: Begun,
    /// When a life first recorded that it holds this history, ns.
    at: u64,
    /// The group that stands for it, and its processes by the place of the member.
    group: Group,
    members: Vec<Process>,
}

/// Takes the histories apart; `None` if no group has several. Fails if there are more than the checker has room for, and says so.
pub(crate) fn apart(log: &Log, cluster: &Cluster) -> Result<Option<Apart>, String> {
    let histories: Vec<Vec<(Begun, u64)>> = cluster.groups().map(|group| of_group(log, cluster, group)).collect();
    let more: usize = histories.iter().map(|all| all.len().saturating_sub(1)).sum();
    if more == 0 {
        return Ok(None);
    }
    let all = cluster.groups().len() + more;
    if all > MAX_GROUPS {
        return Err(format!("the groups have {all} histories, and at most {MAX_GROUPS} can be judged"));
    }
    let mut apart =
        Apart { cluster: cluster.clone(), log: log.without_lives(), ended: GroupSet::EMPTY, stands_for: Vec::new() };
    let mut by_group: BTreeMap<Group, Vec<History>> = BTreeMap::new();
    for (group, all) in cluster.groups().zip(histories) {
        by_group.insert(group, apart.name(group, all));
    }
    for process in (0..log.lives.len() as u32).map(Process) {
        let histories = cluster.group_of(process).and_then(|group| by_group.get(&group));
        match histories.filter(|histories| histories.len() > 1) {
            Some(histories) => apart.split(log, process, histories),
            None => apart.copy(log, process),
        }
    }
    apart.readdress(log, &by_group);
    Ok(Some(apart))
}

/// The histories of a group, by incarnation, and when each was held first.
fn of_group(log: &Log, cluster: &Cluster, group: Group) -> Vec<(Begun, u64)> {
    let mut all: BTreeMap<Incarnation, (Begun, u64)> = BTreeMap::new();
    let lives = cluster.members(group).iter().filter_map(|process| log.lives.get(process.index())).flatten();
    for (begun, t) in lives.flat_map(|life| &life.begun) {
        let known = all.entry(begun.incarnation).or_insert((*begun, *t));
        known.1 = known.1.min(*t);
    }
    all.into_values().collect()
}

impl Apart {
    /// Makes a group for each history that is over.
    fn name(&mut self, group: Group, all: Vec<(Begun, u64)>) -> Vec<History> {
        let last = all.len().saturating_sub(1);
        let mut named = Vec::with_capacity(all.len());
        for (index, (begun, at)) in all.into_iter().enumerate() {
            let members = self.cluster.members(group).to_vec();
            if index == last {
                named.push(History { begun, at, group, members });
                continue;
            }
            let (ended, doubles) = self.cluster.add_ended(group, begun.incarnation);
            self.ended.insert(ended);
            for (double, member) in doubles.iter().zip(&members) {
                self.log.stand_for(*double, *member);
            }
            self.stands_for.extend(doubles.iter().copied().zip(members));
            named.push(History { begun, at, group: ended, members: doubles });
        }
        named
    }

    fn copy(&mut self, log: &Log, process: Process) {
        for life in &log.lives[process.index()] {
            let copied = self.deliveries(log, life, u64::MAX, process, None);
            let mut life = life.clone();
            life.deliveries = copied;
            self.put(process, life);
        }
    }

    /// Gives each history what a process did in it.
    fn split(&mut self, log: &Log, process: Process, histories: &[History]) {
        // The last history has the group's own members.
        let members = histories.last().map_or(&[][..], |last| &last.members);
        let place = members.iter().position(|member| *member == process).unwrap_or(0);
        let mut before = 0;
        for life in &log.lives[process.index()] {
            let find = |begun: &Begun| histories.iter().position(|of| of.begun.incarnation == begun.incarnation);
            let mut held: Vec<usize> = life.begun.iter().filter_map(|(begun, _)| find(begun)).collect();
            held.dedup();
            if held.is_empty() {
                held.push(before);
            }
            before = held[held.len() - 1];
            for (at, history) in held.iter().enumerate() {
                let next = held.get(at + 1).map(|next| &histories[*next].begun);
                self.take(log, life, &histories[*history], next, place);
            }
            self.inherit(log, life, &held, histories, place);
        }
    }

    /// What a life did in a history, until it went on in the next one.
    fn take(&mut self, log: &Log, life: &Life, history: &History, next: Option<&Begun>, place: usize) {
        let upto = next.map_or(u64::MAX, |next| next.kept);
        let process = history.members[place];
        let deliveries = self.deliveries(log, life, upto, process, Some(history.group));
        let number = |ballot: u64| u32::try_from(ballot >> BALLOT_BITS).unwrap_or(u32::MAX);
        let (from, to) = (history.begun.incarnation.number, next.map_or(u32::MAX, |next| next.incarnation.number));
        let mut ready = life.ready.clone();
        ready.retain(|ready| {
            number(ready.ballot.number) >= from && (next.is_none() || number(ready.ballot.number) < to)
        });
        for ready in &mut ready {
            (ready.group, ready.place) = (history.group, ready.place.min(deliveries.len()));
        }
        let mut life = life.clone();
        (life.deliveries, life.ready, life.crashed) = (deliveries, ready, life.crashed || next.is_some());
        self.put(process, life);
    }

    /// What later histories keep of what a life did in those that are over.
    fn inherit(&mut self, log: &Log, life: &Life, held: &[usize], histories: &[History], place: usize) {
        let mut has: BTreeSet<usize> = held.iter().copied().collect();
        for (index, history) in histories.iter().enumerate() {
            let Some(after) = history.begun.after.filter(|_| history.begun.kept > 0 && !has.contains(&index)) else {
                continue;
            };
            if histories.iter().position(|of| of.begun.incarnation == after).is_some_and(|after| has.contains(&after)) {
                has.insert(index);
                let process = history.members[place];
                let deliveries = self.deliveries(log, life, history.begun.kept, process, Some(history.group));
                let recovered = life.recovered.filter(|recovered| recovered.from <= history.begun.kept);
                if !deliveries.is_empty() || recovered.is_some() {
                    let mut life = life.clone();
                    (life.deliveries, life.recovered, life.ready, life.crashed) =
                        (deliveries, recovered, Vec::new(), true);
                    self.put(process, life);
                }
            }
        }
    }

    fn put(&mut self, process: Process, life: Life) {
        if self.log.lives.len() <= process.index() {
            self.log.lives.resize_with(process.index() + 1, Vec::new);
        }
        self.log.lives[process.index()].push(life);
    }

    /// Copies the deliveries of a life up to a number, as ones of this process, in the group that stands for the history.
    fn deliveries(&mut self, log: &Log, life: &Life, upto: u64, process: Process, group: Option<Group>) -> Vec<u32> {
        let of_life = life.deliveries.iter().map(|delivery| log.deliveries[*delivery as usize]);
        let mut copied = Vec::new();
        for mut delivery in of_life.filter(|delivery| delivery.deliver.number <= upto) {
            delivery.process = process;
            delivery.deliver.group = group.unwrap_or(delivery.deliver.group);
            copied.push(self.log.deliveries.len() as u32);
            self.log.deliveries.push(delivery);
        }
        copied
    }

    /// Names the histories to which each message went.
    fn readdress(&mut self, log: &Log, by_group: &BTreeMap<Group, Vec<History>>) {
        let mut delivered = vec![GroupSet::EMPTY; log.messages.len()];
        for delivery in &self.log.deliveries {
            delivered[delivery.message as usize].insert(delivery.deliver.group);
        }
        let mut began: HashMap<(Process, u64), u64> = HashMap::new();
        for sent in log.messages.iter().filter_map(|message| message.sent.as_ref()) {
            let known = began.entry((sent.process, sent.incarnation)).or_insert(sent.t);
            *known = (*known).min(sent.t);
        }
        let one_clock = self.cluster.has_global_clock();
        for (message, delivered) in self.log.messages.iter_mut().zip(delivered) {
            let Some(sent) = &mut message.sent else { continue };
            let life = began.get(&(sent.process, sent.incarnation)).copied().unwrap_or(0);
            let mut to = GroupSet::EMPTY;
            for group in sent.multicast.to.iter() {
                let histories = by_group.get(&group).map_or(&[][..], Vec::as_slice);
                let by = histories.iter().filter(|history| delivered.contains(history.group));
                let mut by: Vec<Group> = by.map(|history| history.group).collect();
                if let ([.., before, last], true) = (histories, by.is_empty()) {
                    let later = one_clock && life > last.at;
                    by.push(if later { last.group } else { before.group });
                } else if by.is_empty() {
                    by.push(group);
                }
                by.into_iter().for_each(|group| to.insert(group));
            }
            sent.multicast.to = to;
        }
    }
}
