//! Correct histories of many shapes pass, with crashes and recoveries. A single wrong event is reported under the right
//! property.

use proptest::prelude::*;
use proptest::sample::Index;
use stentor_checker::{
    Ballot, Checker, Cluster, Deliver, Event, EventKind, Group, GroupSet, Label, MessageId, Multicast, Process, Report,
    Timestamp,
};

const CLIENTS: usize = 3;

/// The fate of a process after some of its deliveries.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lives,
    Crashes,
    ComesBack {
        /// Number of deliveries by which the process's snapshot is ahead of the state before the crash. The number is
        /// negative if the snapshot is behind.
        ahead: i64,
    },
}

#[derive(Clone, Debug)]
struct Shape {
    sizes: Vec<usize>,
    /// The messages: client, and destinations as a bit mask.
    messages: Vec<(usize, u32)>,
    /// Number of messages that are multicast before the next one is delivered.
    batch: usize,
    /// Sort keys that shuffle the order inside a batch.
    keys: Vec<u32>,
    /// Fates of the last members of each group, which are a minority of the group: the number of deliveries before the
    /// fate, and the fate.
    fates: Vec<(usize, Fate)>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let fate = prop_oneof![
        3 => Just(Fate::Lives),
        1 => Just(Fate::Crashes),
        2 => (-4..4_i64).prop_map(|ahead| Fate::ComesBack { ahead }),
    ];
    let sizes = prop::collection::vec(prop_oneof![Just(1_usize), Just(2), Just(3), Just(5)], 1..5);
    let messages = prop::collection::vec((0..CLIENTS, any::<u32>()), 4..60);
    let keys = prop::collection::vec(any::<u32>(), 60);
    let fates = prop::collection::vec((0..20_usize, fate), 8);
    (sizes, messages, 1..12_usize, keys, fates).prop_map(|(sizes, messages, batch, keys, fates)| Shape {
        sizes,
        messages,
        batch,
        keys,
        fates,
    })
}

/// Generates *eventful* shapes, which every mutation can spoil: one group has two members that never crash, and the
/// first two messages are of one batch and one client and go to all groups.
fn eventful_shapes() -> impl Strategy<Value = Shape> {
    shapes().prop_map(|mut shape| {
        if shape.sizes.iter().all(|size| *size == 1) {
            shape.sizes[0] = 2;
        }
        shape.batch = shape.batch.max(2);
        shape.messages[1].0 = shape.messages[0].0;
        shape.send_first_to_all();
        shape
    })
}

/// Generates eventful shapes with at least two groups.
fn shapes_of_groups() -> impl Strategy<Value = Shape> {
    eventful_shapes().prop_map(|mut shape| {
        if shape.sizes.len() == 1 {
            shape.sizes.push(1);
            shape.send_first_to_all();
        }
        shape
    })
}

/// Generates eventful shapes in which the second leader of some group finds undecided messages.
fn led_shapes() -> impl Strategy<Value = Shape> {
    eventful_shapes().prop_map(|mut shape| {
        if shape.history(&shape.order()).carries().is_empty() {
            // Group 0 elects a leader in every batch. There are at least two batches, and the first message of the
            // second one is addressed to group 0.
            shape.batch = 3;
            shape.messages[3].1 = shape.messages[0].1;
        }
        shape
    })
}

/// Generates eventful shapes in which some process recovers.
fn returning_shapes() -> impl Strategy<Value = Shape> {
    eventful_shapes().prop_map(|mut shape| {
        if shape.history(&shape.order()).returns().is_empty() {
            shape.sizes[0] = 3;
            shape.fates[0] = (0, Fate::ComesBack { ahead: 0 });
        }
        shape
    })
}

/// A history: its cluster and its events.
struct History {
    cluster: Cluster,
    events: Vec<Event>,
}

/// One process: its deliveries, in order, and its progress.
struct Member {
    process: Process,
    group: Group,
    fate: Option<(usize, Fate)>,
    sequence: Vec<usize>,
    delivered: usize,
    incarnation: u64,
    gone: bool,
}

