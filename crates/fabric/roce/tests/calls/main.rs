//! What two processes get from the contract on sockets is as it was recorded.
//!
//! They go through the script of `crates/fabric/net/tests/calls`. `calls.txt` has what they call, and the completions, events and
//! errors that they get. Packets depend on time here: `packets.rs` has those of the endpoint. Whoever changes results on purpose
//! records them anew with `STENTOR_RECORD=1 cargo test -p stentor-fabric-roce --test calls`, and says in the commit why.

#[path = "../../../net/tests/calls/mod.rs"]
mod calls;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use calls::log;
use calls::script::Script;
use stentor_fabric::ProcessId;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};

/// The port of the connections over which processes meet.
const TCP_PORT: u16 = 4791;

/// Addresses of this host that no other test has.
fn address(process: u8) -> Option<SocketAddr> {
    let second = 64 + (std::process::id() % 128) as u8;
    Some(SocketAddr::new(Ipv4Addr::new(127, second, 77, 1 + process).into(), TCP_PORT))
}

fn start(me: ProcessId) -> RoceFabric {
    let net = NetConfig::new("calls", me, vec![address(0), address(1)]).key(*b"a key of this test");
    // The script waits for a queue pair that gives up.
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
