//! Judges runs in which groups lose their memory: each history of a group separately.
//!
//! The checker determines histories from recorded files. A simulated run has more information: the history of each
//! delivery, and the incarnation that a client knew at each multicast. It can therefore be judged without assumptions.
//!
//! A group that is reset or founded anew begins a *history*. A history is identified by its origins ([`Origin`]), which
//! contain the number of deliveries that it shares with the previous one. A delivery is *on* a history if the
//! delivering member's history shares the delivery with that history. The *last* history of a group is that of its
//! largest incarnation since it last began from nothing. A client multicasts to the history that it knows.
//!
//! The actions of a member count for the history in which it is seen next. Its application may receive a state before
//! the member itself has installed it, while the member is still seen in another history. The application's later
//! actions are therefore held back until the member has as many deliveries. They count for no history if the
//! application begins anew before that.
//!
//! A message is *lossy* if the last history of a destination group has another origin than the history to which it was
//! multicast. That group may lack the message, and the other groups, the *survivors*, determine its outcome. The
//! checker judges selections of the events, by the general definitions:
//! - *The last histories*, with all events. A lossy message that was delivered on none of them counts as never
//!   multicast. Any other lossy message counts as multicast to its survivors and to the groups that have delivered it.
//!   It must therefore be delivered by all survivors, or by none.
//! - *Each other history*, with the deliveries of its members only: integrity, order, FIFO, fencing, rejoin. Liveness
//!   and agreement ended with the history.
//! - *Each other history together with the last ones of the other groups*: no cycle of orders, and no violation of real
//!   time.
//! - *All operations and memory*: genuineness and bounds do not depend on histories.
//!
//! Messages that a process multicast after an undelivered lossy message may be lost with it, even if they were synced.
//!
//! In addition, a message that was delivered on any history must be delivered by all survivors, and no message id may
//! be used twice. There is one exception to the latter. A group may be founded twice in incarnations of one number, if
//! no process that remembers the first one is up. The clients whose ids this group assigns may then reuse message ids
//! (`docs/guarantees.md`, "Ids after a loss"), for different messages.

use std::collections::HashMap;

use stentor_checker::{Checker, Cluster, CounterExample, Event, EventKind, GroupSet, MessageId, Report, Verdict};
use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, Incarnation, Origin, Topology};

/// A history, as its index in the list of all histories.
type Path = usize;
/// The smallest sequence number that was lost with a history, by process and life.
type Lost = HashMap<(ProcessId, u64), u64>;

/// Returns the number of deliveries that two histories share.
fn common(one: &[Origin], other: &[Origin]) -> u64 {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    if same == 0 {
        return 0;
    }
    let kept = |history: &[Origin]| history.get(same).map_or(u64::MAX, |next| next.kept);
    kept(one).min(kept(other))
}

/// One history of a group.
struct History {
    group: usize,
    origins: Vec<Origin>,
    /// The age of the group, and the largest incarnation in which the history was seen.
    last: (u64, Incarnation),
}

/// A delivery of a message.
struct Delivery {
    group: usize,
    path: Option<Path>,
    number: u64,
}

/// A message as it was multicast.
struct Sent {
    /// Destination groups, each with the incarnation that the client knew.
    to: Vec<(usize, Incarnation)>,
    process: ProcessId,
    life: u64,
    synced: bool,
    deliveries: Vec<Delivery>,
}

