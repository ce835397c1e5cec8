//! Checks that two processes obtain the recorded results from the calls of the fabric contract, over sockets.
//!
//! Both processes run the script in `crates/fabric/net/tests/calls`. `calls.txt` records their calls, completions,
//! events and errors. Packets depend on time here, so they are not recorded; `packets.rs` records the endpoint's
//! packets. After an intended change, record the results again with
//! `STENTOR_RECORD=1 cargo test -p stentor-fabric-roce --test calls`, and give the reason in the commit.

#[path = "../../../net/tests/calls/mod.rs"]
mod calls;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use calls::log;
use calls::script::Script;
use stentor_fabric::ProcessId;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};

/// TCP port of the control connections.
const TCP_PORT: u16 = 4791;

/// Returns an address of this host that no other test uses.
fn address(process: u8) -> Option<SocketAddr> {
    let second = 64 + (std::process::id() % 128) as u8;
    Some(SocketAddr::new(Ipv4Addr::new(127, second, 77, 1 + process).into(), TCP_PORT))
}

fn start(me: ProcessId) -> RoceFabric {
    let net = NetConfig::new("calls", me, vec![address(0), address(1)]).key(*b"a key of this test");
    // The script waits until a queue pair fails because of this timeout.
    let config = RoceConfig { rnr_timeout: Duration::from_millis(60), ..RoceConfig::default() };
    RoceFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn results_are_as_recorded() {
    let mut script = Script::new(start);
    script.run();
    script.end();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls/calls.txt");
    log::compare(&file, "stentor-fabric-roce", "calls");
}
