//! A node whose operator sends inadmissible or forged requests.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};
use stentor_neb::removal::{Answer, Ask, Ballot, Cut, Holding, Refusal};
use stentor_neb::{BroadcastError, Config, FaultModel, Mode, Node, Notice, ProcessSet};

use crate::bed::{SALT, authority};

const BALLOT: Ballot = Ballot { round: 1, operator: 1 };
const GONE: ProcessId = ProcessId(3);

fn alone(config: &Config) -> (World, Node<SimFabric>) {
    let world = World::new(SimConfig::new(config.processes, 1, NetworkModel::adversarial()));
    let node = Node::new(world.fabric(ProcessId(0)), *config, SALT, authority(config, 0)).unwrap();
    (world, node)
}

fn ask(world: &World, node: &mut Node<SimFabric>, ask: &Ask) -> Answer {
    for _ in 0..1_000 {
        match node.ask(ask, &mut |_| {}) {
            Answer::Fencing => world.advance(1_000),
            answer => return answer,
        }
    }
    panic!("the fence never takes effect");
}

fn fence() -> Ask {
    Ask::Fence { ballot: BALLOT, base: ProcessSet::EMPTY, targets: [GONE].into_iter().collect() }
}

fn commit(upto: u64, values: Vec<(u64, Vec<u64>)>) -> Ask {
    Ask::Commit { ballot: BALLOT, cuts: vec![Cut { sender: GONE, upto, values }] }
}

#[test]
fn removal_is_refused_in_mode_quorum() {
    let (world, mut node) = alone(&Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1));
    assert_eq!(ask(&world, &mut node, &Ask::Stand), Answer::Refused(Refusal::Mode));
    assert_eq!(ask(&world, &mut node, &Ask::Leave), Answer::Refused(Refusal::Mode));
    assert!(!node.has_left());
}

#[test]
fn forged_decisions_are_refused_and_valid_ones_reported_once() {
    for signed in [false, true] {
        let (world, mut node) = alone(&Config { payload_bytes: 8, signed, ..Config::new(4, Mode::All, 0) });
        let Answer::Report { holdings, .. } = ask(&world, &mut node, &fence()) else { panic!("no report") };
        let nothing = Holding::Frozen { sender: GONE, head: 0, ended: None, values: vec![] };
        assert_eq!(holdings, [nothing]);
        let unsigned = vec![0, 9, 8, 7];
        let mut strange = vec![commit(2, vec![(1, unsigned.clone())]), commit(0, vec![(0, unsigned.clone())])];
        strange.push(commit(1, vec![(0, vec![0, 9, 99, 7])]));
        strange.push(commit(1, vec![(0, vec![])]));
        if signed {
            strange.push(commit(1, vec![(0, [&unsigned[..], &[0; 8]].concat())]));
        }
        for ask_strange in strange {
            let answer = ask(&world, &mut node, &ask_strange);
            assert!(matches!(answer, Answer::Refused(Refusal::Forged { .. })), "{ask_strange:?}: {answer:?}");
        }
        assert_eq!(node.members().len(), 4, "nothing has changed");
        let taken = if signed { commit(0, vec![]) } else { commit(2, vec![(1, vec![1, 9, 8, 7])]) };
        let mut told = Vec::new();
        for _ in 0..2 {
            assert_eq!(ask(&world, &mut node, &taken), Answer::Committed);
            node.step(&mut |notice| {
                told.push(match notice {
                    Notice::Skip(_, index) => format!("skip {index}"),
                    Notice::Deliver(_, value) => format!("deliver {} {:?}", value.index(), value.payload()),
                    Notice::Removed(_, upto) => format!("removed at {upto}"),
                    other => format!("{other:?}"),
                });
            });
        }
        let all = ["skip 0", "deliver 1 [7, 0, 0, 0, 0, 0, 0, 0]", "removed at 2"];
        assert_eq!(told, if signed { vec!["removed at 0"] } else { all.to_vec() });
        assert_eq!((node.members().len(), node.fenced().len()), (3, 1));
    }
}

#[test]
fn removed_process_broadcasts_nothing_more() {
    let (world, mut node) = alone(&Config { eager_self: true, ..Config::new(3, Mode::All, 0) });
    node.broadcast(0, 0, &[1]).unwrap();
    assert_eq!(ask(&world, &mut node, &Ask::Leave), Answer::Left);
    assert_eq!(node.broadcast(0, 0, &[2]), Err(BroadcastError::Removed));
    node.step(&mut |notice| panic!("{notice:?}"));
    assert_eq!(ask(&world, &mut node, &Ask::Stand), Answer::Left);
    assert_eq!(ask(&world, &mut node, &fence()), Answer::Refused(Refusal::Removed(ProcessId(0))));
}