/// The events of a run, each with the history of its member at that time.
pub(crate) struct Histories {
    events: Vec<(Event, Option<Path>)>,
    paths: Vec<History>,
    by_incarnation: HashMap<(usize, Incarnation), Path>,
    /// Events of each member since the last [`look`](Histories::look) at the member, or since its application received
    /// a state that the member has not installed yet.
    open: Vec<Vec<usize>>,
    /// States of each member's application that are not compared yet, each with its number of deliveries.
    states: Vec<Vec<(u64, u64)>>,
    /// Number of deliveries of each member at the last [`look`](Histories::look).
    delivered: Vec<u64>,
    /// The history in which each member was last seen.
    current: Vec<Option<(Path, Incarnation)>>,
    /// Digests of states, by group, origin and number.
    digests: HashMap<(usize, Incarnation, u64), u64>,
    sent: HashMap<MessageId, Sent>,
    groups: Vec<usize>,
    /// The group that assigns the id of each client.
    homes: Vec<usize>,
    /// Number of times that each group began from nothing.
    ages: Vec<u64>,
    /// For each group: `true` if it began in an incarnation whose number is not above all earlier ones.
    again: Vec<bool>,
    /// Number of earlier uses of each message id.
    uses: HashMap<stentor_multicast::MessageId, u64>,
    wrong: Vec<(&'static str, String)>,
}

impl Histories {
    pub(crate) fn new(topology: &Topology) -> Self {
        let members = topology.all_members();
        let groups = topology.group_ids().flat_map(|group| topology.members(group).map(move |_| usize::from(group.0)));
        let clients = (0..topology.clients() as u16).map(ClientId);
        Histories {
            events: Vec::new(),
            paths: Vec::new(),
            by_incarnation: HashMap::new(),
            open: vec![Vec::new(); members],
            states: vec![Vec::new(); members],
            delivered: vec![0; members],
            current: vec![None; members],
            digests: HashMap::new(),
            sent: HashMap::new(),
            groups: groups.collect(),
            homes: clients.map(|client| usize::from(topology.home(client).0)).collect(),
            ages: vec![0; topology.groups()],
            again: vec![false; topology.groups()],
            uses: HashMap::new(),
            wrong: Vec::new(),
        }
    }

    /// Returns the number of earlier uses of a message id.
    pub(crate) fn uses(&self, id: stentor_multicast::MessageId) -> u64 {
        self.uses.get(&id).copied().unwrap_or(0)
    }

    /// Records that a client is about to multicast a message with this id.
    pub(crate) fn use_id(&mut self, id: stentor_multicast::MessageId) {
        let uses = self.uses.entry(id).and_modify(|uses| *uses += 1).or_insert(0);
        if *uses > 0 && !self.again[self.homes[usize::from(id.client.0)]] {
            self.wrong.push(("M1", format!("two messages have the id {id}")));
        }
    }

    /// Records an event. The actions of a member count for the history in which it is seen next.
    pub(crate) fn happened(&mut self, event: &Event) {
        if let EventKind::Synced(said) = &event.kind
            && let Some(sent) = self.sent.get_mut(&said.m)
        {
            sent.synced = true;
        }
        let me = event.process.index();
        if let Some(open) = self.open.get_mut(me) {
            if matches!(event.kind, EventKind::Recover { from: 0 }) {
                // The application begins anew: it had received a state of a history in which the member does not
                // continue.
                let given = |at: &usize| self.events.get(*at).is_some_and(|(event, _)| is_ahead(event, 0));
                let kept = self.current[me].map_or(Some(0), |_| open.iter().position(given));
                open.truncate(kept.unwrap_or(open.len()));
                self.states[me].clear();
            }
            open.push(self.events.len());
        }
        self.events.push((*event, None));
    }

    /// Records a multicast to these groups, each with the incarnation that the client knows.
    pub(crate) fn multicast(&mut self, m: MessageId, to: Vec<(usize, Incarnation)>, process: ProcessId, life: u64) {
        let sent = Sent { to, process, life, synced: false, deliveries: Vec::new() };
        self.sent.insert(m, sent);
    }

    /// Records the state of a member's application after `number` deliveries.
    pub(crate) fn digest(&mut self, me: ProcessId, number: u64, digest: u64) {
        self.states[me.index()].push((number, digest));
    }

    /// Records a crash. The next life of the process has no history yet, and actions without a history count for none.
    pub(crate) fn crashed(&mut self, me: ProcessId) {
        if let Some(current) = self.current.get_mut(me.index()) {
            *current = None;
            self.open[me.index()].clear();
            self.states[me.index()].clear();
        }
    }

