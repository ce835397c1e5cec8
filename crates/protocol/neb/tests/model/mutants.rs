//! The searches find these mutants: for each one, some order of steps breaks agreement.

use stateright::{Checker, HasDiscoveries, Model};
use stentor_neb::{Config, FaultModel, Mode, Mutant};

use crate::network::{Broadcast, INDICES};
use crate::reduced;

const SENDER: Mode = Mode::Quorum(FaultModel::LyingSender);

#[test]
fn hazards_are_found() {
    let all = |n, mutant, crashes, suspicions| (Config { mutant, ..Config::new(n, Mode::All, 0) }, crashes, suspicions);
    let quorum = |n, f, mutant| (Config { mutant, fast_path: false, ..Config::new(n, SENDER, f) }, 0, 0);
    let cases = [
        ("agreement", all(4, Mutant::Counter, 0, 2)),
        ("agreement", all(4, Mutant::RemovedSender, 0, 2)),
        ("agreement", all(3, Mutant::SuspectRemoves, 0, 2)),
        ("agreement", all(3, Mutant::ConflictNotSticky, 0, 2)),
        ("agreement", all(3, Mutant::NewerIsEmpty, 0, 0)),
        ("agreement", all(4, Mutant::StaleRound, 0, 0)),
        ("agreement", quorum(3, 0, Mutant::NewerIsEmpty)),
        ("agreement", quorum(3, 0, Mutant::ReadBeforePublish)),
        ("agreement", quorum(3, 0, Mutant::SenderHostCounts)),
        ("agreement", (Config { mutant: Mutant::FastQuorum, ..Config::new(4, SENDER, 1) }, 0, 0)),
    ];
    for (property, (config, crashes, suspicions)) in cases {
        let config = Config { window: 1, payload_bytes: 8, ..config };
        config.check().unwrap();
        let model = Broadcast { config, indices: INDICES, crashes, suspicions };
        let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let found = checker.discovery(property);
        assert!(found.is_some(), "{:?} is not found in {} states", config.mutant, checker.unique_state_count());
        let steps = found.map(|path| path.into_actions().len());
        println!("{:?}: {} states, {steps:?} steps", config.mutant, checker.unique_state_count());
    }
}

#[test]
fn hazards_are_found_by_the_reduced_search() {
    let (sender, hosts) = (FaultModel::LyingSender, FaultModel::LyingHosts);
    for (mutant, mode) in
        [(Mutant::NewerIsEmpty, sender), (Mutant::NewerIsEmpty, hosts), (Mutant::ReadBeforePublish, sender)]
    {
        let found = reduced::search(&Config { mutant, ..reduced::four(mode) }, INDICES);
        println!("{mutant:?}, {mode:?}: {} states", found.states);
        assert!(found.violations > 0, "{mutant:?} is not found in {} states", found.states);
    }
}
