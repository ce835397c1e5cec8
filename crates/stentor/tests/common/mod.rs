//! The configuration that tests of clusters share.

use std::path::Path;

use stentor::ClusterConfig;
use stentor::runtime::ClusterRuntime;

/// Returns a cluster with a group of three members and, if `groups` is 2, a second group of one member. `election` and
/// `limits` are additional lines of these sections.
pub(crate) fn cluster(name: &str, groups: usize, election: &str, limits: &str) -> ClusterRuntime {
    let member = |group: usize, n: usize| format!("{{ id = \"g{group}.{n}\", address = \"127.0.0.1:7{group}0{n}\" }}");
    let group = |group: usize| {
        let members: Vec<_> = (1..=if group == 1 { 3 } else { 1 }).map(|n| member(group, n)).collect();
        format!("[[group]]\nid = \"g{group}\"\nprocess = [ {} ]\n", members.join(", "))
    };
    let groups: String = (1..=groups).map(group).collect();
    let text = format!(
        "cluster = \"{name}\"\nfabric = \"shm\"\n[election]\nkind = \"heartbeat\"\n{election}\n\
         [limits]\nmessage_bytes = 4096\nwindow = 64\n{limits}\n{groups}"
    );
    ClusterRuntime::new(ClusterConfig::parse(Path::new("cluster.toml"), &text).expect("the configuration is valid"))
        .expect("the configuration is possible")
}