    /// Records the history of a member after a step, and its number of deliveries. Returns the origins of the history
    /// if no member of the group was seen in it before.
    pub(crate) fn look(
        &mut self,
        me: ProcessId,
        incarnation: Incarnation,
        origins: &[Origin],
        delivered: u64,
    ) -> Option<&[Origin]> {
        let group = self.groups[me.index()];
        let mut new = None;
        if !incarnation.is_none() && self.current[me.index()].is_none_or(|(_, known)| known != incarnation) {
            let mut known = self.paths.iter().position(|path| path.group == group && path.origins == origins);
            if known.is_none() {
                (known, new) = (Some(self.paths.len()), Some(self.paths.len()));
                let before = self.paths.iter().filter(|path| path.group == group);
                self.again[group] |=
                    before.map(|path| path.last.1.number).max().is_some_and(|most| most >= incarnation.number);
                self.ages[group] += u64::from(origins.len() == 1);
                self.paths.push(History { group, origins: origins.to_vec(), last: (self.ages[group], incarnation) });
            }
            if let Some(path) = known {
                let last = &mut self.paths[path].last;
                *last = (*last).max((self.ages[group], incarnation));
                self.by_incarnation.insert((group, incarnation), path);
                self.current[me.index()] = Some((path, incarnation));
            }
        }
        self.delivered[me.index()] = delivered;
        // The application may have a state before the member itself has installed it.
        let (path, _) = self.current[me.index()]?;
        let open = &mut self.open[me.index()];
        let ahead = |at: &usize| self.events.get(*at).is_some_and(|(event, _)| is_ahead(event, delivered));
        let waits = open.split_off(open.iter().position(ahead).unwrap_or(open.len()));
        for at in std::mem::replace(open, waits) {
            if let Some((event, of)) = self.events.get_mut(at) {
                *of = Some(path);
                if let EventKind::Deliver(said) = &event.kind
                    && let Some(sent) = self.sent.get_mut(&said.m)
                {
                    sent.deliveries.push(Delivery { group, path: Some(path), number: said.number });
                }
            }
        }
        new.map(|path| &self.paths[path].origins[..])
    }

    /// Compares the states since the last call with those of other members. Returns the number of differing states.
    pub(crate) fn compare(&mut self, me: ProcessId) -> u64 {
        let group = self.groups[me.index()];
        let Some((path, _)) = self.current[me.index()] else { return 0 };
        let delivered = self.delivered[me.index()];
        let (states, waits) =
            std::mem::take(&mut self.states[me.index()]).into_iter().partition(|(n, _)| *n <= delivered);
        self.states[me.index()] = waits;
        let states: Vec<(u64, u64)> = states;
        let origins = &self.paths[path].origins;
        let mut differ = 0;
        for (number, digest) in states.into_iter().filter(|(number, _)| *number > 0) {
            let Some(origin) = origins.iter().rev().find(|origin| origin.kept < number) else { continue };
            let first = self.digests.entry((group, origin.incarnation, number)).or_insert(digest);
            differ += u64::from(*first != digest);
        }
        differ
    }

    /// Returns whether any group has had more than one history.
    pub(crate) fn began_anew(&self) -> bool {
        (0..self.ages.len()).any(|group| self.paths.iter().filter(|path| path.group == group).count() > 1)
    }

    /// Returns the last history of each group.
    fn last(&self) -> Vec<Option<Path>> {
        let last = |group| {
            let of_group = self.paths.iter().enumerate().filter(|(_, path)| path.group == group);
            of_group.max_by_key(|(_, path)| path.last).map(|(at, _)| at)
        };
        (0..self.ages.len()).map(last).collect()
    }

    /// Returns whether a delivery with this number, of a member in history `path`, is on the history `on`.
    fn is_on(&self, on: Option<Path>, path: Option<Path>, number: u64) -> bool {
        number == 0
            || on
                .zip(path)
                .is_some_and(|(on, path)| number <= common(&self.paths[on].origins, &self.paths[path].origins))
    }