struct Builder<'a> {
    shape: &'a Shape,
    t: u64,
    events: Vec<Event>,
    members: Vec<Member>,
    /// Positions of the messages in the final order.
    places: Vec<u64>,
    /// Number of messages that were multicast.
    multicast: usize,
    /// Number of messages that were multicast before each ballot of a group began, by group.
    ballots: Vec<Vec<usize>>,
}

impl Shape {
    fn cluster(&self) -> Cluster {
        let mut builder = Cluster::builder().global_clock().clients((0..CLIENTS).map(|client| format!("c{client}")));
        for (group, size) in self.sizes.iter().enumerate() {
            builder = builder.group(format!("g{group}"), (0..*size).map(|member| format!("g{group}.{member}")));
        }
        let mut cluster = builder.build().unwrap();
        cluster.label("write");
        cluster
    }

    /// Sets the destinations of the first two messages to all groups.
    fn send_first_to_all(&mut self) {
        let all = (1 << self.sizes.len()) - 2;
        self.messages[..2].iter_mut().for_each(|message| message.1 = all);
    }

    fn to(&self, message: usize) -> GroupSet {
        let groups = self.sizes.len() as u32;
        // The set is never empty: 0 represents the first group alone, and 2^groups − 2 represents all groups.
        let bits = self.messages[message].1 % ((1 << groups) - 1) + 1;
        (0..groups as u16).filter(|group| bits >> group & 1 == 1).map(Group).collect()
    }

    fn id(&self, message: usize) -> MessageId {
        let client = Process((self.sizes.iter().sum::<usize>() + self.messages[message].0) as u32);
        MessageId { client, sequence: message as u64 }
    }

    fn multicast(&self, message: usize) -> Multicast {
        let hash = 0x1234_5678 * (message as u64 + 1);
        Multicast { m: self.id(message), to: self.to(message), len: message as u32, hash }
    }

    /// Returns the total order. It is shuffled inside each batch, but keeps the order of each client's messages.
    fn order(&self) -> Vec<usize> {
        let mut order = Vec::new();
        for start in (0..self.messages.len()).step_by(self.batch) {
            let batch: Vec<usize> = (start..(start + self.batch).min(self.messages.len())).collect();
            let mut shuffled = batch.clone();
            shuffled.sort_by_key(|message| self.keys[*message]);
            // The shuffled messages determine the sequence of clients. Each client in it contributes its next message.
            let mut next: Vec<_> = (0..CLIENTS)
                .map(|client| batch.iter().copied().filter(move |message| self.messages[*message].0 == client))
                .collect();
            order.extend(shuffled.iter().map(|turn| next[self.messages[*turn].0].next().unwrap()));
        }
        order
    }

    fn history(&self, order: &[usize]) -> History {
        let mut members = Vec::new();
        let mut fates = self.fates.iter().copied();
        for (group, size) in self.sizes.iter().enumerate() {
            for place in 0..*size {
                let process = Process(members.len() as u32);
                let fate = if place >= 2 && place * 2 > *size { fates.next() } else { None };
                let group = Group(group as u16);
                let sequence = order.iter().copied().filter(|message| self.to(*message).contains(group)).collect();
                members.push(Member { process, group, fate, sequence, delivered: 0, incarnation: 1, gone: false });
            }
        }
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, message)| places[*message] = place as u64 + 1);
        let ballots = vec![Vec::new(); self.sizes.len()];
        let builder = Builder { shape: self, t: 0, events: Vec::new(), members, places, multicast: 0, ballots };
        History { cluster: self.cluster(), events: builder.run() }
    }
}

