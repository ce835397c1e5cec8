//! Splits a run into the histories of its groups' states, if a group has several.
//!
//! A group that lost its memory is founded anew, or an operator resets it. Another *history* of its state begins then,
//! with the first deliveries of the previous history, or with none. The properties hold for the common part of two
//! histories without change. For later deliveries they hold within each history, but not across histories.
//!
//! # How histories are split
//! Each history becomes a group of its own before any property is judged. The latest history keeps the number of the
//! group and its processes. An earlier history is *ended*: it gets a new group, with processes of the same names and
//! with numbers above all others. A process that held several histories in sequence is split into one process for each
//! of them.
//!
//! - **The history of a life.** A life records the history that it holds (`begun`). A life that continues into the next
//!   history with its own state has delivered no more than that history keeps; otherwise it ends. Its deliveries up to
//!   that number therefore belong to both histories, and later ones only to the second. A life without a record belongs
//!   to the last history of the previous life, or to the group's first.
//! - **Kept deliveries.** The deliveries of a history are also part of the next one, up to the number that it keeps.
//! - **Ready leaders.** The upper half of a ballot's number is the number of the incarnation, so it identifies the
//!   history.
//! - **Destinations.** The destinations of a message are those histories of a group that delivered it. If none did, the
//!   destination is the latest history, provided that the life of the message's client recorded its first multicast
//!   after that history had begun, and that all times are from one clock. Otherwise it is the history before.
//!
//! # Guarantees across histories
//! - If any process delivered a message, even in an ended history, all correct members of its other destinations
//!   deliver it (M2), because the surviving histories determine the outcome. The message has one timestamp and one
//!   position in the order.
//! - A message to an ended history need not be delivered (M3, M9). A message that no process delivered leaves no hole
//!   (M6).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::cluster::Cluster;
use crate::event::Begun;
use crate::ids::{Group, GroupSet, Incarnation, MAX_GROUPS, Process};
use crate::log::{Life, Log};

/// Number of bits of a ballot's number below the incarnation's number.
const BALLOT_BITS: u32 = 32;

/// A run after the split, in which each group has one history.
pub(crate) struct Apart {
    pub(crate) cluster: Cluster,
    pub(crate) log: Log,
    /// Groups that represent ended histories.
    pub(crate) ended: GroupSet,
    /// Processes of the ended groups, each with the process that it represents.
    pub(crate) stands_for: Vec<(Process, Process)>,
}

/// A history of a group's state.
#[derive(Debug)]
struct History {
    begun: Begun,
    /// Time at which a life first recorded that it holds this history, in nanoseconds.
    at: u64,
    /// The group that represents the history.
    group: Group,
    /// The processes of `group`, in the order of the members.
    members: Vec<Process>,
}

/// Splits the run into histories. Returns `None` if no group has several, and an error if there are more than the
/// checker supports.
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

/// Returns the histories of a group, by incarnation, each with the time at which it was first held.
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
    /// Creates a group for each ended history.
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

    /// Distributes the events of a process to its histories.
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

    /// Adds the events of a life in `history`, until the life continued in `next`.
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

    /// Adds the deliveries of a life to the later histories that keep them, although the life never held these
    /// histories.
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

    /// Copies the deliveries of a life up to a number, as deliveries of `process` in the group that represents the
    /// history.
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

    /// Replaces the destinations of each message by the histories that count as its destinations.
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
