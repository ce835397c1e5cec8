//! The model sees planted bugs: each breaks agreement, or delivers twice, in some order.

use stateright::{Checker, HasDiscoveries, Model};
use stentor_neb::{Config, FaultModel, Mode, Plant};

use crate::network::{Broadcast, INDICES};
use crate::reduced;

const SENDER: Mode = Mode::Quorum(FaultModel::LyingSender);

#[test]
fn hazards_are_found() {
    let all = |n, plant, crashes, suspicions| (Config { plant, ..Config::new(n, Mode::All, 0) }, crashes, suspicions);
    let quorum = |n, f, plant| (Config { plant, fast_path: false, ..Config::new(n, SENDER, f) }, 0, 0);
    let cases = [
        ("agreement", all(4, Plant::Counter, 0, 2)),
        ("agreement", all(4, Plant::RemovedSender, 0, 2)),
        ("agreement", all(3, Plant::SuspectRemoves, 0, 2)),
        ("agreement", all(3, Plant::ConflictNotSticky, 0, 2)),
        ("agreement", all(3, Plant::NewerIsEmpty, 0, 0)),
        ("agreement", all(4, Plant::StaleRound, 0, 0)),
        ("agreement", quorum(3, 0, Plant::NewerIsEmpty)),
        ("agreement", quorum(3, 0, Plant::ReadBeforePublish)),
        ("agreement", quorum(3, 0, Plant::SenderHostCounts)),
        ("agreement", (Config { plant: Plant::FastQuorum, ..Config::new(4, SENDER, 1) }, 0, 0)),
    ];
    for (property, (config, crashes, suspicions)) in cases {
        let config = Config { window: 1, payload_bytes: 8, ..config };
        config.check().unwrap();
        let model = Broadcast { config, indices: INDICES, crashes, suspicions };
        let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let found = checker.discovery(property);
        assert!(found.is_some(), "{:?} goes unseen in {} states", config.plant, checker.unique_state_count());
        let steps = found.map(|path| path.into_actions().len());
        println!("{:?}: {} states, {steps:?} steps", config.plant, checker.unique_state_count());
    }
}

#[test]
fn hazards_are_found_by_the_reduced_search() {
    let (sender, hosts) = (FaultModel::LyingSender, FaultModel::LyingHosts);
    for (plant, mode) in
        [(Plant::NewerIsEmpty, sender), (Plant::NewerIsEmpty, hosts), (Plant::ReadBeforePublish, sender)]
    {
        let found = reduced::search(&Config { plant, ..reduced::four(mode) }, INDICES);
        println!("{plant:?}, {mode:?}: {} states", found.states);
        assert!(found.violations > 0, "{plant:?} goes unseen in {} states", found.states);
    }
}