impl Builder<'_> {
    fn run(mut self) -> Vec<Event> {
        let count = self.shape.messages.len();
        for start in (0..count).step_by(self.shape.batch) {
            let end = (start + self.shape.batch).min(count);
            for message in start..end {
                self.multicast(message);
            }
            for group in self.shape.cluster().groups() {
                // The groups elect leaders at different times.
                if start == 0 || (start + group.index()) % 3 == 0 {
                    self.elect(group);
                }
            }
            for member in 0..self.members.len() {
                // In each batch except the last, some processes lag behind.
                let lags = (member * 7 + start) % 3 == 0 && end < count;
                let known = self.members[member].sequence.partition_point(|m| self.places[*m] <= end as u64);
                self.deliver_up_to(member, if lags { known / 2 } else { known });
            }
        }
        for member in 0..self.members.len() {
            self.deliver_up_to(member, usize::MAX);
        }
        self.events
    }

    fn push(&mut self, process: Process, incarnation: u64, kind: EventKind) {
        self.t += 1;
        self.events.push(Event { t: self.t, process, incarnation, kind });
    }

    fn multicast(&mut self, message: usize) {
        let multicast = self.shape.multicast(message);
        self.multicast = message + 1;
        self.push(multicast.m.client, 1, EventKind::Multicast(multicast));
        for member in 0..self.members.len() {
            if multicast.to.contains(self.members[member].group) {
                let to = self.members[member].process;
                let kind = EventKind::RemoteOp { m: multicast.m, kind: Label(0), to };
                self.push(multicast.m.client, 1, kind);
            }
        }
    }

    /// Makes one of the first two members the leader. The leader's state contains all messages that were multicast.
    fn elect(&mut self, group: Group) {
        let mut members = self.members.iter().filter(|member| member.group == group);
        let number = self.ballots[group.index()].len();
        let leader = members.nth(number % 2 % self.shape.sizes[group.index()]).unwrap();
        let (process, incarnation) = (leader.process, leader.incarnation);
        let ballot = Ballot { number: number as u64, by: process };
        let open = leader.sequence[leader.delivered..].iter().filter(|message| **message < self.multicast);
        let open: Vec<usize> = open.copied().collect();
        for message in &open {
            self.push(process, incarnation, EventKind::Carry { m: self.shape.id(*message), group, ballot });
        }
        let (carried, ballot) = (Some(open.len() as u32), number as u64);
        self.push(process, incarnation, EventKind::Epoch { group, ballot, by: process, leader: process, carried });
        self.ballots[group.index()].push(self.multicast);
    }

    /// Returns a ballot under which the message may have been decided. It differs between processes.
    fn ballot(&self, member: &Member, message: usize) -> Ballot {
        let began = &self.ballots[member.group.index()];
        let first = began.partition_point(|after| *after <= message).saturating_sub(1);
        let number = (first + (message + member.process.index()) % 3).min(began.len() - 1);
        let size = self.shape.sizes[member.group.index()];
        let mut members = self.members.iter().filter(|other| other.group == member.group);
        Ballot { number: number as u64, by: members.nth(number % 2 % size).unwrap().process }
    }

    fn deliver_up_to(&mut self, index: usize, end: usize) {
        let end = end.min(self.members[index].sequence.len());
        while self.members[index].delivered < end && !self.members[index].gone {
            match self.members[index].fate {
                Some((after, fate)) if after == self.members[index].delivered => self.meet(index, fate),
                _ => self.deliver(index),
            }
        }
    }

    fn deliver(&mut self, index: usize) {
        let message = self.members[index].sequence[self.members[index].delivered];
        let ballot = Some(self.ballot(&self.members[index], message));
        let member = &mut self.members[index];
        member.delivered += 1;
        let (process, incarnation, group, number) =
            (member.process, member.incarnation, member.group, member.delivered as u64);
        let Multicast { m, len, hash, to } = self.shape.multicast(message);
        let ts = Timestamp { time: self.places[message] / 3, group: Group((self.places[message] % 3) as u16) };
        let ts = if self.shape.sizes.len() < 3 {
            Timestamp { time: self.places[message], group: to.iter().next().unwrap() }
        } else {
            ts
        };
        let deliver = Deliver { m, group, number, ts, hash, len: Some(len), ballot };
        self.push(process, incarnation, EventKind::Deliver(deliver));
        let memory = EventKind::Memory { bytes: number % 100, limit: Some(100), what: Label(0) };
        self.push(process, incarnation, memory);
    }

    fn meet(&mut self, index: usize, fate: Fate) {
        let member = &mut self.members[index];
        member.fate = None;
        let (process, incarnation) = (member.process, member.incarnation);
        match fate {
            Fate::Lives => {}
            Fate::Crashes => {
                member.gone = true;
                self.push(process, incarnation, EventKind::Crash);
            }
            Fate::ComesBack { ahead } => {
                // A snapshot contains only what the first member of the group or the process itself has delivered.
                let first = self.members.iter().find(|m| m.group == self.members[index].group).unwrap().delivered;
                let member = &mut self.members[index];
                let from = member.delivered.saturating_add_signed(ahead as isize).min(first.max(member.delivered));
                member.delivered = from;
                member.incarnation += 1;
                self.push(process, incarnation, EventKind::Crash);
                self.push(process, incarnation + 1, EventKind::Recover { from: from as u64 });
            }
        }
    }
}

