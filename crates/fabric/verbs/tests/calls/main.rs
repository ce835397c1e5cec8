//! The calls that the fabric makes to libibverbs are as they were recorded.
//!
//! A libibverbs of the test's own stands where the real one would be ([`shim`]), with a device in memory ([`device`]). Two
//! processes go through the script of `crates/fabric/net/tests/calls`, and then through what only devices do. `calls.txt` has
//! each call, by step and process, after the call of the contract that it comes from. Looks that found nothing are left out.
//!
//! Whoever changes calls on purpose records them anew with `STENTOR_RECORD=1 cargo test -p stentor-fabric-verbs --test calls`,
//! and says in the commit why they changed.

#[path = "../../../net/tests/calls/mod.rs"]
mod calls;
mod device;
mod library;
mod names;
mod shim;
#[allow(
    clippy::all,
    clippy::too_many_lines,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    unreachable_pub,
    reason = "generated: the structures of the headers"
)]
#[rustfmt::skip]
#[path = "../../src/sys/verbs.rs"]
mod sys;
mod troubles;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

use calls::log;
use calls::script::Script;
use stentor_fabric::ProcessId;
use stentor_fabric_verbs::{VerbsConfig, VerbsFabric};

/// The kernel's tree with one device, whose second address is the processes'.
const TREE: [(&str, &str); 7] = [
    ("class/infiniband_verbs/uverbs0/ibdev", library::NAME),
    ("class/infiniband/fake0/ports/1/state", "4: ACTIVE"),
    ("class/infiniband/fake0/ports/1/link_layer", "Ethernet"),
    ("class/infiniband/fake0/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001"),
    ("class/infiniband/fake0/ports/1/gid_attrs/types/0", "RoCE v2"),
    ("class/infiniband/fake0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001"),
    ("class/infiniband/fake0/ports/1/gid_attrs/types/1", "RoCE v2"),
];

/// Addresses of this host that nobody else listens at.
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
    let mut config = VerbsConfig::new("calls", me, addresses().to_vec());
    config.key = b"a key of this test".to_vec();
    config.sysfs = tree();
    VerbsFabric::start(config).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn calls_are_as_recorded() {
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
