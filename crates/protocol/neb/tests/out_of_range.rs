//! Functions that get ids or sizes from a caller do not panic if these are out of range.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{NetworkModel, SimConfig, World};
use stentor_neb::{Authority, Broadcast, Config, FaultModel, Mode, Node, ProcessSet};

const OUTSIDE: [u16; 4] = [3, 9, 64, u16::MAX];
const MODES: [Mode; 3] = [Mode::All, Mode::Quorum(FaultModel::LyingSender), Mode::Quorum(FaultModel::LyingHosts)];

#[test]
fn node_tolerates_unknown_processes() {
    let world = World::new(SimConfig::new(3, 1, NetworkModel::uniform(1000)));
    let node = Node::new(world.fabric(ProcessId(0)), Config::new(3, Mode::All, 0), 1, None).unwrap();
    for n in OUTSIDE {
        assert_eq!((node.head(ProcessId(n)), node.suspicions(ProcessId(n))), (0, 0));
        assert_eq!((node.own_stream().freed_by(ProcessId(n)), node.own_stream().written_at(ProcessId(n))), (0, 0));
        assert!(!node.members().contains(ProcessId(n)) && !node.fenced().contains(ProcessId(n)));
    }
    assert_eq!(node.head(ProcessId(0)), 0);
}

#[test]
fn impossible_configurations_are_refused() {
    for processes in [0, 1, 65, usize::MAX] {
        for mode in MODES {
            for faults in [0, 1, usize::MAX] {
                let config = Config::new(processes, mode, faults);
                assert!(config.check().is_err(), "{config:?}");
                let _ = (config.everybody(), config.replicas(ProcessId(99)), config.quorum());
                let _ = (config.must_credit(), config.own_majority());
                let mut stream = Broadcast::new(&config, ProcessId(u16::MAX));
                stream.written(ProcessId(u16::MAX), 5);
                stream.freed(ProcessId(u16::MAX), 5);
                stream.remove_member(ProcessId(u16::MAX));
                let _ = (stream.has_room(1), stream.due());
            }
        }
    }
    assert!(Config { faults: usize::MAX, ..Config::new(4, MODES[2], 0) }.check().is_err());
    assert!(Config { faults: usize::MAX, ..Config::new(4, MODES[1], 0) }.check().is_err());
    assert_eq!((ProcessSet::first(64).len(), ProcessSet::first(usize::MAX).len()), (64, 64));
}

#[test]
fn keys_of_unknown_processes_are_refused() {
    let secret = [7; 32];
    let public = [Authority::public_of(&secret)];
    for n in [1, u16::MAX] {
        assert!(Authority::new(1, ProcessId(n), &secret, &public).is_err());
    }
    let authority = Authority::new(1, ProcessId(0), &secret, &public).unwrap();
    assert!(!authority.verifies(ProcessId(u16::MAX), &[1], &authority.sign(&[1])));
}
