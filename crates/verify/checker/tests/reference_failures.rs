//! Compares M10 and M11 with a direct transcription of their definitions, on small arbitrary histories with changing
//! leaders and recovering processes. Both must give the same verdicts, whether the history is correct or not.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stentor_checker::{
    Ballot, Checker, Cluster, Deliver, Event, EventKind, Group, GroupSet, MessageId, Multicast, Process, Report,
    Timestamp,
};

const SIZES: [usize; 2] = [3, 2];
const PROCESSES: usize = 5;
const CLIENT: Process = Process(PROCESSES as u32);
const MESSAGES: u64 = 6;

/// The next step of a process.
#[derive(Clone, Debug)]
enum Step {
    Deliver { message: u64, skip: u64, ballot: Option<u64> },
    Ready { ballot: u64, by_another: bool, carried: Option<u8> },
    Return { from: u64, says: bool },
}

/// A run: the steps of each process with the pauses before them, the time of each multicast, whether there is one
/// clock, and whether the run came to rest.
#[derive(Clone, Debug)]
struct Run {
    steps: Vec<Vec<(u64, Step)>>,
    multicast: Vec<u64>,
    clock: bool,
    complete: bool,
}

fn runs() -> impl Strategy<Value = Run> {
    let deliver = (0..MESSAGES, prop_oneof![9 => Just(0_u64), 1 => Just(1), 1 => Just(2)], 0..5_u64)
        .prop_map(|(message, skip, ballot)| Step::Deliver { message, skip, ballot: ballot.checked_sub(1) });
    let ready = (0..4_u64, 0..8_u8, any::<Option<u8>>()).prop_map(|(ballot, another, carried)| Step::Ready {
        ballot,
        by_another: another == 0,
        carried: carried.map(|carried| carried | carried >> 1),
    });
    let back = (0..5_u64, 0..4_u8).prop_map(|(from, says)| Step::Return { from, says: says > 0 });
    let step = prop_oneof![6 => deliver, 2 => ready, 1 => back];
    let steps = prop::collection::vec(prop::collection::vec((0..6_u64, step), 0..6), PROCESSES);
    let multicast = prop::collection::vec(0..20_u64, MESSAGES as usize);
    // Mostly, each process delivers message n as its n-th, so that correct histories are common enough.
    (steps, multicast, any::<bool>(), any::<bool>(), 0..4_u8).prop_map(
        |(mut steps, multicast, clock, complete, wild)| {
            for steps in &mut steps {
                let mut number = 0;
                for (_, step) in steps {
                    match step {
                        Step::Deliver { message, skip, .. } if wild > 0 => (*message, *skip) = (number % MESSAGES, 0),
                        Step::Return { from, says } if wild > 0 && *says => number = *from,
                        _ => {}
                    }
                    number += u64::from(matches!(step, Step::Deliver { .. }));
                }
            }
            Run { steps, multicast, clock, complete }
        },
    )
}

/// A delivery, with the fields that the definitions use.
#[derive(Clone, Debug)]
struct Delivered {
    group: usize,
    message: u64,
    number: u64,
    ballot: Option<Ballot>,
    t: u64,
}

/// A leader that became ready.
#[derive(Clone, Debug)]
struct Ready {
    group: usize,
    ballot: Ballot,
    life: (usize, u64),
    last: u64,
    t: u64,
    carried: Option<BTreeSet<u64>>,
}

/// A recovery of a process: the delivery after which it resumes, the time of its `recover` event if there is one, and
/// its deliveries until its next recovery.
#[derive(Clone, Debug)]
struct Back {
    group: usize,
    after: u64,
    said_at: Option<u64>,
    deliveries: Vec<Delivered>,
}

#[derive(Default)]
struct Told {
    events: Vec<Event>,
    delivered: Vec<Delivered>,
    ready: Vec<Ready>,
    back: Vec<Back>,
}

fn group_of(process: usize) -> usize {
    usize::from(process >= SIZES[0])
}