    /// Returns whether the last history of a group has the same origin as the history to which a message was multicast.
    fn survives(&self, last: &[Option<Path>], group: usize, known: Incarnation) -> bool {
        let begins = |path: Path| self.paths[path].origins.last();
        let to = self.by_incarnation.get(&(group, known));
        last[group].zip(to).is_some_and(|(last, to)| begins(last) == begins(*to))
    }

    fn is_delivered_on(&self, selection: &[Option<Path>], sent: &Sent, group: usize) -> bool {
        let on = |delivery: &Delivery| {
            delivery.group == group && self.is_on(selection[group], delivery.path, delivery.number)
        };
        sent.deliveries.iter().any(on)
    }

    /// Returns the first message of each client's process that was lost with a history.
    fn lost(&self, last: &[Option<Path>]) -> Lost {
        let mut first = HashMap::new();
        for (m, sent) in &self.sent {
            let lossy = sent.to.iter().any(|(group, known)| !self.survives(last, *group, *known));
            if lossy && sent.deliveries.is_empty() {
                let lost = first.entry((sent.process, sent.life)).or_insert(m.sequence);
                *lost = m.sequence.min(*lost);
            }
        }
        first
    }

    /// Describes a message that a group has not delivered but must, or returns `None`. `life` returns the last life of
    /// each client's process.
    pub(crate) fn missing(&self, life: impl Fn(ProcessId) -> u64) -> Option<String> {
        let last = self.last();
        let lost = self.lost(&last);
        self.sent.iter().find_map(|(m, sent)| {
            let survives = |(group, known): &(usize, Incarnation)| self.survives(&last, *group, *known);
            let void = lost.get(&(sent.process, sent.life)).is_some_and(|lost| m.sequence > *lost);
            let intact = !void && sent.to.iter().all(survives) && (sent.synced || life(sent.process) == sent.life);
            if !intact && sent.deliveries.is_empty() {
                return None;
            }
            let mut survivors = sent.to.iter().filter(|to| survives(to));
            let lacks = survivors.find(|(group, _)| !self.is_delivered_on(&last, sent, *group))?.0;
            Some(format!("({}, {}) to {:?}, not delivered in group {lacks}", m.client.0, m.sequence, sent.to))
        })
    }

    /// Counts the messages that were multicast to an ended history as well as to survivors. Returns the number of those
    /// that some process delivered, and the number of those that none did.
    pub(crate) fn settled(&self) -> (u64, u64) {
        let last = self.last();
        let (mut delivered, mut dropped) = (0, 0);
        for sent in self.sent.values() {
            let survivors = sent.to.iter().filter(|(group, known)| self.survives(&last, *group, *known)).count();
            if survivors > 0 && survivors < sent.to.len() {
                *(if sent.deliveries.is_empty() { &mut dropped } else { &mut delivered }) += 1;
            }
        }
        (delivered, dropped)
    }

    /// Adds the judgement of the histories to the report on operations and memory.
    pub(crate) fn judge(&self, cluster: &Cluster, operations: Report) -> Report {
        let last = self.last();
        let mut report = self.select(cluster, &last, None, &last, true);
        for name in ["M7", "M8"] {
            report.properties.extend(operations.properties.get(name).map(|verdict| (name, verdict.clone())));
        }
        let mut more = vec![operations];
        for (at, path) in self.paths.iter().enumerate().filter(|(at, path)| last[path.group] != Some(*at)) {
            let mut beside = last.clone();
            beside[path.group] = Some(at);
            more.push(self.select(cluster, &beside, Some(path.group), &last, false));
            let mut order = self.select(cluster, &beside, None, &last, false);
            order.properties.retain(|name, _| ["M4", "R1"].contains(name));
            more.push(order);
        }
        for other in more {
            let violated = other.properties.iter().filter(|(_, verdict)| verdict.is_violated());
            let news: Vec<_> = violated.filter(|(name, _)| !is_violated(&report, name)).collect();
            if !news.is_empty() && report.counter_example.is_none() {
                report.counter_example.clone_from(&other.counter_example);
            }
            report.properties.extend(news.into_iter().map(|(name, verdict)| (*name, verdict.clone())));
        }
        for (name, summary) in self.wrong.iter().cloned().chain(self.partly(&last)) {
            if report.counter_example.is_none() {
                report.counter_example = Some(format!("{name}: {summary}"));
            }
            if !is_violated(&report, name) {
                report.properties.insert(name, Verdict::Violated(CounterExample { summary, lines: Vec::new() }));
            }
        }
        report
    }

