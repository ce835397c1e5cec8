//! Compares the checker with a direct transcription of the definitions, on small arbitrary histories. Both must give
//! the same verdicts, whether the history is correct or not.

use proptest::prelude::*;
use stentor_checker::{
    Checker, Cluster, Deliver, Event, EventKind, Group, GroupSet, MessageId, Multicast, Process, Report, Timestamp,
    Verdict,
};

const CLIENTS: u32 = 2;

/// A message: its client, its destinations, and the time of its multicast.
#[derive(Clone, Debug)]
struct Sent {
    client: u32,
    to: Vec<usize>,
    t: u64,
}

/// A run: the group of each process, messages in the order of their multicasts, deliveries of each process with their
/// times, and crashes.
#[derive(Clone, Debug)]
struct Run {
    sizes: Vec<usize>,
    groups: Vec<usize>,
    messages: Vec<Sent>,
    delivered: Vec<Vec<(usize, u64)>>,
    crashed: Vec<bool>,
}

fn runs() -> impl Strategy<Value = Run> {
    let sizes = prop::collection::vec(1..=3_usize, 1..=3);
    let messages = prop::collection::vec((0..CLIENTS, 1..8_u8, 0..6_u64), 1..=5);
    let processes =
        prop::collection::vec((prop::collection::vec(0..64_u64, 5), 0..=5_usize, 0..6_u64, any::<bool>()), 9);
    // Deliveries are mostly in order, so that correct histories are common enough.
    (sizes, messages, processes, 0..4_u64)
        .prop_map(|(sizes, messages, processes, disorder)| build(&sizes, messages, &processes, disorder))
}

type Deliverer = (Vec<u64>, usize, u64, bool);

fn build(sizes: &[usize], messages: Vec<(u32, u8, u64)>, processes: &[Deliverer], disorder: u64) -> Run {
    let groups: Vec<usize> = sizes.iter().enumerate().flat_map(|(group, size)| vec![group; *size]).collect();
    let mut t = 0;
    let messages: Vec<Sent> = messages
        .into_iter()
        .map(|(client, bits, pause)| {
            let mut to: Vec<usize> = (0..sizes.len()).filter(|group| bits >> group & 1 == 1).collect();
            if to.is_empty() {
                to.push(0);
            }
            t += pause;
            Sent { client, to, t }
        })
        .collect();
    let deliver = |(process, group): (usize, &usize)| {
        let (keys, keep, start, _) = &processes[process];
        let mut mine: Vec<usize> = (0..messages.len()).filter(|m| messages[*m].to.contains(group)).collect();
        mine.sort_by_key(|m| *m as u64 * 16 + keys[*m] * disorder / 2);
        let kept = mine.into_iter().take(*keep).enumerate();
        kept.map(|(place, m)| (m, start + 3 * place as u64)).collect()
    };
    let delivered = groups.iter().enumerate().map(deliver).collect();
    let crashed = processes[..groups.len()].iter().map(|process| process.3 && process.2 == 0).collect();
    Run { sizes: sizes.to_vec(), groups, messages, delivered, crashed }
}

impl Run {
    fn check(&self) -> Report {
        let mut builder = Cluster::builder().global_clock().clients((0..CLIENTS).map(|client| format!("c{client}")));
        for (group, size) in self.sizes.iter().enumerate() {
            builder = builder.group(format!("g{group}"), (0..*size).map(|process| format!("g{group}.{process}")));
        }
        let mut checker = Checker::new(builder.build().unwrap());
        let event = |t, process: usize, kind| Event { t, process: Process(process as u32), incarnation: 1, kind };
        for (index, sent) in self.messages.iter().enumerate() {
            let to: GroupSet = sent.to.iter().map(|group| Group(*group as u16)).collect();
            let multicast = EventKind::Multicast(Multicast { m: self.id(index), to, len: 0, hash: 0 });
            checker.event(&event(sent.t, self.groups.len() + sent.client as usize, multicast));
        }
        for (process, delivered) in self.delivered.iter().enumerate() {
            for (place, (message, t)) in delivered.iter().enumerate() {
                let group = Group(self.groups[process] as u16);
                let (number, ts) = (place as u64 + 1, Timestamp { time: *message as u64, group: Group(0) });
                let deliver = Deliver { m: self.id(*message), group, number, ts, hash: 0, len: Some(0), ballot: None };
                checker.event(&event(*t, process, EventKind::Deliver(deliver)));
            }
            if self.crashed[process] {
                checker.event(&event(1000, process, EventKind::Crash));
            }
        }
        checker.finish(true)
    }

    fn id(&self, message: usize) -> MessageId {
        let client = Process(self.groups.len() as u32 + self.messages[message].client);
        MessageId { client, sequence: message as u64 }
    }

    fn place(&self, process: usize, message: usize) -> Option<usize> {
        self.delivered[process].iter().position(|(m, _)| *m == message)
    }

    fn is_destination(&self, process: usize, message: usize) -> bool {
        self.messages[message].to.contains(&self.groups[process])
    }

    /// Returns for `[a][b]` the number of steps of the shortest chain of messages from a to b, or 0 if there is none.
    /// In each step, some process delivers a message and later the next one.
    fn closure(&self) -> Vec<Vec<usize>> {
        let count = self.messages.len();
        let mut steps = vec![vec![0; count]; count];
        for delivered in &self.delivered {
            for (place, (earlier, _)) in delivered.iter().enumerate() {
                delivered[place + 1..].iter().for_each(|(later, _)| steps[*earlier][*later] = 1);
            }
        }
        for _ in 0..count {
            for via in 0..count {
                for from in 0..count {
                    for to in 0..count {
                        let through = steps[from][via] + steps[via][to];
                        let both = steps[from][via] > 0 && steps[via][to] > 0;
                        if both && (steps[from][to] == 0 || through < steps[from][to]) {
                            steps[from][to] = through;
                        }
                    }
                }
            }
        }
        steps
    }