impl Run {
    /// Records the events, and the fields that the definitions use.
    fn tell(&self) -> Told {
        let mut told = Told::default();
        let to: GroupSet = [Group(0), Group(1)].into_iter().collect();
        let id = |sequence| MessageId { client: CLIENT, sequence };
        let mut sent: Vec<(u64, u64)> = self.multicast.iter().copied().zip(0..).collect();
        sent.sort_unstable();
        for (t, message) in sent {
            let kind = EventKind::Multicast(Multicast { m: id(message), to, len: 0, hash: 0 });
            told.events.push(Event { t, process: CLIENT, incarnation: 1, kind });
        }
        for (at, steps) in self.steps.iter().enumerate() {
            let (mut t, mut incarnation, mut last) = (0, 1, 0);
            let (process, group) = (Process(at as u32), group_of(at));
            for (pause, step) in steps {
                t += pause;
                let mut push = |incarnation, kind| told.events.push(Event { t, process, incarnation, kind });
                match step {
                    Step::Deliver { message, skip, ballot } => {
                        last += 1 + skip;
                        let ballot = ballot.map(|number| Ballot { number, by: Process(0) });
                        let (m, ts) = (id(*message), Timestamp { time: *message, group: Group(0) });
                        let (of, number, len) = (Group(group as u16), last, None);
                        let deliver = Deliver { m, group: of, number, ts, hash: 0, len, ballot };
                        push(incarnation, EventKind::Deliver(deliver));
                        let delivered = Delivered { group, message: *message, number, ballot, t };
                        let mine = told.back.last_mut().filter(|_| incarnation > 1);
                        mine.into_iter().for_each(|back| back.deliveries.push(delivered.clone()));
                        told.delivered.push(delivered);
                    }
                    Step::Ready { ballot, by_another, carried } => {
                        let by = if *by_another { Process(0) } else { process };
                        let (of, ballot) = (Group(group as u16), Ballot { number: *ballot, by });
                        let carried = carried.map(|bits| (0..MESSAGES).filter(|m| bits >> m & 1 == 1).collect());
                        let listed: &BTreeSet<u64> = carried.as_ref().unwrap_or(const { &BTreeSet::new() });
                        for message in listed {
                            push(incarnation, EventKind::Carry { m: id(*message), group: of, ballot });
                        }
                        let counted = carried.as_ref().map(|carried| carried.len() as u32);
                        let (number, leader) = (ballot.number, process);
                        let kind = EventKind::Epoch { group: of, ballot: number, by, leader, carried: counted };
                        push(incarnation, kind);
                        told.ready.push(Ready { group, ballot, life: (at, incarnation), last, t, carried });
                    }
                    Step::Return { from, says } => {
                        push(incarnation, EventKind::Crash);
                        incarnation += 1;
                        if *says {
                            push(incarnation, EventKind::Recover { from: *from });
                            last = *from;
                        } else {
                            // The process has events again, but none that records its recovery.
                            let by = Process(9 - at as u32);
                            let kind = EventKind::Epoch { group: Group(0), ballot: 0, by, leader: by, carried: None };
                            push(incarnation, kind);
                        }
                        let (after, said_at) = (last, says.then_some(t));
                        told.back.push(Back { group, after, said_at, deliveries: Vec::new() });
                    }
                }
            }
        }
        told
    }

    fn check(&self, told: &Told) -> Report {
        let mut builder = Cluster::builder().clients(["c", "d", "e", "f", "g"]);
        for (group, size) in SIZES.iter().enumerate() {
            builder = builder.group(format!("g{group}"), (0..*size).map(|process| format!("g{group}.{process}")));
        }
        builder = if self.clock { builder.global_clock() } else { builder };
        let mut checker = Checker::new(builder.build().unwrap());
        told.events.iter().for_each(|event| checker.event(event));
        checker.finish(self.complete)
    }

    fn breaks_fencing(&self, told: &Told) -> bool {
        told.ready.iter().any(|leader| {
            let twice = told
                .ready
                .iter()
                .any(|other| (other.group, other.ballot) == (leader.group, leader.ballot) && other.life != leader.life);
            let late = told.delivered.iter().any(|delivered| {
                let older = delivered.ballot.is_some_and(|ballot| ballot < leader.ballot);
                let lacked = leader
                    .carried
                    .as_ref()
                    .is_some_and(|carried| delivered.number > leader.last && !carried.contains(&delivered.message));
                let multicast_later = self.clock && self.multicast[delivered.message as usize] > leader.t;
                delivered.group == leader.group && older && (lacked || multicast_later)
            });
            twice || late
        })
    }

    fn breaks_rejoin(&self, told: &Told) -> bool {
        told.back.iter().any(|back| {
            let mine = || told.delivered.iter().filter(|delivered| delivered.group == back.group);
            let dense = back.deliveries.iter().zip(back.after + 1..).all(|(delivered, n)| delivered.number == n);
            let contradicted = back
                .deliveries
                .iter()
                .any(|here| mine().any(|other| (other.number == here.number) != (other.message == here.message)));
            let foreign = back.said_at.is_some_and(|said_at| {
                (1..=back.after).any(|number| {
                    let first =
                        mine().filter(|delivered| delivered.number == number).map(|delivered| delivered.t).min();
                    first.is_none_or(|first| self.clock && first > said_at) && (self.complete || first.is_some())
                })
            });
            !dense || contradicted || foreign
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(4096) * 2, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_agrees_with_the_definitions_of_fencing_and_rejoin(run in runs()) {
        let told = run.tell();
        let report = run.check(&told);
        prop_assert_eq!(report.properties["M10"].is_violated(), run.breaks_fencing(&told), "M10 {:?}", report);
        prop_assert_eq!(report.properties["M11"].is_violated(), run.breaks_rejoin(&told), "M11 {:?}", report);
    }
}

/// The comparison is meaningful only if both correct and incorrect runs occur.
#[test]
fn runs_of_all_kinds_occur() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut kinds = [[0_u32; 2]; 4];
    for _ in 0..2000 {
        let run = runs().new_tree(&mut runner).unwrap().current();
        let told = run.tell();
        let report = run.check(&told);
        let judged = |name: &str| report.properties[name].as_str() != "not_checked";
        let fencing = judged("M10").then(|| run.breaks_fencing(&told));
        let rejoin = judged("M11").then(|| run.breaks_rejoin(&told));
        let silent = Run { clock: false, ..run.clone() };
        let by_state = run.clock && judged("M10") && silent.breaks_fencing(&told);
        let kind = [fencing, rejoin, Some(run.clock), Some(by_state)];
        kind.iter().zip(&mut kinds).for_each(|(is, count)| {
            is.iter().for_each(|is| count[usize::from(*is)] += 1);
        });
    }
    assert!(kinds.iter().flatten().all(|count| *count >= 100), "{kinds:?}");
}