    /// Returns a violation if a message was delivered on any history, but not by some survivor.
    fn partly(&self, last: &[Option<Path>]) -> Option<(&'static str, String)> {
        let delivered = self.sent.iter().filter(|(_, sent)| !sent.deliveries.is_empty());
        let mut partly = delivered.filter_map(|(m, sent)| {
            let survivors = sent.to.iter().filter(|(group, known)| self.survives(last, *group, *known));
            let lacks = survivors.map(|(group, _)| *group).find(|group| !self.is_delivered_on(last, sent, *group))?;
            Some((m.client.0, m.sequence, lacks))
        });
        let (client, sequence, group) = partly.next()?;
        Some(("M2", format!("({client}, {sequence}) was delivered, and survivor {group} lacks it")))
    }

    /// Judges the events on the selected histories. If `only` is a group, only the deliveries of that group's members
    /// are judged.
    fn select(
        &self,
        cluster: &Cluster,
        selection: &[Option<Path>],
        only: Option<usize>,
        last: &[Option<Path>],
        complete: bool,
    ) -> Report {
        let mut checker = Checker::new(cluster.clone());
        let lost = self.lost(last);
        for (event, path) in &self.events {
            let group = self.groups.get(event.process.index()).copied();
            let selected = match &event.kind {
                EventKind::Multicast(said) | EventKind::Synced(said) => {
                    let Some(to) = self.destinations(said.m, selection, only, (last, &lost), complete) else {
                        continue;
                    };
                    let said = stentor_checker::Multicast { to, ..*said };
                    let multicast = matches!(event.kind, EventKind::Multicast(_));
                    let kind = if multicast { EventKind::Multicast(said) } else { EventKind::Synced(said) };
                    checker.event(&Event { kind, ..*event });
                    continue;
                }
                EventKind::Deliver(said) => self.is_selected(selection, only, group, *path, said.number),
                EventKind::Recover { from } => self.is_selected(selection, only, group, *path, *from),
                EventKind::Epoch { .. } | EventKind::Carry { .. } => {
                    let leads =
                        |(on, path): (Path, Path)| self.paths[on].origins.starts_with(&self.paths[path].origins);
                    let group = group.filter(|group| only.is_none_or(|only| only == *group));
                    group.is_some_and(|group| selection[group].zip(*path).is_some_and(leads))
                }
                _ => true,
            };
            if selected {
                checker.event(event);
            }
        }
        checker.finish(complete)
    }

    fn is_selected(
        &self,
        selection: &[Option<Path>],
        only: Option<usize>,
        group: Option<usize>,
        path: Option<Path>,
        number: u64,
    ) -> bool {
        let group = group.filter(|group| only.is_none_or(|only| only == *group));
        group.is_some_and(|group| self.is_on(selection[group], path, number))
    }