    fn smallest_cycle(&self) -> Option<usize> {
        let steps = self.closure();
        (0..steps.len()).map(|message| steps[message][message]).filter(|steps| *steps > 0).min()
    }

    fn breaks_prefix_order(&self) -> bool {
        let processes = 0..self.groups.len();
        let pairs = (0..self.messages.len()).flat_map(|m| (0..self.messages.len()).map(move |n| (m, n)));
        pairs.filter(|(m, n)| m != n).any(|(m, n)| {
            let both = |process: &usize| self.is_destination(*process, m) && self.is_destination(*process, n);
            let before = |process, a, b| match (self.place(process, a), self.place(process, b)) {
                (Some(a), Some(b)) => a < b,
                (a, _) => a.is_some(),
            };
            processes.clone().filter(both).any(|p| {
                processes.clone().filter(both).any(|q| {
                    let delivered = self.place(p, m).is_some() && self.place(q, n).is_some();
                    delivered && !(before(p, n, m) || before(q, m, n))
                })
            })
        })
    }

    fn breaks_fifo(&self) -> bool {
        (0..self.groups.len()).any(|process| {
            (0..self.messages.len()).any(|later| {
                (0..later).any(|earlier| {
                    let common = self.is_destination(process, earlier) && self.is_destination(process, later);
                    let one_client = self.messages[earlier].client == self.messages[later].client;
                    let in_order = match (self.place(process, earlier), self.place(process, later)) {
                        (_, None) => true,
                        (earlier, later) => earlier.is_some() && earlier < later,
                    };
                    common && one_client && !in_order
                })
            })
        })
    }

    fn breaks_real_time(&self) -> bool {
        let first = |message| {
            let of_message = self.delivered.iter().flatten().filter(move |(m, _)| *m == message);
            of_message.map(|(_, t)| *t).min()
        };
        (0..self.messages.len()).any(|early| {
            let delivered = first(early);
            (0..self.messages.len()).any(|late| {
                let ordered = (0..self.groups.len()).any(|process| {
                    let places = (self.place(process, late), self.place(process, early));
                    matches!(places, (Some(late), Some(early)) if late < early)
                });
                late != early && delivered.is_some_and(|t| t < self.messages[late].t) && ordered
            })
        })
    }

    fn breaks_agreement(&self, required: impl Fn(usize) -> bool) -> bool {
        let up = |group: usize| (0..self.groups.len()).filter(move |p| self.groups[*p] == group && !self.crashed[*p]);
        let majority = |group: &usize| 2 * up(*group).count() > self.sizes[*group];
        (0..self.messages.len()).any(|message| {
            let to = &self.messages[message].to;
            let lacking = |group: &usize| up(*group).any(|process| self.place(process, message).is_none());
            required(message) && to.iter().all(majority) && to.iter().any(lacking)
        })
    }
}

fn violated(report: &Report, name: &str) -> bool {
    report.properties[name].is_violated()
}

/// Returns whether M5 is violated by the order, not by the timestamps, which are checked last.
fn order_violated(report: &Report) -> bool {
    matches!(&report.properties["M5"], Verdict::Violated(example) if !example.summary.contains("timestamps"))
}

fn cycle_found(report: &Report) -> Option<usize> {
    match &report.properties["M4"] {
        Verdict::Violated(example) => Some(example.summary.matches('→').count()),
        Verdict::Ok | Verdict::NotChecked(_) | Verdict::Incomplete(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(4096) * 2, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_agrees_with_the_definitions(run in runs()) {
        let report = run.check();
        let cycle = run.smallest_cycle();
        prop_assert_eq!(cycle_found(&report), cycle, "M4");
        prop_assert_eq!(order_violated(&report), run.breaks_prefix_order(), "M5");
        prop_assert_eq!(violated(&report, "M6"), run.breaks_fifo(), "M6");
        prop_assert_eq!(violated(&report, "R1"), run.breaks_real_time(), "R1");
        let delivered = |message| (0..run.groups.len()).any(|process| run.place(process, message).is_some());
        prop_assert_eq!(violated(&report, "M2"), run.breaks_agreement(delivered), "M2");
        prop_assert_eq!(violated(&report, "M3"), run.breaks_agreement(|_| true), "M3");
        prop_assert_eq!(violated(&report, "M9"), run.breaks_agreement(|_| true), "M9");
    }
}

/// The comparison is meaningful only if both correct and incorrect runs occur.
#[test]
fn runs_of_all_kinds_occur() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut kinds = [[0_u32; 2]; 6];
    let mut long_cycles = 0;
    for _ in 0..2000 {
        let run = runs().new_tree(&mut runner).unwrap().current();
        let cycle = run.smallest_cycle();
        let delivered = |message| (0..run.groups.len()).any(|process| run.place(process, message).is_some());
        let is = [
            cycle.is_some(),
            run.breaks_prefix_order(),
            run.breaks_fifo(),
            cycle.is_none() && run.breaks_real_time(),
            run.breaks_agreement(delivered),
            run.crashed.contains(&true),
        ];
        is.iter().zip(&mut kinds).for_each(|(is, count)| count[usize::from(*is)] += 1);
        long_cycles += u32::from(cycle.is_some_and(|steps| steps > 2));
    }
    assert!(kinds.iter().flatten().all(|count| *count >= 40), "{kinds:?}");
    assert!(long_cycles > 0, "no cycle of more than two messages");
}
