//! Tests fan-out sets on the kernel's Soft-RoCE with the software switch: the contract's cases, and a switch that
//! cannot be reached. Ignored by default: `cargo xtask test --only switch-guests` creates a guest with that device, and
//! a switch beside the guest.

mod bed;
mod processes;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bed::bed;
use stentor_fabric::{Event, Fabric, ProcessId, QpConfig, QpState, Service, SetSpec};
use stentor_fabric_conformance::{Processes, Testbed, suite_of};
use stentor_fabric_net::Sets;
use stentor_fabric_verbs::{NetConfig, SwitchConfig, VerbsConfig};

/// Number of repetitions in cases that repeat their steps. In the guest, each break of a set takes about a second.
const REPEATS: u64 = 3;
const NEEDS: &str = "run by `cargo xtask test --only switch-guests`";

fn use_switch(config: &mut VerbsConfig, variable: &str) {
    let control = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: {NEEDS}"));
    config.switch = Some(SwitchConfig::new(control.parse::<SocketAddr>().unwrap()));
}

fn with_switch(_: &mut NetConfig, config: &mut VerbsConfig) {
    use_switch(config, "STENTOR_SWITCH");
}

/// Configures so little inline data that a list of two receivers exceeds it.
fn with_little_inline(net: &mut NetConfig, config: &mut VerbsConfig) {
    with_switch(net, config);
    config.inline_bytes = 24;
}

/// Configures a switch whose packet addresses cannot be reached.
fn with_switch_out_of_reach(_: &mut NetConfig, config: &mut VerbsConfig) {
    use_switch(config, "STENTOR_SWITCH_AFAR");
}

#[test]
#[ignore = "needs Soft-RoCE and a switch: run by `cargo xtask test --only switch-guests`"]
fn contract_cases() {
    let began = Instant::now();
    let make = |count| Processes { repeats: REPEATS, ..bed(count, with_switch) };
    let report = suite_of(make, |name| name.starts_with("set::"));
    println!("{report}\nin {:.1} s", began.elapsed().as_secs_f64());
    report.assert_ok();
    assert_eq!(report.skipped(), ["set::survives_a_cut"], "no path can be cut here");
}

#[test]
#[ignore = "needs Soft-RoCE and a switch: run by `cargo xtask test --only switch-guests`"]
fn member_lists_longer_than_inline_data_are_sent() {
    let some =
        ["set::copies_reach_exactly_the_targets", "set::in_order_at_each_target", "set::one_refusal_breaks_it_for_all"];
    let mut seen = 0;
    let report = suite_of(
        |count| {
            let mut made = Processes { repeats: REPEATS, ..bed(count, with_little_inline) };
            assert_eq!(made.fabric(ProcessId(0)).capabilities().inline_bytes, 24);
            seen += 1;
            made
        },
        |name| some.contains(&name),
    );
    println!("{report}");
    report.assert_ok();
    assert_eq!((seen, report.skipped().len()), (some.len(), 0));
}

/// The switch answers on its control address but cannot be reached by packets. Every process is informed once of the
/// cause, no set becomes ready, and queue pairs between processes work meanwhile.
#[test]
#[ignore = "needs Soft-RoCE and a switch: run by `cargo xtask test --only switch-guests`"]
fn unreachable_switch_is_reported_once_and_queue_pairs_keep_working() {
    const MEMBERS: [ProcessId; 2] = [ProcessId(0), ProcessId(1)];
    let mut bed = bed(2, with_switch_out_of_reach);
    let spec = SetSpec { number: 0, members: &MEMBERS };
    let mut notes = [Vec::new(), Vec::new()];
    let mut ends = Vec::new();
    for process in MEMBERS {
        let fabric = bed.fabric(process);
        assert!(fabric.capabilities().hardware_multicast);
        let set = fabric.join_set(spec, QpConfig::reliable(4, 0)).unwrap();
        let link = fabric.connect(MEMBERS[1 - process.index()], Service(1), QpConfig::reliable(4, 0)).unwrap();
        ends.push((set, link));
    }
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    // This time is long enough for three attempts with the pauses between them.
    while began.elapsed() < Duration::from_secs(5) {
        bed.advance();
        for (process, notes) in MEMBERS.into_iter().zip(&mut notes) {
            let (set, link) = ends[process.index()];
            let fabric = bed.fabric(process);
            let round = Instant::now();
            while let Some(event) = fabric.next_event() {
                assert!(!matches!(event, Event::Connected { qp, .. } if qp == set), "{event:?}");
                assert!(!matches!(event, Event::Disconnected { qp, .. } if qp == link), "{event:?}");
                if event == (Event::Disconnected { qp: set, peer: process }) {
                    fabric.reset(set).unwrap();
                }
            }
            longest = longest.max(round.elapsed());
            notes.extend(std::iter::from_fn(|| fabric.cm_mut().sets.next_note()));
        }
    }
    for (process, notes) in MEMBERS.into_iter().zip(&notes) {
        println!("{process}: {notes:?}");
        assert_eq!(bed.fabric(process).state(ends[process.index()].1), QpState::Ready);
        let [there, refused] = &notes[..] else { panic!("{notes:?}") };
        assert!(there.contains("is there"), "{there}");
        for part in ["cannot be connected to the switch", "10.99.0.", "the route"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
    println!("the longest round took {:.1} ms", longest.as_secs_f64() * 1e3);
}