    /// Returns the groups to which a message counts as multicast in these histories, or `None` if there are none.
    fn destinations(
        &self,
        m: MessageId,
        selection: &[Option<Path>],
        only: Option<usize>,
        (last, lost): (&[Option<Path>], &Lost),
        complete: bool,
    ) -> Option<GroupSet> {
        let sent = self.sent.get(&m)?;
        let void = lost.get(&(sent.process, sent.life)).is_some_and(|lost| m.sequence > *lost);
        let delivered =
            |group: usize| only.is_none_or(|only| only == group) && self.is_delivered_on(selection, sent, group);
        let lossy =
            void || sent.to.iter().any(|(group, known)| Some(*group) != only && !self.survives(last, *group, *known));
        if lossy && !sent.to.iter().any(|(group, _)| delivered(*group)) {
            return None;
        }
        let mut to = GroupSet::default();
        for (group, known) in &sent.to {
            if !complete || self.survives(last, *group, *known) || delivered(*group) {
                to.insert(stentor_checker::Group(*group as u16));
            }
        }
        Some(to)
    }
}

/// Returns whether an application received a state with more deliveries than its member has.
fn is_ahead(event: &Event, delivered: u64) -> bool {
    matches!(event.kind, EventKind::Recover { from } if from > delivered)
}

fn is_violated(report: &Report, name: &str) -> bool {
    report.properties.get(name).is_some_and(Verdict::is_violated)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The history in which `MEMBER` is seen. Another member is seen in `LAST`, which keeps none of its deliveries.
    const ENDED: [Origin; 1] = [Origin { incarnation: Incarnation::FIRST, kept: 0 }];
    const LAST: [Origin; 1] = [Origin { incarnation: Incarnation { number: 2, tag: 5 }, kept: 0 }];
    const MEMBER: ProcessId = ProcessId(0);

    fn histories() -> Histories {
        let topology = Topology::new(&[3], 1).expect("a possible cluster");
        let mut histories = Histories::new(&topology);
        histories.look(MEMBER, Incarnation::FIRST, &ENDED, 0);
        histories.look(ProcessId(1), LAST[0].incarnation, &LAST, 4);
        histories
    }

    fn recovers(histories: &mut Histories, from: u64) -> usize {
        let kind = EventKind::Recover { from };
        histories.happened(&Event { t: 1, process: stentor_checker::Process(0), incarnation: 2, kind });
        histories.digest(MEMBER, from, from + 7);
        histories.events.len() - 1
    }

    /// The other group has no history yet, because none of its members has been seen in one.
    #[test]
    fn one_group_with_two_histories_began_anew_although_another_has_none() {
        let topology = Topology::new(&[1, 1], 1).expect("a possible cluster");
        let mut histories = Histories::new(&topology);
        histories.look(MEMBER, Incarnation::FIRST, &ENDED, 0);
        assert!(!histories.began_anew());
        histories.look(MEMBER, LAST[0].incarnation, &LAST, 0);
        assert!(histories.began_anew());
        let mut histories = Histories::new(&topology);
        histories.look(MEMBER, Incarnation::FIRST, &ENDED, 0);
        histories.look(ProcessId(1), Incarnation::FIRST, &ENDED, 0);
        assert!(!histories.began_anew(), "each group has one");
    }

    /// The member is still in the previous history when its application receives a state of the last one.
    #[test]
    fn a_state_that_comes_before_its_member_has_it_counts_for_the_members_next_history() {
        let mut histories = histories();
        let given = recovers(&mut histories, 4);
        histories.look(MEMBER, Incarnation::FIRST, &ENDED, 0);
        assert_eq!((histories.events[given].1, histories.compare(MEMBER)), (None, 0), "the event waits");
        histories.look(MEMBER, LAST[0].incarnation, &LAST, 4);
        let last = histories.last()[0];
        assert_eq!((histories.events[given].1, histories.compare(MEMBER)), (last, 0));
        assert!(histories.digests.contains_key(&(0, LAST[0].incarnation, 4)), "{:?}", histories.digests);
    }

    #[test]
    fn a_state_counts_for_no_history_if_the_application_begins_anew_before_its_member_has_it() {
        let mut histories = histories();
        let given = recovers(&mut histories, 4);
        histories.look(MEMBER, Incarnation::FIRST, &ENDED, 0);
        let anew = recovers(&mut histories, 0);
        histories.look(MEMBER, LAST[0].incarnation, &LAST, 6);
        histories.compare(MEMBER);
        assert_eq!((histories.events[given].1, histories.events[anew].1), (None, histories.last()[0]));
        assert!(histories.digests.is_empty(), "{:?}", histories.digests);
    }
}