impl History {
    fn check(&self) -> Report {
        let mut checker = Checker::new(self.cluster.clone());
        self.events.iter().for_each(|event| checker.event(event));
        checker.finish(true)
    }

    /// Returns the indices of deliveries of processes that never crash and whose group has another such process.
    fn steady_deliveries(&self) -> Vec<usize> {
        let steady = |event: &Event| {
            let group = self.cluster.group_of(event.process)?;
            let members = self.cluster.members(group);
            (members.len() > 1 && members[..2].contains(&event.process)).then_some(())
        };
        let delivers = |event: &Event| matches!(event.kind, EventKind::Deliver(_));
        (0..self.events.len()).filter(|at| delivers(&self.events[*at]) && steady(&self.events[*at]).is_some()).collect()
    }

    /// Returns the `carry` events of all leaders except the first of each group.
    fn carries(&self) -> Vec<Event> {
        let carries = |event: &&Event| matches!(event.kind, EventKind::Carry { ballot, .. } if ballot.number > 0);
        self.events.iter().filter(carries).copied().collect()
    }

    /// Returns the indices of `recover` events.
    fn returns(&self) -> Vec<usize> {
        let recover = |at: &usize| matches!(self.events[*at].kind, EventKind::Recover { .. });
        (0..self.events.len()).filter(recover).collect()
    }

    fn deliver(&mut self, at: usize) -> &mut Deliver {
        match &mut self.events[at].kind {
            EventKind::Deliver(deliver) => deliver,
            other => panic!("{other:?} is not a delivery"),
        }
    }

    /// Renumbers the deliveries of one process densely.
    fn renumber(&mut self, process: Process) {
        let mine = self.events.iter_mut().filter(|event| event.process == process);
        let delivers = mine.filter_map(|event| match &mut event.kind {
            EventKind::Deliver(deliver) => Some(deliver),
            _ => None,
        });
        delivers.enumerate().for_each(|(place, deliver)| deliver.number = place as u64 + 1);
    }

    fn violated(&self) -> Vec<&'static str> {
        self.check().violated().collect()
    }
}

