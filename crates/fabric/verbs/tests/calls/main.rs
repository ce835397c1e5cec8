//! Compares the fabric's calls of libibverbs with a recording.
//!
//! In place of the real libibverbs, the test loads its own library ([`shim`]) with an in-memory device ([`device`]).
//! Two processes run the script of `crates/fabric/net/tests/calls`, followed by steps that only devices support.
//! `calls.txt` lists each call by step and process, after the contract's call that caused it. Polls that found no
//! completion are left out.
//!
//! If calls change on purpose, record them again with `STENTOR_RECORD=1 cargo test -p stentor-fabric-verbs --test
//! calls` and give the reason in the commit message.

#[path = "../../../net/tests/calls/mod.rs"]
mod calls;
mod device;
mod library;
mod names;
mod shim;
mod troubles;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

use calls::log;
use calls::script::Script;
use stentor_fabric::ProcessId;
use stentor_fabric_verbs::{NetConfig, VerbsConfig, VerbsFabric};
use stentor_ibverbs_sys as sys;

/// A sysfs tree with one device, whose second GID represents the address of the processes.
const TREE: [(&str, &str); 7] = [
    ("class/infiniband_verbs/uverbs0/ibdev", library::NAME),
    ("class/infiniband/fake0/ports/1/state", "4: ACTIVE"),
    ("class/infiniband/fake0/ports/1/link_layer", "Ethernet"),
    ("class/infiniband/fake0/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001"),
    ("class/infiniband/fake0/ports/1/gid_attrs/types/0", "RoCE v2"),
    ("class/infiniband/fake0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001"),
    ("class/infiniband/fake0/ports/1/gid_attrs/types/1", "RoCE v2"),
];

/// Returns two free addresses of this host.
fn addresses() -> &'static [Option<SocketAddr>; 2] {
    static ADDRESSES: OnceLock<[Option<SocketAddr>; 2]> = OnceLock::new();
    ADDRESSES.get_or_init(|| {
        let sockets = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        sockets.map(|socket| socket.local_addr().ok())
    })
}

fn tree() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("stentor-calls-{}", std::process::id()))
}

fn start(me: ProcessId) -> VerbsFabric {
    library::with(|device| device.opener = me.index());
    let net = NetConfig::new("calls", me, addresses().to_vec()).key(*b"a key of this test");
    let config = VerbsConfig { sysfs: tree(), ..VerbsConfig::default() };
    VerbsFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn calls_match_the_recording() {
    shim::load("libibverbs.so.1", &library::functions());
    for (path, text) in TREE {
        let path = tree().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    let mut script = Script::new(start);
    script.run();
    troubles::run(&mut script);
    script.end();
    fs::remove_dir_all(tree()).unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls/calls.txt");
    log::compare(&file, "stentor-fabric-verbs", "calls");
}
