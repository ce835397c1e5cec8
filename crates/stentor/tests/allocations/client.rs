//! In the steady state, neither a local client nor the caller of a client allocates for a command.

use std::time::Duration;

use stentor::{Client, Cluster, Group, LocalClient, NodeHandle, Outcome};
use stentor_testutil::TempDir;

use crate::log::Log;

fn start(name: &str) -> (Cluster, NodeHandle<Log>, Group, TempDir) {
    let directory = TempDir::new();
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    let builder = Cluster::builder(name).election(silence).directory(&directory);
    let cluster = builder.group("g1", [("a", "127.0.0.1:7101")]).build().expect("a valid cluster");
    let node = cluster.node("a", Log::default()).spawn().expect("the node starts");
    let group = cluster.group("g1").expect("the group is in the configuration");
    (cluster, node, group, directory)
}

#[test]
fn a_local_client_allocates_nothing_for_a_command() {
    let (cluster, _node, group, _directory) = start("local-allocations");
    let mut client = cluster.client().connect_local().expect("the client connects");
    let run = |client: &mut LocalClient| {
        for number in 0..2_000_u64 {
            let request = client.submit(group, &number.to_le_bytes()).expect("there is room");
            let mut done = false;
            while !done {
                let each = |finished, outcome: Outcome<'_>| {
                    assert!(finished == request && matches!(outcome, Outcome::Applied(_)));
                    done = true;
                };
                let _ = client.turn(each).expect("the client turns");
            }
        }
    };
    run(&mut client);
    let counted = allocation_counter::measure(|| run(&mut client));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

#[test]
fn the_caller_of_a_client_allocates_nothing() {
    let (cluster, _node, group, _directory) = start("call-allocations");
    let client = cluster.client().calls(8).connect().expect("the client connects");
    let run = |client: &Client| {
        for number in 0..2_000_u64 {
            client.call(group, &number.to_le_bytes()).wait().expect("the command is applied");
        }
    };
    run(&client);
    let counted = allocation_counter::measure(|| run(&client));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
