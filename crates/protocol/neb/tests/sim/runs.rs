//! Correct processes on adversarial, unordered and uniform networks: everything is delivered everywhere, in order,
//! without skips.

use stentor_fabric_sim::NetworkModel;
use stentor_neb::{Config, FaultModel, Mode};

use crate::bed::{Told, payload, run};

const HOSTS: Mode = Mode::Quorum(FaultModel::LyingHosts);
const SENDER: Mode = Mode::Quorum(FaultModel::LyingSender);

fn everything_is_delivered(config: &Config, seed: u64, network: NetworkModel, bytes: usize) -> u64 {
    let each = 60;
    let processes = run(config, seed, network, each, bytes);
    let mut fast = 0;
    for process in &processes {
        for sender in 0..config.processes as u16 {
            let got: Vec<_> = process
                .told
                .iter()
                .filter_map(|(_, told)| match told {
                    Told::Deliver(from, index, key, bytes) if *from == sender => Some((*index, *key, bytes.clone())),
                    _ => None,
                })
                .collect();
            let expected: Vec<_> = (0..each).map(|n| (n, 1000 + n, payload(sender, n, bytes))).collect();
            assert_eq!(got, expected, "{} of {sender}, seed {seed}: {:?}", process.node.me(), process.node.counts());
        }
        assert_eq!(process.told.len() as u64, each * config.processes as u64);
        fast += process.node.counts().fast;
    }
    fast
}

fn modes() -> Vec<Config> {
    let small = |config| Config { window: 8, payload_bytes: 400, patience_ns: 1_000_000_000, ..config };
    vec![
        small(Config::new(2, Mode::All, 0)),
        small(Config::new(3, Mode::All, 0)),
        small(Config::new(4, HOSTS, 1)),
        small(Config::new(3, SENDER, 0)),
        small(Config::new(4, SENDER, 1)),
        small(Config { window: 1, ..Config::new(4, SENDER, 1) }),
        small(Config { fast_path: false, ..Config::new(4, HOSTS, 1) }),
        small(Config { signed: true, ..Config::new(4, HOSTS, 1) }),
    ]
}

#[test]
fn everything_is_delivered_on_an_adversarial_network() {
    for config in modes() {
        for seed in 0..3 {
            // 16 bytes are posted inline, and 380 bytes from staging.
            for bytes in [16, 380] {
                everything_is_delivered(&config, seed, NetworkModel::adversarial(), bytes);
            }
        }
    }
}

#[test]
fn everything_is_delivered_on_a_network_that_does_not_order_writes() {
    for config in modes() {
        everything_is_delivered(&config, 1, NetworkModel::unordered(), 24);
    }
}

#[test]
fn fast_path_is_used_only_if_it_is_enabled() {
    let config = Config { window: 8, ..Config::new(4, HOSTS, 1) };
    let fast = everything_is_delivered(&config, 1, NetworkModel::uniform(1_000), 24);
    assert_eq!(fast, 4 * 3 * 60, "deliveries of others' broadcasts without a READ");
    let slow = Config { fast_path: false, ..config };
    assert_eq!(everything_is_delivered(&slow, 1, NetworkModel::uniform(1_000), 24), 0);
}
