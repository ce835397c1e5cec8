//! Clusters, limits and networks that drawn scenarios do not include.

use stentor_fabric_sim::{FaultMix, NetworkModel};
use stentor_multicast::Limits;
use stentor_simulation::{Mutant, Scenario, Variant, run_scenario};

fn scenario(groups: &[usize], limits: Limits, network: NetworkModel) -> Scenario {
    let calm = FaultMix { count: 0, ..Scenario::draw(0).mix };
    Scenario {
        groups: groups.to_vec(),
        limits,
        network,
        mix: calm,
        variant: Variant::V2,
        burst: 1,
        large: false,
        pause_ns: 0,
        ..Scenario::draw(0)
    }
}

fn check(scenario: &Scenario, seeds: u64) {
    for seed in 0..seeds {
        let run = run_scenario(seed, scenario, Mutant::None).expect("a possible scenario");
        let violated: Vec<_> = run.violated().collect();
        assert!(violated.is_empty(), "seed {seed}: {violated:?} {:?} of {scenario:?}", run.report.counter_example);
        assert_eq!(run.messages, u64::from(scenario.clients) * scenario.messages);
    }
}

fn tiny(window: u32, message_bytes: usize) -> Limits {
    Limits { message_bytes, window, body_ring_bytes: 0, control_ring_bytes: 0, ..Limits::default() }
}

#[test]
fn the_smallest_window_and_rings_deliver_everything() {
    for groups in [&[1][..], &[3], &[1, 1, 1], &[2, 3]] {
        for (window, bytes) in [(1, 64), (1, 1536), (2, 64), (64, 64)] {
            check(&scenario(groups, tiny(window, bytes), NetworkModel::adversarial()), 2);
        }
    }
}

#[test]
fn writes_in_any_order_deliver_everything() {
    for groups in [&[1][..], &[3], &[1, 3], &[3, 3, 3]] {
        for window in [1, 4, 32] {
            check(&scenario(groups, tiny(window, 256), NetworkModel::unordered()), 8);
        }
    }
}

#[test]
fn short_send_queues_and_little_inline_deliver_everything() {
    let network = NetworkModel { inline_bytes: 64, max_send_depth: 1, ..NetworkModel::adversarial() };
    check(&scenario(&[3, 3], tiny(8, 256), network.clone()), 4);
    check(&Scenario { variant: Variant::V1, ..scenario(&[2, 3, 1], tiny(8, 256), network) }, 4);
}

#[test]
fn many_groups_and_clients_deliver_everything() {
    let one = scenario(&[1; 40], tiny(4, 64), NetworkModel::adversarial());
    check(&Scenario { clients: 12, messages: 20, ..one }, 2);
}
