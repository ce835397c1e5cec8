//! Functions that accept ids, indexes, sizes or names do not panic on values that do not exist.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stentor::ClusterConfig;
use stentor::runtime::{
    BindConfig, ClusterFabric, ClusterRuntime, ElectionDriver, Recorder, RoceFabric, Role, StartError,
};
use stentor_checker as checker;
use stentor_election::{Flapping, Heartbeat, HeartbeatConfig};
use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, GroupId, GroupSet, MessageId, Replica, ReplicaConfig, Sender, Topology};

const CLUSTER: &str = r#"
cluster = "range"
fabric = "shm"
[election]
kind = "heartbeat"
[limits]
clients = 1
[[group]]
id = "g1"
process = [ { id = "g1.1", address = "127.0.0.1:7101" }, { id = "g1.2", address = "127.0.0.1:7102" }, { id = "g1.3", address = "127.0.0.1:7103" } ]
"#;
/// Values that no id has, up to the largest of the type.
const OUTSIDE: [u16; 4] = [7, 64, 256, u16::MAX];

fn plan() -> ClusterRuntime {
    ClusterRuntime::new(ClusterConfig::parse(Path::new("cluster.toml"), CLUSTER).expect("the configuration is valid"))
        .expect("the configuration is possible")
}

#[test]
fn a_topology_has_no_members_of_an_unknown_group() {
    let topology = Arc::new(Topology::new(&[3, 2], 1).unwrap());
    let config = ReplicaConfig::new(topology.clone(), ProcessId(0), 64);
    let replica = Replica::new(config);
    for n in OUTSIDE {
        let (group, client, process) = (GroupId(n), ClientId(n), ProcessId(n));
        assert!(!topology.has_group(group));
        assert_eq!((topology.size(group), topology.members(group).count(), topology.majority(group)), (0, 0, 1));
        assert_eq!((topology.member_bit(group, ProcessId(0)), topology.role(process)), (None, None));
        assert_eq!(topology.role(topology.client_process(client)), None);
        assert_eq!((topology.first_ballot(group), replica.known(group)), Default::default());
        assert_eq!((replica.first_held(client), replica.end_of_held(client), replica.last_sequence(client)), (0, 0, 0));
        assert_eq!((replica.sequence_of(client, 3), replica.succession(client)), (None, None));
    }
    assert_eq!([GroupId(256), GroupId(u16::MAX)].into_iter().collect::<GroupSet>(), GroupSet::default());
}

#[test]
fn a_sender_has_no_room_at_an_unknown_group() {
    let topology = Arc::new(Topology::new(&[3], 1).unwrap());
    let mut sender = Sender::new(&topology, ClientId(0), 4);
    for n in OUTSIDE {
        let group = GroupId(n);
        assert_eq!(sender.check(&[group]).unwrap_err().group, n);
        let mut to = Vec::new();
        sender.number(&[GroupId(0), group], &mut to);
        assert_eq!(to.len(), 1);
        for member in [0, 99] {
            sender.on_freed(group, member, 5);
            sender.expel(group, member);
            assert!(!sender.admit(group, member, 5) && !sender.counts(group, member));
        }
        assert!(!sender.counts(GroupId(0), 99) && !sender.admit(GroupId(0), 99, 1));
        sender.resume_slots(group, 5);
        assert_eq!((sender.next(group), sender.freed(group), sender.has_majority(group)), (0, 0, false));
    }
}

#[test]
fn a_plan_starts_no_unknown_process() {
    let plan = plan();
    let directory = std::env::temp_dir().join(format!("stentor-range-{}", std::process::id()));
    for n in OUTSIDE {
        let process = ProcessId(n);
        assert_eq!(plan.name(process), "?");
        assert!(plan.process(&format!("g{n}.1")).is_err() && plan.group(&format!("g{n}")).is_none());
        assert!(matches!(plan.member(process, directory.clone()).map(drop), Err(StartError::Role(..))));
        assert!(plan.shm(process, directory.clone()).is_err());
        assert!(plan.client(ClientId(n), directory.clone()).is_err());
        let refused = RoceFabric::start_in(&plan, Role::Groups, process, &BindConfig::default()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("is not one of the 4 processes"), "{refused}");
        assert!(ElectionDriver::heartbeat(&plan, process).is_err());
        assert!(plan.config().process_table().get(process).is_none());
    }
    let _ = std::fs::remove_dir_all(&directory);
}

/// A recorder writes what its caller passes; the checker names the wrong line.
#[test]
fn a_history_with_unknown_ids_is_refused_by_the_reader() {
    let plan = plan();
    for n in OUTSIDE {
        let mut history = Vec::new();
        let mut recorder = Recorder::new(&plan, ProcessId(3), &mut history).unwrap();
        let id = MessageId { client: ClientId(n), sequence: 1 };
        recorder.multicast(1, id, &[GroupId(n)], b"x").unwrap();
        recorder.crash(2, ProcessId(n), 1).unwrap();
        recorder.complete().unwrap();
        drop(recorder);
        let refused = checker::check_inputs([("h".to_owned(), history.as_slice())], true).map(drop).unwrap_err();
        assert_eq!(refused.line, 2, "{refused}");
    }
    let none = checker::check_files::<&str>(&[], true).map(drop).unwrap_err();
    assert!(none.to_string().contains("no history was given"), "{none}");
}

#[test]
fn a_cluster_of_the_checker_has_no_name_for_unknown_ids() {
    let cluster = plan().history_cluster();
    for n in OUTSIDE {
        let (process, group) = (checker::Process(u32::from(n)), checker::Group(n));
        assert_eq!((cluster.process_name(process), cluster.group_id(group)), ("", ""));
        assert!(cluster.members(group).is_empty() && cluster.group_of(process).is_none());
        assert!(!cluster.is_faulty(process));
        assert_eq!(cluster.label_word(checker::Label(u32::from(n))), "");
    }
    let mut set = checker::GroupSet::EMPTY;
    set.insert(checker::Group(256));
    set.insert(checker::Group(u16::MAX));
    assert!(set.is_empty() && !set.contains(checker::Group(256)));
}

#[test]
fn elections_accept_any_members_and_periods() {
    use stentor_election::{Beat, Election};
    let mut flapping = Flapping::new(1, ProcessId(0), &[], Duration::ZERO);
    for ms in 0..20 {
        while flapping.poll(Duration::from_millis(ms)).is_some() {}
        if ms > 3 {
            break;
        }
    }
    for (me, members) in [(9, &[0, 1, 2][..]), (0, &[]), (0, &[0, 0]), (u16::MAX, &[u16::MAX, 1])] {
        let members: Vec<ProcessId> = members.iter().map(|n| ProcessId(*n)).collect();
        for interval in [Duration::ZERO, Duration::MAX] {
            let _ = Heartbeat::new(HeartbeatConfig::new(ProcessId(me), &members, interval)).map(drop);
        }
    }
    let members = [0, 1, 2].map(ProcessId);
    let config =
        HeartbeatConfig { incarnation: 1, ..HeartbeatConfig::new(ProcessId(0), &members, Duration::from_millis(5)) };
    let mut heartbeat = Heartbeat::new(config).unwrap();
    for n in OUTSIDE {
        let _ = heartbeat.observe(ProcessId(n), &Beat { incarnation: 1, counter: 1, ..heartbeat.beat() });
        heartbeat.unreachable(ProcessId(n));
        assert!(heartbeat.life(ProcessId(n)).is_none() && heartbeat.timeout(ProcessId(n)).is_none());
        assert!(heartbeat.hand_over(ProcessId(n)).is_err());
    }
}