proptest! {
    #[test]
    fn correct_histories_pass_and_every_property_is_checked(shape in shapes()) {
        let history = shape.history(&shape.order());
        let report = history.check();
        prop_assert!(report.ok(), "{:#?}", report);
        let back = history.events.iter().any(|event| matches!(event.kind, EventKind::Recover { .. }));
        let unchecked: Vec<&str> = report.unchecked().map(|(name, _)| name).collect();
        prop_assert_eq!(unchecked, if back { vec![] } else { vec!["M11"] }, "{:#?}", report);
    }

    #[test]
    fn a_lost_delivery_is_a_hole(shape in eventful_shapes(), which in any::<Index>()) {
        let mut history = shape.history(&shape.order());
        let deliveries = history.steady_deliveries();
        let at = *which.get(&deliveries);
        let process = history.events[at].process;
        let is_last = !deliveries.iter().any(|other| *other > at && history.events[*other].process == process);
        history.events.remove(at);
        let violated = history.violated();
        prop_assert!(violated.contains(&"M2"), "{violated:?}");
        prop_assert!(violated.contains(&"M3") && violated.contains(&"M9"), "{violated:?}");
        prop_assert_eq!(violated.contains(&"M5"), !is_last, "{:?}", violated);
        history.renumber(process);
        let violated = history.violated();
        prop_assert!(violated.contains(&"M2"), "{violated:?}");
        prop_assert_eq!(violated.contains(&"M5"), !is_last, "{:?}", violated);
    }

    #[test]
    fn a_repeated_delivery_breaks_integrity(shape in eventful_shapes(), which in any::<Index>(), later in any::<Index>()) {
        let mut history = shape.history(&shape.order());
        let deliveries = history.steady_deliveries();
        let event = history.events[*which.get(&deliveries)];
        let after = history.events.iter().position(|e| *e == event).unwrap() + 1;
        let place = after + later.index(history.events.len() - after + 1);
        history.events.insert(place, event);
        history.renumber(event.process);
        prop_assert!(history.violated().contains(&"M1"));
    }

    #[test]
    fn other_bytes_break_integrity_and_nothing_else(shape in eventful_shapes(), which in any::<Index>(), bit in 0..64_u32) {
        let mut history = shape.history(&shape.order());
        let deliveries = history.steady_deliveries();
        history.deliver(*which.get(&deliveries)).hash ^= 1 << bit;
        prop_assert_eq!(history.violated(), ["M1"]);
    }

    #[test]
    fn a_message_that_nobody_multicast_breaks_integrity(shape in eventful_shapes(), which in any::<Index>()) {
        let mut history = shape.history(&shape.order());
        let deliveries = history.steady_deliveries();
        let m = history.deliver(*which.get(&deliveries)).m;
        history.events.retain(|event| !matches!(event.kind, EventKind::Multicast(multicast) if multicast.m == m));
        prop_assert_eq!(history.violated(), ["M1", "M7"]);
    }

    #[test]
    fn a_delivery_in_a_foreign_group_breaks_integrity(shape in shapes_of_groups(), which in any::<Index>()) {
        let mut history = shape.history(&shape.order());
        let mut deliveries = history.steady_deliveries();
        // The message keeps other destinations. A message without destinations is another error.
        deliveries.retain(|at| shape.to(history.deliver(*at).m.sequence as usize).iter().count() > 1);
        let at = *which.get(&deliveries);
        let Deliver { m, group, .. } = *history.deliver(at);
        for event in &mut history.events {
            if let EventKind::Multicast(multicast) = &mut event.kind
                && multicast.m == m
            {
                multicast.to = multicast.to.iter().filter(|to| *to != group).collect();
            }
        }
        prop_assert!(history.violated().contains(&"M1"));
    }

    #[test]
    fn two_deliveries_swapped_at_one_process_break_both_orders(shape in eventful_shapes(), which in any::<Index>()) {
        let mut history = shape.history(&shape.order());
        let deliveries = history.steady_deliveries();
        // Returns a delivery together with the next delivery of the same process.
        let next_of = |at: usize| {
            let next = |other: &&usize| **other > at && history.events[**other].process == history.events[at].process;
            Some((at, *deliveries.iter().find(next)?))
        };
        let pairs: Vec<(usize, usize)> = deliveries.iter().filter_map(|at| next_of(*at)).collect();
        let (at, next) = *which.get(&pairs);
        let (one, other) = (*history.deliver(at), *history.deliver(next));
        *history.deliver(at) = Deliver { number: one.number, ..other };
        *history.deliver(next) = Deliver { number: other.number, ..one };
        let violated = history.violated();
        prop_assert!(violated.contains(&"M4") && violated.contains(&"M5"), "{violated:?}");
    }

    #[test]
    fn an_order_against_a_client_breaks_fifo_and_nothing_else(shape in eventful_shapes(), which in any::<Index>()) {
        let mut order = shape.order();
        let shares = |a: usize, b: usize| {
            let (one, other) = (shape.to(a), shape.to(b));
            one.iter().any(|group| other.contains(group))
        };
        // Only pairs inside one batch are swapped, so that real-time order is unaffected.
        let pairs: Vec<(usize, usize)> = (0..order.len())
            .flat_map(|i| (i + 1..order.len()).map(move |j| (i, j)))
            .filter(|(i, j)| {
                let (a, b) = (order[*i], order[*j]);
                a / shape.batch == b / shape.batch && shape.messages[a].0 == shape.messages[b].0 && shares(a, b)
            })
            .collect();
        let (i, j) = *which.get(&pairs);
        order.swap(i, j);
        prop_assert_eq!(shape.history(&order).violated(), ["M6"]);
    }

    #[test]
    fn work_by_a_stranger_breaks_genuineness_and_nothing_else(shape in shapes(), which in any::<Index>()) {
        let mut history = shape.history(&shape.order());
        let at = which.index(shape.messages.len());
        let (m, to) = (shape.id(at), shape.to(at));
        let Some(stranger) = history.cluster.groups().find(|group| !to.contains(*group)) else { return Ok(()) };
        let stranger = history.cluster.members(stranger)[0];
        let member = history.cluster.members(to.iter().next().unwrap())[0];
        let (process, to) = if at % 2 == 0 { (stranger, member) } else { (member, stranger) };
        let t = history.events.last().unwrap().t;
        let kind = EventKind::RemoteOp { m, kind: Label(0), to };
        history.events.push(Event { t, process, incarnation: 1, kind });
        prop_assert_eq!(history.violated(), ["M7"]);
    }

    #[test]
    fn memory_above_its_limit_breaks_boundedness_and_nothing_else(shape in shapes(), which in any::<Index>()) {
        let mut history = shape.history(&shape.order());
        let memory = |event: &&mut Event| matches!(event.kind, EventKind::Memory { .. });
        let mut events: Vec<&mut Event> = history.events.iter_mut().filter(memory).collect();
        let at = which.index(events.len());
        events[at].kind = EventKind::Memory { bytes: 101, limit: Some(100), what: Label(0) };
        prop_assert_eq!(history.violated(), ["M8"]);
    }

    #[test]
    fn a_leader_that_lacks_a_decided_message_breaks_fencing_and_nothing_else(
        shape in led_shapes(), which in any::<Index>(), by_time in any::<bool>()
    ) {
        let mut history = shape.history(&shape.order());
        // A process may have delivered the carried message under the previous ballot. One delivery is changed to this
        // ballot, which violates nothing.
        let carry = *which.get(&history.carries());
        let EventKind::Carry { m, group, ballot } = carry.kind else { unreachable!() };
        let before = history.events.iter().find_map(|event| match event.kind {
            EventKind::Epoch { group: of, ballot: number, by, .. } => {
                ((of, number + 1) == (group, ballot.number)).then_some(Ballot { number, by })
            }
            _ => None,
        });
        let older = before.expect("ballots rise by one");
        let cluster = history.cluster.clone();
        let mut delivered = history.events.iter_mut().filter(|event| cluster.group_of(event.process) == Some(group));
        let delivery = delivered.find_map(|event| match &mut event.kind {
            EventKind::Deliver(deliver) if deliver.m == m => Some(deliver),
            _ => None,
        });
        delivery.expect("everything is delivered").ballot = Some(older);
        prop_assert_eq!(history.violated(), [""; 0]);
        if by_time {
            // The message appears to be multicast after the leader was ready, and the leader records no carried
            // messages.
            for event in &mut history.events {
                match &mut event.kind {
                    EventKind::Multicast(multicast) if multicast.m == m => event.t = carry.t + 1_000_000,
                    EventKind::Deliver(_) => event.t += 2_000_000,
                    EventKind::Epoch { carried, .. } => *carried = None,
                    _ => {}
                }
            }
        } else {
            history.events.retain(|event| *event != carry);
            for event in &mut history.events {
                if let EventKind::Epoch { group: of, ballot: number, carried: Some(carried), .. } = &mut event.kind
                    && (*of, *number) == (group, ballot.number)
                {
                    *carried -= 1;
                }
            }
        }
        let mut violated = history.violated();
        // The delayed deliveries may come after the recovery of their process.
        violated.retain(|name| !(by_time && ["M11", "R1"].contains(name)));
        prop_assert_eq!(violated, ["M10"]);
    }

    #[test]
    fn a_recovery_at_a_wrong_number_breaks_rejoin(
        shape in returning_shapes(), which in any::<Index>(), off in 1..5_u64, what in 0..3
    ) {
        let mut history = shape.history(&shape.order());
        let later = |at: usize| -> Vec<usize> {
            let process = history.events[at].process;
            let is_mine = |event: &Event| event.process == process && matches!(event.kind, EventKind::Deliver(_));
            (at..history.events.len()).filter(|i| is_mine(&history.events[*i])).collect()
        };
        let last = |at: usize| {
            let group = history.cluster.group_of(history.events[at].process).unwrap();
            shape.messages.iter().enumerate().filter(|(m, _)| shape.to(*m).contains(group)).count() as u64
        };
        let came_with = |at: usize| match history.events[at].kind {
            EventKind::Recover { from } => from,
            _ => unreachable!(),
        };
        // Only a recovery that the mutation can spoil is used. Kind 0 can spoil any.
        let mut returns = history.returns();
        returns.retain(|at| match what {
            1 => came_with(*at) > 0 && later(*at).is_empty() && came_with(*at) == last(*at),
            2 => later(*at).len() > 1,
            _ => true,
        });
        let (what, returns) = if returns.is_empty() { (0, history.returns()) } else { (what, returns) };
        let at = *which.get(&returns);
        let (process, group) = (history.events[at].process, history.cluster.group_of(history.events[at].process).unwrap());
        let (after, last) = (later(at), last(at));
        let EventKind::Recover { from } = &mut history.events[at].kind else { unreachable!() };
        match what {
            // A repeat of deliveries that are in the state, or a state that no member has.
            0 => *from += off.max(if after.is_empty() { last - *from + 1 } else { 0 }),
            // A repeat of a delivery in the state, under the next number, which no other member contradicts.
            1 => {
                let from = *from;
                let first = history.cluster.members(group)[0];
                let again = history.events.iter().copied().find(|event| {
                    event.process == first && matches!(event.kind, EventKind::Deliver(_))
                }).unwrap();
                let EventKind::Deliver(deliver) = again.kind else { unreachable!() };
                let kind = EventKind::Deliver(Deliver { number: from + 1, ..deliver });
                let t = history.events.last().unwrap().t + 1;
                history.events.push(Event { t, process, incarnation: history.events[at].incarnation, kind });
            }
            _ => {
                let (one, other) = (*history.deliver(after[0]), *history.deliver(after[1]));
                *history.deliver(after[0]) = Deliver { number: one.number, ..other };
                *history.deliver(after[1]) = Deliver { number: other.number, ..one };
            }
        }
        let violated = history.violated();
        prop_assert!(violated.contains(&"M11"), "{violated:?}");
    }

    #[test]
    fn another_timestamp_breaks_the_prefix_order(shape in eventful_shapes(), which in any::<Index>(), off in 1..9_u64) {
        let mut history = shape.history(&shape.order());
        let deliveries = history.steady_deliveries();
        history.deliver(*which.get(&deliveries)).ts.time += off;
        prop_assert_eq!(history.violated(), ["M5"]);
    }
}
