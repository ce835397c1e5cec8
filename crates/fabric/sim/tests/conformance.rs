//! The simulator passes the conformance suite in every mode.

mod common;

use common::{SimBed, bed};
use stentor_fabric_conformance::{Report, suite, suite_of};
use stentor_fabric_sim::NetworkModel;

fn seeds() -> u64 {
    std::env::var("CONFORMANCE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

fn run(name: &str, model: &NetworkModel) -> Report {
    let mut last = Report::default();
    for seed in 0..seeds() {
        last = suite(|processes| bed(processes, seed, model));
        assert!(last.failed().is_empty(), "{name}, seed {seed}:\n{last}");
        last.assert_ok();
    }
    last
}

/// Adds multicast by the network to a model.
fn copying(mut model: NetworkModel) -> NetworkModel {
    model.hardware_multicast = true;
    model
}

#[test]
fn uniform() {
    let report = run("uniform", &copying(NetworkModel { tagged: true, ..NetworkModel::uniform(1_000) }));
    assert!(report.skipped().is_empty(), "{report}");
}

#[test]
fn no_delay_at_all() {
    run("no delay", &NetworkModel::uniform(0));
}

#[test]
fn calm() {
    run("calm", &copying(NetworkModel::calm()));
}

#[test]
fn adversarial() {
    let report = run("adversarial", &copying(NetworkModel::adversarial()));
    let skipped = [
        "tagged::exact_and_masked_tags_match",
        "tagged::unexpected_messages_wait",
        "tagged::masks_match_unexpected_messages",
        "tagged::cancelled_receives_complete_once",
    ];
    assert_eq!(report.skipped(), skipped);
}

#[test]
fn unordered() {
    let report = run("unordered", &copying(NetworkModel::unordered()));
    let skipped = [
        "access::nothing_after_a_refusal_takes_effect",
        "write::in_order_on_one_queue_pair",
        "write::last_write_wins",
        "set::in_order_at_each_target",
    ];
    assert_eq!(report.skipped(), skipped);
}

/// Runs the suite with one liberty at a time, or with fewer capabilities, on an otherwise calm network.
#[test]
fn each_liberty_alone() {
    let calm = NetworkModel::calm();
    let always = stentor_fabric_sim::MILLION;
    let modes = [
        ("reorder", NetworkModel { reorder_across_queue_pairs: true, ..calm.clone() }),
        ("torn", NetworkModel { torn_writes: always, tear_gap: NetworkModel::adversarial().tear_gap, ..calm.clone() }),
        ("early", NetworkModel { early_completions: true, late_writes: 200_000, late_ns: 20_000, ..calm.clone() }),
        ("torn reads", NetworkModel { torn_reads: always, ..calm.clone() }),
        ("late sources", NetworkModel { late_source_reads: always, ..calm.clone() }),
        ("partial", NetworkModel { partial_at_revocation: always, ..calm.clone() }),
        ("lossy", NetworkModel { lost_unreliable: 400_000, ..calm.clone() }),
        ("unheld", NetworkModel { hold_until_flush: false, ..calm.clone() }),
        ("few capabilities", NetworkModel { atomics: false, unreliable: false, ..calm.clone() }),
        ("small", NetworkModel { inline_bytes: 64, max_send_depth: 64, max_recv_depth: 64, ..calm }),
    ];
    for (name, model) in modes {
        run(name, &model);
    }
    let late = NetworkModel { late_after_break: always, ..NetworkModel::calm() };
    run("late", &copying(late));
    run("unheld", &copying(NetworkModel { hold_until_flush: false, ..NetworkModel::calm() }));
}

/// Runs each repeatable case 200 times in one world.
#[test]
fn repeatable_cases_pass_200_times() {
    let topics = ["restart::", "link::", "fence::", "heartbeat::", "imm::recovers_after_the_retry_limit", "set::"];
    for model in [NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()].map(copying) {
        let make = |processes| SimBed { repeats: 200, ..bed(processes, 77, &model) };
        let report = suite_of(make, |case| topics.iter().any(|topic| case.starts_with(topic)));
        report.assert_ok();
        let unordered = !model.ordered_writes;
        assert!(report.skipped().iter().all(|case| unordered && *case == "set::in_order_at_each_target"), "{report}");
    }
}
