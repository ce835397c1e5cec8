//! The time of checking. The limits are wide enough for slow machines and unoptimised builds. They detect a step that
//! is no longer linear. `docs/history.md` has measurements.

use std::time::{Duration, Instant};

use stentor_checker::history::check_inputs;
use stentor_checker::{
    Checker, Cluster, Deliver, Event, EventKind, Group, GroupSet, HistoryWriter, MessageId, Multicast, Process,
    Timestamp, Verdict,
};

const GROUPS: u32 = 4;
const MEMBERS: u32 = 3;

/// Generates messages to one or two of four groups of three members, each delivered by all destinations at once.
fn events(messages: u64, mut each: impl FnMut(&Event)) {
    let mut numbers = [0; GROUPS as usize];
    let mut t = 0;
    for sequence in 1..=messages {
        let (first, second) = (sequence % 4, sequence / 4 % 4);
        let to: GroupSet = [first, second].map(|group| Group(group as u16)).into_iter().collect();
        let m = MessageId { client: Process(GROUPS * MEMBERS + (sequence % 5) as u32), sequence };
        let mut event = |process, kind| {
            t += 100;
            each(&Event { t, process, incarnation: 1, kind });
        };
        event(m.client, EventKind::Multicast(Multicast { m, to, len: 64, hash: sequence }));
        for group in to.iter() {
            numbers[group.index()] += 1;
            let number = numbers[group.index()];
            for member in 0..MEMBERS {
                let ts = Timestamp { time: sequence, group };
                let ts = Timestamp { group: to.iter().next().unwrap_or(ts.group), ..ts };
                let deliver = Deliver { m, group, number, ts, hash: sequence, len: None, ballot: None };
                event(Process(u32::from(group.0) * MEMBERS + member), EventKind::Deliver(deliver));
            }
        }
    }
}

fn cluster() -> Cluster {
    let groups = (0..GROUPS).fold(Cluster::builder(), |builder, group| {
        builder.group(format!("g{group}"), (0..MEMBERS).map(|member| format!("g{group}.{member}")))
    });
    groups.clients((0..5).map(|client| format!("c{client}"))).global_clock().build().unwrap()
}

fn text(messages: u64) -> Vec<u8> {
    let mut text = Vec::new();
    let mut writer = HistoryWriter::new(&mut text, &cluster()).unwrap();
    events(messages, |event| writer.event(event).unwrap());
    writer.complete().unwrap();
    drop(writer);
    text
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn a_million_deliveries_are_read_and_checked_in_seconds() {
    let text = text(190_500);
    let start = Instant::now();
    let report = check_inputs([("h".to_owned(), &text[..])], false).unwrap();
    let took = start.elapsed();
    assert!(report.ok() && report.complete, "{report:#?}");
    assert!(report.counts.deliveries >= 1_000_000, "{:?}", report.counts);
    println!("{} deliveries, {} MB: {took:?}", report.counts.deliveries, text.len() >> 20);
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[test]
fn a_violation_among_many_deliveries_is_shown_in_seconds() {
    let mut checker = Checker::new(cluster());
    let mut late = None;
    let swapped = |deliver: &Deliver| (60_000..90_000).contains(&deliver.m.sequence);
    // One process delivers almost a third of its messages with neighbours swapped.
    events(100_000, |event| match (event.kind, late.take()) {
        (EventKind::Deliver(deliver), None) if event.process == Process(0) && swapped(&deliver) => late = Some(deliver),
        (EventKind::Deliver(deliver), Some(first)) if event.process == Process(0) => {
            let first: Deliver = first;
            let exchanged = [Deliver { number: first.number, ..deliver }, Deliver { number: deliver.number, ..first }];
            for deliver in exchanged {
                checker.event(&Event { kind: EventKind::Deliver(deliver), ..*event });
            }
        }
        (_, waiting) => {
            late = waiting;
            checker.event(event);
        }
    });
    let start = Instant::now();
    let report = checker.finish(false);
    let took = start.elapsed();
    println!("{took:?}: {}", report.counter_example.clone().unwrap_or_default());
    assert!(report.properties["M4"].is_violated() && report.properties["M5"].is_violated());
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// Finds a cycle of three processes, one of which delivers many messages between the two messages of its step.
/// Examining every pair of these messages would take minutes.
#[test]
fn a_cycle_around_a_long_chain_is_found_in_seconds() {
    const LAST: u64 = 200_000;
    let cluster = Cluster::builder().group("g0", ["p"]).group("g1", ["q"]).group("g2", ["r"]).clients(["c"]).build();
    let mut checker = Checker::new(cluster.unwrap());
    let mut event = |process, kind| checker.event(&Event { t: 0, process: Process(process), incarnation: 1, kind });
    let m = |sequence| MessageId { client: Process(3), sequence };
    for sequence in 1..=LAST + 1 {
        let to: &[u16] = match sequence {
            1 => &[0, 2],
            LAST => &[0, 1],
            sequence if sequence > LAST => &[1, 2],
            _ => &[0],
        };
        let to = to.iter().copied().map(Group).collect();
        event(3, EventKind::Multicast(Multicast { m: m(sequence), to, len: 0, hash: 0 }));
    }
    let mut deliver = |process, number, sequence| {
        let ts = Timestamp { time: number, group: Group(0) };
        let group = Group(process as u16);
        event(
            process,
            EventKind::Deliver(Deliver { m: m(sequence), group, number, ts, hash: 0, len: None, ballot: None }),
        );
    };
    (1..=LAST).for_each(|sequence| deliver(0, sequence, sequence));
    for (process, number, sequence) in [(1, 1, LAST), (1, 2, LAST + 1), (2, 1, LAST + 1), (2, 2, 1)] {
        deliver(process, number, sequence);
    }
    let start = Instant::now();
    let report = checker.finish(false);
    let took = start.elapsed();
    let Verdict::Violated(cycle) = &report.properties["M4"] else { panic!("{report:#?}") };
    println!("{took:?}: {cycle}");
    assert_eq!(cycle.lines.len(), 6, "three steps: {cycle}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_thousand_small_runs_take_seconds() {
    let cluster = cluster();
    let start = Instant::now();
    let mut checked = 0;
    for _ in 0..1000 {
        let mut checker = Checker::new(cluster.clone());
        events(800, |event| checker.event(event));
        checked += checker.finish(true).counts.events;
    }
    let took = start.elapsed();
    println!("{checked} events in 1000 runs: {took:?}");
    assert!(checked > 4_500_000, "{checked}");
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[test]
fn writing_is_cheap() {
    let (start, mut lines) = (Instant::now(), 0_u64);
    let mut writer = HistoryWriter::new(std::io::sink(), &cluster()).unwrap();
    events(190_500, |event| {
        lines += 1;
        writer.event(event).unwrap();
    });
    let took = start.elapsed();
    println!("{lines} lines: {took:?}, {} ns each", took.as_nanos() / u128::from(lines));
    assert!(took < Duration::from_secs(10), "{took:?}");
}
