//! The multicast and the broadcast both use a configured switch for copies.

use std::path::Path;

use stentor::ClusterConfig;
use stentor::runtime::{BindConfig, ClusterFabric, ClusterRuntime, RoceFabric, Role};
use stentor_fabric::{Fabric, ProcessId};

#[test]
fn configured_switch_serves_multicast_and_broadcast() {
    let net = 64 + (std::process::id() % 128) as u8;
    let directory = std::env::temp_dir().join(format!("stentor-switch-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("a.key"), "11".repeat(32)).unwrap();
    let process = |id: u8| format!("{{ id = \"g.{id}\", address = \"127.{net}.91.{id}:7101\" }}");
    let processes: Vec<_> = (1..=4).map(process).collect();
    let table = |switch: &str| {
        format!(
            "cluster = \"a\"\nfabric = \"roce\"\nkey = \"file:a.key\"\n[limits]\nclients = 1\n[[group]]\nid = \"g\"\nprocess = [ {} ]\n\
             [neb]\ngroup = \"g\"\nfault_model = \"lying-sender\"\n{switch}",
            processes.join(", ")
        )
    };
    for (switch, copies) in [("", false), ("[switch]\ncontrol = \"127.0.0.1:1\"\n", true)] {
        let path = directory.join("cluster.toml");
        let config = ClusterConfig::parse(&path, &table(switch)).unwrap();
        let neb = config.neb().cloned().unwrap();
        let plan = ClusterRuntime::new(config).unwrap();
        let bind = BindConfig::beside(Path::new(&path));
        let multicast = RoceFabric::start_in(&plan, Role::Groups, ProcessId(0), &bind).unwrap();
        assert_eq!(multicast.capabilities().hardware_multicast, copies);
        drop(multicast);
        let broadcast = RoceFabric::start_in(&plan, Role::Broadcast(&neb), ProcessId(0), &bind).unwrap();
        assert_eq!(broadcast.capabilities().hardware_multicast, copies);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
